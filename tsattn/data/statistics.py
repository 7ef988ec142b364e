"""Statistics of the training part of a panel: what covariates are standardised by, and the unit of the loss.

Every block of rows is read once, so a panel that lies on disk costs one pass over its files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tsattn.data.panel import Panel, series_blocks
from tsattn.typed import typed

TINY = float(np.finfo(np.float32).tiny)  # a deviation below this is none: dividing by it would overflow


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and deviation of the numeric covariates in the training part; missing ones enter as the mean (0)."""

    mean: np.ndarray  # [Kp + Kk] float32
    deviation: np.ndarray  # [Kp + Kk] float32, 1 where a column is constant
    static_mean: np.ndarray  # [Ks] float32
    static_deviation: np.ndarray  # [Ks] float32

    def to_dict(self) -> dict[str, list[float]]:
        """Plain data for JSON."""
        return {name: [float(x) for x in getattr(self, name)] for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, data: dict[str, list[float]]) -> Scaling:
        """Inverse of ``to_dict``; raises TypeError for what is no list of numbers."""
        lists = typed(dict[str, tuple[float, ...]], data, "scaling")
        return cls(**{name: np.asarray(values, dtype=np.float32) for name, values in lists.items()})


def training_statistics(panel: Panel, end: np.ndarray) -> tuple[Scaling, np.ndarray]:
    """What the steps before ``end[s]`` of each series tell, in float64 inside: the scaling, and the loss unit.

    The second is the deviation of each target of each series, ``[S, C]`` float32: large and small series count alike.
    A constant series takes the deviation of the others (their median), or 1.
    """
    targets = len(panel.schema.roles.target)
    moments = [_Moments() for _ in range(panel.values.shape[1] - targets)]
    deviation, flat = np.zeros((len(panel), targets)), np.ones((len(panel), targets), dtype=bool)
    for series, rows in series_blocks(panel.indptr):
        lengths = np.minimum(end[series], panel.lengths[series])
        values = _first_steps(panel.values[rows], panel.lengths[series], lengths)
        deviation[series], flat[series] = _deviations(values[:, :targets], lengths)
        for column, found in enumerate(moments, start=targets):
            found.add(values[:, column])
    static = [_Moments() for _ in range(panel.static_values.shape[1])]
    for column, found in enumerate(static):
        found.add(panel.static_values[:, column])
    return Scaling(*_together(moments), *_together(static)), _filled(deviation, flat)


@dataclass
class _Moments:
    """Count, mean and squared deviations of numbers that come in parts (merged as in Chan et al., 1983)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0  # sum of squared deviations from the mean

    def add(self, values: np.ndarray) -> None:
        """Take in more numbers, those that are NaN aside."""
        present = values[~np.isnan(values)].astype(np.float64)
        if not len(present):
            return
        mean = float(present.mean())
        squares = float(((present - mean) ** 2).sum())
        total, apart = self.count + len(present), mean - self.mean
        self.squares += squares + (apart * (self.count / total)) * (apart * len(present))
        self.mean += apart * (len(present) / total)
        self.count = total

    def of_column(self) -> tuple[float, float]:
        """Mean and deviation; 0 and 1 without any number, 1 for the deviation of a constant."""
        deviation = np.sqrt(self.squares / max(self.count, 1))
        return self.mean, deviation if deviation > max(1e-6 * abs(self.mean), TINY) else 1.0


def _together(moments: list[_Moments]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array([found.of_column() for found in moments]).reshape(-1, 2)
    return pairs[:, 0].astype(np.float32), pairs[:, 1].astype(np.float32)


def _first_steps(values: np.ndarray, lengths: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The first ``kept[s]`` rows of each series of a block; the block itself when that is all of it."""
    if (kept >= lengths).all():
        return values
    step = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return values[step < np.repeat(kept, lengths)]


def _deviations(targets: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Deviation of each target of each series of a block ``[s, C]``, and whether it is none."""
    values = targets.astype(np.float64)
    there = ~np.isnan(values)
    count, total = _sum_by_series(there, lengths), _sum_by_series(np.where(there, values, 0.0), lengths)
    mean = total / np.maximum(count, 1)
    centred = np.where(there, values - np.repeat(mean, lengths, axis=0), 0.0)
    deviation = np.sqrt(_sum_by_series(centred**2, lengths) / np.maximum(count, 1))
    return deviation, deviation <= np.maximum(1e-6 * np.abs(mean), TINY)


def _filled(deviation: np.ndarray, flat: np.ndarray) -> np.ndarray:
    for target in range(deviation.shape[1]):
        good = deviation[~flat[:, target], target]
        deviation[flat[:, target], target] = np.median(good) if len(good) else 1.0
    return deviation.astype(np.float32)


def _sum_by_series(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Sums ``[s, C]`` of rows ``[rows, C]`` laid out series by series; 0 for a series without rows."""
    total = np.zeros((len(lengths), values.shape[1]))
    filled = lengths > 0
    if filled.any():
        starts = (np.cumsum(lengths) - lengths)[filled]
        total[filled] = np.add.reduceat(values, starts, axis=0, dtype=np.float64)
    return total
