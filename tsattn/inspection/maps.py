"""Attention of many windows, tied to real time stamps.

Legend: ``W`` windows, ``C`` targets, ``N`` heads, ``H`` horizon steps, ``L`` context steps, ``J`` query tokens, ``I``
key tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from tsattn.data.panel import Panel
from tsattn.errors import ConfigError
from tsattn.inference import Record, WindowForecasts
from tsattn.models.base import Axis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMap:
    """Where each forecast looked. Weights are kept per token; the views map them to steps and to time stamps.

    ``levels`` (of the quantiles) and ``model`` are there for the pictures, and may be left out.
    """

    panel: Panel
    windows: WindowForecasts
    levels: tuple[float, ...] = ()
    model: str | None = None

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.windows.series)

    def __repr__(self) -> str:
        """One line: how many windows, which layers, how far back."""
        return f"AttentionMap({len(self)} windows x {self.length} past steps, layers {self.layers})"

    @property
    def layers(self) -> list[str]:
        """Names of the attention layers."""
        return [record.layer for record in self.windows.attention]

    @property
    def length(self) -> int:
        """Past steps ``L`` of a window."""
        records = [r for r in self.windows.attention if _over_time(r.key)] or list(self.windows.attention)
        return max(max(record.key.end) - record.key.ahead for record in records)

    @property
    def mapped(self) -> list[int]:
        """Positions of the layers that say from forecast step to past step; a self-attention layer does not."""
        return [i for i, record in enumerate(self.windows.attention) if _has_map(record)]

    def position(self, window: int) -> int:
        """``window`` as a number from 0; raises IndexError naming the range."""
        return in_range(window, len(self), "window")

    def step_weights(self, window: int, target: int = 0, layer: int = -1) -> np.ndarray:
        """Weights ``[N, H, L]`` of one window: forecast step by past step.

        A token's weight is divided evenly over the observed steps it covers, so rows keep their sum; unobserved steps
        and left padding get exactly 0. Where forecast steps are keys as well, a row lacks what fell on them, which
        ``ahead_weights`` gives. Raises ConfigError when the attention has no horizon or no time axis.
        """
        record, weights, own = self._mapped_weights(window, target, layer)
        spread = _overlap(record.key, self.length) * self._read(window, own)  # [I, L]
        spread = spread / np.maximum(spread.sum(axis=1, keepdims=True), 1)
        return self._by_step(record, weights @ spread)

    def ahead_weights(self, window: int, target: int = 0, layer: int = -1) -> np.ndarray:
        """Weights ``[N, H, H]`` of one window: forecast step by forecast step, read through what is known of it.

        All 0 where the keys are past steps alone. Raises ConfigError as ``step_weights``.
        """
        record, weights, _ = self._mapped_weights(window, target, layer)
        steps = self.length + self.windows.point.shape[1]
        return self._by_step(record, weights @ _overlap(record.key, steps)[:, self.length :])

    def _mapped_weights(self, window: int, target: int, layer: int) -> tuple[Record, np.ndarray, int | None]:
        """A record, its weights ``[N, J, I]`` of one window, and the target they are of; None: of all targets."""
        record = self.windows.attention[in_range(layer, len(self.windows.attention), "layer")]
        if not _has_map(record):
            raise ConfigError(_why_no_map(record, self.model or "the model"))
        target = self._target(target)
        shared = record.weights.shape[1] < len(self.panel.schema.roles.target)  # one attention for all targets
        weights = record.weights[self.position(window), 0 if shared else target]
        return record, weights, None if shared else target

    def _by_step(self, record: Record, rows: np.ndarray) -> np.ndarray:
        """The row of each forecast step: ``[N, J, X] -> [N, H, X]``."""
        asks = _overlap(record.query, self.windows.point.shape[1])  # [J, H]; horizon tokens do not overlap
        return rows[:, asks.argmax(axis=0)] * asks.max(axis=0)[:, None]

    def observed(self, window: int, target: int = 0) -> np.ndarray:
        """Which of the ``L`` steps before the origin were observed, bool ``[L]``."""
        return ~np.isnan(self.history(window, target))

    def _read(self, window: int, target: int | None) -> np.ndarray:
        """Which past steps were observed, bool ``[L]``; of any target when ``target`` is None."""
        if target is not None:
            return self.observed(window, target)
        return np.any([self.observed(window, t) for t in range(len(self.panel.schema.roles.target))], axis=0)

    def history(self, window: int, target: int = 0) -> np.ndarray:
        """The ``L`` values before the origin, float32, NaN where unobserved or before the series began."""
        window = self.position(window)
        series, origin = int(self.windows.series[window]), int(self.windows.origin[window])
        return past_values(self.panel, series, origin, self.length, self._target(target))

    def source_times(self, window: int) -> np.ndarray:
        """Times (int64) of the ``L`` steps before the origin; steps before the series began are counted back."""
        window = self.position(window)
        steps = int(self.windows.origin[window]) + np.arange(-self.length, 0)
        return self.panel.times(np.full(self.length, self.windows.series[window]), steps)

    def to_frame(self, window: int | None = None, *, min_weight: float = 0.0) -> pd.DataFrame:
        """Tidy table: id, (target,) origin, horizon, target_time, source_time, lag, layer, head, weight.

        One row per window, target, layer, head, forecast step (from 1) and observed past step (``lag`` steps before
        the first forecast step, the newest is 1) whose weight is above ``min_weight``. ``origin`` is the time of the
        last past step. Layers without a map from forecast steps to past steps are left out; raises ConfigError when
        that is all of them.
        """
        which = range(len(self)) if window is None else [self.position(window)]
        layers = self.mapped
        if not layers:
            self.step_weights(which[0])  # raises with the reason
        keys, found = [], []
        for one in which:
            for target in range(len(self.panel.schema.roles.target)):
                for layer in layers:
                    weights = self.step_weights(one, target, layer)
                    head, horizon, step = np.nonzero(weights > min_weight)  # unobserved steps weigh 0
                    same = np.broadcast_to(np.array([[one], [target], [layer]]), (3, len(head)))
                    keys.append(np.concatenate([same, [head, horizon, step]]).astype(np.int32))
                    found.append(weights[head, horizon, step])
        return self._tidy(np.concatenate(keys, axis=1), np.concatenate(found))

    def _tidy(self, keys: np.ndarray, weights: np.ndarray) -> pd.DataFrame:
        """The table from ``keys [6, rows]`` (window, target, layer, head, horizon, step) and ``weights [rows]``."""
        import pandas as pd

        from tsattn.forecast import id_column, time_index

        schema, roles = self.panel.schema, self.panel.schema.roles
        window, target, layer, head, horizon, step = keys
        series, lag = self.windows.series[window], self.length - step
        origins = self.windows.origin[window]
        table: dict[str, Any] = {}
        if len(roles.target) > 1:
            table["target"] = pd.Index(roles.target).take(target)
        last = self.panel.times(self.windows.series, self.windows.origin - 1)
        table["origin"] = time_index(last[window], schema)
        table["horizon"] = horizon.astype(np.int64) + 1
        table["target_time"] = time_index(self.panel.times(series, origins + horizon), schema)
        table["source_time"] = time_index(self.panel.times(series, origins - lag), schema)
        table["lag"] = lag.astype(np.int64)
        table["layer"] = pd.Index(self.layers).take(layer)
        table["head"] = head.astype(np.int64)
        table["weight"] = weights
        if roles.id is None:
            return pd.DataFrame(table, copy=False)  # copying two million rows costs a second
        if roles.id in table:
            raise ConfigError(
                f"The id column is called {roles.id!r}, like a column of this table. Rename it and fit again."
            )
        return pd.DataFrame({roles.id: id_column(self.panel, series), **table}, copy=False)

    def _target(self, target: int) -> int:
        return in_range(target, len(self.panel.schema.roles.target), "target")

    def plot(self, window: int = 0, *, target: int = 0, horizon: int | None = None, ax: Axes | None = None) -> Axes:
        """History, attention strip and forecast of one window; ``horizon`` (from 1) picks one forecast step.

        Without ``ax`` the figure is made here: a notebook shows it, a script saves it with ``.figure.savefig``.
        """
        from tsattn.inspection.plots import plot_strip

        return plot_strip(self, window, target=target, horizon=horizon, ax=ax)


def past_values(panel: Panel, series: int, origin: int, length: int, target: int) -> np.ndarray:
    """The ``length`` values before step ``origin`` of a series, NaN where unobserved or before the series began."""
    values = np.full(length, np.nan, dtype=np.float32)
    first = max(origin - length, 0)
    row = panel.indptr[series]
    values[length - (origin - first) :] = panel.targets[row + first : row + origin, target]
    return values


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


def _over_time(axis: Axis) -> bool:
    return axis.kind in ("time", "patch")


def _has_map(record: Record) -> bool:
    """Whether a layer goes from forecast steps to past steps."""
    return record.query.kind == "horizon" and _over_time(record.key)


def _why_no_map(record: Record, model: str) -> str:
    """The message for a layer that does not go from forecast steps to past steps."""
    found = f"The attention of layer {record.layer!r} is {record.query.kind} x {record.key.kind}: "
    if record.key.kind == "variable":
        found += f"{model} attends over variables, not over time, so "
    found += "it has no map from forecast steps to past steps."
    if record.key.kind == "variable":
        found += " Its weights are in attention.windows.attention, with the names of the variables in key.names."
    return found


def _overlap(axis: Axis, length: int) -> np.ndarray:
    """Which steps each token covers, ``[tokens, length]`` float."""
    step = np.arange(length)
    start, end = np.asarray(axis.start)[:, None], np.asarray(axis.end)[:, None]
    return ((step >= start) & (step < end)).astype(np.float64)
