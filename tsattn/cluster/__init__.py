"""Prediction and backtests of tables that are too large for one process, on the workers of a Ray cluster.

    Parquet ──> pieces ──> parts of whole series ──> workers, one model each ──> one Parquet file per part
                reading.py  (Ray Data's hash shuffle)  worker.py                    gather.py, result.py

Ray Data reads, deals and retries; this package says what a part of a table is, and what may be said of all parts only
together. ``Forecaster.predict(path, engine="ray", out=FOLDER)`` and ``Forecaster.backtest`` come here. Importing it
does not import Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsattn.cluster.result import PartitionedBacktest, PartitionedForecast
    from tsattn.cluster.run import backtest_folder, predict_folder

__all__ = ["PartitionedBacktest", "PartitionedForecast", "backtest_folder", "predict_folder"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: processes that only read files need no torch."""
    if name in __all__:
        return getattr(importlib.import_module(f"tsattn.cluster.{'result' if name[0].isupper() else 'run'}"), name)
    raise AttributeError(f"module 'tsattn.cluster' has no attribute {name!r}")
