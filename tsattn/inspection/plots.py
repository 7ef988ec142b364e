"""Pictures of forecasts and of the attention behind them, with matplotlib and without its global state.

One row of a picture is one window: history and forecast over real time, and under the history a strip whose cells
are the past steps, on the same time axis, coloured by the attention they got.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsattn.errors import ConfigError, listed
from tsattn.inspection.drawing import SMALL, Scene, draw_row, scene_of
from tsattn.inspection.maps import AttentionMap, in_range
from tsattn.inspection.pictures.canvas import Picture, head, one_panel, provenance, reduced, wrapped
from tsattn.inspection.pictures.colours import Look, look_of
from tsattn.inspection.views import row_entropy

if TYPE_CHECKING:
    from tsattn.forecast import Forecast
    from tsattn.inference import Record


def plot_strip(
    attention: AttentionMap,
    window: int = 0,
    *,
    target: int | str = 0,
    layer: int | str | None = None,
    horizon: int | None = None,
    scale: str = "sqrt",
    ax: Axes | None = None,
) -> Axes:
    """History, attention strip and forecast of one window.

    Each cell of the strip is one past step, coloured by its weight: the mean over heads and forecast steps, or of
    forecast step ``horizon`` (from 1) alone. Hatched steps were not observed, and the forecast could not read them.
    The dashed line is the origin, the last step the forecast could read.

    Args:
        attention: ``Forecast.attention``, ``Backtest.attention``, or an attribution.
        window: Position in the map.
        target: Position or name of the target column.
        layer: Position or name; None is the last one from forecast steps to past steps.
        horizon: Forecast step from 1; None takes the mean over all of the map.
        scale: Colours by the square root ("sqrt") or the logarithm ("log") of shares.
        ax: Axes to draw in; None makes a figure (``.figure`` of the result) that pyplot does not know of.

    Raises:
        IndexError: no such window, target or forecast step; the message names the range.
        ConfigError: an unknown ``scale``; no layer goes from forecast steps to past steps.
    """
    window = attention.position(window)
    target = attention.target_position(target)
    if horizon is not None:
        horizon = in_range(horizon, attention.horizon, "horizon", first=1)
    weights = strip_weights(attention, window, target, layer, horizon)
    look = look_of(attention, weights, "step", target, scale)
    scene = scene_of(attention.panel, attention.windows, window, target, attention.levels, attention.length)
    ax = one_panel(ax, 10, 4.2)
    draw_row(ax, scene, weights, horizon, look)
    ahead = f"{scene.horizon} steps ahead"
    if horizon is not None:
        when = scene.panel.when(scene.series, scene.origin + horizon - 1)
        ahead = f"step {horizon} of {scene.horizon} ({when})"
    head(ax, f"{scene.title()}, {ahead}", _caption(attention, scene, weights, look, layer, horizon))
    return ax


def plot_forecast(forecast: Forecast, *, series: Any = None, max_series: int = 6, history: int | None = None) -> Figure:
    """One row per series: the end of its history, the forecast with its widest interval, and the attention strip.

    Args:
        forecast: What ``predict`` returned.
        series: Id of one series (or its position, where the ids are no integers); None shows the first ``max_series``.
        max_series: Most series to show (with several targets, most rows); the title says how many are left out.
        history: Past steps to show; None shows what the attention covers, or four horizons where there is none.

    Raises:
        IndexError: no such position; the message names the range.
        ConfigError: no such id.
    """
    attention = _attention_of(forecast)
    targets = range(len(forecast.panel.schema.roles.target))
    if history is not None:
        history = in_range(history, np.iinfo(np.int32).max, "history", first=1)
    else:
        history = max(4 * forecast.windows.point.shape[1], 24) if attention is None else attention.length
    if series is None:
        which = list(range(min(len(forecast), max(1, max_series // len(targets)))))
    else:
        which = [_find(forecast, series)]
    rows = [(window, target) for window in which for target in targets]
    figure = Picture(figsize=(10, 1.0 + 2.9 * len(rows)), layout="constrained")
    figure.get_layout_engine().set(hspace=0.04)  # type: ignore[union-attr, call-arg]
    for position, (window, target) in enumerate(rows):
        ax = figure.add_subplot(len(rows), 1, position + 1)
        scene = scene_of(forecast.panel, forecast.windows, window, target, forecast.levels, history)
        weights = look = None
        if attention is not None:
            weights = strip_weights(attention, window, target, None, None)
            look = look_of(attention, weights, "step", target)
        draw_row(ax, scene, weights, None, look, legend=position == 0)  # the colours mean the same in every row
        hidden = 0.0 if weights is None else float(weights[: max(len(weights) - scene.back, 0)].sum())
        note = f", {100 * hidden:.0f} % of the attention lies further back" if hidden >= 0.005 else ""
        ax.set_title(scene.title() + note, loc="left", fontsize="medium", parse_math=False)
    _headline(figure, forecast, len(which))
    if attention is not None and look is not None:
        caption = wrapped(_caption(attention, scene, None, look, None, None), 9.6)
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=SMALL, color="0.35", parse_math=False)
    return figure


def strip_weights(
    attention: AttentionMap, window: int, target: int, layer: int | str | None, horizon: int | None
) -> np.ndarray:
    """Weight of each past step ``[L]``: mean over heads and the map's forecast steps, or of one step (from 1)."""
    chosen = attention.sel(window=window, horizon=horizon)
    return chosen.step_weights(0, target, layer).mean(axis=(0, 1))


def strip_reduction(attention: AttentionMap, record: Record, horizon: int | None) -> str:
    """What a strip is the mean of, in words."""
    heads = (record.weights.shape[2], "head")
    if horizon is None:
        return reduced(heads, (len(attention.steps), "forecast step"))
    return f"{reduced(heads)} at forecast step {horizon}"


def _attention_of(forecast: Forecast) -> AttentionMap | None:
    """The attention when the forecast carries one that goes from forecast steps to past steps."""
    if not forecast.windows.attention:
        return None
    attention = AttentionMap(forecast.panel, forecast.windows, forecast.levels, forecast.model)
    return attention if attention.mapped else None


def _find(forecast: Forecast, series: Any) -> int:
    """Position of a series given by id, by the text of its id, or by position where the ids are no integers."""
    ids = forecast.panel.ids.take(pa.array(forecast.windows.series))
    whole = isinstance(series, (int, np.integer)) and not isinstance(series, bool)
    if whole and not pa.types.is_integer(ids.type):
        return in_range(series, len(forecast), "series")
    names = ids.to_pylist()
    with contextlib.suppress(pa.ArrowException, TypeError, ValueError, OverflowError):
        wanted = (
            pa.array(np.asarray([series])).cast(ids.type)[0].as_py()
        )  # a date may come as a stamp of pandas or numpy
        if wanted in names:
            return names.index(wanted)
    texts = [str(name) for name in names]
    if str(series) not in texts:
        raise ConfigError(f"No series {series!r} in this forecast of {len(names)}: {listed(map(repr, names))}.")
    return texts.index(str(series))


def _caption(
    attention: AttentionMap,
    scene: Scene,
    weights: np.ndarray | None,
    look: Look,
    layer: int | str | None,
    horizon: int | None,
) -> list[str]:
    """Where the strip comes from, and how to read it; the first two say what must be said.

    ``weights [L]`` of a single row; None for what is true of every row.
    """
    record = attention.record(layer)
    parts = provenance(attention, record.layer, strip_reduction(attention, record, horizon))
    shares = attention.unit == "share"
    if weights is not None and record.key.ahead and shares:  # the strip alone does not add up to 1
        parts.append(f"{100 * (1 - weights.sum()):.0f} % was read from forecast steps")
    observed = attention.observed(scene.window, scene.target)
    if weights is None or not observed[-scene.back :].all():
        parts.append("hatched: not observed")
    parts.append(look.scale)
    if weights is not None and observed.any() and shares:
        parts.append(f"effectively {np.exp(row_entropy(np.abs(weights))):.3g} of {observed.sum()} steps")
        parts.append(f"an even spread is {100 / observed.sum():.3g} % per step")
    return parts


def _headline(figure: Figure, forecast: Forecast, shown: int) -> None:
    """Title of the whole picture: the model, and what is not in it."""
    total = len(forecast)
    text = f"{forecast.model}: {shown} of {total} series, {total - shown} left out"
    if shown == total:
        text = f"{forecast.model}: {total} series"
    if forecast.skipped:
        text += f", {len(forecast.skipped)} skipped for want of data"
    figure.suptitle(text, x=0.01, ha="left", fontsize="large", parse_math=False)
