"""The heat map: which past step each forecast step read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tsattn.errors import ConfigError, unknown_name
from tsattn.inspection.drawing import scene_of
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.pictures.canvas import head, one_panel, provenance, reduced
from tsattn.inspection.pictures.cells import Cells, cells_of
from tsattn.inspection.pictures.colours import Look, look_of
from tsattn.inspection.pictures.grid import AXES, Grid, label_axes
from tsattn.inspection.pictures.seasons import named_lags

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_heatmap(
    attention: AttentionMap,
    window: int | None = None,
    *,
    x: str = "time",
    target: int | str = 0,
    layer: int | str | None = None,
    scale: str = "sqrt",
    guides: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Forecast steps (up: later) by past steps (right: newer), one cell per token: a patch is one cell.

    The origin is the right edge. Hatched past steps were not observed. Dashed lines follow the lags that have a name
    (1 day, 1 week): diagonals over time and age, upright over lag.

    Args:
        attention: The map; heads are averaged, ``sel(head=...)`` picks one.
        window: Position in the map. None is the first one over time, and the mean over all windows otherwise: a mean
            has no dates.
        x: "time" (the stamps that were read), "age" (steps before the last past step) or "lag" (steps from the past
            step to the forecast step).
        target: Position or name of the target column.
        layer: Position or name; None is the last one from forecast steps to past steps.
        scale: Colours by the square root ("sqrt") or the logarithm ("log") of shares.
        guides: Whether to draw the named lags.
        ax: Axes to draw in; None makes a figure that pyplot does not know of.

    Raises:
        IndexError: no such window, target or layer.
        ConfigError: an unknown ``x`` or ``scale``; no layer goes from forecast steps to past steps.
    """
    if x not in AXES:
        raise unknown_name("x axis", x, AXES)
    target = attention.target_position(target)
    if window is None and (x == "time" or len(attention) == 1):
        window = 0
    cells = cells_of(attention, window, target, layer)
    look = look_of(attention, cells.values, cells.per, target, scale)
    ax = one_panel(ax, 10, 4.6)
    grid = grid_of(attention, window, target, x)
    mesh = grid.draw(ax, cells, look)
    label_axes(ax, grid, attention.panel.schema)
    lags = named_lags(attention.panel.schema.freq, attention.length + attention.horizon - 1) if guides else {}
    caption = _caption(attention, cells, look, layer, window, bool(lags))
    head(ax, title_of(attention, window, cells), caption, above=10 if lags else 0)
    look.bar(mesh, ax)
    grid.guides(ax, lags, cells.rows)
    return ax


def grid_of(attention: AttentionMap, window: int | None, target: int, x: str) -> Grid:
    """The axes of a picture of one window, or of the mean over windows. Raises ConfigError for dates of a mean."""
    if x != "time":
        return Grid.of_steps(x, attention.length, attention.horizon)
    if window is None:
        raise ConfigError("A mean over windows has no dates: choose one window, or x='age' or x='lag'.")
    panel, windows = attention.panel, attention.windows
    scene = scene_of(panel, windows, attention.position(window), target, attention.levels, attention.length)
    return Grid.of_time(scene, attention.length)


def title_of(attention: AttentionMap, window: int | None, cells: Cells) -> str:
    """Which window, or that it is a mean."""
    steps = len(attention.steps)
    ahead = f"{steps} forecast steps" if steps > 1 else f"forecast step {attention.steps[0] + 1}"
    if window is None:
        return f"Mean over {cells.windows:,} windows, {ahead}"
    panel, windows = attention.panel, attention.windows
    window = attention.position(window)
    scene = scene_of(panel, windows, window, 0, attention.levels, attention.length)
    return f"{scene.title()}, {ahead}"


def _caption(
    attention: AttentionMap, cells: Cells, look: Look, layer: int | str | None, window: int | None, guides: bool
) -> list[str]:
    record = attention.record(layer)
    over = reduced((cells.heads, "head"), (cells.windows, "window"))
    parts = [*provenance(attention, record.layer, over), look.scale]
    if cells.gaps():
        parts.append("hatched: not observed")
    if record.key.ahead and attention.unit == "share":
        parts.append(f"{100 * ahead_share(attention, window, layer):.0f} % was read from forecast steps")
    if cells.per == "patch":
        parts.append("one cell per patch")
    if guides:
        parts.append("dashed: named lags")
    return parts


def ahead_share(attention: AttentionMap, window: int | None, layer: int | str | None) -> float:
    """The mean share that fell on forecast steps, which the picture does not show."""
    chosen = attention if window is None else attention.sel(window=window)
    shown = [weights.sum(axis=-1).mean() * len(weights) for _, weights, _ in chosen.chunks(0, layer)]
    return 1.0 - float(sum(shown)) / len(chosen)
