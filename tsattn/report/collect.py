"""The data of the page, as a plain dict: what ``page.py`` writes as HTML and the page's script draws.

Legend: ``W`` windows (one per series shown), ``C`` targets, ``N`` heads, ``H`` forecast steps, ``L`` past steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tsattn.data.build import build_panel
from tsattn.data.panel import Panel
from tsattn.data.windows import WindowSource
from tsattn.errors import ConfigError, DataError, TsattnError
from tsattn.forecast import Forecast
from tsattn.inference import best_device, forecast_windows
from tsattn.report.facts import about_data, about_model, count, frame_table, seen_text, verdict_of
from tsattn.report.series import draw_series

if TYPE_CHECKING:
    from tsattn.forecaster import Forecaster

NO_TABLE = "No table was given, and a saved model keeps only the steps it forecasts from."


def collect(
    forecaster: Forecaster,
    data: Any = None,
    *,
    known: Any = None,
    series: int = 20,
    check: bool = True,
    windows: int = 10,
    refit: bool | str = False,
) -> dict[str, Any]:
    """Everything the page shows; see ``Forecaster.report`` for the arguments and errors.

    Keys: ``model`` and ``data`` (facts, pairs of text), ``pictures`` (series, maps and stamps, packed), ``trust``,
    ``backtest`` (each with a ``reason`` where there is none), ``variables`` (tables), ``notes`` (sentences).
    """
    _check_count("series", series, 1)
    _check_count("windows", windows, 0)
    fitted = forecaster._as_fitted()
    panel = fitted.history_ if data is None else build_panel(data, fitted.schema_.roles, schema=fitted.schema_)
    if panel is None:
        raise DataError("This model was saved without its history: pass report(path, data).")
    forecast, notes = _forecast(forecaster, panel, known, series, past=data is not None)
    return {
        "model": about_model(fitted),
        "data": about_data(panel, data),
        "notes": notes,
        "pictures": draw_series(forecast),
        "variables": _variables(forecast),
        "trust": _or_reason(check, data, lambda: _trust(forecaster, data, panel)),
        "backtest": _or_reason(windows, data, lambda: _backtest(forecaster, data, windows, refit)),
    }


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, found {value!r}.")


def _forecast(forecaster: Forecaster, panel: Panel, known: Any, most: int, past: bool) -> tuple[Forecast, list[str]]:
    """The forecasts shown, with all that was read, and sentences on what is not shown.

    A model that reads known covariates cannot look beyond the table without them: then the last steps of the table
    are forecast, with the covariates that stand in it, and lie beside what happened.
    """
    horizon, total = forecaster.network_.spec.horizon, len(panel)
    replay = past and known is None and bool(forecaster.schema_.roles.known_columns)
    usable = np.flatnonzero(_observed(panel, forecaster.network_.spec.context, horizon if replay else 0))
    if not len(usable):
        raise DataError(f"No series can be shown: none of {total} has an observed target before its forecast.")
    shown = panel.select(usable[:most])
    notes = []
    if len(usable) > most:
        notes.append(f"The first {len(shown)} of {total} series are shown, in the order of their ids.")
    if len(usable) < total:
        notes.append(f"{count(total - len(usable), 'series')} without an observed value before the forecast left out.")
    if not replay:
        return forecaster._predict_panel(shown, known, attention=True), notes
    notes.append(
        "The model reads covariates that are known in the future, and none were given: the last steps of the table are "
        "forecast with the covariates that stand in it, beside what happened. The model may have been trained on them."
    )
    source = WindowSource(shown, forecaster.network_.spec.context, horizon, forecaster.scaling_)
    windows = forecast_windows(
        forecaster.network_,
        source,
        np.arange(len(shown)),
        shown.lengths - horizon,
        attention=True,
        contributions=True,
        device=best_device(forecaster._config().accelerator),
    )
    return Forecast(shown, windows, forecaster.network_.spec.quantiles, forecaster._as_fitted()._model_name()), notes


def _observed(panel: Panel, context: int, ahead: int) -> np.ndarray:
    """Series with an observed target in the ``context`` steps before the last ``ahead``, bool ``[S]``."""
    seen = np.concatenate([[0], np.cumsum(~np.isnan(panel.targets).all(axis=1))])
    origin = np.maximum(panel.lengths - ahead, 0)
    begin = panel.indptr[:-1]
    return seen[begin + origin] > seen[begin + np.maximum(origin - context, 0)]


def _or_reason(asked: Any, data: Any, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``make`` gives, or why it is not on the page: not asked for, no table, or what the model cannot do."""
    if not asked:
        return {"reason": "This was not asked for."}
    if data is None:
        return {"reason": NO_TABLE}
    try:
        return make()
    except TsattnError as error:
        return {"reason": str(error)}


def _trust(forecaster: Forecaster, data: Any, panel: Panel) -> dict[str, Any]:
    from tsattn.inspection.trust import check_attention

    return {**verdict_of(check_attention(forecaster, data)), "seen": seen_text(forecaster, panel)}


def _backtest(forecaster: Forecaster, data: Any, windows: int, refit: bool | str) -> dict[str, Any]:
    result = forecaster.backtest(data, windows=windows, refit=refit)
    metrics = result.metrics()
    single = [name for name in metrics.columns if name.startswith("quantile_loss_")]  # their weighted mean is there
    shown = metrics.drop(columns=single)
    return {
        "table": frame_table(shown.loc[:, shown.notna().any()]),
        "windows": len(result.windows.series),
        "in_sample": result.in_sample,
        "trained_until": list(result.trained_until),
        "model": result.model,
    }


def _variables(forecast: Forecast) -> list[dict[str, Any]]:
    """Mean weights of every layer whose keys are variables: the largest, one row each, with names of columns."""
    tables = []
    for position, record in enumerate(forecast.windows.attention):
        if record.key.kind != "variable":
            continue
        frame = forecast.attention.variables(layer=position)
        if record.query.kind != "variable":  # a selection at every step: its mean says it in one row
            frame = frame.mean().to_frame("all steps").T
        tables.append({"layer": record.layer, **_largest(frame)})
    return tables


def _largest(frame: Any, most: int = 40) -> dict[str, Any]:
    pairs = [(str(row), str(column), float(frame.iat[i, j])) for i, row in enumerate(frame.index)
             for j, column in enumerate(frame.columns)]  # fmt: skip
    pairs.sort(key=lambda pair: -pair[2])
    return {"pairs": pairs[:most], "of": len(pairs), "even": 1 / max(frame.shape[1], 1)}
