"""Attention over any number of windows, in memory that does not grow with them.

Legend: ``w`` windows of a batch, ``N`` heads, ``H`` horizon, ``L`` context, ``C`` targets.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from tsattn.data.panel import Panel
from tsattn.data.shuffle import mixed
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
        self._seed, self._windows = seed, 0
        self._sample: WindowForecasts | None = None
        self._lots = np.zeros(0, dtype=np.uint64)  # of the windows in the sample
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

    def part(self) -> AttentionSummary:
        """The same without the series that are not in the sample: small enough to be sent elsewhere, for ``merge``.

        It cannot take in more windows.
        """
        small = copy.copy(self)
        if self._sample is not None:
            series, place = np.unique(self._sample.series, return_inverse=True)
            small._panel = self._panel.select(series)
            small._sample = replace(self._sample, series=place)
        return small

    def merge(self, other: AttentionSummary) -> None:
        """Take in the ``part`` of a summary of other series, by the same model with the same seed.

        The result is that of one summary of all windows: the sample to the last bit, sums to float64 rounding (they
        are added in another order).
        """
        if other._sample is None:
            return
        for key, totals in other._totals.items():
            if key in self._totals:
                self._totals[key].merge(totals)
            else:
                self._totals[key] = totals
        self._windows += other._windows
        if self._sample is None:
            self._panel, self._sample, self._lots = other._panel, other._sample, other._lots
            return
        panel = Panel.join([self._panel, other._panel])
        both = [_moved(one._sample, one._panel, panel) for one in (self, other) if one._sample is not None]
        self._panel = panel
        self._keep(both, np.concatenate([self._lots, other._lots]))
        small = self.part()
        self._panel, self._sample = small._panel, small._sample

    def checked(self) -> AttentionSummary:
        """Itself; raises ConfigError where the model has no attention."""
        if self._sample is None or not self._sample.attention:
            raise ConfigError(f"No attention in this backtest: {self._model!r} has none.")
        return self

    @property
    def sample(self) -> AttentionMap:
        """Whole maps of some windows, by series and origin."""
        assert self._sample is not None
        return self._map(self._sample.take(np.lexsort((self._sample.origin, self._sample.series))))

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
        """Keep the windows with the smallest lots: a sample that is the same in whatever order and parts they come."""
        lots = _lots(self._panel, windows.series, windows.origin, self._seed)
        self._windows += len(lots)
        full = len(self._lots) == KEPT
        take = np.flatnonzero(lots < self._lots.max()) if full else np.arange(len(lots))
        if not len(take):
            return
        take = take[np.argsort(lots[take])[:KEPT]]
        chosen = replace(windows.take(take), contributions=None, tokens=None)
        self._keep([chosen] if self._sample is None else [self._sample, chosen], np.append(self._lots, lots[take]))

    def _keep(self, parts: list[WindowForecasts], lots: np.ndarray) -> None:
        """Of all windows of ``parts``, those with the smallest ``lots``."""
        order = np.argsort(lots)[:KEPT]
        self._sample, self._lots = WindowForecasts.join(parts).take(order), lots[order]


def _moved(sample: WindowForecasts, panel: Panel, to: Panel) -> WindowForecasts:
    """The same windows, with their series counted as ``to`` counts them."""
    place = pc.index_in(panel.ids, value_set=to.ids).to_numpy().astype(np.int64)
    return replace(sample, series=place[sample.series])


def _lots(panel: Panel, series: np.ndarray, origin: np.ndarray, seed: int) -> np.ndarray:
    """A number for each window ``[w]`` uint64, even over all numbers, that depends on nothing but its id and time."""
    found, place = np.unique(series, return_inverse=True)
    names = [f"{seed} {panel.ids[int(s)].as_py()!r}" for s in found]
    base = np.array([int.from_bytes(blake2b(n.encode(), digest_size=8).digest(), "little") for n in names], np.uint64)
    return mixed(base[place] + panel.times(series, origin).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
