"""Rolling-origin evaluation, always beside the naive and the seasonal naive forecast."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tsattn.data.build import build_panel
from tsattn.data.panel import Panel, series_blocks
from tsattn.data.schema import Roles
from tsattn.data.split import chronological, last_origins
from tsattn.data.walltime import format_time
from tsattn.data.windows import WindowSource
from tsattn.errors import ConfigError, DataError, listed, warn
from tsattn.evaluation.metrics import By, score_sums, scores_of, seasonal_scale
from tsattn.forecast import attention_map, frame_of, id_column, time_index
from tsattn.inference import WindowForecasts, best_device, forecast_windows
from tsattn.models import build

if TYPE_CHECKING:
    import pandas as pd

    from tsattn.forecaster import Forecaster
    from tsattn.inspection.maps import AttentionMap
    from tsattn.inspection.summary import AttentionSummary

BASELINES = ("naive", "seasonal_naive")


@dataclass(frozen=True, eq=False)
class Backtest:
    """Forecasts from rolling origins beside the truth, and beside the baselines from the same windows.

    ``trained_until`` is the time of the last row any part of the training saw (one per fit, as text); ``in_sample`` is
    True when the model had been trained on steps it is scored on here (only with ``refit="never"``). ``skipped`` maps
    the ids without any window to the reason.
    """

    panel: Panel
    model: str
    windows: WindowForecasts
    baselines: dict[str, WindowForecasts]
    levels: tuple[float, ...]
    season: int
    first_origin: np.ndarray  # [S] rows before it give the scale of MASE and RMSSE
    trained_until: tuple[str, ...]
    in_sample: bool
    skipped: dict[Any, str]
    summary: AttentionSummary | None = None

    @property
    def attention(self) -> AttentionMap | AttentionSummary:
        """Attention of every window, or its summary. Raises ConfigError when it was not asked for or there is none."""
        if self.summary is not None:
            return self.summary.checked()
        return attention_map(self, "backtest")

    def metrics(self, by: Literal["series", "step"] | None = None) -> pd.DataFrame:
        """Scores of the model and the baselines, one row each (and per series, or per forecast step from 1).

        MAE and RMSE in units of the target, MSE in squared units, sMAPE from 0 to 200, MASE and RMSSE relative to the
        seasonal naive within the rows before the first origin, weighted quantile loss and coverage where there are
        quantiles. With several targets there is one row for each.

        A step counts once in every window that forecasts it, if it was observed and the model had an observed value of
        the target to read before the origin; the baselines are scored on exactly these steps. A series whose scale is
        zero or unknown is left out of MASE and RMSSE. Scores of nothing are NaN.
        """
        series = id_column(self.panel, np.unique(self.windows.series)) if by == "series" else None
        return metric_table(self.sums(by), self.levels, self.panel.schema.roles, by, series)

    def sums(self, by: By = None) -> dict[tuple[str, str], dict[str, np.ndarray]]:
        """What ``metrics`` are made of, by target and model: ``tsattn.evaluation.metrics.score_sums``."""
        names = self.panel.schema.roles.target
        scales = seasonal_scale(
            self.panel.targets, season=self.season, indptr=self.panel.indptr, ends=self.first_origin
        )
        return {
            (name, model): self._sums(windows, target, scales, by)
            for target, name in enumerate(names)
            for model, windows in {**self.baselines, self.model: self.windows}.items()
        }

    def _sums(
        self, windows: WindowForecasts, target: int, scales: tuple[np.ndarray, np.ndarray], by: By
    ) -> dict[str, np.ndarray]:
        pick = slice(target, target + 1)
        return score_sums(
            windows.actual[..., pick],
            windows.point[..., pick],
            None if windows.quantiles is None else windows.quantiles[:, :, pick],
            self.levels,
            windows.series,
            scales[0][:, pick],
            scales[1][:, pick],
            by=by,
        )

    def to_frame(self) -> pd.DataFrame:
        """Long table: id, origin, time, step, (target,) actual, forecast, quantiles and one column per baseline.

        ``origin`` is the time of the last row the forecast could read; ``step`` counts from 1.
        """
        frame = frame_of(self.panel, self.windows, self.levels)
        count, horizon, targets = self.windows.point.shape
        last = self.panel.times(self.windows.series, self.windows.origin - 1)
        place = 0 if self.panel.schema.roles.id is None else 1
        frame.insert(place, "origin", time_index(np.repeat(last, horizon * targets), self.panel.schema))
        frame.insert(place + 2, "step", np.tile(np.repeat(np.arange(1, horizon + 1), targets), count))
        frame.insert(list(frame.columns).index("forecast"), "actual", self.windows.actual.ravel())
        for name, windows in self.baselines.items():
            if name != self.model:
                frame[name] = windows.point.ravel()
        return frame

    def __repr__(self) -> str:
        """One line and the score table."""
        kind = "IN SAMPLE: the model was trained on these steps" if self.in_sample else "out of sample"
        table = self.metrics().to_string(index=False, float_format=lambda value: f"{value:.4g}")
        return f"Backtest of {self.model!r}: {len(self.windows.series)} windows, {kind}\n{table}"


def metric_table(
    sums: dict[tuple[str, str], dict[str, np.ndarray]], levels: tuple[float, ...], roles: Roles, by: By, series: Any
) -> pd.DataFrame:
    """One row for each target and model of ``sums`` (and each of the ids ``series``, or each step)."""
    import pandas as pd

    parts = []
    for (target, model), found in sums.items():
        scores = {name: np.atleast_1d(value) for name, value in scores_of(found, levels).items()}
        head: dict[str, Any] = {"target": target} if len(roles.target) > 1 else {}
        head["model"] = model
        if by == "series":
            head[roles.id or "series"] = series
        elif by == "step":
            head["step"] = np.arange(1, len(scores["mae"]) + 1)
        parts.append(pd.DataFrame({**head, **scores}))
    return pd.concat(parts, ignore_index=True)


def check_backtest(horizon: int, windows: int, step: int | None, refit: bool | str) -> int:
    """The steps between two origins; raises ConfigError for numbers and words that no table could make right."""
    step = horizon if step is None else step
    for name, value in (("windows", windows), ("step", step)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, found {value!r}.")
    if not (isinstance(refit, (bool, np.bool_)) or refit == "never"):
        raise ConfigError(f"refit must be True, False or 'never', found {refit!r}.")
    return step


def run_backtest(
    forecaster: Forecaster,
    data: Any,
    *,
    windows: int,
    step: int | None,
    refit: bool | str,
    attention: bool | str,
    part: list[tuple[int, int]] | None = None,
) -> Backtest:
    """See ``Forecaster.backtest``.

    ``part``: the table is one part of several (``spacing`` of ``build_panel``). Nothing is trained, and what can be
    said of all parts together only, such as how many series were skipped, is left to the caller.
    """
    step = check_backtest(forecaster.horizon, windows, step, refit)
    fitted = forecaster.__sklearn_is_fitted__()
    if refit == "never":
        forecaster._require_fit()
    schema = forecaster.schema_ if fitted else None
    roles = schema.roles if schema is not None else forecaster._roles()
    panel = build_panel(data, roles, freq=forecaster.freq, schema=schema, spacing=part)
    origins = last_origins(panel, forecaster.horizon, windows, step)  # [windows, S]
    keep, skipped = _possible(panel, origins, forecaster.context)
    if part is None:
        mention_skipped(skipped, len(panel), int(panel.lengths.max()))
    some = keep.any(axis=1)  # no series reaches back as far as the other origins
    origins, keep = origins[some], keep[some]
    first = _first_origin(origins, keep, panel.lengths)
    models, in_sample = _models(forecaster, panel, origins, keep, first, refit, train=part is None)
    summary = _summary(attention, panel, forecaster)
    forecasts = _roll(models, panel, origins, keep, bool(attention), summary)
    # Scored where the model could forecast, and the baselines on exactly the same steps.
    scored = np.where(np.isnan(forecasts.point), np.nan, forecasts.actual)
    if part is None:
        _mention_unscored(panel, forecasts.actual, scored)
    forecasts = replace(forecasts, actual=scored)
    baselines = {
        name: replace(_baseline(name, forecaster, models[0], panel, forecasts), actual=scored) for name in BASELINES
    }
    times = [format_time(m.trained_until_, panel.schema.tz, integer=panel.schema.integer_time) for m in models]
    return Backtest(
        panel=panel,
        model=forecaster._model_name(),
        windows=forecasts,
        baselines=baselines,
        levels=forecaster._levels(),
        season=panel.schema.freq.season(),
        first_origin=first,
        trained_until=tuple(times),
        in_sample=refit == "never" and in_sample,
        skipped=skipped,
        summary=summary,
    )


def _models(
    forecaster: Forecaster,
    panel: Panel,
    origins: np.ndarray,
    keep: np.ndarray,
    first: np.ndarray,
    refit: bool | str,
    *,
    train: bool,
) -> tuple[list[Forecaster], bool]:
    """The model of all origins, or one for each, and whether ``forecaster`` was trained on what is scored here.

    Raises ConfigError where a fresh copy is wanted and ``train`` is False.
    """
    used = np.asarray(keep.any(axis=0))
    start = _earliest(panel, first, used) if used.any() else None
    seen_until = forecaster.trained_until_ if forecaster.__sklearn_is_fitted__() else None
    in_sample = seen_until is not None and start is not None and seen_until >= start
    if refit == "never" or (not refit and seen_until is not None and not in_sample):
        return [forecaster], in_sample
    if not train:
        until = format_time(seen_until or 0, panel.schema.tz, integer=panel.schema.integer_time)
        begin = format_time(start or 0, panel.schema.tz, integer=panel.schema.integer_time)
        raise ConfigError(
            f"This engine trains nothing, and this model was trained on rows up to {until}, while the backtest scores "
            f"from {begin} on. Pass refit='never' to score it as it stands (the result says that it is in sample), or "
            f"fit it on the rows before."
        )
    if refit:
        moments = [_earliest(panel, row, kept) for row, kept in zip(origins, keep, strict=True)]
        return [_fresh(forecaster, panel, moment) for moment in moments], in_sample
    assert start is not None
    return [_fresh(forecaster, panel, start)], in_sample


def _summary(attention: bool | str, panel: Panel, forecaster: Forecaster) -> AttentionSummary | None:
    """What collects the maps when only their summary is asked for; raises ConfigError for another word."""
    if isinstance(attention, (bool, np.bool_)):
        return None
    if attention != "summary":
        raise ConfigError(f"attention must be True, False or 'summary', found {attention!r}.")
    from tsattn.inspection.summary import AttentionSummary

    return AttentionSummary(panel, forecaster._levels(), forecaster._model_name(), seed=forecaster.seed)


def _possible(panel: Panel, origins: np.ndarray, context: int) -> tuple[np.ndarray, dict[Any, str]]:
    """Which (origin, series) pairs have an observed past step, ``[windows, S]``, and the series without any."""
    keep = origins >= 1
    for series, rows in series_blocks(panel.indptr):
        there = np.concatenate([[0], np.cumsum(~np.isnan(panel.targets[rows]).all(axis=1))])
        begin, stop = panel.indptr[:-1][series] - rows.start, np.maximum(origins[:, series], 0)
        keep[:, series] &= there[begin + stop] > there[begin + np.maximum(stop - context, 0)]
    lost = np.flatnonzero(~keep.any(axis=0))
    short = (origins[:, lost] < 1).all(axis=0)
    reasons = np.where(short, "too short", f"nothing observed in the {context} steps before its origins")
    return keep, {panel.ids[int(s)].as_py(): str(reason) for s, reason in zip(lost, reasons, strict=True)}


def mention_skipped(skipped: dict[Any, str], total: int, longest: int) -> None:
    """One warning for the series without any window; raises DataError when that is all of them.

    ``longest``: steps of the longest series.
    """
    if len(skipped) == total:
        raise DataError(
            f"No series can be backtested: the longest has {longest} steps, and an origin needs the "
            f"horizon after it and at least one observed step before it. Use a shorter horizon or context."
        )
    if skipped:
        found = Counter(skipped.values())
        counts = [f"{found[reason]} {reason}" for reason in sorted(found)]
        names = listed("the series" if id is None else repr(id) for id in skipped)
        warn(
            f"{len(skipped)} of {total} series have no window in the backtest and are skipped ({', '.join(counts)}): "
            f"{names}. See Backtest.skipped."
        )


def _mention_unscored(panel: Panel, actual: np.ndarray, scored: np.ndarray) -> None:
    """A warning for each target none of whose steps can be scored ``[W, H, C]``: its scores will be NaN."""
    for column, name in enumerate(panel.schema.roles.target):
        if not np.isnan(scored[..., column]).all():
            continue
        observed = int((~np.isnan(actual[..., column])).sum())
        reason = f"none of the {actual[..., column].size} forecast steps was observed"
        if observed:
            reason = f"before the {observed} observed steps there was nothing of it to read"
        warn(f"The scores of {name!r} are NaN: in {len(actual)} windows {reason}. Choose other origins, or more rows.")


def _first_origin(origins: np.ndarray, keep: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The oldest usable origin of each series, ``[S]``; the length of a series without one."""
    latest = np.iinfo(np.int64).max
    oldest = np.where(keep, origins, latest).min(axis=0, initial=latest)
    return np.minimum(oldest, lengths)


def _earliest(panel: Panel, origin: np.ndarray, keep: np.ndarray) -> int:
    """The earliest time that is forecast from ``origin [S]``, over the series kept."""
    series = np.flatnonzero(keep)
    return int(panel.times(series, origin[series]).min())


def _fresh(forecaster: Forecaster, panel: Panel, moment: int) -> Forecaster:
    """A copy of ``forecaster`` trained on the rows before ``moment``.

    One moment for all series: a row of one series later than the forecast origin of another would tell about it.
    """
    copy = type(forecaster)(**forecaster._plain_parameters())
    step, exact = panel.schema.freq.index(panel.start, moment)
    stop = np.clip(np.where(exact, step, step + 1), 0, panel.lengths)
    try:
        split = chronological(panel, copy.context, copy.horizon, None, stop)
    except DataError as error:
        cut = format_time(moment, panel.schema.tz, integer=panel.schema.integer_time)
        raise DataError(
            f"Too few rows to train on before {cut}, the earliest origin of the backtest. {error} "
            f"Or use fewer windows, a smaller step, or leave out series "
            f"that ended long before the others."
        ) from None
    return copy._fit_panel(panel, split, stop=stop)


def _roll(
    models: list[Forecaster],
    panel: Panel,
    origins: np.ndarray,
    keep: np.ndarray,
    attention: bool,
    summary: AttentionSummary | None,
) -> WindowForecasts:
    """Forecast every kept window, with the model of its origin when there is one per origin; series by series."""
    parts = []
    groups = np.array_split(np.arange(len(origins)), len(models)) if len(models) > 1 else [np.arange(len(origins))]
    for model, rows in zip(models, groups, strict=True):
        row, series = np.nonzero(keep[rows])
        if not len(series):
            continue
        source = WindowSource(panel, model.context, model.horizon, model.scaling_)
        config = model._config()
        parts.append(
            forecast_windows(
                model.network_,
                source,
                series,
                origins[rows][row, series],
                attention=attention,
                collect=None if summary is None else summary.add,
                device=best_device(config.accelerator),
                progress="backtest" if config.verbose else None,
            )
        )
    return _by_series(parts or [WindowForecasts.none(models[0].network_.spec)])


def _by_series(parts: list[WindowForecasts]) -> WindowForecasts:
    """The windows of all parts, sorted by series and origin."""
    joined = WindowForecasts.join(parts)
    return joined.take(np.lexsort((joined.origin, joined.series)))


def _baseline(
    name: str, forecaster: Forecaster, fitted: Forecaster, panel: Panel, forecasts: WindowForecasts
) -> WindowForecasts:
    """The same windows by a model that is not trained."""
    from tsattn.data.datamodule import input_spec

    context = max(forecaster.context, panel.schema.freq.season())  # the season must fit, whatever the model reads
    spec = replace(
        input_spec(panel.schema, forecaster.horizon, context, forecaster._levels()),
        past=0, known=0, static=0, past_categories=(), known_categories=(), static_categories=(),
    )  # fmt: skip
    source = WindowSource(panel, context, forecaster.horizon, fitted.scaling_)
    return forecast_windows(build(name, spec), source, forecasts.series, forecasts.origin)
