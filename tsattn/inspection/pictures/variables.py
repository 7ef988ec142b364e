"""Attention over variables: which column read which, or which columns were selected at which step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tsattn.inspection.drawing import SMALL, short
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.pictures.canvas import Picture, PictureAxes, foot, head, one_panel, provenance, reduced
from tsattn.inspection.pictures.colours import Look, look_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from tsattn.inference import Record

_MOST_WRITTEN = 12  # variables whose weights are written in their cells


def plot_variables(
    attention: AttentionMap,
    *,
    target: int | str = 0,
    layer: int | str | None = None,
    scale: str = "sqrt",
    ax: Axes | None = None,
) -> Axes | Picture:
    """Mean weights over variables (``variables``): variables by variables, or variables by step for a selection.

    Rows are the variables that ask and columns those that were read; a row sums to 1. In a variable selection (tft)
    the variables go down, steps go across, and the mean over steps stands beside each name.

    Args:
        attention: The map; heads and windows are averaged.
        target: Position or name of the target column.
        layer: Position or name; None is every layer over variables, or with ``ax`` the last one.
        scale: Colours by the square root ("sqrt") or the logarithm ("log") of shares.
        ax: Axes to draw in; None makes a figure that pyplot does not know of.

    Returns:
        The axes of one layer, or the figure of several.

    Raises:
        ConfigError: no layer has variables as keys.
    """
    names = [record.layer for record in attention.windows.attention if record.key.kind == "variable"]
    if layer is not None or ax is not None or len(names) < 2:
        table = attention.variables(target, layer)
        chosen = attention.layers[attention.layer_position(layer)] if layer is not None else names[-1]
        square = _square(table)
        ax = one_panel(ax, *(_square_size(table) if square else (9, 1.9 + 0.32 * len(table.columns))))
        _panel(ax, attention, table, chosen, attention.target_position(target), scale)
        head(ax, _title(table), [*_caption(attention, chosen), _scale(attention, table, scale)])
        return ax
    tables = [attention.variables(target, name) for name in names]
    heights = [0.9 + 0.3 * (len(table) if _square(table) else len(table.columns)) for table in tables]
    figure = Picture(figsize=(9.5, 1.0 + sum(heights)), layout="constrained")
    grid = figure.add_gridspec(len(tables), 1, height_ratios=heights)
    for row, (name, table) in enumerate(zip(names, tables, strict=True)):
        axes = figure.add_subplot(grid[row, 0], axes_class=PictureAxes)
        _panel(axes, attention, table, name, attention.target_position(target), scale, label="weight")
        axes.set_title(f"{short(name)}: {_title(table).lower()}", loc="left", fontsize=SMALL, parse_math=False)
    caption = [*provenance(attention, None, _reduction(attention, names[-1])), _scale(attention, tables[-1], scale)]
    foot(figure, "Which variables were read", caption)
    return figure


def _panel(
    ax: Axes, attention: AttentionMap, table: pd.DataFrame, layer: str, target: int, scale: str, label: str = ""
) -> None:
    """One layer; ``label`` is a short one for the colour bar of a low panel."""
    look = look_of(attention, table.to_numpy(), "variable", target, scale)
    look = replace(look, label=label) if label else look
    if _square(table):
        _variables_by_variables(ax, table, look)
    else:
        _variables_by_steps(ax, table, look, _record(attention, layer))
    look.bar(ax.collections[0], ax, fraction=0.05)
    ax.tick_params(labelsize=SMALL)


def _variables_by_variables(ax: Axes, table: pd.DataFrame, look: Look) -> None:
    """First row at the top, as a table is read."""
    values = np.ma.masked_invalid(table.to_numpy())
    x, y = np.arange(values.shape[1] + 1) - 0.5, np.arange(values.shape[0] + 1) - 0.5
    ax.pcolormesh(x, y, look.shown(values), norm=look.norm, cmap=look.colours)
    ax.invert_yaxis()
    turn: dict[str, Any] = {}
    if max(len(str(name)) for name in table.columns) > 5:
        turn = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(values.shape[1]), [short(name, 18) for name in table.columns], parse_math=False, **turn)
    ax.set_yticks(range(values.shape[0]), [short(name, 18) for name in table.index], parse_math=False)
    ax.set_xlabel("read", fontsize=SMALL)
    ax.set_ylabel("asks", fontsize=SMALL)
    if max(values.shape) <= _MOST_WRITTEN:
        for (row, column), value in np.ndenumerate(values):
            ax.text(column, row, look.write(value), ha="center", va="center", fontsize=SMALL - 2,
                    color=ink(look, value))  # fmt: skip


def ink(look: Look, value: float) -> str:
    """A colour of text that can be read on the colour of a value."""
    place = float(look.norm(value))
    dark = abs(place - 0.5) > 0.35 if look.colours != "viridis" else place < 0.6
    return "0.97" if dark else "0.05"


def _variables_by_steps(ax: Axes, table: pd.DataFrame, look: Look, record: Record) -> None:
    """Variables down, in the order of their mean; steps across, on real steps counted from the origin."""
    order = np.argsort(-table.mean(axis=0).to_numpy(), kind="stable")
    table = table.iloc[:, order]
    values = np.ma.masked_invalid(table.to_numpy().T)  # [variables, steps]
    start = np.asarray(record.query.start, dtype=float)
    end = np.asarray(record.query.end, dtype=float)
    if record.query.kind == "horizon":
        x, name = np.append(start, end[-1]) + 0.5, "forecast step"
    else:
        x, name = np.append(start, end[-1]) - end[-1] + 0.5, "past step, 0 is the last before the origin"
    y = np.arange(values.shape[0] + 1) - 0.5
    ax.pcolormesh(x, y, look.shown(values), norm=look.norm, cmap=look.colours)
    ax.invert_yaxis()
    means = table.mean(axis=0)
    words = [f"{short(column, 24)}  {look.write(mean)}" for column, mean in means.items()]
    ax.set_yticks(range(len(words)), words, parse_math=False)
    if len(table) > 1:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}".replace("-", "−")))
        ax.set_xlabel(name, fontsize=SMALL)
    else:
        ax.set_xticks([])


def _record(attention: AttentionMap, layer: str) -> Record:
    return attention.windows.attention[attention.layer_position(layer)]


def _square(table: pd.DataFrame) -> bool:
    """Whether the queries are variables, too."""
    return table.index.name is None


def _square_size(table: pd.DataFrame) -> tuple[float, float]:
    side = min(max(0.5 * len(table.columns), 3.0), 9.0)
    return side + 3.0, min(max(0.5 * len(table), 3.0), 9.0) + 2.0


def _title(table: pd.DataFrame) -> str:
    if _square(table):
        return f"{len(table)} variables by {len(table.columns)} variables"
    return f"Selection of {len(table.columns)} variables, mean weight beside the name"


def _reduction(attention: AttentionMap, layer: str) -> str:
    return reduced((_record(attention, layer).weights.shape[2], "head"), (len(attention), "window"))


def _caption(attention: AttentionMap, layer: str) -> list[str]:
    return provenance(attention, layer, _reduction(attention, layer))


def _scale(attention: AttentionMap, table: pd.DataFrame, scale: str) -> str:
    return look_of(attention, table.to_numpy(), "variable", 0, scale).scale
