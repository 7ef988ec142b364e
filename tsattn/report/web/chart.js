// History, forecast, interval and the strip of weights on one time axis.
function drawChart(box, view) {
  const { series, target, weights } = view;
  const width = Math.max(box.clientWidth, 240), frame = frameOf(width, view);
  const plot = width < 480 ? 190 : 250, strip = weights ? 64 : 0, top = 14;
  const stripTop = top + plot + 12, bottom = weights ? stripTop + strip : top + plot;
  const svg = shape(box, "svg", { viewBox: `0 0 ${width} ${bottom + 38}`, "aria-hidden": "true" });
  box.replaceChildren(svg);
  patterns(svg);
  const y = drawValueAxis(svg, frame, view, top, plot);
  drawTimeAxis(svg, frame, series, bottom, width);
  const past = series.history(target), point = series.point(target);
  drawBand(svg, frame, series, target, y);
  const origin = frame.edge(series.past);
  shape(svg, "line", { class: "origin", x1: origin, x2: origin, y1: top - 6, y2: bottom });
  drawLine(svg, frame, y, 0, past, "history");
  drawLine(svg, frame, y, series.past, point, "forecast");
  const actual = series.actual(target);
  if (actual) drawLine(svg, frame, y, series.past, actual, "actual");
  if (weights) drawStrip(svg, frame, view, past, stripTop, strip);
  if (view.step >= 0) {
    const at = view.map.steps[view.step];
    const height = Number.isFinite(point[at]) ? y(point[at]) : top + plot / 2;
    shape(svg, "circle", { class: "chosen", cx: frame.x(series.past + at), cy: height, r: 6 });
  }
  const cursor = shape(svg, "g", { visibility: "hidden" });
  const line = shape(cursor, "line", { class: "cursor", y1: top - 6, y2: bottom });
  const dot = shape(cursor, "circle", { class: "chosen", r: 4.5 });
  return {
    frame, top,
    move(i) {
      const value = i < series.past ? past[i] : point[i - series.past];
      cursor.setAttribute("visibility", "visible");
      line.setAttribute("x1", frame.x(i));
      line.setAttribute("x2", frame.x(i));
      dot.setAttribute("visibility", Number.isFinite(value) ? "inherit" : "hidden");
      dot.setAttribute("cx", frame.x(i));
      dot.setAttribute("cy", Number.isFinite(value) ? y(value) : 0);
    },
  };
}

// Lowest and highest value shown, with a margin.
function valueRange({ series, target }) {
  const shown = [series.history(target), series.point(target), series.low(target), series.high(target), series.actual(target)];
  let low = Infinity, high = -Infinity;
  for (const values of shown)
    for (const value of values || [])
      if (Number.isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  if (low > high) [low, high] = [0, 1];
  const margin = 0.06 * (high - low) || 0.05 * Math.abs(high) || 1;
  return [low - margin, high + margin];
}

// Room for the numbers on the left: the same in all pictures of a view.
function leftOf(view) {
  const labels = roundTicks(...valueRange(view), 5).map(number);
  if (view.weights) labels.push(...stripLabels(view.weights, view.unit));
  return 14 + 7 * Math.max(5, ...labels.map((label) => label.length));
}

function drawValueAxis(svg, frame, view, top, plot) {
  const [low, high] = valueRange(view);
  const y = (value) => top + plot * (1 - (value - low) / (high - low));
  for (const tick of roundTicks(low, high, 5)) {
    shape(svg, "line", { class: "grid", x1: frame.left, x2: frame.width - frame.right, y1: y(tick), y2: y(tick) });
    shape(svg, "text", { x: frame.left - 6, y: y(tick) + 4, "text-anchor": "end" }, number(tick));
  }
  return y;
}

function drawTimeAxis(svg, frame, series, bottom, width) {
  shape(svg, "line", { class: "axis", x1: frame.left, x2: width - frame.right, y1: bottom, y2: bottom });
  for (const tick of timeTicks(series, Math.floor((width - frame.left) / 76))) {
    const x = pictures.integer ? frame.x(tick.at) : frame.edge(tick.at);
    shape(svg, "line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 5 });
    const anchor = x > width - 30 ? "end" : "middle";
    shape(svg, "text", { x, y: bottom + 18, "text-anchor": anchor }, tick.text);
  }
  const span = `${pictures.time}: ${series.stamp(0)} to ${series.stamp(series.count - 1)}`;
  const most = Math.floor(width / 6.9);
  const text = span.length > most ? `${span.slice(0, most - 1)}…` : span;
  shape(svg, "text", { x: 2, y: bottom + 34 }, text);
}

function drawBand(svg, frame, series, target, y) {
  const low = series.low(target), high = series.high(target);
  if (!low) return;
  if (series.ahead === 1) {
    if (!Number.isFinite(low[0])) return;
    const x = frame.edge(series.past), height = Math.max(y(low[0]) - y(high[0]), 1);
    shape(svg, "rect", { class: "band", x, y: y(high[0]), width: Math.max(frame.step, 4), height });
    return;
  }
  let up = "", down = "";
  for (let i = 0; i < low.length; i++) {
    if (!Number.isFinite(low[i])) continue;
    up += `${up ? "L" : "M"}${frame.x(series.past + i)} ${y(high[i])}`;
    down = `L${frame.x(series.past + i)} ${y(low[i])}${down}`;
  }
  if (up) shape(svg, "path", { class: "band", d: `${up}${down}Z` });
}

// One bar per past step: its height is the weight, its colour the square root of it; below the line it is negative.
function drawStrip(svg, frame, { series, weights, unit }, past, top, height) {
  for (const [first, last] of gaps(past))
    shape(svg, "rect", { class: "gap", x: frame.edge(first), y: top, width: (last - first) * frame.step, height });
  let most = 0, negative = false;
  for (const weight of weights) { most = Math.max(most, Math.abs(weight)); negative = negative || weight < 0; }
  const base = negative ? top + height / 2 : top + height, room = negative ? height / 2 : height;
  const paths = new Map();
  weights.forEach((weight, i) => {
    if (!weight) return;
    const size = Math.max((Math.abs(weight) / most) * room, 1);
    const kind = `${weight < 0 ? "m" : "b"}${Math.min(4, Math.floor(Math.sqrt(Math.abs(weight) / most) * 5))}`;
    const wide = Math.max(frame.step - (frame.step > 4 ? 1 : 0), 0.8);
    const y = weight < 0 ? base : base - size;
    const bar = `M${frame.edge(i).toFixed(2)} ${y.toFixed(2)}h${wide.toFixed(2)}v${size.toFixed(2)}h${-wide.toFixed(2)}Z`;
    paths.set(kind, (paths.get(kind) || "") + bar);
  });
  for (const [kind, d] of paths) {
    shape(svg, "path", { class: kind, d });
    if (kind.startsWith("m")) shape(svg, "path", { class: "minus", d });
  }
  shape(svg, "line", { class: "axis", x1: frame.left, x2: frame.edge(series.past), y1: base, y2: base });
  stripLabels(weights, unit).forEach((label, k) => {
    shape(svg, "text", { x: frame.left - 6, y: k ? top + height : top + 10, "text-anchor": "end" }, label);
  });
}

// The numbers at the top and at the bottom of the strip.
function stripLabels(weights, unit) {
  const most = weights.reduce((found, weight) => Math.max(found, Math.abs(weight)), 0);
  const short = (value) => number(Number(value.toPrecision(3)));
  return [unit === "share" ? percent(most) : short(most), weights.some((weight) => weight < 0) ? short(-most) : "0"];
}
