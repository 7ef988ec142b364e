"""Colours: a sequential scale for shares, a diverging one for signed numbers, the scale always printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, FuncNorm, LogNorm, Normalize, PowerNorm
from matplotlib.ticker import FixedLocator, Formatter, FuncFormatter, Locator, MaxNLocator

from tsattn.errors import unknown_name
from tsattn.inspection.drawing import SMALL, short

if TYPE_CHECKING:
    from tsattn.inspection.maps import AttentionMap

SHARES, SIGNED = "viridis", "RdBu_r"
GAP, GAP_LINES = "0.96", "0.65"  # face and hatching of what was not observed
SCALES = ("sqrt", "log")
_DECADES = 1e4  # a logarithmic scale ends this far below the largest weight


@dataclass(frozen=True)
class Look:
    """How the weights of a map are coloured and written."""

    norm: Normalize
    colours: str | Colormap
    scale: str  # the words of the caption
    label: str  # of the colour bar
    write: Callable[[float], str]
    ticks: Locator

    def shown(self, values: np.ma.MaskedArray) -> np.ma.MaskedArray:
        """Values for a mesh: what lies below a logarithmic scale gets its lowest colour, not that of a gap."""
        if isinstance(self.norm, LogNorm) and self.norm.vmin is not None:
            least = self.norm.vmin
            return np.ma.masked_array(np.maximum(values.filled(least), least), np.ma.getmaskarray(values))
        return values

    def bar(self, mappable: ScalarMappable, ax: Any, **where: Any) -> None:
        """A colour bar beside ``ax`` (one or several)."""
        first = ax if isinstance(ax, Axes) else np.asarray(ax).flat[0]
        options = {"pad": 0.01, "fraction": 0.03, "aspect": 22} | where
        formatter: Formatter = FuncFormatter(lambda value, _: self.write(value))
        figure = first.get_figure()
        assert figure is not None
        bar = figure.colorbar(mappable, ax=ax, ticks=self.ticks, format=formatter, **options)
        bar.ax.minorticks_off()
        bar.set_label(self.label, fontsize=SMALL, parse_math=False)
        bar.ax.tick_params(labelsize=SMALL)


def look_of(attention: AttentionMap, values: Any, per: str, target: int = 0, scale: str = "sqrt") -> Look:
    """The look of ``values`` of a map, each of one ``per`` ("step", "patch", ...).

    ``scale`` is "sqrt" or "log": weights are heavy-tailed. Raises ConfigError for another one.
    """
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    found = np.ma.masked_invalid(values)
    largest = float(np.abs(found).max()) if found.count() else 0.0
    write = writer(attention.unit)
    name = attention.method
    if attention.unit == "lift":
        label = f"{name} (1 is an even spread)"
    elif attention.unit == "data":
        label = f"{name} (of {short(attention.panel.schema.roles.target[target], 30)}, per {per})"
    else:
        label = f"{name} (share per {per})"
    if attention.signed:
        return signed_look(largest, label, write)
    if scale == "log":
        smallest = float(found[found > 0].min()) if (found > 0).any() else 1.0
        least = max(smallest, largest / _DECADES)
        decades = LogNorm(least, largest if largest > 1.01 * least else 10 * least, clip=True)
        return Look(decades, SHARES, f"logarithmic colours from {write(least)}", label, write, _log_ticks(decades))
    # Zero is black whatever the window: a flat map must not look like a peaked one.
    norm = PowerNorm(0.5, vmin=0.0, vmax=largest or 1.0)
    return Look(norm, SHARES, "square-root colours", label, write, MaxNLocator(5))


def _log_ticks(norm: Normalize) -> Locator:
    """Up to seven round numbers between the ends of a logarithmic scale."""
    assert norm.vmin is not None
    assert norm.vmax is not None
    first, last = np.floor(np.log10(norm.vmin)), np.ceil(np.log10(norm.vmax))
    for steps in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10**power for power in np.arange(first, last + 1) for step in steps]
        ticks = [tick for tick in ticks if norm.vmin <= tick <= norm.vmax]
        if len(ticks) <= 7:
            break
    return FixedLocator(ticks)


def signed_look(largest: float, label: str, write: Callable[[float], str]) -> Look:
    """A diverging look centred at 0, with square roots on both sides."""
    largest = largest or 1.0
    norm = FuncNorm(
        (lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda x: np.sign(x) * np.square(x)), vmin=-largest, vmax=largest
    )
    inner = [tick for tick in MaxNLocator(2).tick_values(0, largest) if 0 < tick <= largest]
    ticks = FixedLocator([-tick for tick in inner[::-1]] + [0.0] + inner)
    return Look(norm, SIGNED, "square-root colours on both sides of 0", label, write, ticks)


def writer(unit: str) -> Callable[[float], str]:
    """How a weight is written: shares in per cent, other units as they are."""
    if unit == "share":
        return lambda value: f"{100 * value:.3g} %"
    return lambda value: f"{value:.3g}".replace("-", "−")
