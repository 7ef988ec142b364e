"""``tsattn.tune``: a study from a forecaster, a table and a space."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tsattn.data.build import build_panel
from tsattn.data.split import without_test
from tsattn.errors import ConfigError, TsattnError, unknown_name
from tsattn.forecaster import Forecaster
from tsattn.tuning.ledger import Ledger
from tsattn.tuning.objective import Objective, Plan, plain_parameters
from tsattn.tuning.pruning import check_pruner
from tsattn.tuning.space import Space
from tsattn.tuning.storage import DEFAULT_STORAGE
from tsattn.tuning.study import Job, open_study, quiet_optuna

if TYPE_CHECKING:
    from tsattn.tuning.result import TuneResult

_FIT_KEYS = ("data", "out", "val_size", "data_dir")  # of ``tsattn fit``, in whose configs a forecaster is written


class TuningError(TsattnError, RuntimeError):
    """A study cannot go on, or has no trial to choose from."""


def tune(
    forecaster: Forecaster | Mapping[str, Any] | str | Path,
    data: Any,
    space: Mapping[str, Any],
    *,
    trials: int = 50,
    metric: str = "mae",
    objectives: Sequence[str] = ("error",),
    folds: int = 2,
    val_size: int | float | None = None,
    test_size: int | float | None = None,
    seeds: int = 1,
    pruner: str | None = None,
    pruner_options: dict[str, Any] | None = None,
    sampler: str = "tpe",
    storage: str = DEFAULT_STORAGE,
    study: str = "tsattn",
    timeout: float | None = None,
    workers: int = 1,
    devices: Sequence[str | int] | None = None,
    out: str | Path | None = None,
    refit: bool = False,
    data_name: str | None = None,
    verbose: bool = True,
) -> TuneResult:
    """Search ``space`` for the forecaster with the least error on rolling validation folds; never reads the test part.

    The same call again continues the study, to exactly ``trials`` in all. Ctrl-C writes what there is so far and
    raises KeyboardInterrupt.

    Args:
        forecaster: The fixed parameters: a Forecaster, a mapping of its parameters, or the path of a YAML config of
            ``tsattn fit``.
        data: A table, or a path of one.
        space: Key -> distribution or fixed value (see ``tsattn.tuning.space``).
        trials: Total of the study, over all runs and workers.
        metric: "mae", "mse", "mase" or "weighted_quantile_loss".
        objectives: One or more of "error", "seconds" and "parameters"; with several there is a Pareto front.
        folds: Validation parts, one after the other, before the test part; a trial is scored by its mean over them.
        val_size: Steps (or fraction) of each series in one validation part; None a tenth, at least one horizon.
        test_size: Steps (or fraction) at the end of each series that are cut off before anything else; None a tenth,
            at least one horizon; 0 when the table has no test part.
        seeds: Trainings per fold, with the seeds after the forecaster's own.
        pruner: "median" (default for one objective), "hyperband", "successive_halving", "wilcoxon" or "none".
        pruner_options: Keywords of the Optuna pruner.
        sampler: "tpe" or "random".
        storage: Path of a journal file, or a database URL.
        study: Name of the study in the storage.
        timeout: Seconds after which no new trial starts.
        workers: Processes on this machine; with several devices each takes its own.
        devices: Accelerators the workers take turns at, by their number; None: all there are.
        out: Folder for the best config, the summary and the models of the trials; None writes none of them.
        refit: Train the winner again, on training and validation part together.
        data_name: What ``best.yaml`` calls the data; None: ``data`` itself when that is a path.
        verbose: Progress on stderr.

    Raises:
        ConfigError, DataError: wrong parameters, space or table.
        StorageError: the storage cannot be used.
        TuningError: no trial was completed.
    """
    base = as_forecaster(forecaster)
    base._check()
    chosen = pruner or ("median" if len(objectives) == 1 else "none")
    for name, value in (("trials", trials), ("workers", workers)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, found {value!r}.")
    plan = Plan(
        plain_parameters(base),
        dict(space),
        metric,
        tuple(objectives),
        folds,
        val_size,
        test_size,
        seeds,
        wilcoxon=chosen == "wilcoxon",
    )
    check_pruner(chosen, folds, len(plan.objectives))
    Space.of(plan.space, base)
    panel = without_test(build_panel(data, base._roles(), freq=base.freq), base.horizon, test_size)
    if out is not None:
        _make_folder(Path(out))
    job = Job(
        storage, study, plan, panel, base, {}, trials, None if timeout is None else time.time() + timeout,
        chosen, pruner_options, sampler, None if out is None else Path(out) / "trials",
    )  # fmt: skip
    with quiet_optuna():
        result, interrupted = _run(job, workers, devices, verbose)
        if result.has_winner and refit and not interrupted:
            result.refit()
        if result.has_winner and out is not None:
            result.write(out, data=data_name or (str(data) if isinstance(data, (str, Path)) else None))
    if interrupted:
        raise KeyboardInterrupt
    if not result.has_winner:
        raise TuningError(result.why_no_winner())
    return result


def _run(job: Job, workers: int, devices: Sequence[str | int] | None, verbose: bool) -> tuple[TuneResult, bool]:
    """Run the missing trials; the second value says whether Ctrl-C ended it."""
    from tsattn.tuning.progress import Progress
    from tsattn.tuning.result import TuneResult

    objective = job.objective()
    job.baselines.update(objective.measure_baselines())
    ledger = open_study(job, objective, create=True)
    progress = Progress(ledger, job.total, verbose)
    interrupted = False
    try:
        _work(job, objective, ledger, progress, workers, devices)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
    return TuneResult(ledger.study, job.plan, job.panel, job.base, job.baselines), interrupted


def _work(
    job: Job,
    objective: Objective,
    ledger: Ledger,
    progress: Any,
    workers: int,
    devices: Sequence[str | int] | None,
) -> None:
    """Run trials here, or in processes of their own."""
    if workers > 1 or devices is not None:
        from tsattn.tuning.processes import run_workers

        run_workers(job, ledger, workers, devices, progress)
        return
    from tsattn.tuning.worker import work_job

    work_job(job, ledger, objective, progress)


def as_forecaster(given: Forecaster | Mapping[str, Any] | str | Path) -> Forecaster:
    """A Forecaster from one, from its parameters, or from the path of a YAML config of ``tsattn fit``."""
    if isinstance(given, Forecaster):
        return given
    if isinstance(given, (str, Path)):
        try:
            read = yaml.safe_load(Path(given).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"Cannot read the config {str(given)!r}: {error.strerror}.") from None
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{str(given)!r} is no YAML: {error}") from None
        if not isinstance(read, (dict, type(None))):
            raise ConfigError(f"{str(given)!r} holds no options by name, but a {type(read).__name__}.")
        given = {name: value for name, value in (read or {}).items() if name not in _FIT_KEYS}
    known = Forecaster._get_param_names()
    for name in given:
        if name not in known:
            raise unknown_name("parameter of Forecaster", name, known)
    missing = [name for name in ("horizon", "context") if name not in given]
    if missing:
        raise ConfigError(f"The config has no {' and no '.join(missing)}.")
    return Forecaster(**given)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot write to {str(folder)!r}: {error.strerror}.") from None
