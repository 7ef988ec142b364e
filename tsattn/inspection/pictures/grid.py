"""Where the cells of a heat map lie: over real time, over the age of a past step, or over its lag."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.dates as mdates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import QuadMesh
from matplotlib.ticker import FuncFormatter, MaxNLocator, ScalarFormatter

from tsattn.data.schema import Schema
from tsattn.data.walltime import zone
from tsattn.inspection.drawing import SMALL, Scene, short
from tsattn.inspection.pictures.cells import Cells
from tsattn.inspection.pictures.colours import GAP, GAP_LINES, Look

AXES = ("time", "age", "lag")


@dataclass(frozen=True)
class Grid:
    """Boundaries of past and forecast steps on the axes of a picture.

    ``x [L + 1]`` and ``y [H + 1]`` belong to the boundaries 0 .. L and 0 .. H. In lag mode the past steps of each row
    are shifted, and ``x`` is None: a past step's place depends on the row.
    """

    kind: str
    length: int
    horizon: int
    x: np.ndarray | None
    y: np.ndarray

    @classmethod
    def of_time(cls, scene: Scene, length: int) -> Grid:
        """Real stamps of one window; past steps that the scene leaves out lie at its left edge."""
        places = scene.places()
        edges = (places[1:] + places[:-1]) / 2  # [back + H + 1]
        x = np.concatenate([np.full(length - scene.back, edges[0]), edges[: scene.back + 1]])
        return cls("time", length, scene.horizon, x, edges[scene.back :])

    @classmethod
    def of_steps(cls, kind: str, length: int, horizon: int) -> Grid:
        """Steps counted back: ages of past steps, or lags."""
        x = length - np.arange(length + 1) - 0.5 if kind == "age" else None
        return cls(kind, length, horizon, x, np.arange(horizon + 1) + 0.5)

    def draw(self, ax: Axes, cells: Cells, look: Look) -> QuadMesh:
        """The mesh, hatching where nothing was read, and limits."""
        if self.x is None:
            mesh = self._by_lag(ax, cells, look)
        else:
            keep = np.flatnonzero(np.diff(self.x[cells.columns]))  # columns of no width: padding that is left out
            x = self.x[cells.columns][np.append(keep, keep[-1] + 1)]
            values = look.shown(cells.values[:, keep])
            mesh = ax.pcolormesh(x, self.y[cells.rows], values, norm=look.norm, cmap=look.colours)
            hatch(ax, [(self.x[a], self.x[b]) for a, b in cells.gaps() if self.x[a] != self.x[b]], across=True)
            ax.set_xlim(x[0], x[-1])
        hatch(ax, [(self.y[a], self.y[b]) for a, b in cells.absent()], across=False)
        ax.set_ylim(self.y[cells.rows[0]], self.y[cells.rows[-1]])
        return mesh

    def _by_lag(self, ax: Axes, cells: Cells, look: Look) -> QuadMesh:
        """Each row shifted by its forecast step, on a grid of single lags, the longest at the left."""
        steps = np.arange(cells.rows[0], cells.rows[-1])
        values = cells.by_step()
        longest = self.length + int(steps[-1])
        shifted = np.ma.masked_all((len(steps), longest))
        for row, step in enumerate(steps):  # lag of the newest past step: step + 1
            start = longest - step - self.length
            shifted[row, start : start + self.length] = values[row]
        x, y = np.arange(longest, -1, -1) + 0.5, self.y[cells.rows[0] : cells.rows[-1] + 1]
        ax.set_facecolor(GAP)
        mesh = ax.pcolormesh(x, y, look.shown(shifted), norm=look.norm, cmap=look.colours)
        ax.set_xlim(x[0], x[-1])
        return mesh

    def guides(self, ax: Axes, lags: dict[int, str], rows: np.ndarray) -> None:
        """A thin line along each named lag, and its name above the picture."""
        low, high = int(rows[0]), int(rows[-1])
        taken: list[float] = []
        for lag, name in sorted(lags.items()):
            if self.x is None:
                line = np.array([[lag, self.y[low]], [lag, self.y[high]]])
            else:
                step = np.arange(low, high + 1)
                source = self.length + step - lag
                inside = (source >= 0) & (source <= self.length)
                if inside.sum() < 2:
                    continue
                line = np.stack([self.x[source[inside]], self.y[step[inside]]], axis=1)
            ax.plot(*line.T, color="white", linewidth=1.2, alpha=0.35, zorder=2)
            ax.plot(*line.T, color="0.1", linewidth=0.6, alpha=0.7, linestyle=(0, (6, 5)), zorder=2.1,
                    label=f"lag {name}")  # fmt: skip
            top = ax.transAxes.inverted().transform(ax.transData.transform(line[-1]))
            if top[1] > 0.999 and all(abs(top[0] - other) > 0.07 for other in taken):
                taken.append(float(top[0]))
                ax.annotate(name, (float(top[0]), 1), (0, 2), "axes fraction", "offset points", fontsize=SMALL - 1,
                            color="0.1", ha="center", va="bottom")  # fmt: skip


def hatch(ax: Axes, spans: list[tuple[float, float]], *, across: bool) -> None:
    """Hatched bands over spans of the x axis (``across``) or of the y axis."""
    for low, high in spans:
        span = ax.axvspan if across else ax.axhspan
        span(min(low, high), max(low, high), facecolor=GAP, edgecolor=GAP_LINES, hatch="////", linewidth=0, zorder=1.5)


def time_ticks(axis: Axis, schema: Schema, most: int = 9, *, offset: bool = True) -> None:
    """Ticks at round dates in the zone of the data, or at whole numbers; ``offset``: what they share at the end."""
    if schema.integer_time:
        axis.set_major_locator(MaxNLocator(nbins=most, integer=True))
        formatter = ScalarFormatter(useOffset=False)
        formatter.set_scientific(False)
        axis.set_major_formatter(formatter)
        return
    tz = None if schema.tz is None else zone(schema.tz)
    locator = mdates.AutoDateLocator(tz=tz, minticks=min(4, most), maxticks=most)
    axis.set_major_locator(locator)
    axis.set_major_formatter(mdates.ConciseDateFormatter(locator, tz=tz, show_offset=offset))


def label_axes(ax: Axes, grid: Grid, schema: Schema) -> None:
    """Ticks and names of both axes."""
    ax.tick_params(labelsize=SMALL)
    if grid.kind == "time":
        time_ticks(ax.xaxis, schema)
        time_ticks(ax.yaxis, schema, 6, offset=False)
        zoned = "" if schema.tz is None else f" ({schema.tz})"
        ax.set_xlabel(f"{short(schema.roles.time)} that was read{zoned}", fontsize=SMALL, parse_math=False)
        ax.set_ylabel("forecast for (up: later)", fontsize=SMALL)
        return
    names = {
        "age": "age: steps before the last past step, newest at the right",
        "lag": "lag: steps from the past step to the forecast step, shortest at the right",
    }
    ax.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    whole = FuncFormatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_major_formatter(whole)
    ax.yaxis.set_major_formatter(whole)
    ax.set_xlabel(names[grid.kind], fontsize=SMALL)
    ax.set_ylabel("forecast step (up: later)", fontsize=SMALL)
