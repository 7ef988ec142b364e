"""One row of a picture: history and forecast over real time, and the attention strip on the same time axis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import matplotlib.dates as mdates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter

from tsattn.data.panel import Panel
from tsattn.data.walltime import zone
from tsattn.errors import DataError
from tsattn.inference import WindowForecasts
from tsattn.inspection.maps import past_values

if TYPE_CHECKING:
    from tsattn.inspection.pictures.colours import Look

# Okabe and Ito's palette, safe for colour-blind readers; viridis has no grey, which stands for "not observed".
HISTORY, FORECAST, ACTUAL, CHOSEN = "#222222", "#0072B2", "#D55E00", "#CC3377"
STRIP, HEADROOM = 0.13, 0.15  # shares of the height of an axes: the strip below the data, the legend above
SMALL = 8.5  # points


@dataclass(frozen=True)
class Scene:
    """What one row shows: a window, and how far back. ``back`` past steps, ``H`` steps ahead."""

    panel: Panel
    windows: WindowForecasts
    window: int
    target: int
    levels: tuple[float, ...]
    back: int

    @property
    def series(self) -> int:
        return int(self.windows.series[self.window])

    @property
    def origin(self) -> int:
        return int(self.windows.origin[self.window])

    @property
    def horizon(self) -> int:
        return self.windows.point.shape[1]

    def past(self) -> np.ndarray:
        """Values of the past steps, ``[back]``, NaN where unobserved."""
        return past_values(self.panel, np.array([self.series]), np.array([self.origin]), self.back, self.target)[0]

    def places(self) -> np.ndarray:
        """Where on the time axis: past and forecast steps, and one step on either side, ``[back + H + 2]``."""
        steps = self.origin + np.arange(-self.back - 1, self.horizon + 1)
        try:
            times = self.panel.times(np.full(len(steps), self.series), steps)
        except DataError:  # the step before the first leaves the range of stamps
            times = self.panel.times(np.full(len(steps) - 1, self.series), steps[1:])
            times = np.concatenate([[2 * times[0] - times[1]], times])
        if self.panel.schema.integer_time:
            return times.astype(np.float64)
        return np.asarray(mdates.date2num(times.astype("datetime64[ns]")))

    def title(self) -> str:
        """Id and origin, as plain text."""
        value = self.panel.ids[self.series].as_py()
        start = "" if value is None else f"{short(value)}, "
        return f"{start}origin {self.panel.when(self.series, self.origin - 1)}"


def scene_of(
    panel: Panel, windows: WindowForecasts, window: int, target: int, levels: tuple[float, ...], history: int
) -> Scene:
    """The window with ``history`` past steps.

    A young series in a long window would be squeezed into a corner: padding gets at most half of the width.
    """
    origin, horizon = int(windows.origin[window]), windows.point.shape[1]
    scene = Scene(panel, windows, window, target, levels, min(history, 2 * origin + horizon))
    try:
        panel.times(windows.series[[window]], np.array([origin - scene.back]))
    except DataError:  # the padding would begin before the year 1677
        scene = replace(scene, back=min(history, origin))
    return scene


def draw_row(
    ax: Axes,
    scene: Scene,
    weights: np.ndarray | None,
    horizon: int | None,
    look: Look | None = None,
    legend: bool = True,
) -> None:
    """Draw one row: lines, interval, origin, and the strip when there are ``weights [L]`` and how they ``look``."""
    places, back = scene.places(), scene.back
    edges = (places[1:] + places[:-1]) / 2  # [back + H + 1]: every step owns the time around its stamp
    past, ahead = places[1 : back + 1], places[back + 1 : -1]
    values = scene.past()
    point = scene.windows.point[scene.window, :, scene.target]
    actual = scene.windows.actual[scene.window, :, scene.target]
    shown = [values, point, actual]
    if scene.windows.quantiles is not None and scene.windows.quantiles.shape[-1] > 1:
        band = scene.windows.quantiles[scene.window, :, scene.target][:, [0, -1]]
        shown.append(band.ravel())
        where = ahead if len(ahead) > 1 else edges[-2:]  # one step: a block as wide as the step
        low, high = (np.broadcast_to(side, where.shape) for side in band.T)
        ax.fill_between(where, low, high, color=FORECAST, alpha=0.22, linewidth=0, label=_interval(scene.levels))
    ax.axvline(past[-1], color="0.45", linewidth=1.1, linestyle=(0, (4, 3)), zorder=1.5, label="origin")
    _line(ax, past, values, HISTORY, "history")
    if not np.isnan(actual).all():
        _line(ax, ahead, actual, ACTUAL, "actual")
    median = scene.windows.quantiles is not None
    _line(ax, ahead, point, FORECAST, "forecast (median)" if median else "forecast")
    if horizon is not None:
        ax.plot(ahead[horizon - 1], point[horizon - 1], "o", markersize=7, markerfacecolor="white",
                markeredgecolor=CHOSEN, markeredgewidth=1.8, zorder=4, label=f"step {horizon}")  # fmt: skip
    _value_axis(
        ax, np.concatenate(shown), scene, STRIP + 0.02 if weights is not None else 0.0, HEADROOM if legend else 0.0
    )
    _time_axis(ax, scene)
    ax.set_xlim(edges[0], edges[-1])
    if weights is not None and look is not None:
        _strip(ax, edges[: back + 1], weights, ~np.isnan(values), look)
    if legend:
        _legend(ax)


def _line(ax: Axes, places: np.ndarray, values: np.ndarray, colour: str, label: str) -> None:
    """A line with gaps where values are NaN; a value without neighbours becomes a dot."""
    ax.plot(places, values, color=colour, linewidth=1.5, solid_joinstyle="round", label=label, zorder=3)
    there = np.concatenate([[False], ~np.isnan(values), [False]])
    alone = there[1:-1] & ~there[:-2] & ~there[2:]
    if alone.any():
        ax.plot(places[alone], values[alone], "o", color=colour, markersize=4, zorder=3)


def _strip(ax: Axes, edges: np.ndarray, weights: np.ndarray, observed: np.ndarray, look: Look) -> None:
    """The attention of each past step under the history, its colour bar, and hatching where nothing was observed.

    The strip lies inside ``ax``, below the data: it fits wherever ``ax`` was put and moves with its time axis.
    """
    shown = len(observed)
    strip = ax.inset_axes((0, 0, 1, STRIP), sharex=ax)
    strip.set_label("attention strip")
    cells = np.zeros(shown)
    cells[-min(len(weights), shown) :] = weights[-shown:]
    colours = look.shown(np.ma.masked_array(cells, ~observed)[None])
    mesh = strip.pcolormesh(edges, [0.0, 1.0], colours, norm=look.norm, cmap=look.colours)
    bounds = np.diff(np.concatenate([[False], ~observed, [False]]).astype(np.int8))
    first, last = edges[np.flatnonzero(bounds == 1)], edges[np.flatnonzero(bounds == -1)]
    if len(first):
        strip.broken_barh(list(zip(first, last - first, strict=True)), (0, 1), facecolor="0.96", edgecolor="0.65",
                          hatch="////", linewidth=0)  # fmt: skip
    strip.set_ylim(0, 1)
    strip.xaxis.set_visible(False)
    strip.yaxis.set_visible(False)
    strip.patch.set_visible(False)
    strip.spines[:].set_visible(False)
    look.bar(mesh, ax)


class _DataTicks(MaxNLocator):
    """Ticks where the data are: none in the strip below or the legend above."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(nbins=6, steps=[1, 2, 2.5, 5, 10])
        self.low, self.high = low, high

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        return [tick for tick in super().tick_values(vmin, vmax) if self.low <= tick <= self.high]


def _value_axis(ax: Axes, values: np.ndarray, scene: Scene, below: float, above: float) -> None:
    """Limits that leave the shares ``below`` (strip) and ``above`` (legend) of the height free; ticks at the data."""
    low, high = (float(np.nanmin(values)), float(np.nanmax(values)))
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - margin, high + margin
    height = (high - low) / (1 - below - above)
    ax.set_ylim(low - below * height, high + above * height)
    ax.yaxis.set_major_locator(_DataTicks(low, high))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))  # no "1e6" apart from the ticks
    ax.set_ylabel(short(scene.panel.schema.roles.target[scene.target]), parse_math=False)
    ax.grid(axis="y", color="0.9", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines.left.set_bounds(low, high)


def _time_axis(ax: Axes, scene: Scene) -> None:
    """Ticks at round dates in the zone of the data, or at whole numbers; the label names column and zone."""
    schema = scene.panel.schema
    label = short(schema.roles.time)
    if schema.integer_time:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
        formatter = ScalarFormatter(useOffset=False)
        formatter.set_scientific(False)
        ax.xaxis.set_major_formatter(formatter)
    else:
        tz = None if schema.tz is None else zone(schema.tz)
        locator = mdates.AutoDateLocator(tz=tz, minticks=4, maxticks=9)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator, tz=tz))
        label += "" if schema.tz is None else f" ({schema.tz})"
    ax.set_xlabel(label, fontsize=SMALL, parse_math=False)


def _legend(ax: Axes) -> None:
    """One line above the data, in reading order."""
    handles, labels = ax.get_legend_handles_labels()
    first = ("history", "forecast (median)", "forecast")
    order = sorted(range(len(labels)), key=lambda i: first.index(labels[i]) if labels[i] in first else len(first))
    ax.legend(
        [handles[i] for i in order],
        [labels[i] for i in order],
        loc="upper left",
        ncol=len(order),
        fontsize=SMALL,
        frameon=False,
        borderaxespad=0.1,
        columnspacing=1.4,
        handlelength=1.6,
    )


def _interval(levels: tuple[float, ...]) -> str:
    """Name of the widest band of quantiles."""
    if not levels:
        return "widest interval"
    low, high = min(levels), max(levels)
    if abs(low + high - 1) < 1e-9:
        return f"{100 * (high - low):.4g} % interval"
    return f"{low:g} to {high:g} quantile"


def short(value: object, most: int = 60) -> str:
    """Text of an id or a name on one line."""
    text = " ".join(str(value).split())
    return text if len(text) <= most else text[: most - 1] + "…"
