// What changed between two modules, the worst first.

function diffTab(app) {
  const { diff } = app.data;
  if (diff.same)
    return [element("p", {}, "Both modules are the same but for names, metadata and the order of the text.")];
  return diff.differences.slice(0, 400).map((difference, n) => {
    const worse = difference.us > 5e-4 ? "worse" : difference.us < -5e-4 ? "better" : "";
    const changes = difference.changes.map(
      (change) => element(
        "li", {}, `${change.kind}: `, change.what, " ", endLink(app, 0, change.old), " ", endLink(app, 1, change.new)));
    return element(
      "details", { open: n === 0 },
      element(
        "summary", { class: worse }, difference.title, " ", element("span", { class: "muted" }, difference.source)),
      changes.length ? element("ul", {}, changes) : null, difference.kernels.map((group) => groupOf(app, group)));
  });
}

function endLink(app, side, end) {
  return end === null ? null
                      : link(
                          `${app.data.sides[side].title}: ${end.instruction}`,
                          () => app.selectName(end.instruction, side, end.computation));
}

function groupOf(app, group) {
  const rows = [...group.old.map((kernel) => [0, kernel]), ...group.new.map((kernel) => [1, kernel])];
  const columns = [["", ""], ["time", "n"], ["iterations", "n"], ["bytes", "n"], ["kernel", ""], ["line", ""]];
  const row = ([side, kernel]) => element(
    "tr", {},
    ...cells(
      [
        app.data.sides[side].title, time(kernel.est_us), count(kernel.rounds), bytes(kernel.bytes),
        link(`${kernel.instruction} (${kernel.what})`, () => app.selectName(kernel.instruction, side)), kernel.source
      ],
      columns.map(([, kind]) => kind)));
  const edges = group.edges.map(
    (edge) => element(
      "li", {}, `${edge.producer} -> ${edge.consumer}: `, verdict("old", edge.old), "; ", verdict("new", edge.new)));
  const caption =
    `kernels ${group.kind}: ${signed(time(group.us), group.us)}, ${signed(bytes(group.bytes), group.bytes)}`;
  return element("div", {}, table(caption, columns, rows, row), edges.length ? element("ul", {}, edges) : null);
}

function verdict(side, decision) {
  if (decision.fused) return `${side} fused`;
  return `${side} ${[...new Set(decision.reasons.map((reason) => `${reason.code} ${reason.slug}`))].join(", ")} (${
    decision.reasons[0]?.message ?? ""})`;
}
