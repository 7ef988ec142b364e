"""Small multiples: a map of each layer and head, on one colour scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tsattn.errors import ConfigError
from tsattn.inspection.drawing import SMALL, short
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.pictures.canvas import Picture, PictureAxes, counted, foot, provenance
from tsattn.inspection.pictures.colours import Look, look_of
from tsattn.inspection.support import over_time, overlap
from tsattn.inspection.views import row_entropy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tsattn.inference import Record
    from tsattn.models.base import Axis

MOST = 144  # panels in one picture
UNIFORM, SINK, ROWS = 0.9, 3.0, 0.9  # as in ``diagnose``: share of the keys, times an even share, share of the rows


@dataclass(frozen=True)
class Head:
    """One panel: the mean map ``[J, I]`` of a head, how many keys its rows spread over, and its badge."""

    mean: np.ndarray
    effective: float
    keys: float  # mean number of keys that could be read
    badge: str


def plot_heads(
    attention: AttentionMap,
    window: int | None = None,
    *,
    every: bool = False,
    target: int | str = 0,
    scale: str = "sqrt",
) -> Picture:
    """Layers downwards, heads across: tokens that ask (up: later) by tokens that were read (right: newer).

    Each panel says over how many tokens its rows spread (the
    exponential of the entropy, the mean over rows and windows), and has a badge when the head is "uniform" (over 90 %
    of its rows spread over more than 90 % of the tokens) or a "sink" (one token draws over three times its even share
    in over 90 % of the rows).

    Args:
        attention: The map; ``sel(layer=..., head=...)`` picks some.
        window: Position in the map; None is the mean over all windows.
        every: Whether to show layers inside an encoder or decoder, and those over variables, too. Without it they are
            left out where there are layers from forecast steps to past steps.
        target: Position or name of the target column.
        scale: Colours by the square root ("sqrt") or the logarithm ("log") of shares.

    Raises:
        ConfigError: more than 144 panels.
    """
    target = attention.target_position(target)
    windows = slice(None) if window is None else slice(attention.position(window), attention.position(window) + 1)
    records = attention.windows.attention
    if attention.mapped and not every:
        records = tuple(records[i] for i in attention.mapped)
    others = len(attention.layers) - len(records)
    across = max(record.weights.shape[2] for record in records)
    if len(records) * across > MOST:
        raise ConfigError(
            f"{len(records)} layers of up to {across} heads are more than {MOST} panels: choose some with "
            f"sel(layer=...) or sel(head=...)."
        )
    panels = []
    for record in records:
        keys = _readable(attention, record, windows, target)
        panels.append([head_of(record, windows, target, head, keys) for head in range(record.weights.shape[2])])
    flat = [panel.mean.ravel() for row in panels for panel in row]
    look = look_of(attention, np.concatenate(flat), "token", target, scale)
    columns = min(across, 8)
    lines = [-(-len(row) // columns) for row in panels]
    figure = Picture(figsize=(1.0 + 1.55 * max(columns, 4), 1.3 + 1.55 * sum(lines)), layout="constrained")
    axes = _draw(figure, records, panels, lines, columns, look)
    look.bar(axes[0].collections[0], axes, fraction=0.05)
    shown = len(attention) if window is None else 1
    over = f"mean of {counted(shown, 'window')}" if shown > 1 else _one(attention, window)
    thin = ["badges: uniform, an even spread; sink, one token read nearly always"] if _badged(panels) else []
    caption = [*provenance(attention, None, over), look.scale, "up: later, right: newer", *thin]
    if others:
        caption.append(f"{counted(others, 'other layer')}: every=True")
    foot(figure, f"{counted(len(records), 'layer')}, {counted(across, 'head')}", caption)
    return figure


def head_of(record: Record, windows: slice, target: int, head: int, keys: np.ndarray) -> Head:
    """The panel of one head over some windows, each with ``keys [W, 1]`` tokens that could be read."""
    weights = record.weights[windows, target if record.weights.shape[1] > 1 else 0, head]  # [W, J, I]
    sizes = np.abs(weights)
    spread = np.exp(row_entropy(sizes))  # [W, J]
    filled = np.isfinite(spread)
    badge = ""
    if filled.any() and keys.min() > 1:
        share = sizes / np.maximum(sizes.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
        draws = (share > SINK / keys[..., None])[filled].mean(axis=0)
        if ((spread / keys)[filled] > UNIFORM).mean() > ROWS:
            badge = "uniform"
        elif draws.max() > ROWS and weights.shape[2] > SINK:
            badge = "sink"
    effective = float(spread[filled].mean()) if filled.any() else np.nan
    return Head(weights.mean(axis=0), effective, float(keys.mean()), badge)


def _readable(attention: AttentionMap, record: Record, windows: slice, target: int) -> np.ndarray:
    """How many key tokens could be read in each window, ``[W, 1]``, at least 1.

    A token of the past could be where a step of it was observed; other tokens always.
    """
    count = len(range(*windows.indices(len(attention))))
    if not over_time(record.key):
        return np.full((count, 1), len(record.key))
    read = attention.read(windows, target if record.weights.shape[1] > 1 else None)
    seen = (read @ overlap(record.key, read.shape[1]).T > 0).sum(axis=1) + record.key.ahead
    return np.asarray(np.maximum(seen, 1)[:, None])


def _draw(
    figure: Picture, records: tuple[Record, ...], panels: list[list[Head]], lines: list[int], columns: int, look: Look
) -> list[Axes]:
    """The panels, a layer beginning a new line; returns their axes."""
    axes: list[Axes] = []
    first = 0
    for record, row, needed in zip(records, panels, lines, strict=True):
        x, y = edges_of(record.key), edges_of(record.query)
        for head, panel in enumerate(row):
            place = (first + head // columns) * columns + head % columns + 1
            ax = figure.add_subplot(sum(lines), columns, place, axes_class=PictureAxes)
            ax.pcolormesh(x, y, look.shown(np.ma.masked_invalid(panel.mean)), norm=look.norm, cmap=look.colours)
            _words(ax, record, head, panel)
            lowest = head // columns == needed - 1 or head + columns >= len(row)
            _ticks(ax, record, left=head % columns == 0, below=lowest)
            axes.append(ax)
        first += needed
    return axes


def _words(ax: Axes, record: Record, head: int, panel: Head) -> None:
    name = {"time": "steps", "patch": "patches", "variable": "variables", "horizon": "steps"}[record.key.kind]
    spread = "nothing read" if np.isnan(panel.effective) else f"{panel.effective:.3g} of {panel.keys:.3g} {name}"
    ax.set_title(f"head {head}: {spread}", fontsize=SMALL - 2, pad=3)
    if panel.badge:
        frame = {"facecolor": "white", "edgecolor": "0.3", "boxstyle": "round,pad=0.2", "linewidth": 0.7}
        ax.text(0.04, 0.95, panel.badge, transform=ax.transAxes, fontsize=SMALL - 1.5, va="top", bbox=frame)


def _ticks(ax: Axes, record: Record, *, left: bool, below: bool) -> None:
    for axis, side, there in ((ax.xaxis, record.key, below), (ax.yaxis, record.query, left)):
        axis.set_major_locator(MaxNLocator(nbins=3, integer=True))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
        if not there:
            axis.set_tick_params(labelleft=False, labelbottom=False)
        else:
            axis.set_label_text(_axis_name(side), fontsize=SMALL - 1.5)
    if left:
        ax.set_ylabel(f"{short(record.layer, 28)}\n{_axis_name(record.query)}", fontsize=SMALL - 1.5, parse_math=False)
    ax.tick_params(labelsize=SMALL - 2, length=2)


def _axis_name(axis: Axis) -> str:
    if axis.kind != "variable" and not _in_steps(axis):
        return f"{axis.kind} (by number)"
    return {"time": "past step", "patch": "past step", "variable": "variable", "horizon": "forecast step"}[axis.kind]


def edges_of(axis: Axis) -> np.ndarray:
    """Boundaries of the cells ``[tokens + 1]``: in steps where the tokens follow one another, else by number.

    Past steps count from the origin (0) back; forecast steps, as keys too, on from it.
    """
    if not _in_steps(axis):
        return np.arange(len(axis) + 1) - 0.5
    start, end = np.asarray(axis.start, dtype=float), np.asarray(axis.end, dtype=float)
    shift = end[-1] - axis.ahead if over_time(axis) else 0.0
    return np.append(start, end[-1]) - shift


def _in_steps(axis: Axis) -> bool:
    """Whether the tokens follow one another in time without overlap or gap."""
    start, end = np.asarray(axis.start), np.asarray(axis.end)
    return axis.kind != "variable" and bool((start[1:] == end[:-1]).all() and (end > start).all())


def _badged(panels: list[list[Head]]) -> bool:
    return any(panel.badge for row in panels for panel in row)


def _one(attention: AttentionMap, window: int | None) -> str:
    """Which window, in words."""
    place = attention.position(window or 0)
    series, origin = int(attention.windows.series[place]), int(attention.windows.origin[place])
    return f"window of {attention.panel.name(series)}, origin {attention.panel.when(series, origin - 1)}"
