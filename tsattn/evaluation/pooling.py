"""Pooling for the scores of :mod:`tsattn.evaluation.metrics`: masks, groups, and ratios that may be empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tsattn.errors import ConfigError, DataError, unknown_name

By = Literal["series", "step", "target"] | None
AXES = {"series": (1, 2), "step": (0, 2), "target": (0, 1)}  # what each grouping sums over


def check_shapes(actual: np.ndarray, **others: np.ndarray | None) -> None:
    """Raise :class:`DataError` unless every other array has the shape of ``actual``: broadcasting hides mistakes."""
    for name, array in others.items():
        if array is not None and np.shape(array) != np.shape(actual):
            raise DataError(
                f"{name} has shape {np.shape(array)}, but actual has {np.shape(actual)}; "
                "both are [windows, horizon, targets]."
            )


def prepare(
    actual: np.ndarray, forecast: np.ndarray, observed: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """float64 ``actual`` and ``forecast`` with unobserved entries set to 0, and the mask of the observed ones."""
    check_shapes(actual, forecast=forecast, observed=observed)
    y, f = np.asarray(actual, dtype=np.float64), np.asarray(forecast, dtype=np.float64)
    seen = ~np.isnan(y)
    if observed is not None:
        seen &= np.asarray(observed, dtype=bool)
    return np.where(seen, y, 0.0), np.where(seen, f, 0.0), seen


def window_scale(scale: np.ndarray, series: np.ndarray | None) -> np.ndarray:
    """``scale`` in a shape that broadcasts with ``[W, H, C]``."""
    scale = np.asarray(scale, dtype=np.float64)
    if scale.ndim == 2 and series is None and len(scale) > 1:
        raise ConfigError("A scale for each series needs series=, the series of each window.")
    if scale.ndim == 2:
        return scale[np.asarray(series)][:, None, :] if series is not None else scale[None]
    return scale[None, None] if scale.ndim == 1 else scale


def check_levels(levels: Sequence[float], quantiles: np.ndarray | None = None) -> list[float]:
    """The levels as floats, each in (0, 1), one for each entry on the last axis of ``quantiles``."""
    levels = [float(level) for level in levels]
    if quantiles is not None and len(levels) != np.shape(quantiles)[-1]:
        raise DataError(
            f"quantiles hold {np.shape(quantiles)[-1]} levels on the last axis, but levels has {len(levels)}."
        )
    for level in levels:
        if not 0 < level < 1:
            raise ConfigError(f"A quantile level lies between 0 and 1, not {level!r}.")
    return levels


def group_codes(by: By, series: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """Position ``[W]`` of the series of each window in ``np.unique(series)``; None unless ``by`` needs it."""
    if by is not None and by not in AXES:
        raise unknown_name("grouping of scores", by, AXES)
    if by is not None and len(shape) != 3:
        raise DataError(f"by={by!r} needs arrays [windows, horizon, targets], not of shape {shape}.")
    if by != "series":
        return None
    if series is None:
        raise ConfigError("by='series' needs series=, the series of each window.")
    if np.shape(series) != shape[:1]:
        raise DataError(f"series has shape {np.shape(series)}, but there are {shape[0]} windows.")
    return np.unique(series, return_inverse=True)[1]


def pooled_total(values: np.ndarray, by: By, groups: np.ndarray | None, part: slice = slice(None)) -> np.ndarray:
    """Sum of ``values`` (the windows ``part``) over all that ``by`` does not keep apart."""
    if by is None:
        return values.sum()
    kept = values.sum(axis=AXES[by])
    if groups is None:
        return kept
    return np.bincount(groups[part], weights=kept, minlength=int(groups.max(initial=-1)) + 1)


def pooled_mean(values: np.ndarray, keep: np.ndarray, by: By, series: np.ndarray | None) -> np.ndarray:
    """Mean of the ``values`` with ``keep``, as ``by`` says."""
    groups = group_codes(by, series, values.shape)
    return ratio(pooled_total(np.where(keep, values, 0.0), by, groups), pooled_total(keep, by, groups))


def ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """``total / count``, nan where the count is 0."""
    total, count = np.asarray(total, dtype=np.float64), np.asarray(count, dtype=np.float64)
    return np.divide(total, count, out=np.full(np.broadcast(total, count).shape, np.nan), where=count != 0)
