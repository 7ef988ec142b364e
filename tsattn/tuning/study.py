"""The Optuna study of a job: made once, or opened again and checked."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.data.panel import Panel
from tsattn.errors import ConfigError, listed
from tsattn.forecaster import Forecaster
from tsattn.tuning.ledger import Ledger
from tsattn.tuning.objective import Objective, Plan
from tsattn.tuning.pruning import make_pruner
from tsattn.tuning.space import Space
from tsattn.tuning.storage import claim_lock, open_storage

if TYPE_CHECKING:
    from optuna import Study

PLAN, BASELINES = "tsattn:plan", "tsattn:baselines"


@dataclass(frozen=True, eq=False)
class Job:
    """What a worker needs, in this process or in another one."""

    storage: str
    study: str
    plan: Plan
    panel: Panel
    base: Forecaster
    baselines: dict[str, list[float]]
    total: int
    until: float | None  # wall clock, ``time.time``; no trial starts later
    pruner: str
    pruner_options: dict[str, Any] | None
    sampler: str
    keep: Path | None

    def objective(self) -> Objective:
        """The objective of this job."""
        made = Objective(self.plan, self.panel, self.base, Space.of(self.plan.space, self.base))
        made.baselines, made.keep = self.baselines, self.keep
        return made

    def deadline(self) -> float | None:
        """``until`` on the monotonic clock of this process."""
        return None if self.until is None else time.monotonic() + self.until - time.time()


def open_study(job: Job, objective: Objective, *, create: bool) -> Ledger:
    """The study of a job and the ledger of its trials.

    ``create`` makes it when it is not there, and otherwise checks that it was made from the same plan and data; raises
    ConfigError with what differs.
    """
    import optuna

    from tsattn.tuning.sampling import make_sampler

    opened = open_storage(job.storage)
    lock = claim_lock(job.storage, opened, job.study)
    warmup = max(1, objective.ticks // 4)
    settings: dict[str, Any] = {
        "storage": opened,
        "study_name": job.study,
        "sampler": make_sampler(job.sampler, int(job.base.seed), branches=len(objective.space.models) > 1),
        "pruner": make_pruner(job.pruner, job.pruner_options, objective.steps, warmup),
    }
    if not create:
        return Ledger(optuna.load_study(**settings), opened, lock)
    with lock():
        study = optuna.create_study(
            **settings, directions=["minimize" for _ in job.plan.objectives], load_if_exists=True
        )
        _check_plan(study, job.plan.fingerprint(job.panel), job)
        if PLAN not in study.user_attrs:
            names = [job.plan.metric if name == "error" else name for name in job.plan.objectives]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                study.set_metric_names(names)
            start = objective.space.start(job.base)
            if start and not study.get_trials(deepcopy=False):
                study.enqueue_trial(start)
            study.set_user_attr(BASELINES, job.baselines)
            study.set_user_attr(PLAN, job.plan.fingerprint(job.panel))
    return Ledger(study, opened, lock)


def _check_plan(study: Study, mine: dict[str, Any], job: Job) -> None:
    import optuna

    theirs = study.user_attrs.get(PLAN)
    if theirs is None:
        # Waiting trials may be ours, queued just before we were killed.
        if any(trial.state != optuna.trial.TrialState.WAITING for trial in study.get_trials(deepcopy=False)):
            raise ConfigError(f"Study {job.study!r} in this storage was not made by tsattn: choose another name.")
        return
    different = [f"{name}{_inner(theirs.get(name), mine[name])}" for name in mine if theirs.get(name) != mine[name]]
    if different:
        raise ConfigError(
            f"Study {job.study!r} in this storage was made from something else: {listed(different)} differ. Choose "
            f"another study name, or another storage."
        )


def _inner(theirs: Any, mine: Any) -> str:
    """`` (patch, heads)``: which entries of two mappings differ."""
    if not isinstance(theirs, dict) or not isinstance(mine, dict):
        return ""
    return f" ({listed(k for k in {**theirs, **mine} if theirs.get(k) != mine.get(k))})"


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """Our own progress instead of a line of Optuna's for every trial."""
    from optuna import logging

    level = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(level)
