"""What attention costs: 10,000 windows of 168 hours, 24 steps ahead, with and without it.

    python benchmarks/extraction.py [--models lucid transformer] [--windows 10000] [--repeats 3]

Each way runs in a process of its own, so that its peak memory is its own: the forecasts alone, with the maps of all
windows, and with their summary. Printed are seconds of the backtest (baselines included), the ratio to the forecasts
alone, and the peak memory above theirs. The model is trained for one epoch; what it learnt does not matter here.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from common import heading, quiet, spread

WAYS: dict[str, Any] = {"forecasts alone": False, "all maps": True, "summary": "summary"}


def measure(model: str, way: str, windows: int, repeats: int) -> dict[str, Any]:
    """Seconds of each repeat after one to warm up, and peak memory in MB, in this process."""
    import tsattn

    rows = windows + 168 + 24
    values = np.random.default_rng(0).normal(size=rows).cumsum()
    table = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=rows, freq="h"), "y": values})
    forecaster = tsattn.Forecaster(
        model, horizon=24, context=168, id=None, training={"epochs": 1, "verbose": False}
    ).fit(table.iloc[:1500])
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        forecaster.backtest(table, windows=windows, step=1, refit="never", attention=WAYS[way])
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[1:], "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    """One process for each model and way, or the work of one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", nargs="+", default=["lucid", "transformer"])
    parser.add_argument("--windows", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--way", choices=[*WAYS])
    asked = parser.parse_args()
    if asked.way:
        quiet()
        print(json.dumps(measure(asked.models[0], asked.way, asked.windows, asked.repeats)))
        return
    print(heading())
    print("| model | what | seconds (min / median / max) | ratio | MB above |\n|---|---|---|---|---|")
    for model in asked.models:
        base: dict[str, Any] = {}
        for way in WAYS:
            sizes = ["--windows", str(asked.windows), "--repeats", str(asked.repeats)]
            command = [sys.executable, __file__, "--models", model, "--way", way, *sizes]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            base = base or found
            ratio = float(np.median(found["seconds"]) / np.median(base["seconds"]))
            above = found["memory"] - base["memory"]
            print(f"| {model} | {way} | {spread(found['seconds'], 2)} | {ratio:.1f} | {above:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
