"""What all pictures share: figures without pyplot's global state, titles, captions with where a picture comes from."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsattn.inspection.drawing import SMALL, short

if TYPE_CHECKING:
    from tsattn.inspection.maps import AttentionMap


class Picture(Figure):
    """A figure that a notebook shows even where pyplot was never imported."""

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        self.savefig(out, format="png", dpi=110)
        return out.getvalue()


class PictureAxes(Axes):
    """The axes of a ``Picture``: returned from the last line of a notebook cell, they show it."""

    def _repr_png_(self) -> bytes | None:
        return self.figure._repr_png_() if isinstance(self.figure, Picture) else None


def one_panel(ax: Axes | None, width: float, height: float) -> Axes:
    """``ax``, or the only axes of a new picture of that size in inches."""
    if ax is not None:
        return ax
    return Picture(figsize=(width, height), layout="constrained").add_subplot(axes_class=PictureAxes)


def head(ax: Axes, title: str, caption: Sequence[str], most: int = 2, above: float = 0.0) -> None:
    """A title and, below it, the parts of a caption in at most ``most`` lines; both as plain text.

    ``above``: points to leave free between the axes and the caption.
    """
    inches = ax.get_window_extent().width / ax.get_figure().dpi  # type: ignore[union-attr]
    text = wrapped(caption, inches, most)
    lines = text.count("\n") + 1
    ax.set_title(title, loc="left", fontsize="medium", pad=6 + above + 11.5 * lines, parse_math=False)
    ax.annotate(text, (0, 1), (0, 4 + above), "axes fraction", "offset points", fontsize=SMALL, color="0.35",
                va="bottom", parse_math=False)  # fmt: skip


def foot(figure: Figure, title: str, caption: Sequence[str]) -> None:
    """A title above several panels, and the caption below them in at most three lines."""
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", parse_math=False)
    text = wrapped(caption, 0.97 * figure.get_figwidth(), 3)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=SMALL, color="0.35", parse_math=False)


def wrapped(parts: Sequence[str], inches: float, most: int = 2) -> str:
    """Captions in at most ``most`` lines of a width, the last parts left out where they do not fit."""
    width = max(int(inches * 72 / (0.53 * SMALL)), 30)
    lines: list[str] = []
    for count in range(len(parts), min(len(parts), 2) - 1, -1):
        whole = "; ".join(parts[:count]).replace(" %", "\N{NO-BREAK SPACE}%")  # a number and its unit stay on one line
        lines = textwrap.wrap(whole, width, break_on_hyphens=False)
        if len(lines) <= most:
            break
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def provenance(attention: AttentionMap, layer: str | None, reduction: str) -> list[str]:
    """Model, method, layer, reduction, what was done to the map, and what it does not say: the first caption parts."""
    method = "attention" if attention.method == "attention" else f"{attention.method} (an attribution)"
    model = "" if attention.model is None else f"{short(attention.model)}, "
    where = "" if layer is None else f", layer '{layer}'"
    parts = [f"{model}{method}{where}: {reduction}"]
    if attention.notes:
        parts[0] += f" ({', '.join(attention.notes)})"
    if attention.method == "attention":
        parts.append("attention shows what was read, not why")
    return parts


def counted(count: int, name: str) -> str:
    """``1 head``, ``4 heads``."""
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def reduced(*counts: tuple[int, str]) -> str:
    """``mean of 4 heads, 120 windows and 24 steps``; what there is only one of is no mean."""
    several = [counted(count, name) for count, name in counts if count > 1]
    single = [counted(count, name) for count, name in counts if count == 1]
    joined = " and ".join([", ".join(several[:-1]), several[-1]] if len(several) > 1 else several)
    return ", ".join(([f"mean of {joined}"] if several else []) + single)
