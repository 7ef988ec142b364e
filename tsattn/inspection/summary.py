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
from tsattn.inspection.totals import Totals
from tsattn.inspection.views import lag_table

if TYPE_CHECKING:
    import pandas as pd

KEPT = 64  # whole windows in the sample


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
        self._totals: dict[tuple[int, int], Totals] = {}

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
                    totals = self._totals[layer, target] = Totals(batch, layer)
                totals.add(batch, target)
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
        mean = self._of(target, layer).mean()
        return mean if by_head else mean.mean(axis=0)

    def deviation(self, target: int | str = 0, layer: int | str | None = None) -> np.ndarray:
        """Standard deviation over windows by head, forecast step and age, ``[N, H, L]``."""
        return self._of(target, layer).deviation()

    def by_lag(self, target: int | str = 0, layer: int | str | None = None) -> pd.DataFrame:
        """The lag profile, as ``AttentionMap.by_lag``; the quartiles are those of the sample."""
        totals = self._of(target, layer)
        sampled = self.sample.by_lag(target, layer).set_index("lag")
        sums, even, pairs = totals.lags()
        table = lag_table(sums, even, pairs, np.zeros((1, len(sums)))).set_index("lag")
        table[["low", "high"]] = sampled[["low", "high"]].reindex(table.index)
        return table.reset_index()

    def by_calendar(
        self, rows: str = "hour", cols: str = "dayofweek", target: int | str = 0, layer: int | str | None = None
    ) -> pd.DataFrame:
        """As ``AttentionMap.by_calendar``, for the pairs that are collected: ``tsattn.inspection.totals.GRIDS``."""
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
        return totals.spread / np.maximum(totals.rows, 1)

    def _of(self, target: int | str, layer: int | str | None) -> Totals:
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
