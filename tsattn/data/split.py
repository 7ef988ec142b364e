"""Parts of a panel as ranges of window origins: no copies, no rows lost.

The origin of a window is the step of its first forecast: the window reads the steps before it and is scored on the
``horizon`` steps from it on. A part is, for each series, an interval of origins, so parts are disjoint by
construction in the steps they are scored on, and their context may reach into the part before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tsattn.data.panel import Panel, series_blocks
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


def chronological(
    panel: Panel, context: int, horizon: int, val_size: int | float | None, stop: np.ndarray | None = None
) -> Split:
    """Cut each series once: training first, the last ``val_size`` steps before ``stop[s]`` (its end) for validation.

    ``val_size`` is a number of steps, a fraction of each series (below 1), 0 for no validation, or None for a tenth
    of each series and at least one horizon. A series too short to give both parts is used for training alone when the
    size is automatic. Rows after the last observed target (kept for known covariates, say) belong to no part. Raises
    DataError when no series gives a training window, or a validation was asked for and has
    none.
    """
    lengths = _observed_lengths(panel, stop)
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


@dataclass(frozen=True, eq=False)
class RollingFolds:
    """Validation parts that follow one another; fold ``k`` trains on everything before its own.

    ``ends [F + 1, S]``: fold ``k`` is validated on the steps ``ends[k, s]`` to ``ends[k + 1, s] - 1``. The windows that
    are scored do not depend on the context, so different contexts compete on the same forecasts.
    """

    ends: np.ndarray  # [F + 1, S]
    horizon: int

    def __len__(self) -> int:
        """Number of folds ``F``."""
        return len(self.ends) - 1

    def split(self, fold: int, context: int) -> Split:
        """The parts of one fold, for a model that reads ``context`` steps."""
        end, stop = self.ends[fold], self.ends[fold + 1]
        return Split(training_origins(end, context, self.horizon), scored_origins(end, stop, self.horizon), end)


def rolling_folds(panel: Panel, horizon: int, folds: int, val_size: int | float | None = None) -> RollingFolds:
    """``folds`` validation parts of ``val_size`` steps each at the end of every series, oldest first.

    ``val_size`` as in ``chronological``, without 0; None takes a tenth of each series and at least one horizon, and
    leaves a series that is too short for all parts to training. Raises ConfigError for a number of folds below 1, and
    DataError when a fold has nothing to train on or nothing to score.
    """
    if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or folds < 1:
        raise ConfigError(f"folds must be a whole number of at least 1, found {folds!r}.")
    lengths = _observed_lengths(panel)
    size = _validation_steps(lengths, horizon, val_size)
    if val_size is None:
        size = np.where(lengths - folds * size >= 2 * horizon + 1, size, 0)
    ends = np.maximum(lengths - np.arange(folds, -1, -1)[:, None] * size, 0)
    made = RollingFolds(ends, horizon)
    for fold in range(folds):
        split = made.split(fold, context=1)
        if not len(split.train) or not len(split.validation):
            kind = "training" if not len(split.train) else "validation"
            longest = int(lengths.max()) if len(lengths) else 0
            raise DataError(
                f"Fold {fold + 1} of {folds} has 0 {kind} windows: the longest of {len(panel)} series has {longest} "
                f"steps, horizon {horizon} is forecast, and each fold validates on {int(size.max())} steps. Use fewer "
                f"folds, another val_size or a shorter horizon."
            )
    return made


def without_test(panel: Panel, horizon: int, test_size: int | float | None) -> Panel:
    """The panel before its test part: the last ``test_size`` steps of each series are cut off.

    A number of steps, a fraction, 0 for no test part, or None for a tenth of each series and at least one horizon.
    """
    lengths = _observed_lengths(panel)
    stop = np.maximum(lengths - _validation_steps(lengths, horizon, test_size, "test_size"), 0)
    return panel.span(np.zeros(len(panel), dtype=np.int64), stop)


def _observed_lengths(panel: Panel, stop: np.ndarray | None = None) -> np.ndarray:
    """Steps of each series up to its last observed target before ``stop[s]``, ``[S]``; 0 without any."""
    last = np.zeros(len(panel), dtype=np.int64)
    for series, rows in series_blocks(panel.indptr):
        lengths = panel.lengths[series]
        there = ~np.isnan(panel.targets[rows]).all(axis=1)
        step = np.arange(1, len(there) + 1) - np.repeat(panel.indptr[:-1][series] - rows.start, lengths)
        if stop is not None:
            there &= step <= np.repeat(stop[series], lengths)
        filled = lengths > 0
        if filled.any():
            begin = (panel.indptr[:-1][series] - rows.start)[filled]
            last[series.start + np.flatnonzero(filled)] = np.maximum.reduceat(np.where(there, step, 0), begin)
    return last


def _validation_steps(
    lengths: np.ndarray, horizon: int, val_size: int | float | None, name: str = "val_size"
) -> np.ndarray:
    if val_size is None:
        return np.maximum(np.round(0.1 * lengths).astype(np.int64), horizon)
    number = isinstance(val_size, (int, float, np.integer, np.floating)) and not isinstance(val_size, bool)
    fraction = number and not isinstance(val_size, (int, np.integer))
    if not number or not val_size >= 0 or (fraction and val_size >= 1):
        raise ConfigError(f"{name} must be a number of steps, a fraction below 1, 0 or None; found {val_size!r}.")
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
