"""A pandas table of 5 million rows -> what a library trains from: time and extra memory, tsattn beside its peers.

    pip install tsattn pytorch-forecasting darts
    python benchmarks/table_to_panel.py

10,000 series with 500 hourly rows: text ids, stamps, one float32 value, sorted (or in random order: ``--shuffled``).
tsattn builds its ``Panel``, pytorch-forecasting its ``TimeSeriesDataSet`` (whose integer steps are in the table)
and darts its list of ``TimeSeries`` (``from_group_dataframe``). Every repeat is a fresh process. It first builds a
table of ten series, so that imports are neither timed nor counted. Extra memory is the highest resident memory in the
build above the resident memory before it, with the table in place (Linux only). It is compared with the raw arrays of
the table: an 8-byte stamp and a 4-byte number for each row, the ids not counted.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from common import PEERS, heading, make_table, present, quiet, spread

CONTEXT, HORIZON = 96, 24
RAW_BYTES = 12  # of one row: stamp and value


def tsattn_panel(table: pd.DataFrame) -> Any:
    """``Panel``."""
    from tsattn.data.build import build_panel
    from tsattn.data.schema import Roles

    return build_panel(table, Roles())


def pytorch_forecasting_dataset(table: pd.DataFrame) -> Any:
    """``TimeSeriesDataSet``."""
    from pytorch_forecasting import TimeSeriesDataSet

    return TimeSeriesDataSet(
        table,
        time_idx="step",
        target="y",
        group_ids=["unique_id"],
        max_encoder_length=CONTEXT,
        max_prediction_length=HORIZON,
        time_varying_unknown_reals=["y"],
        target_normalizer=None,
    )


def darts_series(table: pd.DataFrame) -> Any:
    """List of ``TimeSeries``."""
    from darts import TimeSeries

    return TimeSeries.from_group_dataframe(
        table, group_cols="unique_id", time_col="ds", value_cols="y", freq="h", drop_group_cols="unique_id"
    )


BUILDERS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "tsattn": tsattn_panel,
    "pytorch-forecasting": pytorch_forecasting_dataset,
    "darts": darts_series,
}


def one(name: str, series: int, rows: int, shuffled: bool) -> dict[str, float | None]:
    """Seconds and extra megabytes of one build in this process."""
    quiet()
    build = BUILDERS[name]
    build(make_table(10, rows))
    table = make_table(series, rows, shuffled=shuffled)
    if name == "pytorch-forecasting":
        table = table.drop(columns="ds")
    before = _resident_before()
    started = time.perf_counter()
    built = build(table)
    seconds = time.perf_counter() - started
    extra = None if before is None else (_status("VmHWM") - before) / 1e6
    assert built is not None
    return {"seconds": seconds, "megabytes": extra}


def _resident_before() -> float | None:
    """Bytes resident now, freed memory given back and the high-water mark put down to here; None off Linux."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError, ImportError):
        import pyarrow as pa

        pa.default_memory_pool().release_unused()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmRSS")
    return None


def _status(field: str) -> float:
    """A line of /proc/self/status in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return float(line.split()[1]) * 1024


def main() -> None:
    """Measure in fresh processes and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--shuffled", action="store_true", help="rows in random order")
    parser.add_argument("--one", choices=BUILDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one, args.series, args.rows, args.shuffled)))
        return
    names = [name for name in ("tsattn", *PEERS) if present(name)]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(args.repeats):
        for name in names:
            command = [
                sys.executable,
                __file__,
                "--one",
                name,
                "--series",
                str(args.series),
                "--rows",
                str(args.rows),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{name} failed:\n{done.stderr[-2000:]}")
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
    print(heading())
    total = args.series * args.rows
    raw = total * RAW_BYTES / 1e6
    print(
        f"{total:,} rows, {args.series:,} series, raw arrays {raw:.0f} MB, "
        f"{args.repeats} repeats{', random order' if args.shuffled else ''}\n"
    )
    print("| library | seconds (min / median / max) | tsattn is faster by | extra peak memory, MB | x raw arrays |")
    print("|---|---|---|---|---|")
    usual = {name: statistics.median(r["seconds"] for r in runs) for name, runs in results.items()}
    for name, runs in results.items():
        ratio = "" if name == "tsattn" else f"{usual[name] / usual['tsattn']:.1f} times"
        memory = [r["megabytes"] for r in runs if r["megabytes"] is not None]
        cells = (spread(memory), f"{max(memory) / raw:.1f}") if memory else ("not measured here", "")
        print(f"| {name} | {spread([r['seconds'] for r in runs], 2)} | {ratio} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
