"""A table larger than the memory it is given: seconds and peak resident memory through build and training steps.

    python benchmarks/larger_than_memory.py                            # 100,000 series of 2,000 rows: 200 million rows
    python benchmarks/larger_than_memory.py --series 1000              # two million rows

Sizes measured so far are kept in ``results/larger_than_memory.json``, and the growth of a build is fitted to them.

The rows lie in 20 Parquet files, each with a stretch of time of all series in no order, so no series is whole in any
file. A process of its own builds the panel on disk, trains ``lucid`` (168 hours to 24) for some steps and reads random
windows; another one reads the same windows from arrays in memory. Peak resident memory is what the system reports
(VmHWM): Python, torch and the mapped pages of the files included. ``anonymous`` leaves those pages out, which the
system takes back whenever it needs them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import heading

RESULT = Path(__file__).parent / "results" / "larger_than_memory.json"
CONTEXT, HORIZON, BATCH, FILES = 168, 24, 1024, 20


def write_table(folder: Path, series: int, rows: int) -> None:
    """The Parquet files."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    ids = pa.array([f"series-{number:06d}" for number in range(series)])
    level = rng.normal(size=series).astype(np.float32)
    for number, steps in enumerate(np.array_split(np.arange(rows), FILES)):
        place = rng.permutation(series * len(steps))
        owner, step = place % series, steps[0] + place // series
        y = level[owner] + np.sin(2 * np.pi * step / 24).astype(np.float32)
        y += rng.normal(scale=0.3, size=len(place)).astype(np.float32)
        stamps = pa.array(np.datetime64("2020-01-01", "s") + step.astype("timedelta64[h]"))
        names = pa.DictionaryArray.from_arrays(pa.array(owner.astype(np.int32)), ids)
        table = pa.table({"unique_id": names.cast(pa.string()), "ds": stamps, "y": y})
        pq.write_table(table, folder / f"part-{number:02d}.parquet", row_group_size=1_000_000)


class Memory:
    """Peaks of this process, in MB."""

    def __init__(self) -> None:
        """Begin to watch."""
        self.anonymous = 0.0
        self._stop = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.anonymous = max(self.anonymous, _status("RssAnon"))

    def peaks(self) -> dict[str, float]:
        """So far."""
        return {"resident_mb": round(_status("VmHWM")), "anonymous_mb": round(self.anonymous)}


def _status(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"this system does not report {name}")


def read_windows(data: Any, batches: int) -> float:
    """Random training windows per second."""
    loader = iter(data.train_dataloader())
    next(loader)
    begin = time.perf_counter()
    read = sum(len(next(loader)) for _ in range(batches))
    return read / (time.perf_counter() - begin)


def on_disk(table: Path, cache: Path, steps: int, batches: int, threads: int, out: Any) -> None:
    """Build, open again, train, read: one process."""
    import pytorch_lightning as pl
    import torch

    import tsattn

    torch.set_num_threads(threads)
    memory, found = Memory(), {}
    settings = {"horizon": HORIZON, "context": CONTEXT, "batch_size": BATCH, "val_size": 0}
    begin = time.perf_counter()
    data = tsattn.ForecastDataModule(tsattn.OnDisk(table, cache), **settings)
    rows = len(data.panel.values)
    found["build_seconds"] = round(time.perf_counter() - begin, 1)
    found["build"] = memory.peaks()
    begin = time.perf_counter()
    tsattn.ForecastDataModule(tsattn.OnDisk(table, cache), **settings).panel  # noqa: B018
    found["open_seconds"] = round(time.perf_counter() - begin, 1)
    begin = time.perf_counter()
    data.source  # noqa: B018
    found["statistics_seconds"] = round(time.perf_counter() - begin, 1)
    network = tsattn.build("lucid", data.spec)
    trainer = pl.Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    begin = time.perf_counter()
    trainer.fit(tsattn.ForecastModule(network), data)
    found["steps"], found["step_seconds"] = steps, round(time.perf_counter() - begin, 1)
    found["windows_per_second"] = round(read_windows(data, batches))
    found["end"] = memory.peaks()
    out.put({"rows": rows, **found})


def in_memory(table: Path, cache: Path, batches: int, threads: int, out: Any) -> None:
    """The same windows from arrays in memory."""
    from dataclasses import replace

    import torch

    import tsattn

    torch.set_num_threads(threads)
    memory = Memory()
    settings = {"horizon": HORIZON, "context": CONTEXT, "batch_size": BATCH, "val_size": 0}
    mapped = tsattn.ForecastDataModule(tsattn.OnDisk(table, cache), **settings).panel
    data = tsattn.ForecastDataModule(replace(mapped, values=np.array(mapped.values)), **settings)
    out.put({"windows_per_second": round(read_windows(data, batches)), **memory.peaks()})


def in_process(work: Any, *arguments: Any) -> dict[str, Any]:
    """Run ``work`` in a process of its own; what it measured."""
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=work, args=(*arguments, out))
    process.start()
    found = out.get()
    process.join()
    return found


def growth(kept: dict[str, Any]) -> str:
    """Seconds of a build as ``a * rows ** b``, fitted to the sizes measured so far."""
    rows = np.array([int(size) for size in kept], dtype=float)
    if len(rows) < 2:
        return "one size: no growth to fit"
    seconds = np.array([found["on_disk"]["build_seconds"] for found in kept.values()])
    power, factor = np.polyfit(np.log(rows), np.log(seconds), 1)
    return f"seconds of a build = {np.exp(factor):.2g} * rows ** {power:.2f}"


def main() -> None:
    """Write the table, measure, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--series", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=2_000, help="of each series")
    parser.add_argument("--steps", type=int, default=300, help="of training")
    parser.add_argument("--batches", type=int, default=300, help="read for the speed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder, removed)")
    asked = parser.parse_args()
    print(heading())
    folder = Path(tempfile.mkdtemp(dir=asked.folder))
    try:
        table, cache = folder / "table", folder / "cache"
        write_table(table, asked.series, asked.rows)
        size = sum(file.stat().st_size for file in table.iterdir())
        print(f"{asked.series:,} series of {asked.rows:,} rows, {size / 1e6:,.0f} MB of Parquet", flush=True)
        disk = in_process(on_disk, table, cache, asked.steps, asked.batches, asked.threads)
        print(f"on disk    {disk}", flush=True)
        memory = in_process(in_memory, table, cache, asked.batches, asked.threads)
        print(f"in memory  {memory}")
        ratio = disk["windows_per_second"] / memory["windows_per_second"]
        print(f"windows per second, on disk / in memory: {ratio:.2f}")
        result = {"about": heading(), "parquet_mb": round(size / 1e6), "on_disk": disk, "in_memory": memory}
        kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
        kept[str(asked.series * asked.rows)] = {**result, "ratio": round(ratio, 2)}
        RESULT.write_text(json.dumps(dict(sorted(kept.items(), key=lambda item: int(item[0]))), indent=1) + "\n")
        print(growth(kept))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
