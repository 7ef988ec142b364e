// What is picked, what is pointed at, and the text for it.
const byId = (id) => document.getElementById(id);
const picked = { series: 0, target: 0, layer: 0, step: -1, head: -1 };
const pointer = { step: null, row: null };
let view = null, chart = null, heat = null;

function look() {
  const series = seriesAt(picked.series), layer = pictures.layers[picked.layer];
  const map = layer ? series.map(`${picked.layer} ${picked.target}`) : null;
  const weights = map && map.weights(picked.head, picked.step);
  const past = series.history(picked.target);
  const order = weights
    ? Array.from(weights.keys()).filter((i) => Number.isFinite(past[i])).sort((a, b) => Math.abs(weights[b]) - Math.abs(weights[a]))
    : [];
  const found = { ...picked, series, layer, map, weights, order, unit: layer && layer.unit, what: whatOf(layer) };
  return { ...found, left: leftOf(found) };
}

const whatOf = (layer) => (layer && layer.unit === "share" ? "attention" : "contribution");

// Rank 1 is the largest; equal weights share a rank.
function rankOf(i, weights = view.weights) {
  const size = Math.abs(weights[i]);
  let rank = 1;
  for (const k of view.order) if (Math.abs(weights[k]) > size) rank++;
  return rank;
}

// What is known of one step, as pairs of label and text. `row` is a row of the heat map, or null for what is picked.
function facts(i, row = null) {
  const { series, target, unit } = view;
  if (i >= series.past) return aheadFacts(i - series.past);
  const value = series.history(target)[i];
  const found = [["date", series.stamp(i)], [pictures.targets[target], Number.isFinite(value) ? number(value) : "not observed"]];
  if (!view.weights || !Number.isFinite(value)) return found;
  const weights = row === null ? view.weights : heat.matrix[row];
  if (row !== null) found.push(["for", `step ${view.map.steps[row] + 1}, ${series.stamp(series.past + view.map.steps[row])}`]);
  found.push([view.what, weightText(weights[i], unit)], ["rank", `${rankOf(i, weights)} of ${view.order.length}`]);
  if (unit === "share") found.push(["times an even spread", number(Number((weights[i] * view.order.length).toPrecision(3)))]);
  return found;
}

function aheadFacts(h) {
  const { series, target } = view;
  const point = series.point(target)[h], low = series.low(target), actual = series.actual(target);
  const found = [["date", series.stamp(series.past + h)], ["forecast step", `${h + 1} of ${series.ahead}`]];
  if (!Number.isFinite(point)) return [...found, ["forecast", "none: nothing of this target was observed before it"]];
  found.push([pictures.point, number(point)]);
  if (low) found.push([pictures.interval, `${number(low[h])} to ${number(series.high(target)[h])}`]);
  if (actual && Number.isFinite(actual[h])) found.push(["actual", number(actual[h])]);
  return found;
}

function say(found) {
  byId("readout").textContent = found.map(([label, text], k) => (k ? `${label} ${text}` : text)).join("; ");
}

function hint(found, box, x, y) {
  const tip = byId("tooltip");
  tip.replaceChildren(...found.map(([label, text], k) => element(k ? "div" : "b", {}, k ? `${label}: ${text}` : text)));
  tip.hidden = false;
  const place = box.getBoundingClientRect();
  const left = place.left + x + (x > place.width / 2 ? -tip.offsetWidth - 12 : 12);
  tip.style.left = `${Math.max(4, Math.min(left, document.documentElement.clientWidth - tip.offsetWidth - 4)) + window.scrollX}px`;
  tip.style.top = `${place.top + window.scrollY + y}px`;
}

const quiet = () => { byId("tooltip").hidden = true; };

function point(i, spoken = true) {
  pointer.step = i;
  chart.move(i);
  const found = facts(i);
  hint(found, byId("chart"), chart.frame.x(i), chart.top);
  if (spoken) say(found);
}

function pointHeat(row, i) {
  [pointer.row, pointer.step] = [row, i];
  heat.move(row, i);
  chart.move(i);
  const found = facts(i, row);
  hint(found, byId("heat"), heat.frame.x(i), heat.y(row + 1) + 8);
  say(found);
}

function pick(change) {
  Object.assign(picked, change);
  const heads = pictures.layers.length ? seriesAt(picked.series).map(`${picked.layer} ${picked.target}`).heads : 1;
  if (picked.head >= heads) picked.head = -1;
  quiet();
  render();
}

// ------------------------------------------------------------------ controls

function control(name, label, options, chosen) {
  if (options.length < 2) return;
  const select = element("select", { id: `pick-${name}`, dir: "auto" });
  for (const [value, text] of options) select.append(element("option", { value }, text.length > 70 ? `${text.slice(0, 69)}…` : text));
  select.value = String(chosen);
  select.addEventListener("change", () => pick({ [name]: Number(select.value) }));
  const wrapper = element("label", { for: select.id }, label);
  wrapper.append(select);
  byId("controls").append(wrapper);
}

function drawControls() {
  const active = document.activeElement && document.activeElement.id;
  byId("controls").replaceChildren();
  control("series", "Series", pictures.series.map((each, k) => [k, each.id]), picked.series);
  control("target", "Target", pictures.targets.map((name, k) => [k, name]), picked.target);
  control("layer", "Shown", pictures.layers.map((layer, k) => [k, layer.label]), picked.layer);
  if (view.map) {
    const { map, series } = view;
    const steps = map.steps.map((step, k) => [k, `${step + 1}: ${series.stamp(series.past + step)}`]);
    control("step", "Forecast step", series.ahead > 1 ? [[-1, `mean over all ${series.ahead}`], ...steps] : [], picked.step);
    const heads = Array.from({ length: map.heads }, (_, k) => [k, `head ${k}`]);
    control("head", "Head", heads.length > 1 ? [[-1, `mean over all ${map.heads}`], ...heads] : [], picked.head);
  }
  if (active && active.startsWith("pick-") && byId(active)) byId(active).focus();
}

// ------------------------------------------------------------------ the page

function render() {
  view = look();
  drawControls();
  const { series, target } = view;
  byId("series-title").firstChild.textContent = pictures.targets.length > 1 ? `${series.id}, ${pictures.targets[target]}` : series.id;
  byId("why").hidden = !pictures.why;
  byId("why").textContent = pictures.why || "";
  chart = drawChart(byId("chart"), view);
  byId("chart").setAttribute("aria-label", `History and forecast of ${series.id}. ${byId("chart-help").textContent}`);
  drawLegend();
  for (const id of ["heat-part", "top-part"]) byId(id).hidden = !view.weights;
  byId("summary").textContent = summary();
  if (view.weights) {
    heat = drawHeat(byId("heat"), byId("scale"), view);
    byId("heat").setAttribute("aria-label", `Weights of forecast steps by past steps of ${series.id}`);
    drawTop();
  }
  if (pointer.step !== null) chart.move(Math.min(pointer.step, series.count - 1));
}

function drawLegend() {
  const { series, target, weights } = view;
  const parts = [["history", "history"], ["forecast", pictures.point]];
  if (series.low(target)) parts.push(["band", pictures.interval]);
  if (series.actual(target)) parts.push(["actual", "actual"]);
  parts.push(["origin", "last step read"]);
  if (weights) parts.push(["b3", view.unit === "share" ? "attention per past step" : "added to the forecast"]);
  if (weights && weights.some((weight) => weight < 0)) parts.push(["m3", "taken from the forecast"]);
  if (series.history(target).some((value) => !Number.isFinite(value))) parts.push(["gap", "not observed"]);
  byId("legend").replaceChildren(...parts.map(([kind, text]) => {
    const item = element("li");
    const sample = shape(item, "svg", { viewBox: "0 0 30 14", "aria-hidden": "true" });
    const solid = ["band", "b3", "m3", "gap"].includes(kind);
    if (solid) shape(sample, "rect", { class: kind, x: 1, y: 1, width: 28, height: 12 });
    else shape(sample, "path", { class: kind, d: kind === "origin" ? "M15 0V14" : "M0 7H30" });
    if (kind === "m3") shape(sample, "rect", { class: "minus", x: 1, y: 1, width: 28, height: 12 });
    item.append(text);
    return item;
  }));
}

function summary() {
  const { map, weights, order, unit, series, layer } = view;
  if (!weights) return "";
  const over = [];
  const step = picked.step >= 0 ? map.steps[picked.step] : null;
  over.push(step === null ? `mean over ${series.ahead} forecast ${series.ahead === 1 ? "step" : "steps"}` : `forecast step ${step + 1} (${series.stamp(series.past + step)})`);
  if (!layer.heads) over.push("mean over heads");
  else if (map.heads > 1) over.push(picked.head < 0 ? `mean over ${map.heads} heads` : `head ${picked.head}`);
  const parts = [`Shown: ${layer.label}, ${over.join(", ")}.`];
  const total = order.reduce((sum, i) => sum + Math.abs(weights[i]), 0);
  if (total > 0 && unit === "share") {
    let sum = 0, most = 0;
    while (most < order.length && sum < total / 2) sum += weights[order[most++]];
    parts.push(`Half of the weight lies on ${most} of ${order.length} observed steps; an even spread gives each ${percent(1 / order.length)}.`);
    if (layer.ahead) parts.push(`${percent(Math.max(0, 1 - total))} was spent on forecast steps, read through what is known of them, which are not drawn.`);
  }
  if (unit !== "share") {
    const sum = order.reduce((all, i) => all + weights[i], 0);
    parts.push(`The bars add up to ${weightText(sum, unit)}; the level of the window and covariates make the rest of the forecast.`);
  }
  const left = layer.heads ? [] : ["heads are shown as their mean"];
  if (layer.every > 1) left.push(`one forecast step in ${layer.every} is kept (the mean is over all)`);
  if (left.length) parts.push(`To keep the file small, ${left.join(", and ")}.`);
  return parts.join(" ");
}

function drawTop() {
  const { series, target, weights, unit, what } = view;
  const table = byId("top");
  const whole = tokens();
  const each = whole.some((steps) => steps.length > 1);
  const caption = each ? "Neighbouring steps that were read as one stand together; values are their means." : "";
  table.replaceChildren(element("caption", {}, `Steps back: 0 is the last step before the forecast. ${caption}`));
  const head = element("tr");
  const names = ["rank", "date", "steps back", pictures.targets[target], each ? `${what} per step` : what];
  if (each) names.push(`${what} together`);
  names.forEach((name, k) => head.append(element("th", { scope: "col", class: k > 1 ? "number" : "" }, name)));
  table.append(element("thead"), element("tbody"));
  table.tHead.append(head);
  for (const steps of whole.slice(0, 10)) {
    const [first, last] = [steps[0], steps[steps.length - 1]], back = (i) => series.past - 1 - i;
    const row = element("tr"), total = steps.reduce((sum, i) => sum + weights[i], 0);
    const mean = steps.reduce((sum, i) => sum + series.history(target)[i], 0) / steps.length;
    const span = (a, b) => (a === b ? String(a) : `${a} to ${b}`);
    const until = series.day(first) === series.day(last) && series.clock(last) ? series.clock(last) : series.stamp(last);
    const when = first === last ? series.stamp(first) : `${series.stamp(first)} to ${until}`;
    row.append(element("th", { scope: "row" }, rankOf(first)), element("td", { class: "stamp" }, when));
    const cells = [span(back(first), back(last)), number(mean), weightText(weights[first], unit)];
    if (each) cells.push(weightText(total, unit));
    for (const text of cells) row.append(element("td", { class: "number" }, text));
    table.tBodies[0].append(row);
  }
}

// Observed steps with weight, those of one key token together, the largest first.
function tokens() {
  const { map, weights, order } = view, found = new Map();
  for (const i of order.filter((step) => weights[step]).sort((a, b) => a - b)) {
    const own = found.get(map.column[i]);
    if (own) own.push(i);
    else found.set(map.column[i], [i]);
  }
  return [...found.values()].sort((a, b) => Math.abs(weights[b[0]]) - Math.abs(weights[a[0]]));
}

// ------------------------------------------------------------------ mouse and keys

function moved(key, at, last) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -last, End: last };
  return key in steps ? Math.max(0, Math.min(last, at + steps[key])) : null;
}

function byRank(key, at) {
  const rank = view.order.indexOf(at);
  if (rank < 0) return view.order[0];
  return view.order[Math.max(0, Math.min(view.order.length - 1, rank + (key === "ArrowUp" ? -1 : 1)))];
}

function chartKey(event) {
  const { series } = view, at = Math.min(pointer.step ?? series.past - 1, series.count - 1);
  let next = moved(event.key, at, series.count - 1);
  if (next === null && ["ArrowUp", "ArrowDown"].includes(event.key) && view.order.length) next = byRank(event.key, at);
  if (event.key === "Escape") return quiet();
  if (event.key === "Enter" && at >= series.past) return pickAhead(at - series.past);
  if (next === null) return undefined;
  event.preventDefault();
  return point(next);
}

// The kept forecast step at or before `h`.
function pickAhead(h) {
  if (!view.map || view.series.ahead < 2) return;
  let step = 0;
  view.map.steps.forEach((kept, k) => { if (kept <= h) step = k; });
  pick({ step });
}

function heatKey(event) {
  const { series, map } = view, last = map.steps.length - 1;
  const at = Math.min(pointer.step ?? series.past - 1, series.past - 1);
  const row = Math.min(pointer.row ?? Math.max(picked.step, 0), last);
  if (event.key === "Escape") return quiet();
  if (event.key === "Enter") return series.ahead > 1 ? pick({ step: row }) : undefined;
  const rows = { ArrowUp: row - 1, ArrowDown: row + 1 };
  const next = moved(event.key, at, series.past - 1);
  if (next === null && !(event.key in rows)) return undefined;
  event.preventDefault();
  return pointHeat(Math.max(0, Math.min(last, rows[event.key] ?? row)), next ?? at);
}

function listen(box, key, over, click) {
  const inside = (event) => {
    const place = box.getBoundingClientRect();
    return [event.clientX - place.left, event.clientY - place.top];
  };
  box.addEventListener("keydown", key);
  box.addEventListener("pointermove", (event) => over(...inside(event)));
  box.addEventListener("pointerdown", (event) => over(...inside(event)));
  box.addEventListener("click", (event) => click(...inside(event)));
  box.addEventListener("pointerleave", quiet);
  box.addEventListener("blur", quiet);
}

function start() {
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  render();
  listen(byId("chart"), chartKey, (x) => point(chart.frame.at(x)), (x) => {
    const at = chart.frame.at(x) - view.series.past;
    if (at >= 0) pickAhead(at);
  });
  listen(byId("heat"), heatKey,
    (x, y) => pointHeat(heat.row(y), Math.min(heat.frame.at(x), view.series.past - 1)),
    (x, y) => { if (view.series.ahead > 1) pick({ step: heat.row(y) }); });
  let width = byId("chart").clientWidth;
  new ResizeObserver(() => {
    if (byId("chart").clientWidth === width) return;
    width = byId("chart").clientWidth;
    quiet();
    render();
  }).observe(byId("chart"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  if (page.curves.length) drawCurves(byId("curves"), page.curves);
}

start();
