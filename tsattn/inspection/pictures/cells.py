"""The cells of a heat map: a map at the resolution of its tokens, so that a patch is one cell.

Legend as in ``tsattn.inspection.maps``; boundaries lie between steps: boundary 0 before the oldest past step, boundary
``L`` at the origin, boundary 0 of the forecast steps at the origin as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsattn.inspection.support import overlap, to_forecast_steps

if TYPE_CHECKING:
    from tsattn.inspection.maps import AttentionMap


@dataclass(frozen=True)
class Cells:
    """A grid of weights: forecast steps up, past steps across."""

    values: np.ma.MaskedArray  # [Y, X] masked where nothing was there to read, or no row was kept
    rows: np.ndarray  # [Y + 1] boundaries between forecast steps, 0 .. H
    columns: np.ndarray  # [X + 1] boundaries between past steps, 0 .. L
    per: str  # what one weight belongs to: "step" or "patch"
    windows: int
    heads: int

    def by_step(self) -> np.ma.MaskedArray:
        """The same colours with a row per forecast step and a column per past step, ``[steps, L]``."""
        rows, columns = np.diff(self.rows), np.diff(self.columns)
        return np.ma.repeat(np.ma.repeat(self.values, rows, axis=0), columns, axis=1)

    def gaps(self) -> list[tuple[int, int]]:
        """Runs of past steps that no row could read, as boundaries."""
        empty = np.ma.getmaskarray(self.values)[self._kept()].all(axis=0)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], empty.astype(np.int8), [0]])))
        return [(int(self.columns[a]), int(self.columns[b])) for a, b in edges.reshape(-1, 2)]

    def absent(self) -> list[tuple[int, int]]:
        """Runs of forecast steps that are not in the map, as boundaries."""
        return [
            (int(a), int(b)) for a, b, kept in zip(self.rows[:-1], self.rows[1:], self._kept(), strict=True) if not kept
        ]

    def _kept(self) -> np.ndarray:
        """Which rows are in the map, bool ``[Y]``; where nothing could be read at all, every one."""
        mask = np.ma.getmaskarray(self.values)
        return np.asarray(~mask.all(axis=1) | mask.all())


def cells_of(attention: AttentionMap, window: int | None, target: int, layer: int | str | None) -> Cells:
    """The cells of one window, or of the mean over all windows by age, with heads averaged.

    Tokens that overlap have no cells of their own: their weights are shared among steps, as in ``per_step``.
    """
    record = attention.record(layer)
    if window is not None:
        attention = attention.sel(window=attention.position(window))
        record = attention.record(layer)
    steps = attention.steps
    covers = overlap(record.key, attention.length)  # [I, L]
    single = covers.sum(axis=0).max(initial=0) <= 1
    if single:
        values = _token_means(attention, target, layer, covers, steps)
        owner = np.where(covers.any(axis=0), covers.argmax(axis=0), -1)
    else:
        values = attention.profile(target, layer)
        owner = np.arange(attention.length)
    read = _ever_read(attention, target, layer)
    columns = _runs(np.stack([owner, read]))
    asks = overlap(record.query, attention.horizon)
    rows, wanted = _row_runs(np.where(asks.any(axis=0), asks.argmax(axis=0), -1), steps)
    blank = np.ones((len(rows) - 1, attention.length), dtype=bool)
    grid = np.zeros(blank.shape)
    for row, step in enumerate(wanted):
        if step is not None:
            grid[row], blank[row] = values[step], ~read | (owner < 0)
    found = np.ma.masked_array(grid, blank)[:, columns[:-1]]
    per = "patch" if single and record.key.kind == "patch" else "step"
    return Cells(found, rows, columns, per, len(attention), record.weights.shape[2])


def _token_means(
    attention: AttentionMap, target: int, layer: int | str | None, covers: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Mean over windows and heads of the weight of the token at each step: ``[H', L]``.

    A token counts in the windows where it could be read.
    """
    record = attention.record(layer)
    of = target if record.weights.shape[1] > 1 else 0
    total = record.weights[:, of].mean(axis=1).sum(axis=0, dtype=np.float64)  # [J, I]
    count = np.zeros(covers.shape[0])
    for _, _, read in attention.chunks(target, layer):
        count += (read @ covers.T > 0).sum(axis=0)
    mean = to_forecast_steps((total / np.maximum(count, 1))[None, None], record.query, steps, attention.horizon)[0, 0]
    return np.asarray(mean[:, covers.argmax(axis=0)] * covers.any(axis=0))


def _ever_read(attention: AttentionMap, target: int, layer: int | str | None) -> np.ndarray:
    """Which past steps could be read in any window, bool ``[L]``."""
    found = np.zeros(attention.length, dtype=bool)
    for _, _, read in attention.chunks(target, layer):
        found |= read.any(axis=0)
    return found


def _runs(labels: np.ndarray) -> np.ndarray:
    """Boundaries between runs of equal columns of ``labels [k, n]``: ``[runs + 1]``."""
    changes = np.flatnonzero((labels[:, 1:] != labels[:, :-1]).any(axis=0)) + 1
    return np.concatenate([[0], changes, [labels.shape[1]]])


def _row_runs(owner: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, list[int | None]]:
    """Boundaries of the rows, and for each row one position in ``steps`` that it shows (None: not in the map)."""
    first, last = int(steps.min()), int(steps.max()) + 1
    place = {int(step): position for position, step in enumerate(steps)}
    kept = np.array([step in place for step in range(first, last)])
    edges = _runs(np.stack([np.where(kept, owner[first:last], -2), kept])) + first
    return edges, [place.get(int(edge)) for edge in edges[:-1]]
