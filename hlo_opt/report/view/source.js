// The Python program: what each line costs, beside its text where there is one.

const AROUND = 6;
const LONG_FILE = 1500;

function sourceTab(app) {
  const { sources } = app.data;
  if (sources.length === 0)
    return [element("p", { class: "muted" }, "No instruction says which Python line it comes from.")];
  const file = sources.find((one) => one.file === app.file) ?? sources[0];
  const choice = element(
    "select", {
      "aria-label": "Python file",
      onchange: (event) => {
        app.file = event.target.value;
        app.show("Source");
      }
    },
    sources.map((one) => element("option", { value: one.file, selected: one === file }, one.file)));
  const most = Math.max(...sources.flatMap((one) => Object.values(one.lines).map((line) => line.us)), 1e-12);
  const numbers = file.text === null ? Object.keys(file.lines).map(Number) : linesOf(file);
  const columns = [["line", "n"], ["time", "heat"], ["bytes", "n"], ["kernels", "n"], ["refused", ""], ["program", ""]];
  const row = (number) => {
    if (number === 0) return element("tr", {}, element("td", { colspan: "6", class: "muted" }, "⋯"));
    const line = file.lines[number];
    const place = `${file.file}:${number}`;
    const text = file.text === null ? place : (file.text[number - 1] ?? "(the file is another version)");
    const codes = line ? Object.entries(line.refused).map(([name, times]) => `${name} ${times}`).join(", ") : "";
    return element("tr", { class: app.line === place ? "code marked" : "code", "data-line": number }, ...cells([
      line ? link(String(number), () => app.showLine(place)) : String(number),
      line ? bar(line.us / most, `${time(line.us)} ${percent(line.us, app.totals[1])}`) : "",
      line ? bytes(line.bytes) : "",
      line ? count(line.kernels) : "",
      codes ? element("span", { class: "nowrap" }, codes) : "",
      element("code", {}, text),
    ], ["n", "heat", "n", "n", "", "program"]));
  };
  const dearest = Object.keys(file.lines).sort((a, b) => file.lines[b].us - file.lines[a].us)[0];
  app.after = () =>
    (app.content.querySelector("tr.marked") ?? app.content.querySelector(`tr[data-line="${Number(dearest)}"]`))
      ?.scrollIntoView({ block: "center" });
  const note = file.text === null
    ? element("p", { class: "muted" }, "The text was not found: --source-root names the folder that the program is in.")
    : null;
  return [
    element("div", { class: "choices" }, choice), note,
    table(`Time and bytes by line of ${file.file}`, columns, numbers, row, LONG_FILE)
  ];
}

// All lines of a short file; of a long one those around lines with figures, with 0 for what is left out.
function linesOf(file) {
  const all = file.text.map((_, n) => n + 1);
  if (all.length <= LONG_FILE) return all;
  const near = new Set();
  for (const line of Object.keys(file.lines).map(Number))
    for (let n = line - AROUND; n <= line + AROUND; n += 1) near.add(n);
  const numbers = [];
  for (const number of all) {
    if (near.has(number)) numbers.push(number);
    else if (numbers.length && numbers[numbers.length - 1] !== 0) numbers.push(0);
  }
  return numbers;
}
