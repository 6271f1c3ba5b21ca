// Numbers as people read them.

function count(value) {
  if (!Number.isFinite(value)) return "?";
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

function figure(value) {
  if (!Number.isFinite(value)) return "?";
  return Number(value.toPrecision(3)).toLocaleString("en-US", { maximumFractionDigits: 12 });
}

function time(us) {
  const size = Math.abs(us);
  if (size < 999.5) return `${figure(us)} us`;
  return size < 999.5e3 ? `${figure(us / 1e3)} ms` : `${figure(us / 1e6)} s`;
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${figure(value)} ${units[unit]}`;
}

function percent(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "";
}

function signed(text, value) {
  return value > 0 ? `+${text}` : text;
}

function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
