"""What the benchmarks share: the table, the versions, and the line that goes into the report."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import shlex
import statistics
import sys
import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

PEERS = {"pytorch-forecasting": "pytorch_forecasting", "darts": "darts"}  # of the loaders: distribution -> module


def make_table(series: int, rows: int, *, shuffled: bool = False) -> pd.DataFrame:
    """A long table, sorted unless ``shuffled``.

    Columns: ``unique_id`` (text), ``ds`` (hourly stamps), ``step`` (from 0, where integers are wanted) and ``y``
    (float32, standard normal).
    """
    rng = np.random.default_rng(0)
    total = series * rows
    ids = np.repeat(np.array([f"series-{number:06d}" for number in range(series)], dtype=object), rows)
    stamps = np.tile(pd.date_range("2024-01-01", periods=rows, freq="h").to_numpy(), series)
    frame = pd.DataFrame({"unique_id": ids, "ds": stamps, "step": np.tile(np.arange(rows), series)})
    frame["y"] = rng.standard_normal(total, dtype=np.float32)
    return frame.sample(frac=1, random_state=0, ignore_index=True) if shuffled else frame


def present(name: str) -> bool:
    """Whether a library is installed; prints a line when it is not."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        print(f"{name}: not installed, skipped (pip install {name})")
        return False
    return True


def quiet() -> None:
    """Silence the notices of the libraries that are measured."""
    import logging

    warnings.filterwarnings("ignore")
    for name in ("darts", "pytorch_lightning", "lightning", "pytorch_forecasting"):
        logging.getLogger(name).setLevel(logging.ERROR)


def heading() -> str:
    """Date, command, machine, load and versions."""
    names = ("tsattn", *PEERS, "neuralforecast", "torch", "pandas", "numpy", "pyarrow")
    versions = []
    for name in names:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    command = shlex.join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    machine = f"{os.cpu_count()} cores ({platform.machine()}{load}), Python {platform.python_version()}"
    return f"{datetime.date.today().isoformat()}  $ {command}\n{machine}, {', '.join(versions)}"


def spread(values: Sequence[float], digits: int = 0) -> str:
    """``min / median / max``."""
    numbers = (min(values), statistics.median(values), max(values))
    return " / ".join(f"{number:,.{digits}f}" for number in numbers)
