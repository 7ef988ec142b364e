"""Accuracies printed by others, with their source, and the table that puts a new result beside them.

``published.csv`` has one row for each published cell: MSE and MAE on standardised data, and whether its authors' test
loader left out the last incomplete batch (``lost_windows``: yes, no or unknown), so that it is over fewer windows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("published.csv")
WINDOWS = {"yes": "not all", "no": "all", "unknown": "unknown"}


@dataclass(frozen=True)
class PublishedRow:
    """One published score."""

    dataset: str  # name of the data card
    horizon: int  # steps
    context: int | None  # past steps the model read; None: searched for each cell
    model: str
    mse: float  # on standardised values
    mae: float | None  # None where the source prints MSE alone
    lost_windows: str  # "yes", "no", "unknown"
    source: str


@dataclass(frozen=True)
class Line:
    """One line of a comparison; ``note`` is text or the source of a published score."""

    model: str
    context: str
    mse: str
    mae: str
    windows: str
    note: str
    order: float  # lines are sorted by it
    ours: bool = False


def published_rows(dataset: str, horizon: int) -> tuple[PublishedRow, ...]:
    """The published scores of one cell of the benchmark, in the order of the file; empty where there is none."""
    with _FILE.open(encoding="utf-8", newline="") as stream:
        rows = [_row(raw) for raw in csv.DictReader(stream)]
    return tuple(row for row in rows if row.dataset == dataset and row.horizon == horizon)


def _row(raw: dict[str, str]) -> PublishedRow:
    return PublishedRow(
        dataset=raw["dataset"],
        horizon=int(raw["horizon"]),
        context=None if raw["context"] == "searched" else int(raw["context"]),
        model=raw["model"],
        mse=float(raw["mse"]),
        mae=float(raw["mae"]) if raw["mae"] else None,
        lost_windows=raw["lost_windows"],
        source=raw["source"],
    )


def published_lines(rows: Iterable[PublishedRow]) -> list[Line]:
    """Published scores as lines of a comparison."""
    return [
        Line(
            model=row.model,
            context="searched" if row.context is None else str(row.context),
            mse=f"{row.mse:.3f}",
            mae="-" if row.mae is None else f"{row.mae:.3f}",
            windows=WINDOWS[row.lost_windows],
            note=row.source,
            order=row.mse,
        )
        for row in rows
    ]


def comparison(lines: Sequence[Line]) -> str:
    """A text table, lowest MSE first; ``>`` marks our own lines, published sources are numbered below the table."""
    lines = sorted(lines, key=lambda line: (line.order, not line.ours))
    sources = list(dict.fromkeys(line.note for line in lines if not line.ours))
    head = ("", "model", "context", "MSE", "MAE", "test windows", "")
    table = [head]
    for line in lines:
        note = line.note if line.ours else f"[{sources.index(line.note) + 1}]"
        mark = ">" if line.ours else ""
        table.append((mark, line.model, line.context, line.mse, line.mae, line.windows, note))
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    text += [f"[{number}] {source}" for number, source in enumerate(sources, start=1)]
    if any(line.windows == WINDOWS["yes"] for line in lines):
        text.append(
            "not all: their test loader left out the last incomplete batch (drop_last), so their score is over fewer "
            "windows than ours."
        )
    return "\n".join(text)
