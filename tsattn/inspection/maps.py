"""Attention of many windows, tied to real time stamps: one container for raw attention and for attributions.

Legend: ``W`` windows, ``C`` targets, ``N`` heads, ``H`` horizon steps (``H'`` those kept by ``sel``), ``L`` context
steps, ``J`` query tokens, ``I`` key tokens. A *lag* counts steps from a past step to a forecast step (1 or more); the
*age* of a past step counts back from the last step before the forecast (0 or more): ``lag = age + horizon``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsattn.data.panel import Panel
from tsattn.errors import ConfigError, unknown_name
from tsattn.inference import Record, WindowForecasts
from tsattn.inspection.support import even_spread, has_map, over_time, overlap, steps_axis, to_forecast_steps, to_steps

if TYPE_CHECKING:
    import pandas as pd

_CHUNK = 1 << 24  # weights held at once by the views: 64 MB


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMap:
    """Where each forecast looked. Weights are kept per token; the views map them to steps and to time stamps.

    ``levels`` (of the quantiles) and ``model`` are there for the pictures, and may be left out. ``method`` says what
    the numbers are: "attention", or the attribution they come from; ``signed`` that they may be negative; ``unit`` is
    "share" (rows sum to 1), "lift" (1 is an even spread) or "data" (units of the target). ``notes`` lists what was done
    to the map, for captions. ``kept`` are the forecast steps ``sel`` left (from 0); None is all of them.
    """

    panel: Panel
    windows: WindowForecasts
    levels: tuple[float, ...] = ()
    model: str | None = None
    method: str = "attention"
    signed: bool = False
    unit: str = "share"
    notes: tuple[str, ...] = ()
    kept: tuple[int, ...] | None = None

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.windows.series)

    def __repr__(self) -> str:
        """One line: how many windows, which layers, how far back, what was done."""
        kind = "" if self.method == "attention" else f"{self.method}, "
        done = f", {', '.join(self.notes)}" if self.notes else ""
        return f"AttentionMap({kind}{len(self)} windows x {self.length} past steps, layers {self.layers}{done})"

    # ------------------------------------------------------------------ what is there

    @property
    def layers(self) -> list[str]:
        """Names of the attention layers."""
        return [record.layer for record in self.windows.attention]

    @property
    def length(self) -> int:
        """Past steps ``L`` of a window."""
        records = [r for r in self.windows.attention if over_time(r.key)] or list(self.windows.attention)
        return max(max(record.key.end) - record.key.ahead for record in records)

    @property
    def horizon(self) -> int:
        """Forecast steps ``H`` of a window."""
        return self.windows.point.shape[1]

    @property
    def steps(self) -> np.ndarray:
        """The forecast steps of the rows, from 0: ``[H']``."""
        return np.arange(self.horizon) if self.kept is None else np.asarray(self.kept)

    @property
    def mapped(self) -> list[int]:
        """Positions of the layers that say from forecast step to past step; a self-attention layer does not."""
        return [i for i, record in enumerate(self.windows.attention) if has_map(record)]

    def position(self, window: int) -> int:
        """``window`` as a number from 0; raises IndexError naming the range."""
        return in_range(window, len(self), "window")

    def layer_position(self, layer: int | str | None) -> int:
        """A layer by name or position; None is the last one with a map from forecast steps to past steps.

        Raises ConfigError for an unknown name, and where there is no such map; IndexError for a position out of range.
        """
        if layer is None:
            return self.mapped[-1] if self.mapped else len(self.layers) - 1
        if isinstance(layer, str):
            if layer not in self.layers:
                raise unknown_name("layer", layer, self.layers)
            return self.layers.index(layer)
        return in_range(layer, len(self.layers), "layer")

    def record(self, layer: int | str | None = None) -> Record:
        """A layer that goes from forecast steps to past steps; raises ConfigError where it does not."""
        record = self.windows.attention[self.layer_position(layer)]
        if not has_map(record):
            raise ConfigError(_why_no_map(record, self.model or "the model"))
        return record

    # ------------------------------------------------------------------ numbers

    def chunks(
        self, target: int | str = 0, layer: int | str | None = None, *, mean: bool = False
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Some windows at a time: their rows, weights ``[w, N, H', L]`` and which past steps could be read ``[w, L]``.

        What the views are made of: memory stays bounded, whatever the number of windows. ``mean``: over heads, before
        anything else, so ``N`` is 1.
        """
        record, target = self.record(layer), self.target_position(target)
        shared = record.weights.shape[1] < self._targets  # one attention for all targets
        heads = 1 if mean else record.weights.shape[2]
        size = max(1, _CHUNK // (heads * len(self.steps) * self.length))
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            read = self.read(rows, None if shared else target)
            weights = record.weights[rows, 0 if shared else target]
            weights = weights.mean(axis=1, keepdims=True) if mean else weights
            by_step = self._by_step(record, weights, read)
            # a covariate may be read where the target is not
            yield rows, by_step, read | (by_step != 0).any(axis=(1, 2))

    def _by_step(self, record: Record, weights: np.ndarray, read: np.ndarray) -> np.ndarray:
        """``[w, N, J, I] -> [w, N, H', L]``, forecast steps first: the fewer rows are spread, the better."""
        rows = to_forecast_steps(weights, record.query, self.steps, self.horizon)
        return to_steps(rows, record.key, read)

    def step_weights(self, window: int, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """Weights ``[N, H', L]`` of one window: forecast step by past step.

        A token's weight is divided evenly over the observed steps it covers, so rows keep their sum; unobserved steps
        and left padding get exactly 0, but for what an attribution says of a covariate there. Where forecast steps are
        keys as well, a row lacks what fell on them, which ``ahead_weights`` gives. Raises ConfigError when the
        attention has no horizon or no time axis.
        """
        one = self.sel(window=self.position(window))
        return next(weights[0] for _, weights, _ in one.chunks(target, layer))

    def ahead_weights(self, window: int, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """Weights ``[N, H', H]`` of one window: forecast step by forecast step, read through what is known of it.

        All 0 where the keys are past steps alone. Raises ConfigError as ``step_weights``.
        """
        record, target = self.record(layer), self.target_position(target)
        weights = record.weights[[self.position(window)], 0 if record.weights.shape[1] < self._targets else target]
        rows = to_forecast_steps(weights, record.query, self.steps, self.horizon)[0]
        return rows @ overlap(record.key, self.length + self.horizon)[:, self.length :]

    def to_numpy(self, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """Weights of all windows, forecast step by past step, ``[W, N, H', L]`` float32 (see ``step_weights``)."""
        return np.concatenate([weights for _, weights, _ in self.chunks(target, layer)])

    def observed(self, window: int, target: int | str = 0) -> np.ndarray:
        """Which of the ``L`` steps before the origin were observed, bool ``[L]``."""
        return ~np.isnan(self.history(window, target))

    def history(self, window: int, target: int | str = 0) -> np.ndarray:
        """The ``L`` values before the origin, float32, NaN where unobserved or before the series began."""
        window = self.position(window)
        return self._values(slice(window, window + 1), self.target_position(target))[0]

    def source_times(self, window: int) -> np.ndarray:
        """Times (int64) of the ``L`` steps before the origin; steps before the series began are counted back."""
        window = self.position(window)
        return self.all_source_times(slice(window, window + 1))[0]

    def all_source_times(self, rows: slice) -> np.ndarray:
        """Times (int64) of the past steps of some windows, ``[w, L]``."""
        steps = self.windows.origin[rows][:, None] + np.arange(-self.length, 0)
        return self.panel.times(self.windows.series[rows][:, None], steps)

    def all_target_times(self, rows: slice) -> np.ndarray:
        """Times (int64) of the forecast steps of some windows, ``[w, H']``."""
        return self.panel.times(self.windows.series[rows][:, None], self.windows.origin[rows][:, None] + self.steps)

    def target_position(self, target: int | str) -> int:
        """A target by name or position. Raises ConfigError for an unknown name, IndexError for a position."""
        names = self.panel.schema.roles.target
        if isinstance(target, str):
            if target not in names:
                raise unknown_name("target", target, names)
            return names.index(target)
        return in_range(target, len(names), "target")

    @property
    def _targets(self) -> int:
        return len(self.panel.schema.roles.target)

    def _values(self, rows: slice, target: int) -> np.ndarray:
        """Past values of some windows ``[w, L]``, NaN where there are none."""
        return past_values(self.panel, self.windows.series[rows], self.windows.origin[rows], self.length, target)

    def read(self, rows: slice, target: int | None) -> np.ndarray:
        """Which past steps were observed, bool ``[w, L]``; of any target when ``target`` is None."""
        which = range(self._targets) if target is None else [target]
        return np.any([~np.isnan(self._values(rows, one)) for one in which], axis=0)

    # ------------------------------------------------------------------ maps out of maps

    def sel(
        self,
        *,
        window: Any = None,
        series: Any = None,
        origin: Any = None,
        horizon: Any = None,
        layer: int | str | None = None,
        head: Any = None,
    ) -> AttentionMap:
        """Some of the map: windows by position, series id or origin, forecast steps (from 1), a layer, heads.

        ``series`` is an id or a list of ids; ``origin`` the time (or times) of the last past step. Raises ConfigError
        or IndexError for what is not there.
        """
        from tsattn.inspection.selection import select

        return select(self, window=window, series=series, origin=origin, horizon=horizon, layer=layer, head=head)

    def mean(self, over: str | Sequence[str] = "head") -> AttentionMap:
        """The mean over "head", over "horizon" (the kept forecast steps), or over both.

        Over heads it is a summary, exact only where the heads share their values (tft). A mean over windows has no
        dates of its own: that is ``profile`` and ``by_lag``. A mean over the horizon keeps the mapped layers alone.
        """
        names = (over,) if isinstance(over, str) else tuple(over)
        for name in names:
            if name not in ("head", "horizon"):
                raise unknown_name("dimension to take the mean over", name, ("head", "horizon"))
        records = list(self.windows.attention)
        if "head" in names:
            records = [replace(r, weights=r.weights.mean(axis=2, keepdims=True)) for r in records]
        if "horizon" in names:
            self.record()
            records = [self._flat(record) for record in records if has_map(record)]
        return self._with(records, *(f"mean over {name}s" for name in names))

    def _flat(self, record: Record) -> Record:
        """One row for all kept forecast steps."""
        asks = overlap(record.query, self.horizon)[:, self.steps].sum(axis=1) / len(self.steps)  # [J]
        weights = np.einsum("wcnji,j->wcni", record.weights, asks)[:, :, :, None].astype(record.weights.dtype)
        return replace(record, weights=weights, query=replace(record.query, start=(0,), end=(self.horizon,)))

    def per_step(self) -> AttentionMap:
        """Patches to steps: the mapped layers with one row per forecast step and one column per past step.

        Mass is conserved; a patch is shared by its observed steps. It holds ``H' * L`` numbers per window and head.
        """
        return self._each(lambda weights, key, read: weights, "per step")

    def lift(self) -> AttentionMap:
        """Weights per step relative to an even spread over the readable past: 1 is neither sought nor avoided.

        Overlapping or cut patches give some steps a larger share even when every patch weighs the same; a lift is free
        of that. Raises ConfigError for a signed map.
        """
        if self.signed:
            raise ConfigError(f"A lift compares shares with an even spread; {self.method!r} is signed.")

        def relative(weights: np.ndarray, key: Any, read: np.ndarray) -> np.ndarray:
            even = even_spread(key, read)[:, None, None]
            return np.divide(weights, even, out=np.zeros_like(weights), where=even > 0).astype(np.float32)

        return replace(self._each(relative, "lift over an even spread"), unit="lift")

    def _each(self, change: Any, note: str) -> AttentionMap:
        """The mapped layers per step, with ``change(weights [w, N, H', L], key, read [w, L])`` applied."""
        self.record()  # raises where there is no map at all
        query, key = steps_axis("horizon", self.steps), steps_axis("time", np.arange(self.length))
        records = []
        for layer in self.mapped:
            record = self.windows.attention[layer]
            parts = [
                np.concatenate([change(w, record.key, read) for _, w, read in self.chunks(target, layer)])
                for target in range(record.weights.shape[1])
            ]
            records.append(replace(record, weights=np.stack(parts, axis=1), query=query, key=key))
        return self._with(records, note)

    def _with(self, records: Sequence[Record], *notes: str) -> AttentionMap:
        windows = replace(self.windows, attention=tuple(records))
        return replace(self, windows=windows, notes=(*self.notes, *notes))

    # ------------------------------------------------------------------ views

    def profile(self, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """Mean over windows and heads by age, ``[H', L]``, the newest step last.

        A step counts in the windows where it could be read. In this view a fixed lag is a diagonal.
        """
        from tsattn.inspection.views import profile

        return profile(self, target, layer)

    def by_lag(self, target: int | str = 0, layer: int | str | None = None) -> pd.DataFrame:
        """The lag profile: mean weight of a past step by its distance from the forecast step.

        Columns: ``lag`` (steps, from 1), ``weight`` (mean over all pairs of a readable past step and a kept forecast
        step, and over heads), ``low`` and ``high`` (quartiles over windows), ``even`` (what an even spread gives),
        ``pairs`` (how many there are).
        """
        from tsattn.inspection.views import by_lag

        return by_lag(self, target, layer)

    def by_calendar(
        self, rows: str = "hour", cols: str = "dayofweek", target: int | str = 0, layer: int | str | None = None
    ) -> pd.DataFrame:
        """Mean weight per pair by the calendar of the past step, in the zone of the data.

        ``rows`` and ``cols`` name a part of the stamp: minute, hour, dayofweek (0 is Monday), day, dayofyear, week,
        month, quarter; with "target." before it, of the forecast step. Columns: both names, ``weight``, ``pairs``.
        Raises ConfigError for integer time.
        """
        from tsattn.inspection.views import by_calendar

        return by_calendar(self, rows, cols, target, layer)

    def top(
        self, n: int = 10, *, by: str = "window", target: int | str = 0, layer: int | str | None = None
    ) -> pd.DataFrame:
        """The ``n`` past steps with the most weight, with their dates: of each window, or ``by="horizon"`` of each row.

        Weights are means over heads (and over the kept forecast steps for ``by="window"``); a signed map is ranked by
        size. Columns: id, origin, (horizon, target_time,) rank, source_time, age, (lag,) value, weight.
        """
        from tsattn.inspection.views import top

        return top(self, n, by, target, layer)

    def entropy(self, *, normalize: bool = True, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """Shannon entropy of each row over the past steps, ``[W, N, H']``, in nats; NaN for a row without weight.

        ``normalize``: as a share of the largest possible one, the logarithm of the number of readable steps. A signed
        map counts by size.
        """
        from tsattn.inspection.views import entropy

        return entropy(self, normalize, target, layer)

    def effective_steps(self, *, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """How many past steps a row spreads over, ``exp(entropy)``, ``[W, N, H']``: 1 is a single step."""
        return np.exp(self.entropy(normalize=False, target=target, layer=layer))

    def variables(self, target: int | str = 0, layer: int | str | None = None) -> pd.DataFrame:
        """Mean weights of a layer over variables (mean over windows and heads): query by variable, with names.

        For variable attention (itransformer) the queries are variables too; for a variable selection (tft) steps.
        Raises ConfigError where no layer has variables as keys.
        """
        from tsattn.inspection.views import variables

        return variables(self, target, layer)

    def compare(self, other: AttentionMap, target: int | str = 0, layer: int | str | None = None) -> pd.DataFrame:
        """How far two maps of the same windows are apart: one row per window and forecast step.

        Columns: id, origin, horizon, ``total_variation`` (0 the same, 1 disjoint; of the shares by size) and
        ``spearman`` (rank correlation over past steps). Means over heads are compared. Raises ConfigError when windows,
        past steps or forecast steps differ.
        """
        from tsattn.inspection.views import compare

        return compare(self, other, target, layer)

    # ------------------------------------------------------------------ out of here

    def to_frame(self, window: int | None = None, *, min_weight: float = 0.0) -> pd.DataFrame:
        """Tidy table: id, (target,) origin, horizon, target_time, source_time, lag, layer, head, weight.

        One row per window, target, layer, head, forecast step (from 1) and observed past step (``lag`` steps before
        the forecast step) whose weight is above ``min_weight`` (in size, for signed maps). ``origin`` is the time of
        the last past step. Layers without a map from forecast steps to past steps are left out; raises ConfigError when
        that is all of them.
        """
        from tsattn.inspection.tables import tidy

        return tidy(self if window is None else self.sel(window=self.position(window)), min_weight)

    def to_xarray(self, target: int | str = 0) -> Any:
        """An ``xarray.Dataset``: one variable per mapped layer, dims window, head, horizon, age.

        Coordinates: series id, origin, ``target_time [window, horizon]``, ``source_time [window, age]``. Needs xarray,
        which tsattn does not install: ``pip install "tsattn[xarray]"``.
        """
        from tsattn.inspection.tables import dataset

        return dataset(self, target)

    def save(self, path: str | Path) -> Path:
        """Write the map, which ``load`` reads back whole: ``.npz``, or ``.parquet`` with the tidy table in the open.

        Any tool reads the table (``to_frame``) in the Parquet file. Raises ConfigError for another ending, and for more
        than 32 MB as Parquet.
        """
        from tsattn.inspection.storage import save

        return save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> AttentionMap:
        """Read a map that was saved. Raises ArtifactError when it is missing, damaged, or no map."""
        from tsattn.inspection.storage import load

        return load(Path(path))

    def plot(self, kind: str = "strip", *, interactive: bool = False, **options: Any) -> Any:
        """A picture of the map. Each has a caption that says where it comes from, and pyplot does not know of it.

        ============ ========================================================================= =======================
        kind         what it shows                                                             options
        ============ ========================================================================= =======================
        "strip"      history, forecast, and the weight of each past step on the same time axis window, horizon
        "heatmap"    forecast steps by past steps, over time, age or lag                       window, x, guides
        "lags"       mean weight by lag, with quartiles over windows and named lags            count
        "calendar"   mean weight by hour and weekday of what was read, by hour of the forecast rows, cols
        "heads"      a small map of each layer and head                                        window
        "variables"  variables by variables, or by step                                        layer
        "compare"    this map, ``other``, and their difference                                 other, window, x
        ============ ========================================================================= =======================

        All but "heads" take ``target``, ``layer`` and ``ax`` where they are one panel; colours of shares follow
        ``scale="sqrt"`` or "log". The functions in ``tsattn.inspection.pictures`` say more.

        Args:
            kind: One of the above.
            interactive: With plotly, where hovering shows date, value and weight: "strip" and "heatmap". Needs
                ``pip install "tsattn[plotly]"``.
            options: Those of the picture.

        Returns:
            Axes, or a Figure for several panels: a notebook shows both, a script saves them (``.figure.savefig``). A
            plotly Figure when ``interactive``.

        Raises:
            ConfigError: an unknown kind or option, or a picture that this map cannot give; the message says why.
        """
        from tsattn.inspection.pictures import draw

        return draw(self, kind, interactive=interactive, **options)


def past_values(panel: Panel, series: np.ndarray, origin: np.ndarray, length: int, target: int) -> np.ndarray:
    """The ``length`` values before step ``origin [w]`` of ``series [w]``: ``[w, length]`` float32.

    NaN where unobserved or before the series began.
    """
    step = np.asarray(origin)[:, None] + np.arange(-length, 0)
    stop = panel.lengths[series][:, None]
    inside = (step >= 0) & (step < stop)
    values = panel.targets[panel.indptr[series][:, None] + np.where(inside, step, 0), target]
    return np.where(inside, values, np.float32(np.nan))


def in_range(value: int, count: int, name: str, first: int = 0) -> int:
    """``value`` as a number from ``first``; negative values count from the end when ``first`` is 0.

    Raises IndexError naming the range.
    """
    found = index(value)
    if first == 0 and -count <= found < 0:
        found += count
    if not first <= found < first + count:
        raise IndexError(f"{name} {value} does not exist: there are {count}, from {first} to {first + count - 1}.")
    return found


def _why_no_map(record: Record, model: str) -> str:
    """The message for a layer that does not go from forecast steps to past steps."""
    found = f"The attention of layer {record.layer!r} is {record.query.kind} x {record.key.kind}: "
    if record.key.kind == "variable":
        found += f"{model} attends over variables, not over time, so "
    found += "it has no map from forecast steps to past steps."
    if record.key.kind == "variable":
        found += " Its weights are in attention.variables()."
    return found
