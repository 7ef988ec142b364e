// How far the forecast moves when past steps are taken out, in the order of the map and in others.
function drawCurves(box, curves) {
  const named = ["attention", "random", "recency", "profile"]; // each has its own stroke, whatever stands beside it
  const orders = [...new Set([...named, ...curves.map((curve) => curve.order)])].filter((o) => curves.some((c) => c.order === o));
  const finite = curves.flatMap((c) => [...c.effect, ...c.low, ...c.high]).filter((v) => v !== null);
  const high = Math.max(...finite, 1e-9), low = Math.min(...finite, 0);
  for (const name of new Set(curves.map((curve) => curve.replace))) {
    const figure = element("figure");
    figure.append(element("figcaption", {}, `Past steps replaced by ${name}`));
    const own = curves.filter((curve) => curve.replace === name);
    drawFan(shape(figure, "svg", { viewBox: "0 0 360 230", role: "img", "aria-label": fanText(name, own) }), own, orders, low, high);
    figure.append(legendOf(orders));
    box.append(figure);
  }
}

const fanText = (name, curves) => {
  const ends = curves.map((c) => `${c.order}: mean ${number(mean(c.effect))}`);
  return `Move of the forecast while past steps are replaced by ${name}. ${ends.join(", ")}. The numbers are in the table.`;
};
const mean = (values) => values.filter((v) => v !== null).reduce((a, b, _, all) => a + b / all.length, 0);

function drawFan(svg, curves, orders, low, high) {
  const end = Math.max(...curves.flatMap((curve) => curve.removed), 0.01);
  const x = (share) => 46 + (304 * share) / end, y = (value) => 182 - 166 * ((value - low) / (high - low));
  for (const tick of roundTicks(low, high, 4)) {
    shape(svg, "line", { class: "grid", x1: 46, x2: 350, y1: y(tick), y2: y(tick) });
    shape(svg, "text", { x: 40, y: y(tick) + 4, "text-anchor": "end" }, number(tick));
  }
  for (const share of roundTicks(0, end, 5))
    shape(svg, "text", { x: x(share), y: 200, "text-anchor": x(share) > 340 ? "end" : "middle" }, percent(share));
  shape(svg, "line", { class: "axis", x1: 46, x2: 350, y1: 182, y2: 182 });
  shape(svg, "text", { x: 46, y: 220 }, "share of the past steps replaced");
  shape(svg, "text", { x: 2, y: 10 }, "move of the forecast, in naive errors");
  for (const curve of curves) {
    const up = curve.removed.map((share, i) => `${x(share)} ${y(curve.high[i] ?? curve.effect[i])}`);
    const down = curve.removed.map((share, i) => `${x(share)} ${y(curve.low[i] ?? curve.effect[i])}`).reverse();
    shape(svg, "path", { class: `spread s${orders.indexOf(curve.order) % 4}`, d: `M${[...up, ...down].join("L")}Z` });
  }
  for (const curve of [...curves].reverse()) {
    const kind = orders.indexOf(curve.order) % 4;
    const points = curve.removed.map((share, i) => [x(share), y(curve.effect[i] ?? 0)]);
    shape(svg, "path", { class: `curve k${kind}`, d: `M${points.map((p) => p.join(" ")).join("L")}` });
    const every = Math.max(1, Math.round(points.length / 6));
    points.forEach(([px, py], i) => { if (i % every === 0) drawMark(svg, kind, px, py); });
  }
}

function drawMark(svg, kind, x, y) {
  const paths = ["M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0Z", "M-4 -4L4 4M-4 4L4 -4", "M-3.5 -3.5h7v7h-7Z", "M0 -4.5L4.5 3.5H-4.5Z"];
  shape(svg, "path", { class: `mark k${kind}`, d: paths[kind], transform: `translate(${x} ${y})` });
}

function legendOf(orders) {
  const list = element("ul", { class: "legend" });
  orders.forEach((order, k) => {
    const item = element("li");
    const sample = shape(item, "svg", { viewBox: "0 0 30 14", "aria-hidden": "true" });
    shape(sample, "path", { class: `curve k${k % 4}`, d: "M0 7H30" });
    drawMark(sample, k % 4, 15, 7);
    item.append(order === "attention" ? "order of the map" : order);
    list.append(item);
  });
  return list;
}
