// The data of the page: base64 of little-endian numbers, decoded when they are first looked at.
const page = JSON.parse(document.getElementById("page-data").textContent);
const pictures = page.pictures;

function bytes(text) {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out.buffer;
}

// A function of an index whose results are kept.
function once(make) {
  const known = new Map();
  return (index) => {
    if (!known.has(index)) known.set(index, make(index));
    return known.get(index);
  };
}

const seriesAt = once((index) => {
  const raw = pictures.series[index];
  const past = raw.past, ahead = pictures.horizon;
  const day = new Uint32Array(bytes(raw.axis.day)), clock = new Uint32Array(bytes(raw.axis.clock));
  const floats = (text) => (text === null ? null : new Float32Array(bytes(text)));
  const history = floats(raw.history), point = floats(raw.point), actual = floats(raw.actual), band = floats(raw.band);
  const part = (values, size, target) => values && values.subarray(target * size, (target + 1) * size);
  const steps = ahead * pictures.targets.length;
  return {
    id: raw.id, past, ahead, count: past + ahead,
    day: (i) => pictures.stamps.days[day[i]],
    clock: (i) => pictures.stamps.clocks[clock[i]],
    stamp: (i) => `${pictures.stamps.days[day[i]]} ${pictures.stamps.clocks[clock[i]]}`.trim(),
    history: (target) => part(history, past, target),
    point: (target) => part(point, ahead, target),
    actual: (target) => part(actual, ahead, target),
    low: (target) => part(band && band.subarray(0, steps), ahead, target),
    high: (target) => part(band && band.subarray(steps), ahead, target),
    map: once((key) => {
      const [layer, target] = key.split(" ").map(Number);
      const maps = raw.maps[layer];
      return unpackMap(maps[Math.min(target, maps.length - 1)]);
    }),
  };
});

// numbers [heads, rows, columns]; forecast steps and past steps that read the same share a row or a column.
function unpackMap(raw) {
  const [heads, rows, columns] = raw.shape;
  const numbers = raw.signed ? new Int16Array(bytes(raw.numbers)) : new Uint16Array(bytes(raw.numbers));
  const column = new Uint16Array(bytes(raw.column));
  const unit = raw.scale / (raw.signed ? 32767 : 65535);
  return {
    heads, column, steps: raw.step, signed: raw.signed,
    // Weights of the past steps: of one head or the mean (-1), of one kept forecast step or the mean (-1).
    weights(head, step) {
      const all = raw.row.slice(0, raw.step.length);
      const own = raw.row.length > raw.step.length ? [raw.row[raw.step.length]] : all;
      const from = step >= 0 ? [raw.row[step]] : own;
      const which = head >= 0 ? [head] : Array.from({ length: heads }, (_, i) => i);
      const sums = new Float64Array(columns);
      for (const n of which)
        for (const r of from)
          for (let k = 0, at = (n * rows + r) * columns; k < columns; k++) sums[k] += numbers[at + k];
      const share = unit / (which.length * from.length);
      return Float64Array.from(column, (k) => sums[k] * share);
    },
  };
}
