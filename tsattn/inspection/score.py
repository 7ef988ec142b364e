"""How well a map finds what was planted. Legend as in ``tsattn.inspection.maps``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tsattn.errors import ConfigError
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.support import overlap

if TYPE_CHECKING:
    from tsattn.data.planted_set import Planted


@dataclass(frozen=True)
class TruthScore:
    """Scores of a map against planted sources, over the forecast steps that have one within the window."""

    hit: float  # share of steps whose largest token holds a source
    mass: float  # mean share of the size of a row that falls on tokens with a source
    precision: float  # mean average precision of the sources among the tokens (area under precision and recall)
    sign: float | None  # signed maps: share of sources whose sign is that of the planted contribution
    rows: int  # forecast steps scored


def score_against_truth(
    attention: AttentionMap, planted: Planted, *, target: int | str = 0, source: str | None = None
) -> TruthScore:
    """Compare a map of windows of a planted table with its truth, token by token.

    Heads are averaged. A patch is right when it holds the planted step: a map cannot be finer than its tokens.

    Args:
        attention: Map or attribution of windows of ``planted.table`` (the held-out part is the honest one).
        planted: What ``tsattn.data.planted`` made.
        target: Target by name or position.
        source: Count the sources in this column alone; None counts all that are in the table.

    Raises:
        ConfigError: no map from forecast steps to past steps, or no forecast step with a source.
    """
    record = attention.record()
    place = attention.target_position(target)
    name = attention.panel.schema.roles.target[place]
    truth = _sources(planted, name, source)
    covers = overlap(record.key, attention.length)  # [I, L]
    flat = attention.mean("head").windows.attention[attention.layer_position(None)].weights
    shared = flat.shape[1] < len(attention.panel.schema.roles.target)
    asks = overlap(record.query, attention.horizon).argmax(axis=0)  # [H]
    rows: list[tuple[np.ndarray, np.ndarray]] = []
    signs: list[bool] = []
    for window in range(len(attention)):
        weights = flat[window, 0 if shared else place, 0]  # [J, I]
        one = slice(window, window + 1)
        step_of = {time: step for step, time in enumerate(attention.all_source_times(one)[0].tolist())}
        series = attention.panel.ids[int(attention.windows.series[window])].as_py()
        for step, time in zip(attention.steps, attention.all_target_times(one)[0].tolist(), strict=True):
            found = [(step_of[s], c) for s, c in truth.get((series, time), ()) if s in step_of]
            if not found:
                continue
            tokens = covers[:, [place_ for place_, _ in found]] > 0  # [I, sources]
            row = weights[asks[step]]
            rows.append((row, np.asarray(tokens.any(axis=1))))
            if attention.signed:
                signs += [bool(np.sign((row * tokens[:, k]).sum()) == np.sign(c)) for k, (_, c) in enumerate(found)]
    if not rows:
        raise ConfigError("No forecast step of this map has a planted source in its window.")
    return _scored(rows, signs if attention.signed else None)


def _sources(planted: Planted, target: str, source: str | None) -> dict[tuple[Any, int], list[tuple[int, float]]]:
    """Source times and contributions of each (id, target time), times as the panel counts them."""
    table = planted.truth[planted.truth["target"] == target]
    if source is not None:
        table = table[table["source"] == source]
    times = [_internal(table[column]) for column in ("target_time", "source_time")]
    found: dict[tuple[Any, int], list[tuple[int, float]]] = {}
    for name, at, origin, value in zip(table["unique_id"], *times, table["contribution"], strict=True):
        found.setdefault((name, at), []).append((origin, float(value)))
    return found


def _internal(times: Any) -> list[int]:
    """Integers as they are; stamps as nanoseconds of UTC."""
    import pandas as pd

    if pd.api.types.is_integer_dtype(times):
        return [int(time) for time in times]
    stamps = pd.DatetimeIndex(times)
    stamps = stamps if stamps.tz is None else stamps.tz_convert("UTC").tz_localize(None)
    return [int(time) for time in stamps.as_unit("ns").asi8]


def _scored(rows: list[tuple[np.ndarray, np.ndarray]], signs: list[bool] | None) -> TruthScore:
    from sklearn.metrics import average_precision_score

    sizes = np.abs(np.stack([row for row, _ in rows])).astype(np.float64)
    right = np.stack([tokens for _, tokens in rows])
    total = np.maximum(sizes.sum(axis=1), np.finfo(np.float64).tiny)
    return TruthScore(
        hit=float(right[np.arange(len(right)), sizes.argmax(axis=1)].mean()),
        mass=float(((sizes * right).sum(axis=1) / total).mean()),
        precision=float(np.mean([average_precision_score(r, s) for r, s in zip(right, sizes, strict=True)])),
        sign=None if signs is None else float(np.mean(signs)),
        rows=len(right),
    )
