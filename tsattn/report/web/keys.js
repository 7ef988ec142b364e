// The pictures under the keys and the pointer.
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

function pickAhead(step) {
  if (view.map && view.series.ahead > 1) pick({ step });
}

function heatKey(event) {
  const { series, map } = view, last = map.steps.length - 1;
  const at = Math.min(pointer.step ?? series.past - 1, series.past - 1);
  const row = Math.min(pointer.row ?? Math.max(view.step, 0), last);
  if (event.key === "Escape") return quiet();
  if (event.key === "Enter") return pickAhead(map.steps[row]);
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
