"""Forecasts of many series of a Parquet folder: one process beside the workers of a local Ray.

    python benchmarks/cluster.py --series 1000 10000 100000

Writes benchmarks/results/cluster.json. The seconds of Ray are those of the whole call, the start of Ray included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from common import heading, make_table, quiet

import tsattn

STEPS, HORIZON, CONTEXT = 200, 24, 96
OUT = Path(__file__).parent / "results" / "cluster.json"


def write_folder(series: int, folder: Path, files: int = 8) -> None:
    """A table whose files hold whole series, but not in order."""
    frame = make_table(series, STEPS).drop(columns="step")
    owner = frame["unique_id"].factorize()[0] % files
    for number in range(files):
        frame[owner == number].to_parquet(folder / f"{number}.parquet", index=False)


def measure(model: tsattn.Forecaster, series: int, workers: int) -> dict[str, float]:
    """Seconds of both ways, and how far the forecasts are apart."""
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place) / "in", Path(place) / "out"
        folder.mkdir()
        write_folder(series, folder)
        start = time.perf_counter()
        one = model.predict(folder).to_frame()
        one.to_parquet(Path(place) / "one.parquet")
        alone = time.perf_counter() - start
        start = time.perf_counter()
        model.predict(folder, engine="ray", out=out, workers=workers)
        together = time.perf_counter() - start
        found = tsattn.cluster.result.read_parts(out, model.schema_)
        assert found["unique_id"].equals(one["unique_id"])
        apart = float(np.abs(found["forecast"] - one["forecast"]).max())
        shutil.rmtree(out)
    return {"series": series, "one_process": round(alone, 1), "ray": round(together, 1), "largest_difference": apart}


def main(argv: list[str]) -> None:
    """Measure every size and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--series", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(argv)
    quiet()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model = tsattn.Forecaster("lucid", horizon=HORIZON, context=CONTEXT, training={"epochs": 1, "verbose": False})
    model.fit(make_table(20, STEPS).drop(columns="step"))
    rows = []
    for series in options.series:
        rows.append(measure(model, series, options.workers))
        print(json.dumps(rows[-1]), flush=True)
    import ray

    told = {"heading": heading(), "ray": ray.__version__, "workers": options.workers, "steps": STEPS}
    told |= {"load": os.getloadavg(), "rows": rows}
    OUT.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
