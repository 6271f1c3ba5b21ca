// A graph on a canvas: drawn as far as it can be seen, moved with pointer, wheel and keys.

const SMALLEST = 0.02;
const LARGEST = 3;
const READABLE = 0.42;
const MOST_CURVES = 1500;

const KEYS = "Arrow keys go to operands, readers and neighbours, Enter opens a box, plus and minus zoom, 0 shows all.";

class GraphView {
  constructor(side, app) {
    this.side = side;
    this.app = app;
    this.graph = new Graph(app.data.sides[side].graph);
    this.kernelOf = new Map(app.data.sides[side].kernels.map((kernel) => [kernel.node, kernel]));
    const title = app.data.sides[side].title;
    this.canvas = element("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "graph",
      "aria-label": `Graph ${title}. ${KEYS}`,
    });
    this.scale = 1;
    this.left = 0;
    this.top = 0;
    this.isFitted = false;
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.drag(event));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("pointercancel", () => { this.pressed = null; });
    this.canvas.addEventListener("dblclick", (event) => this.toggleAt(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(this.canvas.clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    if (!this.isFitted && this.canvas.clientWidth > 0) this.start();
    this.draw();
  }

  // Wide enough to be read: a graph that is higher than the canvas begins at its top.
  start() {
    this.isFitted = true;
    this.fit();
    if (this.scale < 0.5) {
      this.scale = Math.min(1, Math.max(0.5, (this.canvas.clientWidth - 40) / Math.max(1, this.graph.width)));
      this.top = -16 / this.scale;
      this.left = (this.graph.width - this.canvas.clientWidth / this.scale) / 2;
    }
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const wanted =
      Math.min((width - 40) / Math.max(1, this.graph.width), (height - 40) / Math.max(1, this.graph.height), 1.25);
    this.scale = Math.max(SMALLEST, wanted);
    this.left = (this.graph.width - width / this.scale) / 2;
    this.top = (this.graph.height - height / this.scale) / 2;
    this.draw();
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const scale = Math.max(SMALLEST, Math.min(LARGEST, this.scale * factor));
    this.left += x / this.scale - x / scale;
    this.top += y / this.scale - y / scale;
    this.scale = scale;
    this.draw();
  }

  centre(node) {
    this.graph.reveal(node);
    this.scale = Math.max(this.scale, 0.6);
    const { x, y, w, h } = this.graph;
    this.left = x[node] + w[node] / 2 - this.canvas.clientWidth / 2 / this.scale;
    this.top = y[node] + Math.min(h[node], 200) / 2 - this.canvas.clientHeight / 2 / this.scale;
    this.draw();
  }

  // Show these nodes, as far as they can be read then.
  frame(nodes) {
    const { x, y, w, h } = this.graph;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const left = Math.min(...nodes.map((n) => x[n]));
    const top = Math.min(...nodes.map((n) => y[n]));
    const right = Math.max(...nodes.map((n) => x[n] + w[n]));
    const bottom = Math.max(...nodes.map((n) => y[n] + h[n]));
    const wanted = Math.min((width - 40) / (right - left), (height - 40) / (bottom - top));
    this.scale = Math.max(0.3, Math.min(0.9, wanted));
    this.left = (left + right - width / this.scale) / 2;
    this.top = wanted < 0.3 ? top - 20 / this.scale : (top + bottom - height / this.scale) / 2;
    this.draw();
  }

  isVisible(node) {
    const { x, y, w, h } = this.graph;
    return this.graph.isShown(node) && x[node] >= this.left && y[node] >= this.top
      && x[node] + w[node] <= this.left + this.canvas.clientWidth / this.scale
      && y[node] + h[node] <= this.top + this.canvas.clientHeight / this.scale;
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  wheel(event) {
    event.preventDefault();
    const [x, y] = this.place(event);
    if (event.ctrlKey || event.metaKey || event.altKey) {
      this.zoom(Math.exp(-event.deltaY / 300), x, y);
      return;
    }
    const unit = event.deltaMode === 1 ? 18 : 1;
    this.left += (event.shiftKey ? event.deltaY : event.deltaX) * unit / this.scale;
    this.top += (event.shiftKey ? 0 : event.deltaY) * unit / this.scale;
    this.draw();
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pressed = { x: event.clientX, y: event.clientY, left: this.left, top: this.top, moved: false };
  }

  drag(event) {
    if (!this.pressed) return;
    const dx = event.clientX - this.pressed.x;
    const dy = event.clientY - this.pressed.y;
    this.pressed.moved ||= Math.abs(dx) + Math.abs(dy) > 4;
    if (!this.pressed.moved) return;
    this.left = this.pressed.left - dx / this.scale;
    this.top = this.pressed.top - dy / this.scale;
    this.draw();
  }

  release(event) {
    const moved = this.pressed?.moved;
    this.pressed = null;
    if (moved) return;
    const [x, y] = this.place(event);
    const node = this.graph.at(this.left + x / this.scale, this.top + y / this.scale);
    if (node < 0) this.app.clear();
    else this.app.select(this.side, node, { stays: true });
  }

  toggleAt(event) {
    const [x, y] = this.place(event);
    const node = this.graph.at(this.left + x / this.scale, this.top + y / this.scale);
    if (node >= 0) this.toggle(node);
  }

  toggle(node) {
    const before = [this.graph.x[node], this.graph.y[node]];
    this.graph.toggle(node);
    this.left += this.graph.x[node] - before[0];
    this.top += this.graph.y[node] - before[1];
    this.app.say(`${this.graph.names[node]} ${this.graph.open.has(node) ? "opened" : "closed"}`);
    this.draw();
  }

  key(event) {
    const step = { "+": 1.25, "=": 1.25, "-": 0.8 }[event.key];
    const node = this.app.selection?.side === this.side ? this.app.selection.node : -1;
    if (step) this.zoom(step);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") this.app.clear();
    else if ((event.key === "Enter" || event.key === " ") && node >= 0) this.toggle(node);
    else if (event.key.startsWith("Arrow")) this.go(event.key, node);
    else return;
    event.preventDefault();
  }

  go(key, node) {
    const graph = this.graph;
    let next = node < 0 ? graph.scopes[0].rows[0]?.[0] : undefined;
    if (node >= 0 && key === "ArrowUp") [next] = graph.operands[node];
    if (node >= 0 && key === "ArrowDown") [next] = graph.readers[node];
    if (node >= 0 && (key === "ArrowLeft" || key === "ArrowRight")) {
      const row = graph.scopes[graph.homes[node]].rows.find((one) => one.includes(node));
      next = row[row.indexOf(node) + (key === "ArrowLeft" ? -1 : 1)];
    }
    if (next !== undefined) this.app.select(this.side, next);
  }

  draw() {
    if (this.isAsked) return;
    this.isAsked = true;
    requestAnimationFrame(() => {
      this.isAsked = false;
      this.paint();
    });
  }

  paint() {
    const context = this.canvas.getContext("2d");
    const colours = this.app.colours;
    const ratio = window.devicePixelRatio || 1;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = colours.canvas;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const scale = this.scale * ratio;
    context.setTransform(scale, 0, 0, scale, -this.left * scale, -this.top * scale);
    const seen = {
      left: this.left,
      top: this.top,
      right: this.left + this.canvas.clientWidth / this.scale,
      bottom: this.top + this.canvas.clientHeight / this.scale,
    };
    const { x, y, w, h, shown } = this.graph;
    const nodes = shown.filter(
      (n) => x[n] <= seen.right && x[n] + w[n] >= seen.left && y[n] <= seen.bottom && y[n] + h[n] >= seen.top);
    for (const node of nodes) if (this.graph.open.has(node)) this.paintFrame(context, node);
    this.paintEdges(context, seen);
    for (const node of nodes) if (!this.graph.open.has(node)) this.paintNode(context, node);
    this.painted = nodes.length;
  }

  paintEdges(context, seen) {
    const { x, y, w, h, shownEdges: edges } = this.graph;
    const marked = this.app.selection?.side === this.side ? this.app.selection.node : -1;
    const visible = [];
    const chosen = [];
    for (let n = 0; n < edges.length; n += 2) {
      const [a, b] = [edges[n], edges[n + 1]];
      if (y[a] > seen.bottom || y[b] < seen.top) continue;
      if (Math.min(x[a], x[b]) > seen.right || Math.max(x[a] + w[a], x[b] + w[b]) < seen.left) continue;
      (a === marked || b === marked ? chosen : visible).push(a, b);
    }
    const curved = visible.length < 2 * MOST_CURVES;
    for (const [list, colour, width] of [[visible, this.app.colours.edge, 1], [chosen, this.app.colours.accent, 2]]) {
      context.beginPath();
      context.strokeStyle = colour;
      context.lineWidth = width / Math.min(1, Math.max(this.scale, 0.3));
      for (let n = 0; n < list.length; n += 2) {
        const [a, b] = [list[n], list[n + 1]];
        const [fromX, fromY, toX, toY] = [x[a] + w[a] / 2, y[a] + h[a], x[b] + w[b] / 2, y[b]];
        context.moveTo(fromX, fromY);
        if (curved) {
          const bend = Math.min(60, Math.abs(toY - fromY) / 2 + 4);
          context.bezierCurveTo(fromX, fromY + bend, toX, toY - bend, toX, toY);
        } else context.lineTo(toX, toY);
      }
      context.stroke();
    }
  }

  // The other nodes are paler while something is selected.
  isPale(node) {
    return this.app.hasMarks && !this.app.isMarked(this.side, node);
  }

  paintFrame(context, node) {
    const { x, y, w, h, names, groups } = this.graph;
    const colours = this.app.colours;
    context.globalAlpha = 1;
    context.fillStyle = colours.frame(groups[node]);
    context.strokeStyle = this.isSelected(node) ? colours.accent : colours.border(groups[node]);
    context.lineWidth = this.isSelected(node) ? 3 : 1.5;
    box(context, x[node], y[node], w[node], h[node], 10);
    context.fill();
    context.stroke();
    if (this.scale < READABLE / 2) return;
    context.fillStyle = colours.text;
    context.font = "600 12px system-ui, sans-serif";
    context.fillText(clipped(context, names[node], w[node] - 20), x[node] + 12, y[node] + 17);
    const scopes = this.graph.inner.get(node);
    if (scopes.length < 2) return;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colours.muted;
    for (const scope of scopes) {
      const label = this.graph.labels.get(scope);
      context.fillText(
        clipped(context, this.graph.scopes[scope].title, w[node] - 30), x[node] + 14, y[node] + label.at + 8);
    }
  }

  isSelected(node) {
    return this.app.selection?.side === this.side && this.app.selection.node === node;
  }

  paintNode(context, node) {
    const { x, y, w, h, names, opcodes, shapes, groups, free } = this.graph;
    const colours = this.app.colours;
    const isSelected = this.isSelected(node);
    context.globalAlpha = this.isPale(node) ? 0.3 : 1;
    context.fillStyle = free[node] ? colours.plain : colours.fill(groups[node]);
    context.strokeStyle = isSelected       ? colours.accent
      : this.app.isMarked(this.side, node) ? colours.mark
                                           : colours.border(free[node] ? -1 : groups[node]);
    context.lineWidth = isSelected ? 3 : this.app.isMarked(this.side, node) ? 2 : 1;
    if (this.scale < 0.12) {
      context.fillRect(x[node], y[node], w[node], h[node]);
      context.globalAlpha = 1;
      return;
    }
    box(context, x[node], y[node], w[node], h[node], free[node] ? 12 : 6);
    context.fill();
    context.stroke();
    if (this.scale >= READABLE) {
      const kernel = this.kernelOf.get(node);
      context.fillStyle = colours.text;
      context.font = free[node] ? "11px system-ui, sans-serif" : "600 12px system-ui, sans-serif";
      context.fillText(clipped(context, names[node], w[node] - 14), x[node] + 8, y[node] + 16);
      if (!free[node]) {
        context.fillStyle = colours.muted;
        context.font = "11px system-ui, sans-serif";
        const isTimed = kernel && (this.side === 1 || this.graph.inner.has(node));
        const second = isTimed
          ? `${time(kernel.us * kernel.rounds)} ${opcodes[node]}`
          : `${opcodes[node]} ${shapes[node]}`;
        context.fillText(clipped(context, second, w[node] - 14), x[node] + 8, y[node] + 30);
        if (kernel) this.paintShare(context, node, kernel);
      }
    }
    context.globalAlpha = 1;
  }

  // A line at the foot of a kernel: its share of the time.
  paintShare(context, node, kernel) {
    const { x, y, w, h } = this.graph;
    const share = kernel.us * kernel.rounds / Math.max(1e-12, this.app.totals[this.side]);
    context.fillStyle = this.app.colours.accent;
    context.fillRect(x[node] + 8, y[node] + h[node] - 5, (w[node] - 16) * Math.min(1, share), 2.5);
  }
}

function box(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}

// A text that is too long loses its middle: the names of a model's arrays begin alike and differ at the end.
function clipped(context, text, room) {
  if (text.length > 400) text = text.slice(0, 200) + text.slice(-200);
  if (context.measureText(text).width <= room) return text;
  const shortened = (kept) => `${text.slice(0, (kept + 1) >> 1)}…${text.slice(text.length - (kept >> 1))}`;
  let low = 0;
  let high = text.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(shortened(middle)).width <= room) low = middle;
    else high = middle - 1;
  }
  return shortened(low);
}
