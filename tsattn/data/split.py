"""Parts of a panel as ranges of window origins: no copies, no rows lost.

The origin of a window is the step of its first forecast: the window reads the steps before it and is scored on the
``horizon`` steps from it on. A part is, for each series, an interval of origins, so parts are disjoint by
construction in the steps they are scored on, and their context may reach into the part before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tsattn.data.panel import Panel
from tsattn.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False)
class Origins:
    """All windows of one part: origins ``first[s]``, ``first[s] + step``, ... up to ``last[s]`` of each series.

    A series without windows has ``last < first``. Windows are numbered from 0, series by series.
    """

    first: np.ndarray  # [S] int64
    last: np.ndarray  # [S] int64, inclusive
    step: int = 1

    @property
    def counts(self) -> np.ndarray:
        """Windows of each series, ``[S]``."""
        return np.maximum((self.last - self.first) // self.step + 1, 0)

    def __len__(self) -> int:
        """Number of windows."""
        return int(self.counts.sum())

    def offsets(self) -> np.ndarray:
        """``[S + 1]``: windows of series ``s`` have the numbers ``offsets[s]`` to ``offsets[s + 1] - 1``."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    def locate(self, window: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Window numbers -> their keys (series, origin)."""
        offsets = self.offsets()
        series = np.searchsorted(offsets, window, side="right") - 1
        return series, self.first[series] + (window - offsets[series]) * self.step


@dataclass(frozen=True, eq=False)
class Split:
    """Training and validation windows; ``train_end[s]`` is the first step training does not touch."""

    train: Origins
    validation: Origins
    train_end: np.ndarray  # [S]


def training_origins(stop: np.ndarray, context: int, horizon: int, start: np.ndarray | int = 0) -> Origins:
    """Windows scored entirely on steps before ``stop[s]``.

    A long series gives the windows whose context is complete. A series shorter than two contexts also gives windows
    with a shorter, left-padded context (down to half its history), so that short series are learnt from as well.
    """
    usable = stop - horizon - start
    first = start + np.clip(usable // 2, 1, context)
    return Origins(first, np.where(usable >= 1, stop - horizon, first - 1))


def scored_origins(first: np.ndarray, stop: np.ndarray, horizon: int, step: int = 1) -> Origins:
    """Windows scored entirely on steps ``first[s]`` to ``stop[s] - 1``; at least one step of history is needed."""
    return Origins(np.maximum(first, 1), stop - horizon, step)


def chronological(panel: Panel, context: int, horizon: int, val_size: int | float | None) -> Split:
    """Cut each series once: training first, the last ``val_size`` steps for validation.

    ``val_size`` is a number of steps, a fraction of each series (below 1), 0 for no validation, or None for a tenth
    of each series and at least one horizon. A series too short to give both parts is used for training alone when the
    size is automatic. Rows after the last observed target (kept for known covariates, say) belong to no part. Raises
    DataError when no series gives a training window, or a validation was asked for and has
    none.
    """
    lengths = _observed_lengths(panel)
    size = _validation_steps(lengths, horizon, val_size)
    if val_size is None:
        size = np.where(lengths - size >= 2 * horizon + 1, size, 0)
    end = np.maximum(lengths - size, 0)  # a series shorter than the validation part trains nothing
    train = training_origins(end, context, horizon)
    validation = scored_origins(end, np.where(size > 0, lengths, end), horizon)
    if len(train) == 0:
        longest = int(lengths.argmax())
        held = f", {int(size[longest])} of them held out for validation" if size[longest] else ""
        raise DataError(
            f"Every series is too short to train on: horizon {horizon} needs at least {horizon + 1} steps, the "
            f"longest of {len(panel)} series ({panel.name(longest)}) has {int(lengths[longest])}{held}. Use a "
            f"shorter horizon, or val_size=0."
        )
    if val_size and len(validation) == 0:
        raise DataError(
            f"The validation part has 0 windows: val_size={val_size} leaves {int(size.max())} steps at most, horizon "
            f"{horizon} needs at least {horizon}. Use a larger val_size, or val_size=0."
        )
    return Split(train, validation, end)


def _observed_lengths(panel: Panel) -> np.ndarray:
    """Steps of each series up to its last observed target, ``[S]``; 0 without any."""
    lengths = panel.lengths
    there = ~np.isnan(panel.targets).all(axis=1)
    step = np.arange(1, len(there) + 1) - np.repeat(panel.indptr[:-1], lengths)
    last = np.zeros(len(lengths), dtype=np.int64)
    filled = lengths > 0
    if filled.any():
        last[filled] = np.maximum.reduceat(np.where(there, step, 0), panel.indptr[:-1][filled])
    return last


def _validation_steps(lengths: np.ndarray, horizon: int, val_size: int | float | None) -> np.ndarray:
    if val_size is None:
        return np.maximum(np.round(0.1 * lengths).astype(np.int64), horizon)
    number = isinstance(val_size, (int, float, np.integer, np.floating)) and not isinstance(val_size, bool)
    fraction = number and not isinstance(val_size, (int, np.integer))
    if not number or not val_size >= 0 or (fraction and val_size >= 1):
        raise ConfigError(f"val_size must be a number of steps, a fraction below 1, 0 or None; found {val_size!r}.")
    if fraction:
        return np.round(float(val_size) * lengths).astype(np.int64)
    return np.full(len(lengths), int(val_size), dtype=np.int64)


def last_origins(panel: Panel, horizon: int, windows: int, step: int) -> np.ndarray:
    """The last ``windows`` origins of each series, ``step`` steps apart, oldest first: ``[windows, S]``.

    The newest is scored on the last ``horizon`` steps. Origins before step 1 are not possible and stay below 1.
    """
    windows = min(windows, int(panel.lengths.max()) // step + 1)  # older origins lie before every series
    back = np.arange(windows - 1, -1, -1) * step
    return panel.lengths[None, :] - horizon - back[:, None]
