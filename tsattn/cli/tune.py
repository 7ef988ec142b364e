"""``tsattn tune``: a thin function around ``tsattn.tune``."""

from __future__ import annotations

import sys
from typing import Any

from tsattn.cli.commands import read_table
from tsattn.forecaster import Forecaster


def tune(
    forecaster: Forecaster,
    *,
    data: str,
    space: dict[str, Any],
    trials: int = 50,
    metric: str = "mae",
    objectives: list[str] = ["error"],  # noqa: B006
    folds: int = 2,
    val_size: int | float | None = None,
    test_size: int | float | None = None,
    seeds: int = 1,
    pruner: str | None = None,
    pruner_options: dict[str, Any] | None = None,
    sampler: str = "tpe",
    storage: str = "tuning.journal",
    study: str = "tsattn",
    timeout: float | None = None,
    workers: int = 1,
    devices: list[str] | None = None,
    out: str = "tuning",
    refit: bool = False,
    data_dir: str | None = None,
) -> None:
    """Search for the settings with the least error on rolling validation folds; the test part is never read.

    The same command again continues the study, to exactly ``--trials`` in all; the same command on another machine
    with the same database as storage joins it.

    Args:
        forecaster: The fixed parameters.
        data: Name of a data set, or the path of a table.
        space: What may vary: key -> {choices: [...]}, {low: .., high: .., step: .., log: ..}, or one fixed value.
        trials: Total of the study, over all runs and workers.
        metric: "mae", "mse", "mase" or "weighted_quantile_loss".
        objectives: One or more of "error", "seconds" and "parameters"; several give a Pareto front.
        folds: Rolling validation parts before the test part; a trial is scored by its mean over them.
        val_size: Steps (or fraction) of each series in one validation part; unset a tenth.
        test_size: Steps (or fraction) at the end of each series that tuning never reads; unset a tenth, 0 none.
        seeds: Trainings per fold.
        pruner: "median" (unless there are several objectives), "hyperband", "successive_halving", "wilcoxon", "none".
        pruner_options: Keywords of the Optuna pruner, such as {n_startup_trials: 10}.
        sampler: "tpe" or "random".
        storage: Path of a journal file, or a database URL such as sqlite:///study.db.
        study: Name of the study in the storage.
        timeout: Seconds after which no new trial starts.
        workers: Processes on this machine; with several devices each takes its own.
        devices: Accelerators the workers take turns at, by number; unset: all there are.
        out: Folder for best.yaml, trials.csv, summary.html and the models of the trials.
        refit: Train the winner on training and validation part together and save it to OUT/model.
        data_dir: Folder with the files of named data sets.
    """
    from tsattn.tuning.run import tune as run

    result = run(
        forecaster,
        read_table(data, data_dir),
        space,
        trials=trials,
        metric=metric,
        objectives=objectives,
        folds=folds,
        val_size=val_size,
        test_size=test_size,
        seeds=seeds,
        pruner=pruner,
        pruner_options=pruner_options,
        sampler=sampler,
        storage=storage,
        study=study,
        timeout=timeout,
        workers=workers,
        devices=devices,
        out=out,
        refit=refit,
        data_name=data,
    )
    frame = result.trials_frame()
    shown = frame[frame["state"] == "complete"].sort_values(frame.columns[2]).head(5).dropna(axis=1, how="all")
    print(shown.drop(columns="state").to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    print(result.baseline_frame().to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    print(f"{result!r}; written to {out}/: best.yaml, trials.csv, summary.html", file=sys.stderr)
