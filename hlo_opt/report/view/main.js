// The page: header, tabs, both graphs, the panel; and the selection that all of them share.

const RESULTS = 30;

class App {
  constructor(data) {
    this.data = data;
    this.totals = data.sides.map((side) => side.kernels.reduce((sum, kernel) => sum + kernel.us * kernel.rounds, 0));
    this.selection = null;
    this.marks = [new Set(), new Set()];
    this.edge = null;
    this.line = null;
    this.file = null;
    this.listed = 1;
    this.tabs = ["Graph", "Kernels", ...(data.kind === "module" ? ["Edges", "Source", "Passes"] : ["Differences"])];
    this.live = element("p", { class: "live", role: "status", "aria-live": "polite" });
    this.colours = palette();
    this.views = [new GraphView(0, this), new GraphView(1, this)];
    this.kernels = data.sides.map((side) => new Map(side.kernels.map((kernel) => [kernel.node, kernel])));
    this.build();
    this.showPanel();
    this.show("Graph");
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
  }

  build() {
    const { data } = this;
    document.title = `${data.module}: hlo-opt view`;
    const [first, second] = data.sides;
    const tile = (title, key, show) => element(
      "div", { class: "tile" }, element("span", { class: "muted" }, title),
      element(
        "span", { class: "change" }, show(first.figures[key]), element("span", { "aria-label": "to" }, " → "),
        element("strong", {}, show(second.figures[key]))));
    const tiles = element(
      "div", { class: "tiles" }, tile("kernels", "kernels", count), tile("launches", "launches", count),
      tile("bytes", "bytes", bytes), tile("estimated", "est_us", time));
    const theme = element("button", { type: "button", onclick: () => this.switchTheme() }, "Light or dark");
    const size = data.dynamic ? ` · at size ${data.dynamic.priced} of ${data.dynamic.of.join(", ")}` : "";
    const title = element(
      "div", { class: "title" }, element("h1", {}, data.module),
      element("p", { class: "muted" }, `${data.target.title} · ${data.file}${size}`));
    this.tabButtons = this.tabs.map(
      (name) => element(
        "button", {
          type: "button",
          role: "tab",
          id: `tab-${name}`,
          "aria-controls": "content",
          onclick: () => this.show(name),
          onkeydown: (event) => this.tabKey(event)
        },
        name));
    this.content = element("div", { id: "content", role: "tabpanel", class: "content" });
    this.panel = element("aside", { class: "panel", "aria-label": "Selection", tabindex: "0" });
    const panes = this.views.map(
      (view, side) => element(
        "section", { class: "pane", "aria-label": data.sides[side].title },
        element(
          "div", { class: "bar-of-pane" }, heading(data.sides[side].title),
          element(
            "span", { class: "muted grow" },
            `${plural(data.sides[side].figures.kernels, "kernel")}, ${time(data.sides[side].figures.est_us)}`),
          element(
            "button",
            { type: "button", "aria-label": `Zoom in ${data.sides[side].title}`, onclick: () => view.zoom(1.25) }, "+"),
          element(
            "button",
            { type: "button", "aria-label": `Zoom out ${data.sides[side].title}`, onclick: () => view.zoom(0.8) }, "−"),
          element(
            "button",
            { type: "button", "aria-label": `Show all of ${data.sides[side].title}`, onclick: () => view.fit() },
            "all")),
        view.canvas));
    this.panes = element("div", { class: "panes" }, panes);
    document.body.append(
      element("header", {}, title, tiles, this.buildSearch(), theme),
      element(
        "nav", { "aria-label": "Views" },
        element("div", { class: "tabs", role: "tablist", "aria-label": "Views" }, this.tabButtons)),
      element("main", {}, this.content, this.panel), this.live);
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.matches("input, select, textarea")) return;
      event.preventDefault();
      this.search.focus();
    });
  }

  buildSearch() {
    this.results = element("ul", { class: "results", "aria-label": "Results" });
    this.results.hidden = true;
    this.search = element("input", {
      type: "search",
      placeholder: "Search names, lines  ( / )",
      "aria-label": "Search names, operations and Python lines",
      autocomplete: "off",
      oninput: () => this.find(),
      onkeydown: (event) => this.searchKey(event)
    });
    return element("div", { class: "search" }, this.search, this.results);
  }

  find() {
    const words = this.search.value.trim().toLowerCase();
    const hits = [];
    for (const side of [1, 0]) {
      const { graph } = this.views[side];
      for (let node = 0; words && node < graph.names.length && hits.length < RESULTS; node += 1) {
        const text = `${graph.names[node]} ${graph.opcodes[node]} ${graph.places[graph.lines[node]]}`.toLowerCase();
        if (text.includes(words)) hits.push([side, node]);
      }
    }
    this.results.replaceChildren(...hits.map(
      ([side, node]) => element(
        "li", {},
        link(
          `${this.views[side].graph.names[node]} · ${this.views[side].graph.opcodes[node]} · ${
            this.data.sides[side].title}`,
          () => this.take(side, node)))));
    this.results.hidden = hits.length === 0;
    if (words) this.say(hits.length === 0 ? "nothing found" : plural(hits.length, "result"));
  }

  take(side, node) {
    this.results.hidden = true;
    this.show("Graph");
    this.select(side, node);
    this.views[side].canvas.focus();
  }

  searchKey(event) {
    if (event.key === "Enter") this.results.querySelector("button")?.click();
    else if (event.key === "Escape") {
      this.search.value = "";
      this.find();
    } else if (event.key === "ArrowDown") this.results.querySelector("button")?.focus();
    else return;
    event.preventDefault();
  }

  tabKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (this.tabs.indexOf(this.tab) + step + this.tabs.length) % this.tabs.length;
    this.show(this.tabs[next]);
    this.tabButtons[next].focus();
  }

  show(name) {
    this.tab = name;
    this.tabButtons.forEach((button, n) => {
      button.setAttribute("aria-selected", this.tabs[n] === name ? "true" : "false");
      button.tabIndex = this.tabs[n] === name ? 0 : -1;
    });
    this.content.setAttribute("aria-labelledby", `tab-${name}`);
    const tab = { Kernels: kernelsTab,
                  Edges: edgesTab,
                  Source: sourceTab,
                  Passes: passesTab,
                  Differences: diffTab }[name];
    this.content.classList.toggle("graphs", name === "Graph");
    this.content.replaceChildren(...(tab ? tab(this).filter((part) => part) : [this.panes]));
    this.content.scrollTop = 0;
    this.after?.();
    this.after = null;
    if (name === "Graph") this.views.forEach((view) => view.draw());
  }

  // Select a node; what it becomes on the other side is marked there, and moved into sight.
  select(side, node, { stays = false } = {}) {
    if (node < 0) return;
    const { graph } = this.views[side];
    this.selection = { side, node };
    this.edge = null;
    this.line = null;
    const group = graph.groups[node];
    this.mark(group < 0 ? [[], []] : this.views.map((view) => view.graph.members.get(group) ?? []));
    graph.reveal(node);
    if (!stays && !this.views[side].isVisible(node)) this.views[side].centre(node);
    this.bring(1 - side);
    this.showPanel();
    this.say(`${graph.names[node]}, ${graph.opcodes[node]}, ${this.data.sides[side].title}`);
    this.refresh();
  }

  bring(side) {
    const view = this.views[side];
    const shown = [...this.marks[side]].filter((node) => view.graph.isShown(node));
    if (shown.length === 0) {
      const [first] = this.marks[side];
      if (first !== undefined) view.centre(first);
    } else if (2 * shown.filter((node) => view.isVisible(node)).length < shown.length) view.frame(shown);
  }

  selectEdge(edge) {
    const { graph } = this.views[0];
    const ends = [edge.producer, edge.consumer].map((name) => graph.names.indexOf(name));
    const kernels = edge.kernels.map((name) => this.data.sides[1].kernels.find((kernel) => kernel.name === name)?.node)
                      .filter((node) => node !== undefined);
    if (kernels.length) this.select(1, kernels[kernels.length - 1]);
    else if (ends[1] >= 0) this.select(0, ends[1]);
    this.mark([ends.filter((end) => end >= 0), kernels]);
    this.edge = edge;
    this.bring(0);
    this.refresh();
  }

  selectName(name, side = 0, computation = undefined) {
    const { graph } = this.views[side];
    const nodes = graph.names.flatMap((one, node) => (one === name ? [node] : []));
    const node = nodes.find((one) => graph.scopes[graph.homes[one]].title === computation) ?? nodes[0];
    if (node !== undefined) this.select(side, node);
    else this.say(`${name} is not in the graph`);
  }

  // Mark all that comes from a line of the program.
  showLine(place) {
    this.mark(
      this.views.map(({ graph }) => graph.lines.flatMap((line, node) => (graph.places[line] === place ? [node] : []))));
    this.line = place;
    const source = this.data.sources.find((one) => place.startsWith(`${one.file}:`));
    if (source && this.tabs.includes("Source")) {
      this.file = source.file;
      this.show("Source");
    } else this.refresh();
    [0, 1].forEach((side) => this.bring(side));
    this.say(`${plural(this.marks[0].size, "instruction")} of ${place}`);
  }

  mark(nodes) {
    this.marks = nodes.map((one) => new Set(one));
    this.hasMarks = this.marks.some((one) => one.size > 0);
  }

  clear() {
    this.selection = null;
    this.edge = null;
    this.line = null;
    this.mark([[], []]);
    this.showPanel();
    this.refresh();
  }

  refresh() {
    if (this.tab === "Graph") this.views.forEach((view) => view.draw());
  }

  isMarked(side, node) {
    return this.marks[side].has(node);
  }

  kernelAt(side, node) {
    const { graph } = this.views[side];
    for (let at = node; at >= 0; at = graph.scopes[graph.homes[at]].owner) {
      const kernel = this.kernels[side].get(at);
      if (kernel) return kernel;
    }
    return undefined;
  }

  kernelMark(side, kernel) {
    return this.marks[side].has(kernel.node);
  }

  others(side, node) {
    const { graph } = this.views[1 - side];
    const nodes = graph.members.get(this.views[side].graph.groups[node]) ?? [];
    const kernels = nodes.filter((one) => this.kernels[1 - side].has(one));
    return kernels.length ? kernels : nodes;
  }

  showPanel() {
    const { selection } = this;
    const parts = selection ? panelOf(this, selection.side, selection.node) : summaryPanel(this);
    this.panel.replaceChildren(...parts.filter((part) => part));
    this.panel.scrollTop = 0;
  }

  say(text) {
    this.live.textContent = text;
  }

  switchTheme() {
    const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = isDark ? "light" : "dark";
    this.repaint();
  }

  repaint() {
    this.colours = palette();
    this.refresh();
  }
}

// The colours of the canvas, from the style sheet; a group has a hue of its own, a golden angle from the one before.
function palette() {
  const style = getComputedStyle(document.documentElement);
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  const isDark = style.colorScheme === "dark";
  const hue = (group) => (group * 137.508 + 210) % 360;
  const of = (group, saturation, lightness) => (group < 0 ? null : `hsl(${hue(group)} ${saturation}% ${lightness}%)`);
  return {
    canvas: named("canvas"),
    text: named("text"),
    muted: named("muted"),
    edge: named("line"),
    accent: named("accent"),
    mark: named("mark"),
    plain: named("plain"),
    fill: (group) => of(group, isDark ? 34 : 62, isDark ? 25 : 90) ?? named("plain"),
    frame: (group) => of(group, isDark ? 24 : 48, isDark ? 17 : 96) ?? named("surface"),
    border: (group) => of(group, isDark ? 34 : 38, isDark ? 45 : 66) ?? named("line"),
  };
}

const app = new App(JSON.parse(document.getElementById("data").textContent));
document.documentElement.dataset.ready = "true";
