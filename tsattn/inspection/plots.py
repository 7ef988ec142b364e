"""Pictures of forecasts and of the attention behind them, with matplotlib and without its global state.

One row of a picture is one window: history and forecast over real time, and under the history a strip whose cells
are the past steps, on the same time axis, coloured by the attention they got.
"""

from __future__ import annotations

import contextlib
import textwrap
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsattn.errors import ConfigError, listed
from tsattn.inspection.drawing import SMALL, Scene, draw_row, scene_of, short
from tsattn.inspection.maps import AttentionMap, in_range

if TYPE_CHECKING:
    from tsattn.forecast import Forecast


class Picture(Figure):
    """A figure that a notebook shows even where pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        self.savefig(out, format="png", dpi=110)
        return out.getvalue()


class PictureAxes(Axes):
    """The axes of a ``Picture``: returned from the last line of a notebook cell, they show it."""

    def _repr_png_(self) -> bytes | None:
        return self.figure._repr_png_() if isinstance(self.figure, Picture) else None


def plot_strip(
    attention_map: AttentionMap,
    window: int = 0,
    *,
    target: int = 0,
    horizon: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """History, attention strip and forecast of one window.

    Each cell of the strip is one past step, coloured by its weight: the mean over heads and forecast steps, or of
    forecast step ``horizon`` (from 1) alone. Hatched steps were not observed, and the forecast could not read them.
    The dashed line is the origin, the last step the forecast could read.

    Args:
        attention_map: ``Forecast.attention`` or ``Backtest.attention``.
        window: Position in the map.
        target: Position of the target column.
        horizon: Forecast step from 1; None takes the mean over all.
        ax: Axes to draw in; None makes a figure (``.figure`` of the result) that pyplot does not know of.

    Raises:
        IndexError: no such window, target or forecast step; the message names the range.
        ConfigError: no layer goes from forecast steps to past steps.
    """
    window = attention_map.position(window)
    target = in_range(target, len(attention_map.panel.schema.roles.target), "target")
    if horizon is not None:
        horizon = in_range(horizon, attention_map.windows.point.shape[1], "horizon", first=1)
    weights = _weights(attention_map, window, target, horizon)
    scene = scene_of(
        attention_map.panel, attention_map.windows, window, target, attention_map.levels, attention_map.length
    )
    if ax is None:
        ax = Picture(figsize=(10, 4.2), layout="constrained").add_subplot(axes_class=PictureAxes)
    draw_row(ax, scene, weights, horizon)
    ahead = f"{scene.horizon} steps ahead"
    if horizon is not None:
        when = scene.panel.when(scene.series, scene.origin + horizon - 1)
        ahead = f"step {horizon} of {scene.horizon} ({when})"
    inches = ax.get_window_extent().width / ax.get_figure().dpi  # type: ignore[union-attr]
    caption = _wrapped(_caption(attention_map, scene, weights, horizon), inches)
    lines = caption.count("\n") + 1
    ax.set_title(f"{scene.title()}, {ahead}", loc="left", fontsize="medium", pad=6 + 10.5 * lines, parse_math=False)
    ax.annotate(caption, (0, 1), (0, 4), "axes fraction", "offset points", fontsize=SMALL, color="0.35", va="bottom",
                parse_math=False)  # fmt: skip
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
        weights = None if attention is None else _weights(attention, window, target, None)
        draw_row(ax, scene, weights, None, legend=position == 0)  # the colours mean the same in every row
        hidden = 0.0 if weights is None else float(weights[: max(len(weights) - scene.back, 0)].sum())
        note = f", {100 * hidden:.0f} % of the attention lies further back" if hidden >= 0.005 else ""
        ax.set_title(scene.title() + note, loc="left", fontsize="medium", parse_math=False)
    _headline(figure, forecast, len(which))
    if attention is not None:
        caption = _wrapped(_caption(attention, scene, None, None), 9.6)
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=SMALL, color="0.35", parse_math=False)
    return figure


def _weights(attention: AttentionMap, window: int, target: int, horizon: int | None) -> np.ndarray:
    """Share of each past step ``[L]``: mean over heads and over forecast steps, or of one forecast step (from 1)."""
    layer = attention.mapped[-1] if attention.mapped else -1  # -1 raises with the reason
    weights = attention.step_weights(window, target, layer)
    weights = weights if horizon is None else weights[:, horizon - 1 : horizon]
    return weights.mean(axis=(0, 1))


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


def _caption(attention: AttentionMap, scene: Scene, weights: np.ndarray | None, horizon: int | None) -> list[str]:
    """Where the strip comes from, and how to read it; the first two say what must be said.

    ``weights [L]`` of a single row; None for what is true of every row.
    """
    record = attention.windows.attention[attention.mapped[-1]]
    heads = record.weights.shape[2]
    over = "1 head" if heads == 1 else f"mean of {heads} heads"
    steps = f"and {scene.horizon} forecast steps" if horizon is None else f"at forecast step {horizon}"
    model = "" if attention.model is None else f"{short(attention.model)}, "
    parts = [f"{model}layer '{record.layer}': {over} {steps}", "attention shows what was read, not why"]
    if weights is not None and record.key.ahead:  # the strip alone does not add up to 1
        parts.append(f"{100 * (1 - weights.sum()):.0f} % was read from forecast steps")
    observed = attention.observed(scene.window, scene.target)
    if weights is None or not observed[-scene.back :].all():
        parts.append("hatched: not observed")
    parts.append("square-root colours")
    if weights is not None and observed.any():
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


def _wrapped(parts: list[str], inches: float) -> str:
    """Captions in at most two lines of a width, the last ones left out where they do not fit."""
    width = max(int(inches * 72 / (0.53 * SMALL)), 30)
    for count in range(len(parts), 1, -1):
        lines = textwrap.wrap("; ".join(parts[:count]), width, break_on_hyphens=False)
        if len(lines) <= 2:
            break
    return "\n".join(lines)
