// The passes: what each run of one changed.

function passesTab(app) {
  const [first, ...runs] = app.data.passes;
  if (first === undefined) return [element("p", { class: "muted" }, "No pass was run.")];
  const most = Math.max(first.instructions, ...runs.map((run) => run.instructions), 1);
  const line = (run, title) => element("span", { class: "pass" }, element("strong", {}, title),
    bar(run.instructions / most, `${plural(run.instructions, "instruction")}, ${plural(run.kernels, "kernel")}`));
  const parts = [element("p", {}, line(first, "as read"))];
  for (const run of runs) {
    const lines = [
      ...run.gone_lines.map((text) => element("span", { class: "gone" }, `- ${text}\n`)),
      run.gone > run.gone_lines.length ? `  ${count(run.gone - run.gone_lines.length)} more gone\n` : null,
      ...run.new_lines.map((text) => element("span", { class: "new" }, `+ ${text}\n`)),
      run.new > run.new_lines.length ? `  ${count(run.new - run.new_lines.length)} more new\n` : null,
    ];
    const body = element("pre", { tabindex: "0", role: "region", "aria-label": `Changes by ${run.name}` });
    const details = element(
      "details", {},
      element(
        "summary", {}, line(run, run.name),
        element("span", { class: "muted" }, `${count(run.gone)} lines gone or changed, ${count(run.new)} new`)),
      body);
    details.addEventListener("toggle", () => { if (body.childNodes.length === 0) fill(body, {}, lines); });
    parts.push(details);
  }
  return parts;
}
