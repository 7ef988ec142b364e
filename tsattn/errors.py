"""Every error tsattn raises on purpose.

    TsattnError (Exception)
    ├── DataError (also ValueError)        a table, a column or a value cannot be used
    │   └── DatasetError                   a named data set is unknown, absent or damaged
    ├── ConfigError (also ValueError)      an option, a field or a name is wrong
    ├── UnfittedError (sklearn's, too)     predict, backtest or save before fit; lives in tsattn.forecaster
    ├── TrainingError (also RuntimeError)  training stopped: the loss is not finite, ...
    ├── ClusterError (also RuntimeError)   a run on a cluster cannot go on: workers are killed again and again, ...
    └── ArtifactError (also ValueError)    a saved model is missing, damaged or from a newer format

Each message says what was found, where, how many, and what to do about it. The command line prints the message alone
and exits with status 2; any other exception is a fault of ours and exits with 1.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable


class TsattnError(Exception):
    """Base of every error raised on purpose."""


class DataError(TsattnError, ValueError):
    """A table, a column or a value cannot be used; the message names it and the fix."""


class DatasetError(DataError):
    """A named data set is unknown, not on this machine, or its file does not match the checksum."""


class ConfigError(TsattnError, ValueError):
    """An option, a field or a name is wrong; the message names the nearest valid one."""


class TrainingError(TsattnError, RuntimeError):
    """Training cannot go on, for example because the loss is not finite."""


class ClusterError(TsattnError, RuntimeError):
    """A run on a cluster cannot go on: workers are killed again and again, or rows were lost."""


class ArtifactError(TsattnError, ValueError):
    """A saved model is missing, damaged, or written by a newer version."""


class TsattnWarning(UserWarning):
    """Something was repaired, skipped or ignored; the result is still valid and the message says what changed."""


def warn(message: str) -> None:
    """A TsattnWarning that points at the first line of code outside this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == __name__.split(".")[0]:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, TsattnWarning, stacklevel=level)


def unknown_name(kind: str, name: object, known: Iterable[str], error: type[TsattnError] = ConfigError) -> TsattnError:
    """The error for a name that is not in ``known``: says which are, nearest first."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return error(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(known) or 'none'}.")


def listed(items: Iterable[object], limit: int = 5) -> str:
    """``a, b, c and 4 more``: the first items of a long list, for messages."""
    items = list(items)
    head = ", ".join(str(item) for item in items[:limit])
    return head if len(items) <= limit else f"{head} and {len(items) - limit} more"
