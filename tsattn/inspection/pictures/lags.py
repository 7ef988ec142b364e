"""The lag profile: how much a past step weighs by its distance from the forecast step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tsattn.errors import ConfigError
from tsattn.inspection.drawing import FORECAST, SMALL, short
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.pictures.canvas import counted, head, one_panel, provenance, reduced
from tsattn.inspection.pictures.colours import writer
from tsattn.inspection.pictures.seasons import name_of, named_lags

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

HEADROOM = 0.3  # of the height of the data, for the names of the lags and the legend


def plot_lags(
    attention: AttentionMap,
    *,
    target: int | str = 0,
    layer: int | str | None = None,
    count: int = 5,
    ax: Axes | None = None,
) -> Axes:
    """Mean weight by lag (``by_lag``), a band from quartile to quartile over windows, and what an even spread gives.

    Upright lines mark the lags with a name (1 day, 1 week) and dots the ``count`` highest peaks, which the caption
    lists. Lags that patches cannot tell apart form one plateau.

    Args:
        attention: The map; heads are averaged, ``sel(head=...)`` picks one.
        target: Position or name of the target column.
        layer: Position or name; None is the last one from forecast steps to past steps.
        count: How many peaks to list.
        ax: Axes to draw in; None makes a figure that pyplot does not know of.

    Raises:
        ConfigError: ``count`` is below 0; no layer goes from forecast steps to past steps.
    """
    if count < 0:
        raise ConfigError(f"count is a number of peaks from 0, found {count}.")
    table = attention.by_lag(target, layer)
    lags, weight = table["lag"].to_numpy(), table["weight"].to_numpy()
    ax = one_panel(ax, 10, 4.2)
    even = _even(attention, table)
    several = len(attention) > 1
    if several:
        ax.fill_between(lags, table["low"], table["high"], color=FORECAST, alpha=0.22, linewidth=0,
                        step="mid", label="middle half of the windows")  # fmt: skip
    ax.step(lags, weight, where="mid", color=FORECAST, linewidth=1.6, label="mean" if several else "weight", zorder=3)
    if even is not None:
        ax.plot(lags, even, color="0.35", linewidth=1.0, linestyle=(0, (2, 2)), label="even spread", zorder=2.5)
    peaks = peaks_of(weight, count)
    middle = peaks.sum(axis=1) // 2
    ax.plot(
        lags[middle], weight[middle], "o", markersize=5, markerfacecolor="white", markeredgecolor=FORECAST, zorder=4
    )
    _limits(ax, attention, table, even)
    _names(ax, named_lags(attention.panel.schema.freq, int(lags[-1])))
    record, target = attention.record(layer), attention.target_position(target)
    _label(ax, attention, target)
    over = reduced(
        (record.weights.shape[2], "head"), (len(attention), "window"), (len(attention.steps), "forecast step")
    )
    caption = [_listed(attention, lags, weight, peaks)] if len(peaks) else []
    caption += provenance(attention, record.layer, over)
    head(ax, _title(attention), caption, most=3)
    return ax


def peaks_of(weight: np.ndarray, count: int) -> np.ndarray:
    """First and last position of the ``count`` highest peaks by size, highest first: ``[n, 2]``.

    A peak may be a plateau, and at an end one neighbour is enough. It stands out by at least a fiftieth of the range,
    which leaves ripples out. A flat line has no peak.
    """
    from scipy.signal import find_peaks

    size = np.abs(weight).astype(np.float64)
    reach = float(np.ptp(size)) if len(size) else 0.0
    if reach <= 1e-6 * size.max(initial=0.0):
        return np.zeros((0, 2), dtype=np.int64)
    size = np.round(size / reach, 6)  # a plateau is flat but for rounding
    around = np.concatenate([[size.min() - 1], size, [size.min() - 1]])
    middle, found = find_peaks(around, plateau_size=1, prominence=0.02)
    order = np.argsort(-around[middle], kind="stable")[:count]
    return np.stack([found["left_edges"][order], found["right_edges"][order]], axis=1) - 1


def _even(attention: AttentionMap, table: pd.DataFrame) -> np.ndarray | None:
    """What an even spread gives at each lag; None where the weights are no shares."""
    if attention.unit == "lift":
        return np.ones(len(table))
    return table["even"].to_numpy() if attention.unit == "share" and not attention.signed else None


def _limits(ax: Axes, attention: AttentionMap, table: pd.DataFrame, even: np.ndarray | None) -> None:
    """All lags across; the data and 0, with room above for names and legend."""
    values = [table["weight"], table["low"], table["high"], [0.0], [] if even is None else even]
    joined = np.concatenate([np.asarray(part, dtype=float) for part in values])
    low, high = float(np.nanmin(joined)), float(np.nanmax(joined))
    span = (high - low) or 1.0
    ax.set_ylim(low - (0.05 * span if low < 0 else 0), high + HEADROOM * span)
    ax.set_xlim(table["lag"].iloc[0] - 0.5, table["lag"].iloc[-1] + 0.5)
    if low < 0:
        ax.axhline(0, color="0.3", linewidth=0.8, zorder=2.4)
    ax.legend(loc="upper right", bbox_to_anchor=(1, 0.93), ncol=3, fontsize=SMALL, frameon=False, borderaxespad=0.1,
              columnspacing=1.4, handlelength=1.6)  # fmt: skip


def _names(ax: Axes, lags: dict[int, str]) -> None:
    """An upright line and a name for each lag; a name that would cover another one is left out."""
    last = -np.inf
    low, high = ax.get_xlim()
    for lag, name in sorted(lags.items()):
        ax.axvline(lag, color="0.75", linewidth=0.9, zorder=1, label=f"_lag {name}")
        if (lag - last) / (high - low) > 0.07:
            last = lag
            ax.annotate(name, (lag, 1), (0, -2), ("data", "axes fraction"), "offset points", fontsize=SMALL,
                        color="0.2", ha="center", va="top",
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})  # fmt: skip


def _label(ax: Axes, attention: AttentionMap, target: int) -> None:
    write = writer(attention.unit)
    unit = {"share": "share per step", "lift": "times an even spread"}.get(attention.unit)
    unit = unit or f"of {short(attention.panel.schema.roles.target[target], 30)}, per step"
    ax.set_ylabel(f"{attention.method} ({unit})", fontsize=SMALL, parse_math=False)
    ax.set_xlabel(f"lag: steps ({attention.panel.schema.freq.alias}) from the past step to the forecast step",
                  fontsize=SMALL)  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: write(value)))
    ax.tick_params(labelsize=SMALL)
    ax.spines[["top", "right"]].set_visible(False)


def _title(attention: AttentionMap) -> str:
    windows = f"{counted(len(attention), 'window')} x {counted(len(attention.steps), 'forecast step')}"
    return f"Lag profile of {windows}"


def _listed(attention: AttentionMap, lags: np.ndarray, weight: np.ndarray, peaks: np.ndarray) -> str:
    """The peaks in words: ``peaks: lag 24 (1 day) at 3.1 %, 1 to 6 at 2.2 %``."""
    write, freq = writer(attention.unit), attention.panel.schema.freq
    words = []
    for first, last in peaks:
        name = name_of(freq, int(lags[first])) if first == last else None
        lag = f"{lags[first]}" if first == last else f"{lags[first]} to {lags[last]}"
        words.append(f"{lag}{f' ({name})' if name else ''} at {write(weight[first])}")
    return f"peak{'s' if len(peaks) > 1 else ''}: lag {', '.join(words)}"
