// What is said of the picked view: of one step, of all, of the most read.
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

function summary() {
  const { map, weights, order, unit, series, layer } = view;
  if (!weights) return "";
  const over = [];
  const step = view.step >= 0 ? map.steps[view.step] : null;
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
