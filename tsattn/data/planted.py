"""Made series whose right explanation is known: which past step each forecast step depends on, and by how much.

Each generator follows one rule. Innovations are white, so the source cannot be guessed from its neighbours: a model
that forecasts well has read the planted step. Conventions: the horizon step ``h = 1..H`` after the last observed step
``t0`` has the time ``t0 + h``; a source ``lag`` steps before it stands ``lag - h`` steps before ``t0``.

Legend: ``S`` series, ``T`` steps of each, ``L`` context, ``H`` horizon.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tsattn.data.planted_set import Planted
from tsattn.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd


def null(*, series: int = 8, length: int = 800, horizon: int = 12, context: int = 48, seed: int = 0) -> Planted:
    """G0: white noise. There is nothing to read, and an honest check says so."""
    y = np.random.default_rng(seed).standard_normal((series, length))
    table, truth = _long(y), _truth([])
    return Planted("null", table, truth, horizon, context, 0.0, settings={"seed": seed})


def seasonal_copy(
    *,
    lag: int = 36,
    rho: float = 0.95,
    series: int = 8,
    length: int = 1_200,
    horizon: int = 12,
    context: int = 48,
    seed: int = 0,
) -> Planted:
    """G1: ``y_t = rho y_(t - lag) + sqrt(1 - rho^2) e_t``: every step copies the one ``lag`` steps before.

    Raises ConfigError unless ``horizon <= lag <= context <= 2 lag - horizon``: with two seasons in the context the
    second would serve as well as the first.
    """
    if not horizon <= lag <= context <= 2 * lag - horizon:
        raise ConfigError(
            f"seasonal_copy needs horizon <= lag <= context <= 2 * lag - horizon; got horizon {horizon}, lag {lag}, "
            f"context {context}."
        )
    make = np.random.default_rng(seed)
    y = make.standard_normal((series, length))
    for t in range(lag, length):
        y[:, t] = rho * y[:, t - lag] + np.sqrt(1 - rho**2) * y[:, t]
    truth = _truth([_lagged(y, lag, rho)])
    settings = {"lag": lag, "rho": rho, "seed": seed}
    return Planted("seasonal_copy", _long(y), truth, horizon, context, rho**2, settings=settings)


def shortcut(
    *,
    lag: int = 36,
    rho: float = 0.95,
    series: int = 8,
    length: int = 1_200,
    horizon: int = 12,
    context: int = 48,
    seed: int = 0,
) -> Planted:
    """G8: the series of ``seasonal_copy``, for a model that can do without its attention.

    Fit it with ``tsattn.models.shortcut.Shortcut``: a linear path carries the lag, so an honest check answers "not
    used", however right the map looks.
    """
    made = seasonal_copy(lag=lag, rho=rho, series=series, length=length, horizon=horizon, context=context, seed=seed)
    return replace(made, name="shortcut")


def delayed_echo(
    *,
    delay: int = 30,
    gain: float = 0.9,
    rate: float = 0.03,
    noise: float = 0.1,
    series: int = 8,
    length: int = 1_200,
    horizon: int = 8,
    context: int = 48,
    seed: int = 0,
) -> Planted:
    """G2: rare events ``u`` that return once: ``y_t = u_t + gain u_(t - delay) + noise e_t``.

    Most windows hold no event that returns within the horizon: for those there is nothing to point at.
    """
    make = np.random.default_rng(seed)
    event = (make.random((series, length)) < rate) * np.exp(0.25 * make.standard_normal((series, length)))
    echo = np.zeros_like(event)
    echo[:, delay:] = gain * event[:, :-delay]
    y = event + echo + noise * make.standard_normal((series, length))
    rows = _lagged(event, delay, gain)
    rows = [column[rows[-1] != 0] for column in rows]
    r2 = float(echo.var() / y.var())
    settings = {"delay": delay, "gain": gain, "rate": rate, "noise": noise, "seed": seed}
    return Planted("delayed_echo", _long(y), _truth([rows]), horizon, context, r2, settings=settings)


def additive_events(
    *,
    lags: tuple[int, ...] = (13, 21, 34),
    weights: tuple[float, ...] = (1.0, -0.7, 0.4),
    noise: float = 0.3,
    series: int = 8,
    length: int = 1_200,
    horizon: int = 6,
    context: int = 48,
    seed: int = 0,
) -> Planted:
    """G3: a past-only covariate acts at several lags, with signs: ``y_t = sum_k b_k z_(t - l_k) + noise e_t``."""
    if min(lags) < horizon or max(lags) > context:
        raise ConfigError(f"Every lag lies between the horizon {horizon} and the context {context}; got {lags}.")
    make = np.random.default_rng(seed)
    z = make.standard_normal((series, length))
    y = noise * make.standard_normal((series, length))
    for lag, weight in zip(lags, weights, strict=True):
        y[:, lag:] += weight * z[:, :-lag]
    truth = _truth([_lagged(z, lag, weight) for lag, weight in zip(lags, weights, strict=True)], source="z")
    power = float(np.square(weights).sum())
    settings = {"lags": lags, "weights": weights, "noise": noise, "seed": seed}
    r2 = power / (power + noise**2)
    table = _long(y, z=z)
    return Planted("additive_events", table, truth, horizon, context, r2, past=("z",), settings=settings)


def regime_lag(
    *,
    lags: tuple[int, int] = (12, 36),
    noise: float = 0.2,
    series: int = 2_000,
    horizon: int = 6,
    context: int = 48,
    seed: int = 0,
) -> Planted:
    """G4: a marker of sign -1 or +1 anywhere in the window decides which of two lags is copied.

    The average of the maps shows both lags; only the map of a window is right for it.
    """
    make = np.random.default_rng(seed)
    steps = context + horizon
    y, marker = make.standard_normal((series, steps)), np.zeros((series, steps))
    sign = make.choice([-1, 1], series)
    marker[np.arange(series), make.integers(0, context, series)] = sign
    lag = np.where(sign < 0, lags[0], lags[1])
    ahead = np.arange(context, steps)
    source = ahead[None] - lag[:, None]  # [S, H]
    read = np.take_along_axis(y, source, axis=1)
    y[:, context:] = read + noise * make.standard_normal((series, horizon))
    rows = [np.repeat(np.arange(series), horizon), np.tile(ahead, series), source.ravel(), read.ravel()]
    settings = {"lags": lags, "noise": noise, "seed": seed}
    table, r2 = _long(y, marker=marker), 1 / (1 + noise**2)
    return Planted(
        "regime_lag",
        table,
        _truth([rows]),
        horizon,
        context,
        r2,
        past=("marker",),
        windows=True,
        settings=settings,
    )


def needle(*, noise: float = 0.1, series: int = 2_000, horizon: int = 6, context: int = 48, seed: int = 0) -> Planted:
    """G5: a flag marks one step anywhere in the window, and every forecast step repeats its value.

    The average of the maps is flat: recency or the mean profile explain nothing.
    """
    make = np.random.default_rng(seed)
    steps = context + horizon
    y, flag = make.standard_normal((series, steps)), np.zeros((series, steps))
    place = make.integers(0, context, series)
    flag[np.arange(series), place] = 1.0
    read = y[np.arange(series), place]
    y[:, context:] = read[:, None] + noise * make.standard_normal((series, horizon))
    ahead = np.arange(context, steps)
    owner = np.repeat(np.arange(series), horizon)
    rows = [owner, np.tile(ahead, series), np.repeat(place, horizon), np.repeat(read, horizon)]
    settings = {"noise": noise, "seed": seed}
    table, r2 = _long(y, flag=flag), 1 / (1 + noise**2)
    return Planted(
        "needle", table, _truth([rows]), horizon, context, r2, past=("flag",), windows=True, settings=settings
    )


def calendar_lag(
    *,
    hourly: bool = False,
    missing: float = 0.05,
    rho: float = 0.95,
    series: int = 4,
    days: int = 800,
    horizon: int = 5,
    context: int = 35,
    seed: int = 0,
) -> Planted:
    """G6: ``y(t) = rho y(t - 7 days) + sqrt(1 - rho^2) e`` on stamps of which many are missing.

    Random weekends and a share ``missing`` of the rows are deleted, so a source is found by its stamp and not by
    counting rows. ``hourly``: local hours of New York, whose clock changes twice a year; the source has the same local
    hour. ``horizon`` and ``context`` are days (times 24 when hourly).
    """
    import pandas as pd

    make = np.random.default_rng(seed)
    zone = "America/New_York" if hourly else None
    ends = pd.Timestamp("2021-01-01", tz=zone), pd.Timestamp("2021-01-01", tz=zone) + pd.DateOffset(days=days)
    stamps = pd.date_range(*ends, freq="h" if hourly else "D", inclusive="left")
    wall = stamps.tz_localize(None)
    place = pd.Series(np.arange(len(wall)), index=wall)
    place = place[~place.index.duplicated()]
    source = place.reindex(wall - pd.Timedelta(days=7)).to_numpy()  # NaN: there is no such stamp
    tables, truths = [], []
    for number in range(series):
        name = f"s{number:04d}"
        kept = make.random(len(stamps)) >= missing
        weekend = wall.day_of_week.to_numpy() >= 5
        gone = make.random(int(wall.to_period("W-SUN").nunique())) < 0.3
        kept &= ~(weekend & gone[pd.factorize(wall.to_period("W-SUN"))[0]])
        y = make.standard_normal(len(stamps))
        found = np.zeros(len(stamps), dtype=bool)
        for t in np.flatnonzero(~np.isnan(source)):
            back = int(source[t])
            if kept[back]:
                y[t], found[t] = rho * y[back] + np.sqrt(1 - rho**2) * y[t], True
        tables.append(pd.DataFrame({"unique_id": name, "ds": stamps, "y": y})[kept])
        at = np.flatnonzero(found & kept)
        behind = source[at].astype(int)
        columns = {"target_time": stamps[at], "target": "y", "source": "y", "source_time": stamps[behind]}
        truths.append(pd.DataFrame({"unique_id": name, **columns, "contribution": rho * y[behind]}))
    unit = 24 if hourly else 1
    return Planted(
        "calendar_lag",
        pd.concat(tables, ignore_index=True),
        pd.concat(truths, ignore_index=True),
        horizon * unit,
        context * unit,
        rho**2,
        freq="h" if hourly else "D",
        settings={"rho": rho, "missing": missing, "hourly": hourly, "seed": seed},
    )


def variable_map(
    *,
    variables: int = 6,
    lag: int = 3,
    rho: float = 0.9,
    length: int = 3_000,
    horizon: int = 3,
    context: int = 24,
    seed: int = 0,
) -> Planted:
    """G7: each variable follows another one: ``y^j_t = rho y^(sigma(j))_(t - lag) + sqrt(1 - rho^2) e^j_t``.

    ``sigma`` moves every variable one place on, so none follows itself. Raises ConfigError unless
    ``horizon <= lag <= context`` and there are at least two variables.
    """
    if not horizon <= lag <= context or variables < 2:
        raise ConfigError(
            f"variable_map needs horizon <= lag <= context and two variables; got horizon {horizon}, lag {lag}, "
            f"context {context}, {variables} variables."
        )
    import pandas as pd

    make = np.random.default_rng(seed)
    sigma = np.roll(np.arange(variables), -1)
    y = make.standard_normal((variables, length))
    for t in range(lag, length):
        y[:, t] = rho * y[sigma, t - lag] + np.sqrt(1 - rho**2) * y[:, t]
    names = tuple(f"y{j}" for j in range(variables))
    table = pd.DataFrame({"unique_id": "s0000", "ds": np.arange(length), **dict(zip(names, y, strict=True))})
    parts = []
    for j, name in enumerate(names):
        part = _truth([_lagged(y[sigma[j]][None], lag, rho)], source=names[sigma[j]])
        parts.append(part.assign(target=name))
    settings = {"sigma": tuple(int(j) for j in sigma), "lag": lag, "rho": rho, "seed": seed}
    truth = pd.concat(parts, ignore_index=True)
    return Planted("variable_map", table, truth, horizon, context, rho**2, target=names, settings=settings)


PLANTED = {
    "null": null,
    "seasonal_copy": seasonal_copy,
    "delayed_echo": delayed_echo,
    "additive_events": additive_events,
    "regime_lag": regime_lag,
    "needle": needle,
    "calendar_lag": calendar_lag,
    "variable_map": variable_map,
    "shortcut": shortcut,
}


def _long(y: np.ndarray, **covariates: np.ndarray) -> pd.DataFrame:
    """``[S, T]`` arrays as one long table."""
    import pandas as pd

    series, length = y.shape
    return pd.DataFrame(
        {
            "unique_id": np.repeat([f"s{s:04d}" for s in range(series)], length),
            "ds": np.tile(np.arange(length), series),
            "y": y.ravel(),
            **{name: values.ravel() for name, values in covariates.items()},
        }
    )


def _lagged(source: np.ndarray, lag: int, weight: float) -> list[np.ndarray]:
    """Truth of ``target_t = weight * source_(t - lag)``: series, target step, source step, contribution."""
    series, length = source.shape
    steps = np.arange(lag, length)
    owner = np.repeat(np.arange(series), len(steps))
    return [owner, np.tile(steps, series), np.tile(steps - lag, series), weight * source[:, : length - lag].ravel()]


def _truth(parts: list[list[np.ndarray]], source: str = "y") -> pd.DataFrame:
    import pandas as pd

    owner, target, origin, contribution = (
        np.concatenate([np.asarray(part[i]) for part in parts]) if parts else np.array([]) for i in range(4)
    )
    return pd.DataFrame(
        {
            "unique_id": [f"s{int(s):04d}" for s in owner],
            "target_time": target.astype(np.int64),
            "target": "y",
            "source": source,
            "source_time": origin.astype(np.int64),
            "contribution": contribution.astype(np.float64),
        }
    )
