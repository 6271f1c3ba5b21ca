// The roofline: operations of each kernel for each byte that it moves, and how fast it does them.

const WIDTH = 560;
const HEIGHT = 260;
const MARGIN = { left: 84, right: 14, top: 12, bottom: 36 };
const MOST_POINTS = 400;

function roofline(app, side) {
  const { target, sides } = app.data;
  const points = sides[side].kernels
    .filter((kernel) => kernel.us > 0 && kernel.flops > 0 && kernel.read + kernel.written > 0)
    .sort((a, b) => b.us * b.rounds - a.us * a.rounds)
    .slice(0, MOST_POINTS)
    .map((kernel) => ({ kernel, x: kernel.flops / (kernel.read + kernel.written), y: kernel.flops / kernel.us }));
  if (points.length === 0) return element("p", { class: "muted" }, "No kernel computes with numbers.");
  const ridge = target.flops_per_us / target.bytes_per_us;
  const lowX = Math.min(0.05, ...points.map((point) => point.x));
  const highX = Math.max(10 * ridge, ...points.map((point) => point.x));
  const lowY = Math.min(...points.map((point) => point.y)) / 2;
  const highY = 2 * Math.max(target.flops_per_us, ...points.map((point) => point.y));
  const across = (value) =>
    MARGIN.left + (WIDTH - MARGIN.left - MARGIN.right) * Math.log(value / lowX) / Math.log(highX / lowX);
  const down = (value) =>
    HEIGHT - MARGIN.bottom - (HEIGHT - MARGIN.top - MARGIN.bottom) * Math.log(value / lowY) / Math.log(highY / lowY);
  const corner = Math.max(lowX, lowY / target.bytes_per_us);
  const roof = `M${across(corner)},${down(corner * target.bytes_per_us)} L${across(ridge)},${
    down(target.flops_per_us)} L${across(highX)},${down(target.flops_per_us)}`;
  const svg = drawn("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    class: "roofline",
    "aria-label": `Roofline of ${plural(points.length, "kernel")} on ${target.title}; the table has the same figures`
  });
  for (let power = Math.ceil(Math.log10(lowX)); power <= Math.log10(highX); power += 1) {
    svg.append(drawn(
      "line",
      { class: "grid", x1: across(10 ** power), x2: across(10 ** power), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
    svg.append(drawn(
      "text", { class: "tick", x: across(10 ** power), y: HEIGHT - MARGIN.bottom + 14, "text-anchor": "middle" },
      String(Number(`1e${power}`))));
  }
  for (let power = Math.ceil(Math.log10(lowY)); power <= Math.log10(highY); power += 1) {
    svg.append(drawn(
      "line",
      { class: "grid", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: down(10 ** power), y2: down(10 ** power) }));
    svg.append(drawn(
      "text", { class: "tick", x: MARGIN.left - 6, y: down(10 ** power) + 4, "text-anchor": "end" },
      rate(10 ** power)));
  }
  svg.append(drawn("path", { class: "roof", d: roof }));
  const longest = Math.max(...points.map(({ kernel }) => kernel.us * kernel.rounds));
  for (const { kernel, x, y } of points) {
    const share = kernel.us * kernel.rounds / longest;
    const circle = drawn("circle", {
      class: app.kernelMark(side, kernel) ? "point marked" : "point",
      cx: across(x),
      cy: down(y),
      r: 3 + 7 * Math.sqrt(share),
      onclick: () => app.select(side, kernel.node)
    });
    circle.append(drawn("title", {}, `${kernel.name}: ${time(kernel.us)}, ${figure(x)} operations per byte`));
    svg.append(circle);
  }
  svg.append(drawn(
    "text", { class: "tick", x: (WIDTH + MARGIN.left) / 2, y: HEIGHT - 4, "text-anchor": "middle" },
    "operations per byte"));
  svg.append(drawn(
    "text", { class: "tick", x: across(highX) - 4, y: down(target.flops_per_us) - 5, "text-anchor": "end" },
    "f32 without tensor cores"));
  return svg;
}

function rate(flopsPerUs) {
  const units = [[1e6, "TFLOP/s"], [1e3, "GFLOP/s"], [1, "MFLOP/s"]];
  const [unit, name] = units.find(([one]) => flopsPerUs >= one) ?? units[2];
  return `${count(flopsPerUs / unit)} ${name}`;
}
