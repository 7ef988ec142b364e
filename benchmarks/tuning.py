"""What tuning costs and brings. Results go to ``benchmarks/results/tuning.json``; docs/tuning.md quotes them.

    python benchmarks/tuning.py pruning    # 40 random trials, pruned and not: epochs trained, and the best value
    python benchmarks/tuning.py overhead   # the same trainings inside a study and in a plain loop: processor seconds
    python benchmarks/tuning.py gain       # 20 trials beside the default config; the test part looked at once

``pruning`` samples at random, so both studies of a seed try the same 40 configs, and differ in what they stop. ``gain``
needs ``TSATTN_DATA`` for ETTh1. Every part prints its command, the versions and the date.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
from common import heading, quiet

import tsattn
from tsattn.data.build import build_panel
from tsattn.data.split import rolling_folds, without_test
from tsattn.tuning.run import as_forecaster
from tsattn.writing import write_whole

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "tuning.json"
SPACE = {
    "options.patch": {"choices": [6, 8, 12, 24]},
    "options.heads": {"choices": [4, 8, 16]},
    "options.dropout": {"low": 0.0, "high": 0.6},
    "options.level": {"choices": ["mean", "last"]},
    "training.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
}
WEATHER = {"horizon": 24, "context": 168, "id": "station", "time": "time", "target": "temp", "output": "point"}


def storage() -> str:
    """A new journal in the folder of temporary files."""
    return str(Path(tempfile.mkdtemp(prefix="tuning")) / "study.journal")


def autumn() -> pd.DataFrame:
    """The last three months of ``nyc_weather``: a study of minutes."""
    table = tsattn.load_dataset("nyc_weather")
    return table[table["time"] >= "2013-10-01"]


def keep(name: str, found: Any) -> None:
    """Add one part to the results."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known[name] = found
    write_whole(RESULTS, (json.dumps(known, indent=1) + "\n").encode())
    print(json.dumps(found, indent=1))


def pruning(seeds: int, trials: int) -> list[dict[str, Any]]:
    """Epochs and best value of an unpruned study and of the same trials under each pruner."""
    table, rows = autumn(), []
    for seed in range(seeds):
        for pruner in ("none", "median", "hyperband", "successive_halving"):
            training = {"epochs": 8, "batch_size": 256, "verbose": False, "patience": None}
            base = tsattn.Forecaster("lucid", training=training, seed=seed, **WEATHER)
            started = time.perf_counter()
            result = tsattn.tune(
                base, table, SPACE, trials=trials, sampler="random", pruner=pruner, storage=storage(), verbose=False
            )
            seconds = time.perf_counter() - started
            frame = result.trials_frame()
            epochs = int(frame["epochs"].sum())
            rows.append(
                {
                    "seed": seed,
                    "pruner": pruner,
                    "epochs": epochs,
                    "pruned": int((frame["state"] == "pruned").sum()),
                    "best_trial": result.best_trial.number,
                    "best_mae": result.best_value,
                    "seconds": seconds,
                }
            )
            print(rows[-1], flush=True)
    return rows


def overhead(repeats: int, trials: int) -> list[dict[str, float]]:
    """Processor seconds of a study, and of the same trainings on the same folds in a plain loop, in turns.

    Run it with ``OMP_NUM_THREADS=1``: threads that wait for one another spend processor time, too.
    """
    table, rows = autumn(), []
    training = {"epochs": 8, "batch_size": 256, "verbose": False, "patience": None}
    base = tsattn.Forecaster("lucid", training=training, **WEATHER)
    tsattn.tune(base, table, SPACE, trials=1, storage=storage(), verbose=False)  # imports and caches
    for _ in range(repeats):
        started = time.process_time()
        result = tsattn.tune(
            base, table, SPACE, trials=trials, sampler="random", pruner="none", storage=storage(), verbose=False
        )
        study = time.process_time() - started
        started = time.process_time()
        panel = without_test(build_panel(table, base._roles(), freq=base.freq), base.horizon, None)
        folds = rolling_folds(panel, base.horizon, result.plan.folds)
        for trial in result.study.trials:
            for fold in range(len(folds)):
                forecaster = as_forecaster(trial.user_attrs["config"])
                forecaster._fit_panel(panel, folds.split(fold, forecaster.context))
        plain = time.process_time() - started
        rows.append({"study": study, "plain": plain, "overhead": study / plain - 1})
        print(rows[-1], flush=True)
    return rows


def etth1() -> pd.DataFrame:
    """The 20 months that the benchmark uses, one series per column."""
    table = tsattn.load_dataset("etth1").iloc[: 20 * 30 * 24]
    return table.melt("date", var_name="unique_id", value_name="y").rename(columns={"date": "ds"})


def gain(trials: int, seeds: int) -> dict[str, Any]:
    """Test error of the default config and of the winner of a study, each trained with several seeds."""
    cases = {
        "nyc_weather": (tsattn.load_dataset("nyc_weather"), WEATHER, 24 * 30, "mae", 24),
        "ETTh1": (etth1(), {"horizon": 96, "context": 336, "output": "point"}, 120 * 24, "mase", 24),
    }
    found = {}
    for name, (table, names, test_size, metric, step) in cases.items():
        training = {"epochs": 6, "batch_size": 256, "verbose": False}
        base = tsattn.Forecaster("lucid", training=training, **names)
        space = {**SPACE, "context": {"choices": [96, 168, 336]}}
        started = time.perf_counter()
        result = tsattn.tune(
            base, table, space, trials=trials, metric=metric, test_size=test_size, storage=storage(), verbose=False
        )
        seconds = time.perf_counter() - started
        default = result.study.trials[0].value  # the first trial is the config as it stood
        windows = (test_size - names["horizon"]) // step + 1
        scores = {"default": base.get_params(deep=False), "tuned": result.best_config}
        tested = {
            label: [tested_once(parameters, table, windows, step, test_size, metric, seed) for seed in range(seeds)]
            for label, parameters in scores.items()
        }
        found[name] = {
            "metric": metric,
            "validation_default": default,
            "validation_tuned": result.best_value,
            "test_default": tested["default"],
            "test_tuned": tested["tuned"],
            "config": result.best_config,
            "seconds": seconds,
            "states": result.trials_frame()["state"].value_counts().to_dict(),
        }
        print(name, {k: v for k, v in found[name].items() if k != "config"}, flush=True)
    return found


def tested_once(
    parameters: dict[str, Any], table: pd.DataFrame, windows: int, step: int, test_size: int, metric: str, seed: int
) -> float:
    """Trained on everything before the test part, its end held out to stop in time; scored on the test part."""
    forecaster = as_forecaster({**parameters, "seed": seed})
    id_column = forecaster.id
    before = table[table.groupby(id_column, sort=False).cumcount(ascending=False) >= test_size]
    forecaster.fit(before)
    scores = forecaster.backtest(table, windows=windows, step=step, refit="never").metrics().set_index("model")
    return float(scores.loc["lucid", metric])


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("part", choices=["pruning", "overhead", "gain"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int)
    asked = parser.parse_args()
    quiet()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(heading())
    if asked.part == "pruning":
        rows = pruning(asked.seeds, asked.trials or 40)
        unpruned = {row["seed"]: row["epochs"] for row in rows if row["pruner"] == "none"}
        for row in rows:
            row["saved"] = 1 - row["epochs"] / unpruned[row["seed"]]
        keep("pruning", rows)
    elif asked.part == "overhead":
        rows = overhead(asked.seeds, asked.trials or 10)
        keep("overhead", {"runs": rows, "median": float(np.median([row["overhead"] for row in rows]))})
    else:
        keep("gain", gain(asked.trials or 20, asked.seeds))


if __name__ == "__main__":
    main()
