// Small things every picture needs: elements, numbers as text, scales, ticks.
const SPACE = document.querySelector("svg").namespaceURI; // no address is written in this file

// Text goes in as text nodes only: nothing from the data is ever read as markup.
function element(name, attributes = {}, text = null) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function shape(parent, name, attributes = {}, text = null) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

const number = (value) => {
  if (!Number.isFinite(value)) return "none";
  const size = Math.abs(value);
  if (size >= 1e7 || (size > 0 && size < 1e-4)) return value.toPrecision(4);
  return String(Number(value.toPrecision(size >= 1000 ? 7 : 5)));
};
const percent = (share) => `${Number((100 * share).toPrecision(3))} %`;
const weightText = (value, unit) => (unit === "share" ? percent(value) : (value > 0 ? "+" : "") + number(Number(value.toPrecision(4))));

// Round numbers from low to high, about `most` of them.
function roundTicks(low, high, most) {
  const rough = (high - low) / Math.max(most, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && found.length < 50; k++)
    found.push(Number((k * step).toPrecision(12)));
  return found;
}

// Steps at which a year, a month, a day or an hour begins: the coarsest that there are three of, thinned to fit.
function timeTicks(series, most) {
  if (pictures.integer) {
    const first = Number(series.stamp(0)), gap = series.count > 1 ? Number(series.stamp(1)) - first : 1;
    return roundTicks(first, first + gap * (series.count - 1), most)
      .map((value) => ({ at: (value - first) / gap, text: String(value) }))
      .filter((tick) => Number.isInteger(tick.at));
  }
  const parts = [
    [(i) => series.day(i).slice(0, 4), (i) => series.day(i).slice(0, 4)],
    [(i) => series.day(i).slice(0, 7), (i) => series.day(i).slice(0, 7)],
    [(i) => series.day(i), (i) => series.day(i).slice(5)],
    [(i) => series.stamp(i), (i) => series.clock(i).slice(0, 5)],
  ];
  let found = [];
  for (const [key, text] of parts) {
    found = [];
    for (let i = 1; i < series.count; i++) if (key(i) !== key(i - 1)) found.push({ at: i, text: text(i) });
    if (found.length >= 3) break;
  }
  if (!found.length) return [{ at: 0, text: series.stamp(0) }];
  const every = Math.ceil(found.length / Math.max(most, 1));
  return found.filter((_, k) => k % every === 0);
}

// Where steps lie from left to right; shared by the pictures, so that one date is one place.
function frameOf(width, { series, left }) {
  const right = 10;
  const step = (width - left - right) / series.count;
  return {
    width, left, right, step,
    x: (i) => left + (i + 0.5) * step,
    edge: (i) => left + i * step,
    at: (x) => Math.max(0, Math.min(series.count - 1, Math.floor((x - left) / step))),
  };
}

// One path for a line with gaps; values without neighbours become dots.
function drawLine(parent, frame, y, first, values, kind) {
  let path = "", pen = false;
  for (let i = 0; i < values.length; i++) {
    const there = Number.isFinite(values[i]);
    if (there) path += `${pen ? "L" : "M"}${frame.x(first + i).toFixed(1)} ${y(values[i]).toFixed(1)}`;
    if (there && !Number.isFinite(values[i - 1]) && !Number.isFinite(values[i + 1]))
      shape(parent, "circle", { class: `dot ${kind}`, cx: frame.x(first + i), cy: y(values[i]), r: 3 });
    pen = there;
  }
  shape(parent, "path", { class: kind, d: path || "M0 0" });
}

function patterns(svg) {
  const defs = shape(svg, "defs");
  const hatch = shape(defs, "pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse" });
  shape(hatch, "path", { d: "M-1 7L7 -1M-1 1L1 -1M5 7L7 5" });
  const minus = shape(defs, "pattern", { id: "minus", width: 4, height: 4, patternUnits: "userSpaceOnUse" });
  shape(minus, "path", { d: "M0 2L4 2" });
}

// Stretches of steps that were not observed: [first, past the last].
function gaps(values) {
  const found = [];
  for (let i = 0; i < values.length; i++) {
    if (Number.isFinite(values[i])) continue;
    if (found.length && found[found.length - 1][1] === i) found[found.length - 1][1] = i + 1;
    else found.push([i, i + 1]);
  }
  return found;
}

const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A colour of the scale from 0 to 1 (or down to -1), between the six stops of the style sheet, as [r, g, b].
function colourScale() {
  const stops = (letter) => [0, 1, 2, 3, 4, 5].map((k) => {
    const hex = theme(`--${letter}${k}`);
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  });
  const sides = [stops("n"), stops("c")];
  return (value) => {
    const side = sides[value < 0 ? 0 : 1], place = Math.min(Math.abs(value), 1) * 5;
    const low = Math.min(Math.floor(place), 4), rest = place - low;
    return side[low].map((from, k) => Math.round(from + (side[low + 1][k] - from) * rest));
  };
}
