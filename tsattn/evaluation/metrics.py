"""Forecast scores, in numpy and float64.

Legend: ``W`` windows, ``H`` horizon, ``C`` targets, ``Q`` quantile levels, ``S`` series. Arrays are ``[W, H, C]``.

Every score is pooled: the sum over the observed steps divided by the number of observed steps, so a window with holes
counts for what it holds. ``by`` says what is kept apart: nothing (None, a 0-d result), the ``"series"`` of the
windows (``[K]``, in the order of ``np.unique(series)``), the ``"step"`` of the horizon (``[H]``) or the ``"target"``
(``[C]``). Nothing observed gives nan without a warning, and so does a nan forecast of an observed step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsattn.data.panel import series_blocks
from tsattn.errors import ConfigError
from tsattn.evaluation.pooling import (
    By,
    check_levels,
    check_shapes,
    group_codes,
    pooled_mean,
    pooled_total,
    prepare,
    ratio,
    window_scale,
)

_BLOCK = 1 << 21  # entries scored at once by score_table: about 16 MB for each temporary array


def mae(
    actual: np.ndarray,
    forecast: np.ndarray,
    observed: np.ndarray | None = None,
    *,
    by: By = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """Mean absolute error ``mean |y - f|``, in units of the target.

    Args:
        actual, forecast: ``[W, H, C]``.
        observed: bool ``[W, H, C]``; default: where ``actual`` is not nan. A nan is never observed.
        by: what is kept apart (see the module).
        series: int ``[W]``, the series of each window; needed by ``by="series"``.

    Raises:
        DataError: the shapes differ.
        ConfigError: ``by`` is unknown, or ``"series"`` without ``series``.
    """
    y, f, seen = prepare(actual, forecast, observed)
    return pooled_mean(np.abs(y - f), seen, by, series)


def mse(
    actual: np.ndarray,
    forecast: np.ndarray,
    observed: np.ndarray | None = None,
    *,
    by: By = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """Mean squared error ``mean (y - f)^2``, in squared units of the target. Arguments and errors as :func:`mae`."""
    y, f, seen = prepare(actual, forecast, observed)
    return pooled_mean((y - f) ** 2, seen, by, series)


def rmse(
    actual: np.ndarray,
    forecast: np.ndarray,
    observed: np.ndarray | None = None,
    *,
    by: By = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """Root of the pooled :func:`mse`, in units of the target: not the mean of one root for each window."""
    return np.asarray(np.sqrt(mse(actual, forecast, observed, by=by, series=series)))


def mase(
    actual: np.ndarray,
    forecast: np.ndarray,
    scale: np.ndarray,
    observed: np.ndarray | None = None,
    *,
    by: By = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """Mean absolute scaled error ``mean |y - f| / scale``, no unit; below 1 beats the seasonal naive in sample.

    Args:
        scale: the first result of :func:`seasonal_scale`. ``[S, C]`` (or ``[C]`` for one series) is looked up with
            the codes in ``series``; three dimensions such as ``[W, 1, C]`` are taken as they are. Entries whose scale
            is zero, infinite or nan are left out.

    Other arguments and errors as :func:`mae`. Source: Hyndman and Koehler (2006), Int. Journal of Forecasting 22.
    """
    y, f, seen = prepare(actual, forecast, observed)
    return pooled_mean(*_scaled(np.abs(y - f), seen, window_scale(scale, series)), by, series)


def rmsse(
    actual: np.ndarray,
    forecast: np.ndarray,
    scale: np.ndarray,
    observed: np.ndarray | None = None,
    *,
    by: By = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """Root mean squared scaled error ``sqrt(mean (y - f)^2 / scale)``, no unit, pooled before the root.

    ``scale`` is the second result of :func:`seasonal_scale`; arguments and errors as :func:`mase`. With ``season=1``
    and ``by="series"`` it is the RMSSE of the M5 competition (Makridakis, Spiliotis and Assimakopoulos, 2022).
    """
    y, f, seen = prepare(actual, forecast, observed)
    return np.asarray(np.sqrt(pooled_mean(*_scaled((y - f) ** 2, seen, window_scale(scale, series)), by, series)))


def smape(
    actual: np.ndarray,
    forecast: np.ndarray,
    observed: np.ndarray | None = None,
    *,
    by: By = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """Symmetric mean absolute percentage error ``mean 200 |y - f| / (|y| + |f|)``, from 0 to 200; 0 / 0 counts as 0.

    Arguments and errors as :func:`mae`. Source: the M4 competition (Makridakis, Spiliotis and Assimakopoulos, 2020).
    """
    y, f, seen = prepare(actual, forecast, observed)
    return pooled_mean(_symmetric(y, f), seen, by, series)


def quantile_loss(
    actual: np.ndarray,
    forecast: np.ndarray,
    level: float,
    observed: np.ndarray | None = None,
    *,
    by: By = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """Pinball loss ``mean max(q (y - f), (q - 1) (y - f))`` of one level, in units of the target.

    Args:
        forecast: the quantile of ``level`` ``[W, H, C]``.
        level: ``q`` in (0, 1).

    Other arguments and errors as :func:`mae`. At 0.5 it is half the :func:`mae`. Source: Koenker and Bassett (1978).
    """
    (level,) = check_levels([level])
    y, f, seen = prepare(actual, forecast, observed)
    return pooled_mean(_pinball(y, f, level), seen, by, series)


def weighted_quantile_loss(
    actual: np.ndarray,
    quantiles: np.ndarray,
    levels: Sequence[float],
    observed: np.ndarray | None = None,
    *,
    by: By = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """``2 sum pinball / sum |y|`` of each level, averaged over the levels; no unit. nan when ``sum |y|`` is zero.

    Args:
        quantiles: ``[W, H, C, Q]``.
        levels: the ``Q`` levels, each in (0, 1).

    Other arguments and errors as :func:`mae`. Source: ``mean_weighted_sum_quantile_loss`` of GluonTS.
    """
    quantiles = np.asarray(quantiles)
    levels = check_levels(levels, quantiles)
    losses = [quantile_loss(actual, quantiles[..., k], q, observed, by=by, series=series) for k, q in enumerate(levels)]
    size = mae(actual, np.zeros_like(actual), observed, by=by, series=series)
    return ratio(2 * np.mean(losses, axis=0), size)  # the counts cancel: means over means are sums over sums


def coverage(
    actual: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    observed: np.ndarray | None = None,
    *,
    by: By = None,
    series: np.ndarray | None = None,
) -> np.ndarray:
    """Share of observed values in ``[lower, upper]``, from 0 to 1. Arguments and errors as :func:`mae`."""
    y, low, seen = prepare(actual, lower, observed)
    _, high, _ = prepare(actual, upper, observed)
    return pooled_mean(_inside(y, low, high), seen, by, series)


def seasonal_scale(
    values: np.ndarray,
    observed: np.ndarray | None = None,
    season: int = 1,
    *,
    indptr: np.ndarray | None = None,
    ends: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """In-sample error of the seasonal naive: mean of ``|y_t - y_(t - season)|`` and of its square.

    Only pairs with both values observed count. Pass the rows before the first forecast origin, or the scale sees the
    future. Zero for a constant series and nan without a pair; the scaled scores leave both out.

    Args:
        values: ``[rows, C]``, the regular grid of one series, or of several one after the other.
        observed: bool ``[rows, C]``; default: where ``values`` is not nan.
        season: lag in steps, at least 1.
        indptr: ``[S + 1]`` row at which each series starts, and the number of rows; None is one series.
        ends: ``[S]`` number of rows of each series before its first origin; None takes all rows.

    Returns:
        ``(mae, mse)``, float64 ``[S, C]``, or ``[C]`` without ``indptr``; units and squared units of the target.

    Raises:
        ConfigError: the season is below 1.
    """
    if season < 1:
        raise ConfigError(f"season must be at least 1, not {season!r}.")
    bounds = np.array([0, len(values)]) if indptr is None else np.asarray(indptr)
    parts = []
    for series, rows in series_blocks(bounds):
        block = np.asarray(values[rows], dtype=np.float64)
        seen = ~np.isnan(block) if observed is None else np.asarray(observed[rows], dtype=bool) & ~np.isnan(block)
        stop = None if ends is None else np.asarray(ends)[series]
        parts.append(_scale_sums(block, seen, season, np.diff(bounds[series.start : series.stop + 1]), stop))
    empty = np.zeros((3, 0, np.shape(values)[1]))
    count, absolute, squared = np.concatenate(parts, axis=1) if parts else empty
    scale_mae, scale_mse = ratio(absolute, count), ratio(squared, count)
    return (scale_mae[0], scale_mse[0]) if indptr is None else (scale_mae, scale_mse)


def _scale_sums(
    values: np.ndarray, seen: np.ndarray, season: int, lengths: np.ndarray, ends: np.ndarray | None
) -> np.ndarray:
    """Number of pairs of each series, and the sums of their distances and squared distances: ``[3, s, C]``."""
    code = np.repeat(np.arange(len(lengths)), lengths)
    if ends is not None:
        step = np.arange(len(values)) - (np.cumsum(lengths) - lengths)[code]
        seen = seen & (step < ends[code])[:, None]
    paired = seen[season:] & seen[:-season] & (code[season:] == code[:-season])[:, None]
    apart = np.where(paired, values[season:], 0.0) - np.where(paired, values[:-season], 0.0)

    def per_series(entries: np.ndarray) -> np.ndarray:
        sums = [np.bincount(code[season:], entries[:, c], minlength=len(lengths)) for c in range(values.shape[1])]
        return np.stack(sums, axis=1) if sums else np.zeros((len(lengths), 0))

    return np.stack([per_series(paired), per_series(np.abs(apart)), per_series(apart**2)])


def score_table(
    actual: np.ndarray,
    forecast: np.ndarray,
    quantiles: np.ndarray | None = None,
    levels: Sequence[float] = (),
    series: np.ndarray | None = None,
    scale_mae: np.ndarray | None = None,
    scale_mse: np.ndarray | None = None,
    by: By = None,
    observed: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Every score at once, a block of windows at a time, so memory does not grow with the number of windows.

    Args:
        actual, forecast: ``[W, H, C]``.
        quantiles, levels: ``[W, H, C, Q]`` and the ``Q`` levels, when the forecast has them.
        series: int ``[W]``, the series of each window.
        scale_mae, scale_mse: results of :func:`seasonal_scale`; ``scale`` of :func:`mase` says which shapes are read.
        by, observed: see the module and :func:`mae`.

    Returns:
        name -> scores of the shape that ``by`` gives: ``mae``, ``mse``, ``rmse``, ``smape``; with scales ``mase`` and
        ``rmsse``; with quantiles ``quantile_loss_0.1`` for each level, ``weighted_quantile_loss``, and
        ``coverage_80`` for each pair of levels around the median. Each equals the function of its name.

    Raises:
        DataError, ConfigError: as :func:`mae`.
    """
    return scores_of(
        score_sums(actual, forecast, quantiles, levels, series, scale_mae, scale_mse, by, observed), levels
    )


def score_sums(
    actual: np.ndarray,
    forecast: np.ndarray,
    quantiles: np.ndarray | None = None,
    levels: Sequence[float] = (),
    series: np.ndarray | None = None,
    scale_mae: np.ndarray | None = None,
    scale_mse: np.ndarray | None = None,
    by: By = None,
    observed: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """What :func:`scores_of` makes the scores of: name -> sum and count of its entries, ``[2, ...]``.

    Sums of parts of the windows may be added up. Arguments and errors as :func:`score_table`.
    """
    checked = [] if quantiles is None else check_levels(levels, quantiles)
    scales = {"mase": scale_mae, "rmsse": scale_mse}
    per_window = {name: window_scale(scale, series) for name, scale in scales.items() if scale is not None}
    groups = group_codes(by, series, np.shape(actual))
    actual, forecast = np.asarray(actual), np.asarray(forecast)
    first_level = None if quantiles is None else np.asarray(quantiles)[..., 0]
    check_shapes(actual, forecast=forecast, observed=observed, quantiles=first_level)
    size = max(1, _BLOCK // max(1, int(np.prod(actual.shape[1:]))))
    totals: dict[str, np.ndarray] = {}
    for first in range(0, max(len(actual), 1), size):
        part = slice(first, first + size)
        y, f, seen = prepare(actual[part], forecast[part], None if observed is None else np.asarray(observed)[part])
        block = {"mae": (np.abs(y - f), seen), "mse": ((y - f) ** 2, seen), "smape": (_symmetric(y, f), seen)}
        for name, scale in per_window.items():
            rows = scale[part] if len(scale) == len(actual) else scale
            block[name] = _scaled(block["mae" if name == "mase" else "mse"][0], seen, rows)
        if checked:
            block |= _quantile_terms(y, np.asarray(quantiles)[part], seen, checked)
        for name, (values, keep) in block.items():
            pair = [pooled_total(np.where(keep, values, 0.0), by, groups, part), pooled_total(keep, by, groups, part)]
            totals[name] = totals.get(name, 0.0) + np.stack(pair)
    return totals


def scores_of(sums: dict[str, np.ndarray], levels: Sequence[float] = ()) -> dict[str, np.ndarray]:
    """The scores from :func:`score_sums`, as :func:`score_table` returns them; ``levels`` those of the quantiles."""
    means = {name: ratio(total, count) for name, (total, count) in sums.items()}
    return _finish(means, levels if "size" in means else ())


def _quantile_terms(
    y: np.ndarray, quantiles: np.ndarray, seen: np.ndarray, levels: Sequence[float]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Entries to be averaged for the scores of the quantiles, with the mask of those that count."""
    hidden = np.where(seen[..., None], quantiles, 0.0).astype(np.float64)
    terms = {f"quantile_loss_{q:g}": (_pinball(y, hidden[..., k], q), seen) for k, q in enumerate(levels)}
    terms["size"] = (np.abs(y), seen)
    for low, q in enumerate(levels):
        high = next((k for k, other in enumerate(levels) if abs(other - (1 - q)) < 1e-9), None)
        if q < 0.5 and high is not None:
            terms[f"coverage_{100 * (1 - 2 * q):g}"] = (_inside(y, hidden[..., low], hidden[..., high]), seen)
    return terms


def _finish(means: dict[str, np.ndarray], levels: Sequence[float]) -> dict[str, np.ndarray]:
    """Scores from the pooled means, in the order they are printed."""
    scores = {"mae": means["mae"], "mse": means["mse"], "rmse": np.sqrt(means["mse"]), "smape": means["smape"]}
    if "mase" in means:
        scores["mase"] = means["mase"]
    if "rmsse" in means:
        scores["rmsse"] = np.sqrt(means["rmsse"])
    scores |= {name: mean for name, mean in means.items() if name.startswith("quantile_loss")}
    if levels:
        losses = [means[f"quantile_loss_{q:g}"] for q in levels]
        scores["weighted_quantile_loss"] = ratio(2 * np.mean(losses, axis=0), means["size"])
    scores |= {name: mean for name, mean in means.items() if name.startswith("coverage")}
    return {name: np.asarray(score) for name, score in scores.items()}


def _symmetric(y: np.ndarray, f: np.ndarray) -> np.ndarray:
    size = np.abs(y) + np.abs(f)
    with np.errstate(invalid="ignore"):  # an infinite forecast is nan here
        return np.divide(200 * np.abs(y - f), size, out=np.zeros_like(size), where=size != 0)


def _pinball(y: np.ndarray, f: np.ndarray, level: float) -> np.ndarray:
    return np.maximum(level * (y - f), (level - 1) * (y - f))


def _inside(y: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """1 inside, 0 outside, nan where a bound is nan: a missing interval is not a miss."""
    return np.where(np.isnan(low) | np.isnan(high), np.nan, (low <= y) & (y <= high))


def _scaled(errors: np.ndarray, seen: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    usable = np.isfinite(scale) & (scale > 0)
    return errors / np.where(usable, scale, 1.0), seen & usable
