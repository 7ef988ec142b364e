// Forecast steps from top to bottom, past steps on the time axis of the chart, one colour scale for all.
function drawHeat(box, scaleBox, view) {
  const { series, map, target, unit } = view;
  const width = Math.max(box.clientWidth, 240), frame = frameOf(width, view);
  const rows = map.steps.length, tall = Math.max(1, Math.min(16, Math.floor(300 / rows)));
  const height = Math.max(rows * tall, 40), top = 4;
  const matrix = map.steps.map((_, k) => map.weights(view.head, k));
  let most = 0;
  for (const row of matrix) for (const weight of row) most = Math.max(most, Math.abs(weight));
  const canvas = element("canvas", { "aria-hidden": "true" });
  const svg = document.createElementNS(SPACE, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${top + height + 8}`);
  svg.setAttribute("aria-hidden", "true");
  box.replaceChildren(canvas, svg);
  paintHeat(canvas, matrix, most, frame, series.past, top, height);
  for (const [first, last] of gaps(series.history(target)))
    shape(svg, "rect", { class: "gap", x: frame.edge(first), y: top, width: (last - first) * frame.step, height });
  const right = frame.edge(series.past);
  shape(svg, "path", { class: "axis", fill: "none", d: `M${frame.left} ${top}V${top + height}H${right}` });
  drawRowLabels(svg, frame, map, top, height);
  if (right + 90 < width) shape(svg, "text", { x: right + 6, y: top + 12 }, "forecast step ↓");
  const y = (k) => top + (k / rows) * height;
  const outline = (k) => ({ x: frame.left, y: y(k), width: right - frame.left, height: height / rows });
  if (view.step >= 0) for (const kind of ["halo", "chosen"]) shape(svg, "rect", { class: kind, ...outline(view.step) });
  const cell = ["halo", "chosen"].map((kind) => shape(svg, "rect", { class: kind, visibility: "hidden" }));
  drawScale(scaleBox, most, unit, map.signed);
  return {
    frame, top,
    row: (at) => Math.max(0, Math.min(rows - 1, Math.floor(((at - top) / height) * rows))),
    y,
    matrix,
    move(k, i) {
      const wide = Math.max(frame.step, 5), high = Math.max(height / rows, 5);
      const place = { x: frame.x(i) - wide / 2, y: y(k + 0.5) - high / 2, width: wide, height: high };
      for (const [name, value] of Object.entries({ visibility: "visible", ...place }))
        for (const part of cell) part.setAttribute(name, value);
    },
  };
}

// As many cells as there are pixels at most; where several share one, the largest is seen.
function paintHeat(canvas, matrix, most, frame, past, top, height) {
  const wide = past * frame.step, ratio = window.devicePixelRatio || 1;
  const columns = Math.min(past, Math.max(1, Math.round(wide * ratio)));
  const rows = Math.min(matrix.length, Math.max(1, Math.round(height * ratio)));
  canvas.width = columns;
  canvas.height = rows;
  Object.assign(canvas.style, { left: `${frame.left}px`, top: `${top}px`, width: `${wide}px`, height: `${height}px` });
  const pen = canvas.getContext("2d"), image = pen.createImageData(columns, rows), colour = colourScale();
  for (let r = 0; r < rows; r++) {
    const lines = matrix.slice(Math.floor((r * matrix.length) / rows), Math.floor(((r + 1) * matrix.length) / rows));
    for (let c = 0; c < columns; c++) {
      let found = 0;
      for (const line of lines)
        for (let i = Math.floor((c * past) / columns); i < Math.floor(((c + 1) * past) / columns); i++)
          if (Math.abs(line[i]) > Math.abs(found)) found = line[i];
      const [red, green, blue] = colour(most ? Math.sign(found) * Math.sqrt(Math.abs(found) / most) : 0);
      image.data.set([red, green, blue, 255], 4 * (r * columns + c));
    }
  }
  pen.putImageData(image, 0, 0);
}

function drawRowLabels(svg, frame, map, top, height) {
  const rows = map.steps.length, every = Math.max(1, Math.ceil((rows * 15) / height));
  for (let k = 0; k < rows; k += every)
    shape(svg, "text", { x: frame.left - 6, y: top + ((k + 0.5) / rows) * height + 4, "text-anchor": "end" }, map.steps[k] + 1);
}

// The colours with their numbers.
function drawScale(box, most, unit, signed) {
  const colour = colourScale();
  box.replaceChildren();
  for (const place of signed ? [-1, -0.6, -0.3, 0, 0.3, 0.6, 1] : [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    const item = element("span");
    const swatch = element("i", { "aria-hidden": "true" });
    swatch.style.background = `rgb(${colour(place).join(",")})`;
    item.append(swatch, weightText(Math.sign(place) * place * place * most, unit));
    box.append(item);
  }
}
