"""Attention of many windows, tied to real time stamps.

Legend: ``W`` windows, ``C`` targets, ``N`` heads, ``H`` horizon steps, ``L`` context steps, ``J`` query tokens, ``I``
key tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tsattn.data.panel import Panel
from tsattn.errors import ConfigError
from tsattn.inference import WindowForecasts
from tsattn.models.base import Axis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class AttentionMap:
    """Where each forecast looked. Weights are kept per token; the views map them to steps and to time stamps."""

    panel: Panel
    windows: WindowForecasts

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.windows.series)

    @property
    def layers(self) -> list[str]:
        """Names of the attention layers."""
        return [record.layer for record in self.windows.attention]

    def step_weights(self, window: int, target: int = 0, layer: int = -1) -> np.ndarray:
        """Weights ``[N, H, L]`` of one window: forecast step by past step.

        A token's weight is divided evenly over the observed steps it covers, so rows keep their sum; unobserved steps
        and left padding get exactly 0. Raises ConfigError when the attention has no horizon or no time axis.
        """
        record = self.windows.attention[layer]
        if record.query.kind != "horizon" or record.key.kind not in ("time", "patch"):
            raise ConfigError(
                f"The attention of layer {record.layer!r} is {record.query.kind} x {record.key.kind}: it has no map "
                f"from forecast steps to past steps."
            )
        length, horizon = record.key.end[-1], record.query.end[-1]
        weights = record.weights[window, target]  # [N, J, I]
        spread = _overlap(record.key, length) * self.observed(window, target)  # [I, L]
        spread = spread / np.maximum(spread.sum(axis=1, keepdims=True), 1)
        expand = _overlap(record.query, horizon)  # [J, H]; horizon tokens do not overlap
        return np.einsum("jh,njl->nhl", expand, weights @ spread)

    def observed(self, window: int, target: int = 0) -> np.ndarray:
        """Which of the ``L`` steps before the origin were observed, bool ``[L]``."""
        return ~np.isnan(self.history(window, target))

    def history(self, window: int, target: int = 0) -> np.ndarray:
        """The ``L`` values before the origin, NaN where unobserved or before the series began."""
        length = self.windows.attention[-1].key.end[-1]
        series, origin = int(self.windows.series[window]), int(self.windows.origin[window])
        values = np.full(length, np.nan, dtype=np.float32)
        first = max(origin - length, 0)
        row = self.panel.indptr[series]
        values[length - (origin - first) :] = self.panel.targets[row + first : row + origin, target]
        return values

    def source_times(self, window: int) -> np.ndarray:
        """Times (int64) of the ``L`` steps before the origin; steps before the series began are counted back."""
        length = self.windows.attention[-1].key.end[-1]
        steps = int(self.windows.origin[window]) - length + np.arange(length)
        return self.panel.times(np.full(length, self.windows.series[window]), steps)

    def to_frame(self, window: int | None = None, *, min_weight: float = 0.0) -> pd.DataFrame:
        """Tidy table: id, origin, horizon, target_time, source_time, lag, layer, head, weight (and contribution).

        One row per window, target, head, forecast step (from 1) and observed past step (``lag`` steps before the
        origin, the newest is 1) whose weight is above ``min_weight``. ``origin`` is the time of the last past step.
        """
        import pandas as pd

        which = range(len(self)) if window is None else [range(len(self))[window]]
        parts = [self._tidy(w, c, min_weight) for w in which for c in range(len(self.panel.schema.roles.target))]
        return pd.concat(parts, ignore_index=True)

    def _tidy(self, window: int, target: int, min_weight: float) -> pd.DataFrame:
        import pandas as pd

        from tsattn.forecast import id_column, time_index

        roles = self.panel.schema.roles
        parts = []
        for layer, record in enumerate(self.windows.attention):
            weights = self.step_weights(window, target, layer)
            keep = (weights > min_weight) & self.observed(window, target)
            head, horizon, step = np.nonzero(keep)
            times = self.source_times(window)
            series, origin = int(self.windows.series[window]), int(self.windows.origin[window])
            ahead = self.panel.times(np.full(weights.shape[1], series), origin + np.arange(weights.shape[1]))
            last = self.panel.times(np.array([series]), np.array([origin - 1]))
            columns: dict[str, Any] = {}
            if roles.id is not None:
                columns[roles.id] = id_column(self.panel, np.full(len(head), series))
            if len(roles.target) > 1:
                columns["target"] = roles.target[target]
            columns["origin"] = time_index(np.repeat(last, len(head)), self.panel.schema)
            columns["horizon"] = horizon + 1
            columns["target_time"] = time_index(ahead[horizon], self.panel.schema)
            columns["source_time"] = time_index(times[step], self.panel.schema)
            columns["lag"] = len(times) - step
            columns["layer"] = record.layer
            columns["head"] = head
            columns["weight"] = weights[keep]
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts, ignore_index=True)

    def plot(self, window: int = 0, *, target: int = 0, horizon: int | None = None, ax: Axes | None = None) -> Axes:
        """History, attention strip and forecast of one window; ``horizon`` (from 1) picks one forecast step."""
        from tsattn.inspection.plots import plot_strip

        return plot_strip(self, window, target=target, horizon=horizon, ax=ax)


def _overlap(axis: Axis, length: int) -> np.ndarray:
    """Which steps each token covers, ``[tokens, length]`` float."""
    step = np.arange(length)
    start, end = np.asarray(axis.start)[:, None], np.asarray(axis.end)[:, None]
    return ((step >= start) & (step < end)).astype(np.float64)
