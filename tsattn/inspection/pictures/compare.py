"""Two maps on one grid, and their difference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tsattn.errors import ConfigError, unknown_name
from tsattn.inspection.drawing import SMALL, short
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.pictures.canvas import Picture, PictureAxes, counted, foot, reduced
from tsattn.inspection.pictures.cells import Cells, cells_of
from tsattn.inspection.pictures.colours import look_of, signed_look, writer
from tsattn.inspection.pictures.grid import AXES, label_axes
from tsattn.inspection.pictures.heatmap import grid_of, title_of
from tsattn.inspection.views import check_comparable

if TYPE_CHECKING:
    import pandas as pd


def plot_compare(
    attention: AttentionMap,
    other: AttentionMap,
    window: int | None = None,
    *,
    x: str | None = None,
    target: int | str = 0,
    layer: int | str | None = None,
    scale: str = "sqrt",
) -> Picture:
    """This map, the other one, and this minus the other; the first two on one colour scale, by single steps.

    The title has the total variation (0 the same, 1 disjoint) and Spearman's rank correlation, means over the rows of
    all windows shown. Maps in different units are compared as shares, by size.

    Args:
        attention: The map.
        other: A map of the same windows, past steps and forecast steps: of another model, layer, seed or method.
        window: Position in both maps; None is the mean over all windows.
        x: "time", "age" or "lag"; None is "time" for one window and "age" for a mean, which has no dates.
        target: Position or name of the target column.
        layer: Position or name in this map (and in the other, where it has it); None is the last one with a map.
        scale: Colours by the square root ("sqrt") or the logarithm ("log") of shares.

    Raises:
        ConfigError: windows, past steps or forecast steps differ; ``x="time"`` without a window.
    """
    if not isinstance(other, AttentionMap):
        raise ConfigError(f"other is an AttentionMap, not {type(other).__name__}.")
    check_comparable(attention, other)
    if window is None and len(attention) == 1:
        window = 0
    x = ("age" if window is None else "time") if x is None else x
    if x not in AXES:
        raise unknown_name("x axis", x, AXES)
    place = attention.target_position(target)
    theirs = _same_layer(other, layer)
    table = _rows(attention, other, window, place, layer)
    as_shares = (attention.unit, attention.signed) != (other.unit, other.signed)
    first = _by_step(cells_of(attention, window, place, layer), as_shares)
    second = _by_step(cells_of(other, window, place, theirs), as_shares)
    shown = replace(attention, unit="share", signed=False) if as_shares else attention
    shown = replace(shown, method="weight" if attention.method != other.method else attention.method)
    look = look_of(shown, np.ma.concatenate([first.values, second.values]), "step", place, scale)
    change = replace(first, values=first.values - second.values)
    largest = float(np.abs(change.values).max()) if change.values.count() else 0.0
    apart = signed_look(largest, "A minus B", writer(shown.unit))

    figure = Picture(figsize=(10, 8.6), layout="constrained")
    axes = [figure.add_subplot(3, 1, i + 1, axes_class=PictureAxes) for i in range(3)]
    grid = grid_of(attention, window, place, x)
    names = _names(attention, other, layer, theirs)
    for ax, cells, how, name in zip(axes, (first, second, change), (look, look, apart), names, strict=True):
        mesh = grid.draw(ax, cells, how)
        label_axes(ax, grid, attention.panel.schema)
        ax.set_title(name, loc="left", fontsize=SMALL + 0.5, parse_math=False)
        if ax is not axes[2]:
            ax.set_xlabel("")
        how.bar(mesh, ax)
    over = reduced((first.windows, "window"))
    caption = [f"heads averaged, {over}", look.scale, f"difference: {apart.scale}"]
    caption += ["maps in different units, drawn as shares by size"] if as_shares else []
    caption += ["hatched: not observed"] if first.gaps() else []
    foot(figure, f"{title_of(attention, window, first)}\n{_apart(table)}", caption)
    return figure


def _rows(
    attention: AttentionMap, other: AttentionMap, window: int | None, target: int, layer: int | str | None
) -> pd.DataFrame:
    """``compare`` of the windows shown."""
    if window is not None:
        attention, other = attention.sel(window=window), other.sel(window=window)
    return attention.compare(other, target, layer)


def _apart(table: pd.DataFrame) -> str:
    return (
        f"total variation {table['total_variation'].mean():.2f}, Spearman {table['spearman'].mean():.2f} "
        f"(mean of {counted(len(table), 'row')})"
    )


def _same_layer(other: AttentionMap, layer: int | str | None) -> int | str | None:
    """The layer of the other map, as ``compare`` takes it: the same where it has it, else its last one with a map."""
    if isinstance(layer, str):
        return layer if layer in other.layers else None
    return layer if layer is not None and -len(other.layers) <= layer < len(other.layers) else None


def _by_step(cells: Cells, as_shares: bool) -> Cells:
    """Cells of single steps; a patch's weight is divided by its steps, so that maps of any patches can be compared."""
    columns, rows = np.diff(cells.columns), np.diff(cells.rows)
    width = columns if cells.per == "patch" else np.ones(len(columns))
    values = np.ma.repeat(np.ma.repeat(cells.values / width, rows, axis=0), columns, axis=1)
    if as_shares:
        sizes = np.abs(values)
        values = sizes / np.maximum(sizes.sum(axis=1).filled(0), np.finfo(np.float64).tiny)[:, None]
    edges = np.arange(cells.rows[0], cells.rows[-1] + 1), np.arange(cells.columns[-1] + 1)
    return Cells(values, *edges, "step", cells.windows, cells.heads)


def _names(
    attention: AttentionMap, other: AttentionMap, layer: int | str | None, theirs: int | str | None
) -> list[str]:
    """What is in the three panels."""
    parts = []
    for one, chosen in ((attention, layer), (other, theirs)):
        done = f" ({', '.join(one.notes)})" if one.notes else ""
        record = one.record(chosen)
        tokens = f"{len(record.key)} {'patches' if record.key.kind == 'patch' else 'steps'}"
        parts.append(f"{short(one.model or 'map')}, {one.method}, layer '{record.layer}' over {tokens}{done}")
    return [f"A: {parts[0]}", f"B: {parts[1]}", "A minus B"]
