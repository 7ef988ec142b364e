"""Means over windows with honest intervals: windows that overlap are not independent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float

    def scaled(self, by: float) -> Interval:
        """All three times ``by``."""
        return Interval(*(part * by for part in self))


def interval(values: np.ndarray, cluster: np.ndarray) -> Interval:
    """Mean of ``values [n]`` with a 95 % interval that is robust to dependence within ``cluster [n]``.

    Sums of deviations by cluster give the variance (Liang and Zeger, 1986), with Student's t for the number of
    clusters. With fewer than two clusters nothing is known: the interval is infinite. NaN values are left out.
    """
    from scipy.stats import t

    there = np.isfinite(values)
    values, cluster = values[there], cluster[there]
    if not len(values):
        return Interval(np.nan, -np.inf, np.inf)
    mean = float(values.mean())
    names, place = np.unique(cluster, return_inverse=True)
    if len(names) < 2:
        return Interval(mean, -np.inf, np.inf)
    sums = np.bincount(place, weights=values - mean)
    count = len(names)
    error = float(np.sqrt(count / (count - 1) * np.square(sums).sum()) / len(values))
    half = float(t.ppf(0.975, count - 1)) * error
    return Interval(mean, mean - half, mean + half)


def needed(found: Interval, windows: int) -> int:
    """Windows after which an interval of this width would leave 0 out, if the mean stays."""
    half = found.high - found.value
    if not np.isfinite(half) or found.value == 0:
        return 10 * windows
    return int(np.ceil(windows * (half / found.value) ** 2))
