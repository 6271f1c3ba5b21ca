// Coordinates of the boxes of a graph. The rows come with the data; which boxes are open, and so how large each is,
// changes here.

const GAP = 14;
const ROW = 30;
const PADDING = 14;
const TITLE = 26;
const PASSES = 3;

class Graph {
  constructor(data) {
    Object.assign(this, data);
    const size = this.names.length;
    this.operands = Array.from({ length: size }, () => []);
    this.readers = Array.from({ length: size }, () => []);
    for (let n = 0; n < this.edges.length; n += 2) {
      this.operands[this.edges[n + 1]].push(this.edges[n]);
      this.readers[this.edges[n]].push(this.edges[n + 1]);
    }
    this.inner = new Map();
    this.scopes.forEach((scope, n) => {
      if (scope.owner >= 0) this.inner.set(scope.owner, [...(this.inner.get(scope.owner) ?? []), n]);
    });
    this.members = new Map();
    this.groups.forEach((group, node) => {
      if (group >= 0) this.members.set(group, [...(this.members.get(group) ?? []), node]);
    });
    this.open = new Set();
    this.x = new Float64Array(size);
    this.y = new Float64Array(size);
    this.w = new Float64Array(size);
    this.h = new Float64Array(size);
    this.labels = new Map();
    this.arrange();
  }

  // Whether a node is drawn: all nodes around it are open.
  isShown(node) {
    for (let owner = this.scopes[this.homes[node]].owner; owner >= 0; owner = this.scopes[this.homes[owner]].owner) {
      if (!this.open.has(owner)) return false;
    }
    return true;
  }

  // Open all nodes around one.
  reveal(node) {
    let changed = false;
    for (let owner = this.scopes[this.homes[node]].owner; owner >= 0; owner = this.scopes[this.homes[owner]].owner) {
      changed ||= !this.open.has(owner);
      this.open.add(owner);
    }
    if (changed) this.arrange();
  }

  toggle(node) {
    if (!this.inner.has(node)) return;
    if (this.open.has(node)) this.open.delete(node);
    else this.open.add(node);
    this.arrange();
  }

  arrange() {
    this.shown = [];
    this.shownEdges = [];
    this.labels.clear();
    const size = this.scope(0);
    this.width = size.width;
    this.height = size.height;
    this.settle(0, 0, 0);
  }

  // The size of a scope. The boxes in it get places relative to it.
  scope(number) {
    const { rows } = this.scopes[number];
    for (const row of rows) for (const node of row) this.measure(node);
    for (let pass = 0; pass < PASSES; pass += 1) {
      const upwards = pass % 2 === 1;
      for (const row of upwards ? [...rows].reverse() : rows) this.place(row, upwards, pass === 0);
    }
    let left = Infinity;
    let right = -Infinity;
    let top = 0;
    for (const row of rows) {
      let height = 0;
      for (const node of row) {
        this.y[node] = top;
        height = Math.max(height, this.h[node]);
        left = Math.min(left, this.x[node]);
        right = Math.max(right, this.x[node] + this.w[node]);
      }
      top += height + ROW;
    }
    if (left === Infinity) return { width: 0, height: 0 };
    for (const row of rows) for (const node of row) this.x[node] -= left;
    return { width: right - left, height: Math.max(0, top - ROW) };
  }

  measure(node) {
    const scopes = this.open.has(node) ? this.inner.get(node) : undefined;
    if (scopes === undefined) {
      const letters = Math.max(
        this.names[node].length, this.free[node] ? 0 : this.opcodes[node].length + this.shapes[node].length + 1);
      this.w[node] = Math.min(230, Math.max(64, 7 * letters + 18));
      this.h[node] = this.free[node] ? 24 : 40;
      return;
    }
    let width = 7 * this.names[node].length + 20;
    let height = TITLE;
    for (const scope of scopes) {
      const size = this.scope(scope);
      this.labels.set(scope, { node, at: height, ...size });
      width = Math.max(width, size.width);
      height += size.height + TITLE;
    }
    this.w[node] = width + 2 * PADDING;
    this.h[node] = height + PADDING;
  }

  // Put the boxes of a row near the middle of what they are joined to, in their order, without an overlap.
  place(row, upwards, first) {
    const wanted = row.map((node, n) => {
      const near = first ? this.operands[node] : [...this.operands[node], ...this.readers[node]];
      if (near.length === 0) return upwards || first ? this.x[node] : this.x[node] + n * 0;
      let sum = 0;
      for (const other of near) sum += this.x[other] + this.w[other] / 2;
      return sum / near.length - this.w[node] / 2;
    });
    const fromLeft = [];
    let edge = -Infinity;
    row.forEach((node, n) => {
      fromLeft[n] = Math.max(wanted[n], edge);
      edge = fromLeft[n] + this.w[node] + GAP;
    });
    const fromRight = [];
    edge = Infinity;
    for (let n = row.length - 1; n >= 0; n -= 1) {
      fromRight[n] = Math.min(wanted[n], edge - this.w[row[n]]);
      edge = fromRight[n] - GAP;
    }
    edge = -Infinity;
    row.forEach((node, n) => {
      this.x[node] = Math.max((fromLeft[n] + fromRight[n]) / 2, edge);
      edge = this.x[node] + this.w[node] + GAP;
    });
  }

  // Turn places relative to a scope into places of the drawing, and note what is drawn, outer boxes first.
  settle(number, left, top) {
    for (const row of this.scopes[number].rows) {
      for (const node of row) {
        this.x[node] += left;
        this.y[node] += top;
        this.shown.push(node);
        for (const operand of this.operands[node]) this.shownEdges.push(operand, node);
        if (!this.open.has(node)) continue;
        for (const scope of this.inner.get(node) ?? []) {
          const label = this.labels.get(scope);
          const inside = (this.w[node] - label.width) / 2;
          this.settle(scope, this.x[node] + inside, this.y[node] + label.at + TITLE / 2);
        }
      }
    }
  }

  at(x, y) {
    for (let n = this.shown.length - 1; n >= 0; n -= 1) {
      const node = this.shown[n];
      if (
        x >= this.x[node] && x <= this.x[node] + this.w[node] && y >= this.y[node] && y <= this.y[node] + this.h[node])
        return node;
    }
    return -1;
  }
}
