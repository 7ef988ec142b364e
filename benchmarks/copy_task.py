"""Why attention: copying a value from further and further back, with and without it.

    python benchmarks/copy_task.py            # docs/copy_task.json and docs/copy_task.png
    python benchmarks/copy_task.py --draw     # the picture alone, from the results there are

Series of ``planted.seasonal_copy``: every step repeats the one ``lag`` steps before, plus noise, and the context is
exactly one lag long, so the oldest values of the window are the ones that are needed. All models have states or tokens
of the same width, read single steps and train for the same number of optimizer steps. What is shown is the error on
held-out steps over what is attainable: 1 is perfect, 10 knows nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tsattn.data import planted
from tsattn.writing import write_whole

ROOT = Path(__file__).parents[1] / "docs"
LAGS = (12, 24, 48, 96)
HORIZON, RHO, WIDTH = 12, 0.95, 32
TRAINING = {"epochs": 30, "batch_size": 64, "learning_rate": 3e-3, "verbose": False, "patience": None}
STEP = {"patch": 1, "width": WIDTH, "dropout": 0.0, "teacher_forcing": 0.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "seq2seq, no attention": ("seq2seq", {**STEP, "attention": "none"}),
    **{
        f"seq2seq, {score}": ("seq2seq", {**STEP, "attention": score})
        for score in ("dot", "scaled_dot", "general", "additive", "location")
    },
    "transformer": ("transformer", {"width": WIDTH, "hidden": 2 * WIDTH, "dropout": 0.0}),
    "lucid": ("lucid", {"patch": 1, "dropout": 0.0}),
}


def error(model: str, options: dict[str, Any], lag: int, seed: int) -> tuple[float, float]:
    """Held-out squared error over the attainable one, and the seconds of the training."""
    made = planted.seasonal_copy(lag=lag, horizon=HORIZON, context=lag, rho=RHO, series=16, length=1_000, seed=seed)
    started = time.perf_counter()
    forecaster = made.fit(model, options=options, training=TRAINING, seed=seed)
    seconds = time.perf_counter() - started
    table = forecaster.backtest(made.held_out(), windows=15, refit="never").to_frame()
    wrong = (table["actual"] - table["forecast"]).to_numpy()
    return float(np.mean(wrong**2) / (1 - RHO**2)), seconds


def run(seeds: int) -> None:
    """Every model, lag and seed that has no result yet."""
    path = ROOT / "copy_task.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for seed, lag, label in product(range(seeds), LAGS, MODELS):
        key = f"{label}|{lag}|{seed}"
        if key in found:
            continue
        found[key] = error(*MODELS[label], lag, seed)
        print(f"{key}: {found[key][0]:.2f}, {found[key][1]:.0f} s", flush=True)
        write_whole(path, (json.dumps(found, indent=1) + "\n").encode())


def draw() -> None:
    """Error against lag, one line per model; the band is the range over the seeds."""
    import matplotlib.pyplot as plt

    found = json.loads((ROOT / "copy_task.json").read_text(encoding="utf-8"))
    figure, ax = plt.subplots(figsize=(8, 5), layout="constrained")
    markers = iter("osv^<>DXP*")
    for label in MODELS:
        runs = {lag: [v[0] for k, v in found.items() if k.startswith(f"{label}|{lag}|")] for lag in LAGS}
        lags = [lag for lag in LAGS if runs[lag]]
        style = "--" if "no attention" in label else "-"
        means = [float(np.mean(runs[lag])) for lag in lags]
        (line,) = ax.plot(lags, means, style, marker=next(markers), label=label)
        low, high = ([f(runs[lag]) for lag in lags] for f in (min, max))
        ax.fill_between(lags, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    ax.axhline(1.0, color="black", linewidth=1)
    ax.text(LAGS[-1], 0.9, "attainable", va="top", ha="right")
    ax.set(xscale="log", xlabel="lag to copy from, and context (steps)", ylabel="error / attainable error", ylim=0)
    ax.set_xticks(LAGS, [str(lag) for lag in LAGS])
    ax.minorticks_off()
    ax.set_title("Copying from further and further back")
    ax.legend(fontsize="small", loc="upper left")
    figure.savefig(ROOT / "copy_task.png", dpi=110)


def main() -> None:
    """Run what is missing, then draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draw", action="store_true")
    asked = parser.parse_args()
    if not asked.draw:
        run(asked.seeds)
    draw()


if __name__ == "__main__":
    main()
