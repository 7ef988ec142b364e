"""Pictures with plotly: hovering shows date, value and weight. plotly is optional (``tsattn[plotly]``)."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from tsattn.errors import unknown_name
from tsattn.inspection.drawing import ACTUAL, FORECAST, HISTORY, Scene, scene_of
from tsattn.inspection.maps import AttentionMap, in_range
from tsattn.inspection.pictures.canvas import provenance, reduced
from tsattn.inspection.pictures.cells import Cells, cells_of
from tsattn.inspection.pictures.clock import Clock
from tsattn.inspection.pictures.colours import SIGNED, Look, look_of
from tsattn.inspection.pictures.grid import AXES
from tsattn.inspection.pictures.heatmap import grid_of, title_of
from tsattn.inspection.plots import strip_reduction, strip_weights
from tsattn.inspection.tables import MissingDependencyError

_GAP = "#e8e8e8"


def strip(
    attention: AttentionMap,
    window: int = 0,
    *,
    target: int | str = 0,
    layer: int | str | None = None,
    horizon: int | None = None,
    scale: str = "sqrt",
) -> Any:
    """``plot_strip`` with plotly: history, forecast and strip on one time axis, each with its numbers on hover.

    Options and errors as there; raises MissingDependencyError without plotly.
    """
    plotly = _plotly()
    window, target = attention.position(window), attention.target_position(target)
    if horizon is not None:
        horizon = in_range(horizon, attention.horizon, "horizon", first=1)
    weights = strip_weights(attention, window, target, layer, horizon)
    look = look_of(attention, weights, "step", target, scale)
    scene = scene_of(attention.panel, attention.windows, window, target, attention.levels, attention.length)
    clock = Clock(attention.panel, scene)
    values, past = scene.past(), np.arange(-scene.back, 0)
    cells = np.full(scene.back, np.nan)
    shown = min(scene.back, len(weights))
    cells[-shown:] = weights[-shown:]
    cells[np.isnan(values)] = np.nan
    rank = np.argsort(np.argsort(-np.abs(np.nan_to_num(cells)), kind="stable"), kind="stable") + 1
    words = []
    for step, value, weight, place in zip(past, values, cells, rank, strict=True):
        read = f"{attention.method} {look.write(weight)}, rank {place}" if weight == weight else "nothing to read"
        words.append(f"{clock.text(int(step))}<br>{_plain(clock.name)} {_number(value)}<br>{read}")
    figure = plotly.subplots.make_subplots(
        rows=2, cols=1, shared_xaxes=True, row_heights=[0.8, 0.2], vertical_spacing=0.03
    )
    for trace in _lines(plotly.graph_objects, scene, clock):
        figure.add_trace(trace, row=1, col=1)
    edges = (clock.edges()[: scene.back + 1], np.array([0.0, 1.0]))
    for trace in _meshes(plotly.graph_objects, edges, cells[None], [words], look):
        figure.add_trace(trace, row=2, col=1)
    figure.add_vline(x=clock.axis([-1])[0], line_dash="dash", line_color="#777777")
    figure.update_yaxes(title_text=_plain(clock.name), row=1, col=1)
    figure.update_yaxes(visible=False, row=2, col=1)
    figure.update_xaxes(title_text=clock.label, row=2, col=1)
    record = attention.record(layer)
    over = strip_reduction(attention, record, horizon)
    caption = [*provenance(attention, record.layer, over), look.scale, *_gaps(cells)]
    _words(figure, scene.title(), caption)
    return figure


def heatmap(
    attention: AttentionMap,
    window: int | None = None,
    *,
    x: str = "time",
    target: int | str = 0,
    layer: int | str | None = None,
    scale: str = "sqrt",
) -> Any:
    """``plot_heatmap`` with plotly: each cell tells its dates (or ages), its lags, the values read and its weight.

    ``x`` is "time" or "age"; other options and errors as there; raises MissingDependencyError without plotly.
    """
    plotly = _plotly()
    known = [name for name in AXES if name != "lag"]
    if x not in known:
        raise unknown_name("x axis of an interactive heat map", x, known)
    target = attention.target_position(target)
    if window is None and (x == "time" or len(attention) == 1):
        window = 0
    cells = cells_of(attention, window, target, layer)
    look = look_of(attention, cells.values, cells.per, target, scale)
    clock = None
    if window is not None:
        panel, windows = attention.panel, attention.windows
        window = attention.position(window)
        scene = scene_of(panel, windows, window, target, attention.levels, attention.length)
        clock = Clock(panel, scene)
    grid = grid_of(attention, window, target, x)
    assert grid.x is not None
    across, up = grid.x[cells.columns], grid.y[cells.rows]
    keep = np.flatnonzero(np.diff(across))  # columns of no width: padding that is left out
    words = _cell_words(attention, cells, look, clock)
    edges: list[Any] = [across[np.append(keep, keep[-1] + 1)], up]
    if x == "time" and clock is not None:
        edges = [clock.from_numbers(edge) for edge in edges]
    values = cells.values.filled(np.nan)[:, keep]
    words = [[row[i] for i in keep] for row in words]
    figure = plotly.graph_objects.Figure(_meshes(plotly.graph_objects, (edges[0], edges[1]), values, words, look))
    timed = x == "time" and clock is not None
    figure.update_xaxes(title_text=clock.label if timed and clock else "age (steps before the last past step)")
    if not timed:
        figure.update_xaxes(autorange="reversed")
    figure.update_yaxes(title_text="forecast for" if timed else "forecast step")
    if timed and not attention.panel.schema.integer_time:
        figure.update_yaxes(tickformat="%b %d %H:%M" if attention.panel.schema.freq.kind == "tick" else "%Y-%m-%d")
    record = attention.record(layer)
    over = reduced((cells.heads, "head"), (cells.windows, "window"))
    caption = [*provenance(attention, record.layer, over), look.scale, *_gaps(values)]
    _words(figure, title_of(attention, window, cells), caption)
    return figure


def _lines(objects: Any, scene: Scene, clock: Clock) -> list[Any]:
    """History, interval, forecast and, where it is known, what came."""
    windows, window, target = scene.windows, scene.window, scene.target
    past, ahead = np.arange(-scene.back, 0), np.arange(scene.horizon)
    traces = []
    hover = "%{text}<br>%{y:.5g}"
    if windows.quantiles is not None and windows.quantiles.shape[-1] > 1:
        band = windows.quantiles[window, :, target]
        x = clock.axis(ahead)
        traces.append(
            objects.Scatter(x=x, y=band[:, 0], line_width=0, hoverinfo="skip", showlegend=False, line_color=FORECAST)
        )
        traces.append(
            objects.Scatter(x=x, y=band[:, -1], line_width=0, hoverinfo="skip", fill="tonexty", name="interval",
                            line_color=FORECAST)
        )  # fmt: skip
    parts = [
        ("history", past, scene.past(), HISTORY),
        ("forecast", ahead, windows.point[window, :, target], FORECAST),
        ("actual", ahead, windows.actual[window, :, target], ACTUAL),
    ]
    for name, steps, values, colour in parts:
        if np.isnan(values).all():
            continue
        text = [clock.text(int(step)) for step in steps]
        traces.append(
            objects.Scatter(x=clock.axis(steps), y=values, text=text, hovertemplate=hover, name=name, line_color=colour)
        )
    return traces


def _cell_words(attention: AttentionMap, cells: Cells, look: Look, clock: Clock | None) -> list[list[str]]:
    """What each cell tells: what was read, for when, at which lags, with which weight."""
    length = attention.length
    history = None if clock is None else attention.history(clock.scene.window, clock.scene.target)
    words = []
    for row, (low, high) in enumerate(zip(cells.rows[:-1], cells.rows[1:], strict=True)):
        line = []
        for column, (first, last) in enumerate(zip(cells.columns[:-1], cells.columns[1:], strict=True)):
            lags = _span(length + low - last + 1, length + high - 1 - first)
            if clock is None or history is None:
                read = f"age {_span(length - last, length - 1 - first)}<br>for step {_span(low + 1, high)}"
            else:
                seen = history[first:last][~np.isnan(history[first:last])]
                values = f"{_plain(clock.name)} {_number(seen.mean())}" if len(seen) else "not observed"
                hidden = length - clock.scene.back  # padding that the scene leaves out has no stamp
                read = _span(clock.text(int(max(first, hidden)) - length), clock.text(int(last) - 1 - length))
                read += f"<br>{'mean ' if len(seen) > 1 else ''}{values}"
                read += f"<br>for {_span(clock.text(int(low)), clock.text(int(high) - 1))}"
            weight = cells.values[row, column]
            shown = "nothing to read" if weight is np.ma.masked else look.write(float(weight))
            line.append(f"{read}<br>lag {lags}<br>{attention.method} {shown} per {cells.per}")
        words.append(line)
    return words


def _span(first: object, last: object) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _number(value: float) -> str:
    return "not observed" if np.isnan(value) else f"{value:.5g}"


def _meshes(
    objects: Any, edges: tuple[Any, Any], values: np.ndarray, words: Sequence[Sequence[str]], look: Look
) -> list[Any]:
    """A heat map whose colours are on the scale of ``look``, and before it a grey one where there are gaps."""
    gaps = np.isnan(values)
    placed = np.asarray(look.norm(np.where(gaps, 0.0, values)), dtype=float)
    low, high = float(look.norm.vmin or 0.0), float(look.norm.vmax or 1.0)
    ticks = np.asarray([tick for tick in look.ticks.tick_values(low, high) if low <= tick <= high])
    shared = {
        "x": edges[0],
        "y": edges[1],
        "text": words,
        "hovertemplate": "%{text}<extra></extra>",
        "hoverongaps": False,
        "zmin": 0,
        "zmax": 1,
    }
    bar = {
        "title": {"text": look.label, "side": "right"},
        "tickvals": np.asarray(look.norm(ticks), dtype=float),
        "ticktext": [look.write(float(tick)) for tick in ticks],
    }
    scale = "RdBu_r" if look.colours == SIGNED else "Viridis"
    mesh = objects.Heatmap(z=np.where(gaps, np.nan, placed), colorscale=scale, colorbar=bar, **shared)
    if not gaps.any():
        return [mesh]
    grey = [[0, _GAP], [1, _GAP]]
    return [objects.Heatmap(z=np.where(gaps, 1.0, np.nan), colorscale=grey, showscale=False, **shared), mesh]


def _gaps(values: np.ndarray) -> list[str]:
    """The words for gaps, where there are any."""
    return ["grey: not observed"] if np.isnan(values).any() else []


def _words(figure: Any, title: str, caption: Sequence[str]) -> None:
    """Title and caption; the background is white, which no cell is."""
    text = f"{_plain(title)}<br><sup>{_plain('; '.join(caption))}</sup>"
    legend = {"orientation": "h", "yanchor": "bottom", "y": 1.0, "xanchor": "right", "x": 1.0}
    figure.update_layout(title_text=text, plot_bgcolor="white", legend=legend)
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False)


def _plain(text: str) -> str:
    """Names as they are: plotly reads a few tags in text."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _plotly() -> ModuleType:
    """plotly with what is used of it; raises MissingDependencyError naming the extra."""
    try:
        import plotly.graph_objects
        import plotly.subplots
    except ImportError:
        raise MissingDependencyError('interactive=True needs plotly: pip install "tsattn[plotly]".') from None
    return plotly
