// The kernels of one side, the costliest first, over the roofline.

function kernelsTab(app) {
  const side = app.listed;
  const kernels = [...app.data.sides[side].kernels].sort((a, b) => b.us * b.rounds - a.us * a.rounds);
  const total = app.totals[side];
  const columns = [
    ["kernel", ""], ["plan", ""], ["time", "n"], ["share", ""], ["bytes", "n"], ["bandwidth", "n"], ["bound by", ""],
    ["Python line", ""]
  ];
  const kinds = columns.map(([, kind]) => kind);
  const row = (kernel) => {
    const us = kernel.us * kernel.rounds;
    const place = kernel.lines[0];
    return element("tr", { class: app.kernelMark(side, kernel) ? "marked" : null }, ...cells([
      link(kernel.name, () => app.select(side, kernel.node)),
      kernel.plan ? kernel.plan.kind : kernel.label,
      `${time(us)}${kernel.rounds > 1 ? ` in ${count(kernel.rounds)} iterations` : ""}`,
      bar(us / Math.max(total, 1e-12), percent(us, total)),
      bytes(kernel.read + kernel.written),
      percent(kernel.read + kernel.written, kernel.us * app.data.target.bytes_per_us),
      bound(kernel),
      place ? link(place, () => app.showLine(place)) : "",
    ], kinds));
  };
  const buttons = app.data.sides.map(
    (one, n) => element(
      "button", {
        type: "button",
        class: "toggle",
        "aria-pressed": n === side ? "true" : "false",
        onclick: () => {
          app.listed = n;
          app.show("Kernels");
        }
      },
      one.title));
  return [
    element("div", { class: "choices" }, buttons), roofline(app, side),
    table(`Kernels ${app.data.sides[side].title}, the costliest first`, columns, kernels, row)
  ];
}

function bound(kernel) {
  const [name] = PARTS.reduce((most, part) => (kernel.parts[part[0]] > kernel.parts[most[0]] ? part : most));
  return name;
}
