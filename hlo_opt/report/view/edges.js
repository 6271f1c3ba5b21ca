// The edges that were not fused: what joining them would save, and why they were not.

function edgesTab(app) {
  const { edges, fused } = app.data;
  const columns = [
    ["if joined", "n"], ["edge", ""], ["code", ""], ["why, and what to change", ""], ["Python line", ""],
  ];
  const kinds = columns.map(([, kind]) => kind);
  const saving = (edge) =>
    (edge.saved === null ? "no price"
       : Math.abs(edge.saved) < 0.001 ? "the same"
       : edge.saved > 0 ? `saves ${time(edge.saved)}`
                        : `costs ${time(-edge.saved)}`);
  const row = (edge) => element("tr", { class: app.edge === edge ? "marked" : null }, ...cells([
    saving(edge),
    link(edge.ends, () => app.selectEdge(edge)),
    element("span", {}, [...new Set(edge.reasons.map((reason) => reason.code))].join(", ")),
    reasonsOf(edge),
    edge.line ? link(edge.line, () => app.showLine(edge.line)) : "",
  ], kinds));
  const parts = [table(`${plural(edges.length, "edge")} refused, what would save most first`, columns, edges, row)];
  if (fused.length) {
    const one = ([producer, consumer, rule]) => element(
      "tr", {},
      ...cells(
        [link(producer, () => app.selectName(producer)), link(consumer, () => app.selectName(consumer)), rule],
        ["", "", ""]));
    parts.push(element(
      "details", {}, element("summary", {}, `${plural(fused.length, "edge")} fused`),
      table("Edges fused", [["producer", ""], ["consumer", ""], ["by", ""]], fused, one)));
  }
  return parts;
}

function reasonsOf(edge) {
  const change = edge.change ? element("p", { class: "muted" }, `Change: ${edge.change}`) : null;
  const every = edge.reasons.map(
    (reason) => element(
      "li", {}, code(`${reason.code} ${reason.slug}`), ` ${reason.message}. `,
      element("span", { class: "muted" }, reason.hint)));
  return element(
    "div", {}, element("p", {}, edge.sentence), change,
    element("details", {}, element("summary", {}, plural(every.length, "reason")), element("ul", {}, every)));
}
