"""Attention over any number of windows, in memory that does not grow with them.

Legend: ``w`` windows of a batch, ``N`` heads, ``H`` horizon, ``L`` context, ``C`` targets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tsattn.data.panel import Panel
from tsattn.errors import ConfigError
from tsattn.inference import WindowForecasts
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.support import even_spread
from tsattn.inspection.views import CalendarGrid, lag_sums, lag_table, row_entropy

if TYPE_CHECKING:
    import pandas as pd

KEPT = 64  # whole windows in the sample
GRIDS = (("hour", "dayofweek"), ("target.hour", "hour"), ("month", "dayofweek"))


class AttentionSummary:
    """What ``backtest(attention="summary")`` keeps: means, deviations, profiles, and a sample of whole windows.

    ``sample`` is an ``AttentionMap`` of up to 64 windows, each of them as likely to be there as any other, so every
    picture and view can be had of it; the numbers of this class are of all windows.
    """

    def __init__(self, panel: Panel, levels: tuple[float, ...], model: str, *, seed: int = 0) -> None:
        """Nothing is in it yet; ``add`` puts batches of windows in."""
        self._panel, self._levels, self._model = panel, levels, model
        self._random = np.random.default_rng(seed)
        self._windows = 0
        self._sample: WindowForecasts | None = None
        self._totals: dict[tuple[int, int], _Totals] = {}

    def __len__(self) -> int:
        """Number of windows seen."""
        return self._windows

    def __repr__(self) -> str:
        """One line."""
        return f"AttentionSummary({self._windows} windows of {self._model!r}, layers {self.layers})"

    def add(self, windows: WindowForecasts) -> None:
        """Take in the maps of a batch of windows, which need not be kept."""
        batch = self._map(windows)
        for layer in batch.mapped:
            for target in range(len(self._panel.schema.roles.target)):
                totals = self._totals.get((layer, target))
                if totals is None:
                    totals = self._totals[layer, target] = _Totals(batch, layer)
                totals.add(batch, layer, target)
        self._remember(windows)

    def checked(self) -> AttentionSummary:
        """Itself; raises ConfigError where the model has no attention."""
        if self._sample is None or not self._sample.attention:
            raise ConfigError(f"No attention in this backtest: {self._model!r} has none.")
        return self

    @property
    def sample(self) -> AttentionMap:
        """Whole maps of some windows, in the order of the backtest's batches."""
        assert self._sample is not None
        return self._map(self._sample)

    @property
    def layers(self) -> list[str]:
        """Names of the attention layers."""
        return [] if self._sample is None else self.sample.layers

    def profile(self, target: int | str = 0, layer: int | str | None = None, *, by_head: bool = False) -> np.ndarray:
        """Mean over windows by age, ``[H, L]`` (or ``[N, H, L]``): as ``AttentionMap.profile``."""
        totals = self._of(target, layer)
        return totals.mean if by_head else totals.mean.mean(axis=0)

    def deviation(self, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """Standard deviation over windows by head, forecast step and age, ``[N, H, L]``."""
        totals = self._of(target, layer)
        return np.asarray(np.sqrt(totals.squares / np.maximum(totals.count, 1)))

    def by_lag(self, target: int | str = 0, layer: int | str | None = None) -> pd.DataFrame:
        """The lag profile, as ``AttentionMap.by_lag``; the quartiles are those of the sample."""
        totals = self._of(target, layer)
        sampled = self.sample.by_lag(target, layer).set_index("lag")
        table = lag_table(totals.sums, totals.even, totals.pairs, np.zeros((1, len(totals.sums)))).set_index("lag")
        table[["low", "high"]] = sampled[["low", "high"]].reindex(table.index)
        return table.reset_index()

    def by_calendar(
        self, rows: str = "hour", cols: str = "dayofweek", target: int | str = 0, layer: int | str | None = None
    ) -> pd.DataFrame:
        """As ``AttentionMap.by_calendar``, for the pairs that are collected: see ``GRIDS`` of this module."""
        grids = self._of(target, layer).grids
        if (rows, cols) not in grids:
            there = ", ".join(" x ".join(names) for names in grids) or "no calendar, since time is an integer"
            raise ConfigError(f"The summary has {there}; for {rows} x {cols} ask backtest(attention=True).")
        return grids[rows, cols].table()

    def entropy(self, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """Mean entropy over windows, as a share of the largest possible one, ``[N, H]``."""
        totals = self._of(target, layer)
        return totals.entropy / np.maximum(totals.rows, 1)

    def effective_steps(self, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """Mean number of past steps a row spreads over, ``[N, H]``."""
        totals = self._of(target, layer)
        return totals.steps / np.maximum(totals.rows, 1)

    def _of(self, target: int | str, layer: int | str | None) -> _Totals:
        sample = self.checked().sample
        sample.record(layer)
        return self._totals[sample.layer_position(layer), sample.target_position(target)]

    def _map(self, windows: WindowForecasts) -> AttentionMap:
        return AttentionMap(self._panel, windows, self._levels, self._model)

    def _remember(self, windows: WindowForecasts) -> None:
        """Reservoir sampling (Vitter, 1985, algorithm R), a batch at a time."""
        take: dict[int, int] = {}  # place in the sample -> window of the batch
        for row in range(len(windows.series)):
            seen = self._windows + row
            place = seen if seen < KEPT else int(self._random.integers(seen + 1))
            if place < KEPT:
                take[place] = row
        self._windows += len(windows.series)
        if not take:
            return
        chosen = replace(windows.take(np.array(list(take.values()))), contributions=None, tokens=None)
        if self._sample is None:
            self._sample = chosen
            return
        both = WindowForecasts.join([self._sample, chosen])
        place_of = {place: place for place in range(len(self._sample.series))}
        place_of |= {place: len(self._sample.series) + i for i, place in enumerate(take)}
        self._sample = both.take(np.array([place_of[place] for place in sorted(place_of)]))


class _Totals:
    """Sums over windows of one layer and target."""

    def __init__(self, batch: AttentionMap, layer: int) -> None:
        heads = batch.windows.attention[layer].weights.shape[2]
        shape = (heads, batch.horizon, batch.length)
        self.count = np.zeros(batch.length)
        self.mean, self.squares = np.zeros(shape), np.zeros(shape)
        lags = batch.length + batch.horizon - 1
        self.sums, self.even, self.pairs = np.zeros(lags), np.zeros(lags), np.zeros(lags)
        self.entropy, self.steps, self.rows = np.zeros(shape[:2]), np.zeros(shape[:2]), np.zeros(shape[:2])
        stamps = not batch.panel.schema.integer_time
        self.grids = {names: CalendarGrid(batch, *names) for names in (GRIDS if stamps else ())}

    def add(self, batch: AttentionMap, layer: int, target: int) -> None:
        """The windows of a batch, some at a time."""
        key = batch.windows.attention[layer].key
        for windows, weights, read in batch.chunks(target, layer):
            self._moments(weights.astype(np.float64), read)
            heads = weights.mean(axis=1)
            every = np.broadcast_to(read[:, None], heads.shape)
            even = np.broadcast_to(even_spread(key, read)[:, None], heads.shape)
            self.sums += lag_sums(heads, batch.steps).sum(axis=0)
            self.even += lag_sums(even, batch.steps).sum(axis=0)
            self.pairs += lag_sums(every, batch.steps).sum(axis=0)
            self._spread(weights, read)
            for grid in self.grids.values():
                grid.add(batch, windows, heads, read)

    def _moments(self, weights: np.ndarray, read: np.ndarray) -> None:
        """Mean and squared distances of readable steps, joined as by Chan, Golub and LeVeque, 1979."""
        there = read[:, None, None]
        count = read.sum(axis=0)
        mean = (weights * there).sum(axis=0) / np.maximum(count, 1)
        squares = (np.square(weights - mean) * there).sum(axis=0)
        total = np.maximum(self.count + count, 1)
        away = mean - self.mean
        self.squares += squares + np.square(away) * self.count * count / total
        self.mean += away * count / total
        self.count += count

    def _spread(self, weights: np.ndarray, read: np.ndarray) -> None:
        found = row_entropy(weights)
        largest = np.log(np.maximum(read.sum(axis=1), 2))[:, None, None]
        there = np.isfinite(found)
        self.entropy += np.where(there, found / largest, 0.0).sum(axis=0)
        self.steps += np.where(there, np.exp(found), 0.0).sum(axis=0)
        self.rows += there.sum(axis=0)
