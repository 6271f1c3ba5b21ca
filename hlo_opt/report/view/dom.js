// Elements. Whatever comes from a dump gets into the document here, and only as text.

function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  fill(node, properties, children);
  return node;
}

function drawn(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(node, attributes, children);
  return node;
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
}

function heading(text, level = 2) {
  return element(`h${level}`, {}, text);
}

function code(text) {
  return element("code", {}, text);
}

// A text of several lines that can be scrolled with the keyboard.
function listing(text, label) {
  return element("pre", { tabindex: "0", role: "region", "aria-label": label }, text);
}

// A button that looks like a link. A path breaks behind a slash, and before the number of a line.
function link(text, act) {
  const [first, ...parts] = text.split(/(?<=\/)|(?=:\d)/);
  return element(
    "button", { class: "link", type: "button", onclick: act }, first, parts.flatMap((part) => [element("wbr"), part]));
}

// A bar of which a share is filled, and the text beside it.
function bar(share, text) {
  const inner = element("span", { class: "fill" });
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return element(
    "span", { class: "bar" }, element("span", { class: "track", "aria-hidden": "true" }, inner),
    element("span", { class: "value" }, text));
}

// A table with its rows a piece at a time: a long one is node as it is asked for.
function table(caption, columns, rows, row, piece = 100) {
  const body = element("tbody");
  const head = element(
    "tr", {},
    columns.map(([name, kind]) => (name === "" ? element("td") : element("th", { scope: "col", class: kind }, name))));
  const more = element("button", { type: "button", class: "more" });
  let shown = 0;
  const extend = () => {
    const next = rows.slice(shown, shown + piece);
    body.append(...next.map((one, n) => row(one, shown + n)));
    shown += next.length;
    more.hidden = shown >= rows.length;
    more.textContent = `Show ${count(Math.min(piece, rows.length - shown))} more of ${count(rows.length)}`;
  };
  more.addEventListener("click", extend);
  extend();
  const whole = element("table", {}, element("caption", {}, caption), element("thead", {}, head), body);
  return element("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption }, whole, more);
}

function cells(values, kinds) {
  return values.map((value, n) => element("td", { class: kinds[n] }, value));
}
