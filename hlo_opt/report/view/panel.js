// What is known of the selection: the instruction, and the kernel that it is in.

const PARTS = [
  ["memory", "bytes between memory and L2"],
  ["cache", "bytes between L2 and cores"],
  ["instructions", "instructions issued"],
  ["functions", "functions and conversions"],
  ["waiting", "steps that wait for each other"],
  ["launch", "launching"],
];

function panelOf(app, side, node) {
  const { graph } = app.views[side];
  const kernel = app.kernelAt(side, node);
  const parts = [heading(graph.names[node])];
  const place = graph.places[graph.lines[node]];
  parts.push(element("p", { class: "facts" }, code(graph.opcodes[node]), " ", code(graph.shapes[node])));
  if (place) parts.push(element("p", {}, link(place, () => app.showLine(place))));
  parts.push(listing(graph.texts[node], `HLO of ${graph.names[node]}`));
  parts.push(
    neighbours(app, side, "reads", graph.operands[node]), neighbours(app, side, "read by", graph.readers[node]));
  const others = app.others(side, node);
  if (others.length) parts.push(neighbours(app, 1 - side, app.data.sides[1 - side].title, others));
  if (kernel) parts.push(...kernelParts(app, side, kernel));
  return parts;
}

function neighbours(app, side, title, nodes) {
  if (nodes.length === 0) return null;
  const { graph } = app.views[side];
  const shown = nodes.slice(0, 12).map((node) => link(graph.names[node], () => app.select(side, node)));
  const more = nodes.length > 12 ? `and ${count(nodes.length - 12)} more` : null;
  return element("p", { class: "neighbours" }, element("span", { class: "muted" }, title), shown, more);
}

function kernelParts(app, side, kernel) {
  const total = app.totals[side];
  const us = kernel.us * kernel.rounds;
  const parts = [heading(`Kernel ${kernel.name}`, 3)];
  const rounds = kernel.rounds > 1 ? ` (${count(kernel.rounds)} iterations of ${time(kernel.us)})` : "";
  parts.push(element(
    "p", {}, element("strong", {}, time(us)), `${rounds}, ${percent(us, total)} of the module; ${kernel.label}`));
  parts.push(facts(planFacts(kernel)));
  parts.push(heading("What its time is made of", 4));
  const most = Math.max(...PARTS.map(([name]) => kernel.parts[name]), 1e-12);
  const rows = PARTS.filter(([name]) => kernel.parts[name] > 0);
  parts.push(element(
    "table", { class: "parts" }, element("caption", {}, "Parts of the estimate; all but the launch overlap"),
    element(
      "tbody", {},
      rows.map(
        ([name, title]) => element(
          "tr", {}, element("th", { scope: "row" }, title),
          element("td", {}, bar(kernel.parts[name] / most, time(kernel.parts[name]))))))));
  parts.push(facts([
    ["reads, writes", `${bytes(kernel.read)}, ${bytes(kernel.written)}`],
    ["has to move", bytes(kernel.least)],
    kernel.waves > 0 ? ["waves of blocks", figure(kernel.waves)] : null,
    kernel.registers > 0 ? ["registers, threads of a core", `${kernel.registers}, ${count(kernel.resident)}`] : null,
    kernel.loads[0] > 0 ? ["bits of a load, of a store", `${width(kernel.loads)}, ${width(kernel.stores)}`] : null,
    [
      "bandwidth",
      `${bytes(1e6 * (kernel.read + kernel.written) / Math.max(kernel.us, 1e-9))}/s, ${
        percent(kernel.read + kernel.written, kernel.us * app.data.target.bytes_per_us)} of the peak`
    ],
  ]));
  if (kernel.lines.length) {
    parts.push(heading("Python lines", 4));
    parts.push(element("p", { class: "neighbours" }, kernel.lines.map((line) => link(line, () => app.showLine(line)))));
  }
  const edges = app.data.edges.filter((edge) => side === 1 && edge.kernels.includes(kernel.name));
  if (edges.length) {
    parts.push(heading("Not fused", 4));
    parts.push(element(
      "ul", { class: "edges" },
      edges.slice(0, 10).map(
        (edge) => element("li", {}, link(edge.ends, () => app.selectEdge(edge)), edgeWords(edge)))));
  }
  const body = bodyOf(app, side, kernel);
  if (body)
    parts.push(element("details", {}, element("summary", {}, "HLO"), listing(body, `HLO of kernel ${kernel.name}`)));
  const text = kernel.plan?.text === undefined ? undefined : app.data.sides[side].cuda[kernel.plan.text];
  if (text)
    parts.push(element("details", {}, element("summary", {}, "CUDA"), listing(text, `CUDA of kernel ${kernel.name}`)));
  return parts;
}

function width([widest, narrowest]) {
  return widest === narrowest ? String(widest) : `${narrowest} to ${widest}`;
}

function planFacts(kernel) {
  const { plan } = kernel;
  if (!plan) return [];
  if (plan.calls) return [["runs as", `${plan.kind} call: ${plan.calls}`]];
  return [
    ["plan", plan.kind],
    ["blocks, threads of each", `${count(plan.grid)}, ${count(plan.block)}`],
    ["shared memory", plan.shared ? bytes(plan.shared) : "none"],
    plan.cooperative ? ["blocks wait for each other", "yes"] : null,
  ];
}

function facts(rows) {
  const present = rows.filter((row) => row);
  if (present.length === 0) return null;
  return element(
    "dl", {}, present.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function bodyOf(app, side, kernel) {
  const { graph } = app.views[side];
  const scopes = graph.inner.get(kernel.node) ?? [];
  return scopes.map((number) => {
    const scope = graph.scopes[number];
    const nodes = scope.rows.flat().sort((a, b) => a - b);
    return `${scope.title} {\n${nodes.map((node) => `  ${graph.texts[node]}`).join("\n")}\n}`;
  }).join("\n\n");
}

function summaryPanel(app) {
  const { data } = app;
  const parts = [heading("Summary")];
  const rows = [
    ["kernels", "kernels", count], ["launches", "launches", count], ["bytes", "bytes", bytes],
    ["estimated", "est_us", time], ["side by side", "overlapped_us", time], ["instructions", "instructions", count]
  ];
  const [first, second] = data.sides;
  parts.push(table(
    "Figures of both modules", [["", ""], [first.title, "n"], [second.title, "n"]], rows,
    ([title, key, show]) => element(
      "tr", {}, element("th", { scope: "row" }, title),
      ...cells([show(first.figures[key]), show(second.figures[key])], ["n", "n"]))));
  const kernels = [...second.kernels].sort((a, b) => b.us * b.rounds - a.us * a.rounds).slice(0, 5);
  if (kernels.length) {
    parts.push(heading(`Costliest kernels ${second.title}`, 3));
    parts.push(element(
      "ol", { class: "top" },
      kernels.map(
        (kernel) => element(
          "li", {}, link(kernel.name, () => app.select(1, kernel.node)),
          bar(
            kernel.us * kernel.rounds / Math.max(app.totals[1], 1e-12),
            `${time(kernel.us * kernel.rounds)}, ${percent(kernel.us * kernel.rounds, app.totals[1])}`)))));
  }
  const edges = data.edges.filter((edge) => edge.saved > 0).slice(0, 5);
  if (edges.length) {
    parts.push(heading("Costliest edges that are not fused", 3));
    parts.push(element(
      "ul", { class: "edges" },
      edges.map((edge) => element("li", {}, link(edge.ends, () => app.selectEdge(edge)), edgeWords(edge)))));
  }
  parts.push(element(
    "p", { class: "muted" },
    "Select a box, a kernel, an edge or a line; it is marked on both sides. Double click, or Enter, opens a box."));
  return parts;
}

function edgeWords(edge) {
  const price = Math.abs(edge.saved ?? 1) < 0.001 ? "joining them would change nothing. "
    : edge.saved > 0 ? `joining them would save ${time(edge.saved)}. `
    : edge.saved === null ? ""
                          : `joining them would cost ${time(-edge.saved)}. `;
  return element(
    "p", {}, price, edge.sentence, edge.change ? element("span", { class: "muted" }, ` Change: ${edge.change}`) : null);
}
