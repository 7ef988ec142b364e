"""The curves behind a verdict: how far the forecast moves when what the map ranks first is taken away."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from tsattn.errors import ConfigError, unknown_name
from tsattn.inspection.drawing import ACTUAL, CHOSEN, FORECAST, SMALL, short
from tsattn.inspection.pictures.canvas import Picture, PictureAxes, counted, foot, head, one_panel

if TYPE_CHECKING:
    import pandas as pd

    from tsattn.inspection.report import TrustReport

# order of removal -> colour, dashes, width, words; none can be told by its colour alone
_LINES: dict[str, tuple[str, Any, float, str]] = {
    "attention": (FORECAST, "-", 2.2, "what the map ranks first"),
    "random": ("0.45", (0, (1, 1.2)), 1.4, "random (band: 95 %)"),
    "recency": (ACTUAL, (0, (5, 2)), 1.5, "newest first"),
    "profile": (CHOSEN, (0, (4, 1.5, 1, 1.5)), 1.5, "the mean map's order"),
}


def plot_trust(report: TrustReport, *, replace: str | None = None, ax: Axes | None = None) -> Axes | Picture:
    """One panel per replacement: the move of the forecast against the share of the past that was replaced.

    A map that can be believed lies above the band of random orders, and above "newest first": taking away what it
    ranks first moves the forecast most. The title is the verdict.

    Args:
        report: What ``check_attention`` returned.
        replace: One replacement of the report ("mean", "donor"); None shows all, or with ``ax`` the first.
        ax: Axes to draw in: one panel.

    Returns:
        The axes of one panel, or the figure of several.

    Raises:
        ConfigError: a replacement the report does not have, or a report without curves.
    """
    curves = report.curves
    there = list(dict.fromkeys(curves["replace"]))
    if not there:
        raise ConfigError(f"This report has no deletion curves (verdict {report.verdict!r}): there is nothing to draw.")
    if replace is not None and replace not in there:
        raise unknown_name("replacement in this report", replace, there)
    shown = there if replace is None and ax is None else [replace or there[0]]
    title = f"{report.verdict}: {report.method} of {short(report.model)}, {counted(report.windows, 'window')}"
    caption = [" ".join(report.reasons).rstrip("."), "bands: 95 % intervals over windows"]
    if len(shown) == 1:
        ax = one_panel(ax, 7.5, 4.6)
        _panel(ax, curves[curves["replace"] == shown[0]])
        ax.set_ylim(bottom=_lowest(curves))
        ax.set_ylabel(_EFFECT, fontsize=SMALL)
        _legend(ax)
        head(ax, title, caption, most=3)
        return ax
    figure = Picture(figsize=(1.5 + 4.4 * len(shown), 4.9), layout="constrained")
    axes: list[Axes] = []
    for i, name in enumerate(shown):
        beside = axes[0] if axes else None
        axes.append(figure.add_subplot(1, len(shown), i + 1, axes_class=PictureAxes, sharey=beside))
        _panel(axes[-1], curves[curves["replace"] == name])
        axes[-1].set_title(f"replaced by {_REPLACED.get(name, name)}", loc="left", fontsize=SMALL + 0.5)
    axes[0].set_ylim(bottom=_lowest(curves))
    axes[0].set_ylabel(_EFFECT, fontsize=SMALL)
    _legend(axes[0])
    foot(figure, textwrap.fill(title, 110), caption)
    return figure


_EFFECT = "move of the forecast (seasonal naive errors)"
_REPLACED = {"mean": "the mean of the window", "donor": "another window of the same season"}


def _panel(ax: Axes, curves: pd.DataFrame) -> None:
    """The curves of one replacement, those the report has."""
    order = [one for one in _LINES if one in set(curves["order"])]
    for one in sorted(order, key=lambda one: one == "attention"):  # the map's own line lies on top
        colour, dashes, width, words = _LINES[one]
        part = curves[curves["order"] == one].sort_values("removed")
        x, effect, low, high = (part[column].to_numpy(dtype=float) for column in ("removed", "effect", "low", "high"))
        if one in ("attention", "random") and np.isfinite(low).all():
            ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        ax.plot(x, effect, color=colour, linestyle=dashes, linewidth=width, marker="o", markersize=3, label=words)
    ax.set_xlim(0, max(float(curves["removed"].max()), 0.01))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
    ax.set_xlabel("share of the past replaced", fontsize=SMALL)
    ax.grid(axis="y", color="0.9", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=SMALL)


def _lowest(curves: pd.DataFrame) -> float:
    return min(0.0, float(np.nanmin(curves["effect"])))


def _legend(ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    first = [words for *_, words in _LINES.values()]
    pairs = sorted(zip(labels, handles, strict=True), key=lambda pair: first.index(pair[0]))
    ax.legend([handle for _, handle in pairs], [label for label, _ in pairs], loc="lower right", fontsize=SMALL,
              frameon=True, framealpha=0.85, edgecolor="none")  # fmt: skip
