"""Sums of attention over windows, for the summary.

Windows whose past was read to the last step share one way from tokens to steps: their sums stay per token, and become
steps when they are asked for. That is what makes a summary cheap, since a patch of 24 steps is one number. The others
are summed per step.

Legend: ``w`` windows of a batch, ``N`` heads, ``H`` horizon, ``L`` context, ``J`` query tokens, ``I`` key tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tsattn.data.panel import Panel
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.support import even_spread, overlap, to_forecast_steps, to_steps
from tsattn.inspection.views import CalendarGrid, calendar_part, lag_sums, row_entropy

GRIDS = (("hour", "dayofweek"), ("target.hour", "hour"), ("month", "dayofweek"))  # parts of the calendar that are kept


class Totals:
    """Sums over windows of one layer and target."""

    def __init__(self, batch: AttentionMap, layer: int) -> None:
        """For maps like those of ``batch``, one layer of it."""
        record = batch.windows.attention[layer]
        self.query, self.key, self.layer = record.query, record.key, layer
        self.length, self.horizon = batch.length, batch.horizon
        heads, covers = record.weights.shape[2], overlap(self.key, self.length)
        self.apart = bool(covers.sum(axis=0).max(initial=0) <= 1)  # no step belongs to two tokens
        self.size = covers.sum(axis=1)  # [I] steps of the past
        self.windows = 0  # read to the last step
        self.tokens = np.zeros((2, *record.weights.shape[2:]))  # sums of weights and of squares, [2, N, J, I]
        self.count = np.zeros(self.length)  # of the other windows
        self.steps = np.zeros((2, heads, self.horizon, self.length))
        self.even = np.zeros((self.horizon, self.length))
        self.entropy, self.spread, self.rows = (np.zeros((heads, self.horizon)) for _ in range(3))
        stamps = not batch.panel.schema.integer_time
        self.grids = {names: CalendarGrid(batch, *names) for names in (GRIDS if stamps else ())}
        self._codes = _StepCodes(batch.panel)

    def add(self, batch: AttentionMap, target: int) -> None:
        """The windows of a batch."""
        record = batch.windows.attention[self.layer]
        shared = record.weights.shape[1] < len(batch.panel.schema.roles.target)
        read = batch.read(slice(None), None if shared else target)
        whole = read.all(axis=1) & self.apart
        if whole.any():
            rows = np.flatnonzero(whole)
            self._add_tokens(batch.sel(window=rows), record.weights[rows, 0 if shared else target])
        if not whole.all():
            for windows, weights, seen in batch.sel(window=np.flatnonzero(~whole)).chunks(target, self.layer):
                self._add_steps(batch.sel(window=np.flatnonzero(~whole)[windows]), weights, seen)

    def merge(self, other: Totals) -> None:
        """Add the sums over other windows, of the same model."""
        for name in ("windows", "tokens", "count", "steps", "even", "entropy", "spread", "rows"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for names, grid in self.grids.items():
            grid.merge(other.grids[names], self._expand)

    def __getstate__(self) -> dict[str, Any]:
        """Sums travel; what is kept to look steps up in a panel stays with the panel."""
        return {**self.__dict__, "_codes": None}

    def _add_tokens(self, batch: AttentionMap, weights: np.ndarray) -> None:
        """Windows that were read to the last step, ``weights [w, N, J, I]``."""
        self.windows += len(weights)
        self.tokens[0] += weights.sum(axis=0, dtype=np.float64)
        self.tokens[1] += np.square(weights, dtype=np.float64).sum(axis=0)
        past = weights[..., self.size > 0]
        total = np.maximum(past.sum(axis=-1, dtype=np.float64), 1e-300)
        # a token's share is split evenly over its steps: each has the entropy of its size besides
        within = (past * np.log(self.size[self.size > 0])).sum(axis=-1) / total
        self._add_entropy(self._to_rows(row_entropy(past) + within), np.log(max(self.length, 2)))
        mean = weights.mean(axis=1)  # [w, J, I]
        asks = overlap(self.query, self.horizon).sum(axis=1)
        for names, grid in self.grids.items():
            if names[0].startswith("target."):
                grid.add_alike(self._codes.keys(batch, names), mean, self._expand)
            else:
                flat = np.einsum("wji,j->wi", mean, asks)[:, None]  # summed over the horizon
                steps = to_steps(flat, self.key, np.ones((len(mean), self.length), dtype=bool))[:, 0]
                grid.add_sums(self._codes.source(batch, names), steps, self.horizon)

    def _add_steps(self, batch: AttentionMap, weights: np.ndarray, read: np.ndarray) -> None:
        """Windows with steps that could not be read, ``weights [w, N, H, L]``, ``read [w, L]``."""
        self.count += read.sum(axis=0)
        self.steps[0] += weights.sum(axis=0, dtype=np.float64)  # what was not read weighs 0
        self.steps[1] += np.square(weights, dtype=np.float64).sum(axis=0)
        self.even += even_spread(self.key, read).sum(axis=0)
        self._add_entropy(row_entropy(weights), np.log(np.maximum(read.sum(axis=1), 2))[:, None, None])
        heads = weights.mean(axis=1)
        for grid in self.grids.values():
            grid.add(batch, slice(None), heads, read)

    def _add_entropy(self, found: np.ndarray, largest: Any) -> None:
        there = np.isfinite(found)
        self.entropy += np.where(there, found / largest, 0.0).sum(axis=0)
        self.spread += np.where(there, np.exp(found), 0.0).sum(axis=0)
        self.rows += there.sum(axis=0)

    def _to_rows(self, per_query: np.ndarray) -> np.ndarray:
        """``[w, N, J] -> [w, N, H]``: the number of the query token that answers for a step."""
        rows = to_forecast_steps(per_query[..., None], self.query, np.arange(self.horizon), self.horizon)
        return rows[..., 0]

    def _expand(self, tokens: np.ndarray) -> np.ndarray:
        """``[..., J, I] -> [..., H, L]`` for windows that were read to the last step."""
        lead = tokens.shape[:-2]
        flat = tokens.reshape(1, -1, *tokens.shape[-2:])
        rows = to_forecast_steps(flat, self.query, np.arange(self.horizon), self.horizon)
        steps = to_steps(rows, self.key, np.ones((1, self.length), dtype=bool))
        return steps.reshape(*lead, self.horizon, self.length)

    def counts(self) -> np.ndarray:
        """Windows in which each past step was read, ``[L]``."""
        return np.asarray(self.windows + self.count)

    def mean(self) -> np.ndarray:
        """``[N, H, L]``."""
        return np.asarray((self._expand(self.tokens[0]) + self.steps[0]) / np.maximum(self.counts(), 1))

    def deviation(self) -> np.ndarray:
        """``[N, H, L]``, over the windows in which a step was read."""
        share = self._expand(np.ones(self.tokens.shape[1:]))  # the share of a step in its token
        squares = self._expand(self.tokens[1]) * share + self.steps[1]
        variance = squares / np.maximum(self.counts(), 1) - np.square(self.mean())
        return np.asarray(np.sqrt(np.maximum(variance, 0)))

    def lags(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sums of weights (means over heads), of an even spread, and pairs, each by lag from 1."""
        steps = np.arange(self.horizon)
        weights = (self.mean() * self.counts()).mean(axis=0)
        full = even_spread(self.key, np.ones((1, self.length), dtype=bool)) * self.windows
        even = self.even + np.broadcast_to(full, weights.shape)
        pairs = np.broadcast_to(self.counts(), weights.shape)
        sums, evens, count = (lag_sums(part[None], steps)[0] for part in (weights, even, pairs))
        return sums, evens, count


class _StepCodes:
    """Parts of the calendar of the steps of a panel, each computed once."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._rows: dict[str, np.ndarray] = {}

    def source(self, batch: AttentionMap, names: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
        """Two parts of the calendar of the past steps, ``[w, L]`` each; every step lies in its series."""
        first, second = (self._of(name)[self._places(batch)] for name in names)
        return first, second

    def keys(self, batch: AttentionMap, names: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
        """The part of the forecast steps ``[w, H]`` and of the past steps ``[w, L]``."""
        times = batch.all_target_times(slice(None))
        target = calendar_part(times, names[0].removeprefix("target."), self._panel.schema)
        return target, self._of(names[1])[self._places(batch)]

    def _places(self, batch: AttentionMap) -> np.ndarray:
        steps = batch.windows.origin[:, None] + np.arange(-batch.length, 0)
        return np.asarray(self._panel.indptr[batch.windows.series][:, None] + steps)

    def _of(self, name: str) -> np.ndarray:
        if name not in self._rows:
            panel = self._panel
            series = np.repeat(np.arange(len(panel)), panel.lengths)
            step = np.arange(len(series)) - panel.indptr[series]
            self._rows[name] = calendar_part(panel.times(series, step), name, panel.schema)
        return self._rows[name]
