// What is picked, what is pointed at, and the pictures of it. `picked.step` is a forecast step from 0; -1 is the mean.
const byId = (id) => document.getElementById(id);
const picked = { series: 0, target: 0, layer: 0, step: -1, head: -1 };
const pointer = { step: null, row: null };
let view = null, chart = null, heat = null;

function look() {
  const series = seriesAt(picked.series), layer = pictures.layers[picked.layer];
  const map = layer ? series.map(`${picked.layer} ${picked.target}`) : null;
  const step = map ? keptStep(map, picked.step) : -1;
  const weights = map && map.weights(picked.head, step);
  const past = series.history(picked.target);
  const order = weights
    ? Array.from(weights.keys()).filter((i) => Number.isFinite(past[i])).sort((a, b) => Math.abs(weights[b]) - Math.abs(weights[a]))
    : [];
  const found = { ...picked, step, series, layer, map, weights, order, unit: layer && layer.unit, what: whatOf(layer) };
  return { ...found, left: leftOf(found) };
}

// The row of a map for a forecast step: of the last kept one up to it; -1 is the mean.
function keptStep(map, step) {
  return step < 0 ? -1 : map.steps.filter((kept) => kept <= step).length - 1;
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

function point(i) {
  pointer.step = i;
  chart.move(i);
  const found = facts(i);
  hint(found, byId("chart"), chart.frame.x(i), chart.top);
  say(found);
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
    const steps = map.steps.map((step) => [step, `${step + 1}: ${series.stamp(series.past + step)}`]);
    control("step", "Forecast step", series.ahead > 1 ? [[-1, `mean over all ${series.ahead}`], ...steps] : [], view.step < 0 ? -1 : map.steps[view.step]);
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

function start() {
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  render();
  listen(byId("chart"), chartKey, (x) => point(chart.frame.at(x)), (x) => {
    const at = chart.frame.at(x) - view.series.past;
    if (at >= 0) pickAhead(at);
  });
  listen(byId("heat"), heatKey,
    (x, y) => pointHeat(heat.row(y), Math.min(heat.frame.at(x), view.series.past - 1)),
    (x, y) => pickAhead(view.map.steps[heat.row(y)]));
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
