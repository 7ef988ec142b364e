"""One worker: claims trials, runs them, tells the study, until there is nothing left to claim."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tsattn.errors import TsattnError
from tsattn.tuning.ledger import INTERRUPTED, REASON, Ledger
from tsattn.tuning.objective import Objective

if TYPE_CHECKING:
    from optuna import Trial

    from tsattn.tuning.study import Job

POLL_SECONDS = 1.0
_FAILURES = (TsattnError, RuntimeError, ValueError, ArithmeticError, MemoryError)  # of a trial, not of ours


def work(
    ledger: Ledger,
    objective: Objective,
    total: int,
    *,
    deadline: float | None = None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Run trials until the study has ``total`` and nobody is at work, or no new one may start after ``deadline``.

    ``deadline`` is in seconds of ``time.monotonic``. ``after()`` is called after every trial. Ctrl-C hands the
    running trial back and raises KeyboardInterrupt.
    """
    try:
        while deadline is None or time.monotonic() < deadline:
            trial = ledger.claim(total)
            if trial is not None:
                run_trial(ledger, objective, trial)
                after()
            elif ledger.finished(total):
                return
            else:
                time.sleep(POLL_SECONDS)  # another worker holds the last trials; if it dies, one of them is ours
    except KeyboardInterrupt:
        ledger.give_back_all(INTERRUPTED)  # one that was claimed and not begun, when it came at that moment
        raise


def work_job(job: Job, ledger: Ledger, objective: Objective, after: Callable[[], None] = lambda: None) -> None:
    """``work`` with as many ranks as the training of the job asks for."""
    from tsattn.tuning.ranks import RankGroup, ranks_of

    size = ranks_of(job.base._config())
    if size == 1:
        work(ledger, objective, job.total, deadline=job.deadline(), after=after)
        return
    with RankGroup(job, objective, size) as group:
        objective.train = group.train
        work(ledger, objective, job.total, deadline=job.deadline(), after=after)


def run_trial(ledger: Ledger, objective: Objective, trial: Trial) -> None:
    """Run one trial and tell the study how it ended; a trial that cannot be trained fails with its reason."""
    from optuna import TrialPruned
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    study = ledger.study
    with ledger.beating(trial):
        try:
            values = objective(trial)
        except TrialPruned:
            study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
        except UpdateFinishedTrialError:  # this worker was taken for dead, and the trial runs elsewhere by now
            return
        except _FAILURES as error:
            trial.set_user_attr(REASON, f"{type(error).__name__}: {error}")
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        except BaseException:  # Ctrl-C, or a fault of ours: the parameters are not to blame
            with contextlib.suppress(UpdateFinishedTrialError):
                ledger.give_back(trial, INTERRUPTED)
            raise
        else:
            study.tell(trial, list(values), skip_if_finished=True)
