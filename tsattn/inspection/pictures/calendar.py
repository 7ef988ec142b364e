"""The calendar view: which hours, weekdays or months were read."""

from __future__ import annotations

import calendar as months_and_days
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Rectangle

from tsattn.errors import ConfigError
from tsattn.inspection.drawing import SMALL
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.pictures.canvas import Picture, PictureAxes, foot, head, one_panel, provenance, reduced
from tsattn.inspection.pictures.colours import GAP, GAP_LINES, Look, look_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

    from tsattn.data.frequency import Frequency

# all values that a part of the calendar can take: first, and one past the last
_RANGES = {
    "minute": (0, 60),
    "hour": (0, 24),
    "dayofweek": (0, 7),
    "day": (1, 32),
    "dayofyear": (1, 367),
    "week": (1, 54),
    "month": (1, 13),
    "quarter": (1, 5),
}
_NAMES = {"dayofweek": "weekday", "dayofyear": "day of the year", "day": "day of the month", "week": "week of the year"}
_MOST_WRITTEN = 60  # cells whose count of pairs is written in them


def plot_calendar(
    attention: AttentionMap,
    *,
    rows: str | None = None,
    cols: str | None = None,
    target: int | str = 0,
    layer: int | str | None = None,
    scale: str = "sqrt",
    ax: Axes | None = None,
) -> Axes | Picture:
    """Mean weight of a past step by two parts of the calendar (``by_calendar``), in the zone of the data.

    Cells that no pair of a past step and a forecast step falls into are hatched. How many pairs a cell stands on is
    written in it, or in the caption where there are many cells.

    Args:
        attention: The map; heads are averaged, ``sel(head=...)`` picks one.
        rows: A part of the stamp, upwards: minute, hour, dayofweek, day, dayofyear, week, month, quarter; with
            "target." before it, of the forecast step.
        cols: Another one, across. With neither, two panels that suit the frequency: for hours, hour by weekday of what
            was read, and hour of what was read by hour of the forecast.
        target: Position or name of the target column.
        layer: Position or name; None is the last one from forecast steps to past steps.
        scale: Colours by the square root ("sqrt") or the logarithm ("log") of shares.
        ax: Axes to draw in: one panel, the first of the two by default.

    Returns:
        The axes of one panel, or the figure of two.

    Raises:
        ConfigError: integer time, an unknown part, only one of ``rows`` and ``cols``.
    """
    if (rows is None) != (cols is None):
        raise ConfigError("Give both rows and cols, such as rows='month', cols='day', or neither.")
    pairs = [(rows, cols)] if rows is not None and cols is not None else usual_parts(attention.panel.schema.freq)
    tables = [attention.by_calendar(*pair, target, layer) for pair in (pairs[:1] if ax is not None else pairs)]
    place = attention.target_position(target)
    caption = _caption(attention, layer)
    if len(tables) == 1:
        look = look_of(attention, tables[0]["weight"], "step", place, scale)
        axes = one_panel(ax, 7.5, 5)
        mesh = _panel(axes, tables[0], look)
        head(axes, _title(tables[0]), [*caption, _counts(tables[0]), look.scale, *_hatched(tables)], most=3)
        look.bar(mesh, axes, fraction=0.05)
        return axes
    figure = Picture(figsize=(11, 5.2), layout="constrained")
    look = look_of(attention, np.concatenate([t["weight"] for t in tables]), "step", place, scale)
    drawn = [figure.add_subplot(1, len(tables), i + 1, axes_class=PictureAxes) for i in range(len(tables))]
    for axes, table in zip(drawn, tables, strict=True):
        mesh = _panel(axes, table, look)
        axes.set_title(f"{_title(table)} ({_counts(table)})", loc="left", fontsize=SMALL)
    look.bar(mesh, drawn, fraction=0.05)
    foot(figure, "By the calendar: what was read, and for when", [*caption, look.scale, *_hatched(tables)])
    return figure


def usual_parts(freq: Frequency) -> list[tuple[str, str]]:
    """The parts of the calendar that tell steps of a frequency apart: of what was read, and beside the forecast's."""
    if freq.kind == "tick" and freq.season() > 1 and freq.alias.endswith(("h", "min", "s")):
        return [("hour", "dayofweek"), ("hour", "target.hour")]
    if freq.kind in ("day", "business", "tick") and freq.season() < 52:
        return [("dayofweek", "month"), ("dayofweek", "target.dayofweek")]
    return [("month", "target.month")]


def _panel(ax: Axes, table: pd.DataFrame, look: Look) -> QuadMesh:
    """One grid with all values a part can take, hatched where there are no pairs."""
    rows, cols = table.columns[:2]
    first, second = _values(table, rows), _values(table, cols)
    grid = table.pivot(index=rows, columns=cols, values="weight").reindex(index=first, columns=second)
    pairs = table.pivot(index=rows, columns=cols, values="pairs").reindex(index=first, columns=second)
    values = np.ma.masked_invalid(grid.to_numpy(dtype=float))
    ax.add_patch(Rectangle((0, 0), 1, 1, transform=ax.transAxes, facecolor=GAP, edgecolor=GAP_LINES, hatch="////",
                           linewidth=0, zorder=0))  # fmt: skip
    x, y = np.arange(len(second) + 1) - 0.5, np.arange(len(first) + 1) - 0.5
    mesh = ax.pcolormesh(x, y, look.shown(values), norm=look.norm, cmap=look.colours, zorder=1)
    if pairs.size <= _MOST_WRITTEN:
        _write_counts(ax, pairs.to_numpy(dtype=float), values, look)
    for axis, part, codes in ((ax.xaxis, cols, second), (ax.yaxis, rows, first)):
        every = -(-len(codes) // 12)
        axis.set_ticks(range(0, len(codes), every), [_text(part, code) for code in codes[::every]])
    ax.tick_params(labelsize=SMALL)
    ax.set_xlabel(_name(cols), fontsize=SMALL)
    ax.set_ylabel(_name(rows), fontsize=SMALL)
    return mesh


def _write_counts(ax: Axes, pairs: np.ndarray, values: np.ma.MaskedArray, look: Look) -> None:
    for row, col in zip(*np.nonzero(~np.isnan(pairs)), strict=True):
        bright = float(look.norm(values[row, col])) > 0.6 or look.colours == "RdBu_r"
        ax.text(col, row, f"{pairs[row, col]:,.0f}", ha="center", va="center", fontsize=SMALL - 2,
                color="0.1" if bright else "0.95")  # fmt: skip


def _values(table: pd.DataFrame, name: str) -> np.ndarray:
    """All values of a part that the steps of the table can take, in order."""
    present = np.unique(table[name])
    first, last = _RANGES[name.removeprefix("target.")]
    step = int(np.gcd.reduce(np.diff(present))) if len(present) > 2 else 1  # three-hourly data have eight hours
    return np.arange(first + (int(present[0]) - first) % step, last, step)


def _text(part: str, code: int) -> str:
    kind = part.removeprefix("target.")
    if kind == "dayofweek":
        return months_and_days.day_abbr[code]
    if kind == "month":
        return months_and_days.month_abbr[code]
    return f"Q{code}" if kind == "quarter" else str(code)


def _name(part: str) -> str:
    kind = part.removeprefix("target.")
    return f"{_NAMES.get(kind, kind)} {'forecast' if part != kind else 'read'}"


def _title(table: pd.DataFrame) -> str:
    rows, cols = table.columns[:2]
    return f"{_name(rows).capitalize()} by {_name(cols)}"


def _counts(table: pd.DataFrame) -> str:
    low, high = int(table["pairs"].min()), int(table["pairs"].max())
    return f"{low:,} to {high:,} pairs per cell" if low != high else f"{low:,} pairs per cell"


def _hatched(tables: list[pd.DataFrame]) -> list[str]:
    """The words for empty cells, where there are any."""
    sizes = [len(_values(table, table.columns[0])) * len(_values(table, table.columns[1])) for table in tables]
    full = all(size == len(table) for size, table in zip(sizes, tables, strict=True))
    return [] if full else ["hatched: no such pair"]


def _caption(attention: AttentionMap, layer: int | str | None) -> list[str]:
    record, zone = attention.record(layer), attention.panel.schema.tz
    over = reduced(
        (record.weights.shape[2], "head"), (len(attention), "window"), (len(attention.steps), "forecast step")
    )
    return [*provenance(attention, record.layer, over), f"clock of {zone or 'the table'}"]
