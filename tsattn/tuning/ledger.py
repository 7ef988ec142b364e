"""Which trial is next, so that a study ends with exactly its total, whatever dies on the way.

A trial counts when it is complete, pruned, or failed for a reason of its own. A trial whose worker died, or was
interrupted, is failed too, and a waiting trial with its parameters takes its place; it does not count. All decisions
are made under one lock for all workers of the study.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

WORKER, BEAT, REASON = "tsattn:worker", "tsattn:beat", "reason"  # the last one is a user attribute: people read it
INTERRUPTED = "interrupted"
BEAT_SECONDS = 10.0
GRACE_SECONDS = 60.0  # without a beat, a worker on another machine is dead
MAX_RETRIES = 10  # a machine that is taken away again and again costs no trial; one that kills each worker ends here
_RETRIES = "retry_history"  # as Optuna's own callback for stale trials writes it


@dataclass(frozen=True)
class Counts:
    """Trials of a study by what became of them."""

    complete: int
    pruned: int
    failed: int  # for a reason of their own
    running: int
    lost: int  # died or interrupted, and replaced

    @property
    def done(self) -> int:
        """Trials that count towards the total."""
        return self.complete + self.pruned + self.failed


class Ledger:
    """Hands out the trials of one study until there are ``total``."""

    def __init__(self, study: Study, storage: BaseStorage, lock: Callable[[], AbstractContextManager[None]]) -> None:
        """``lock()`` holds off every other worker of the study."""
        self.study, self.storage, self.lock = study, storage, lock
        self._seen: dict[int, tuple[Any, float]] = {}  # running trial -> its last beat, and when we first saw it
        self._unsigned = False  # a trial of ours may be there that does not bear our name yet

    def claim(self, total: int) -> Trial | None:
        """The next trial to run, or None when there is none now: the rest is done or running elsewhere."""
        with self.lock():
            self._bury()
            counts = self.counts()
            if counts.done + counts.running >= total:
                return None
            self._unsigned = True
            trial = self.study.ask()
            self.storage.set_trial_system_attr(trial._trial_id, WORKER, _this_worker())
            self._unsigned = False
            return trial

    def finished(self, total: int) -> bool:
        """Whether the study has its total, and nobody is still at work on it."""
        counts = self.counts()
        return counts.done >= total and not counts.running

    def counts(self) -> Counts:
        """How the study stands."""
        from optuna.trial import TrialState

        trials = self._trials()
        replaced = _replaced(trials)
        number = {state: sum(t.state == state for t in trials) for state in TrialState}
        lost = sum(t.state == TrialState.FAIL and t.number in replaced for t in trials)
        return Counts(
            complete=number[TrialState.COMPLETE],
            pruned=number[TrialState.PRUNED],
            failed=number[TrialState.FAIL] - lost,
            running=number[TrialState.RUNNING],
            lost=lost,
        )

    def give_back(self, trial: Trial, reason: str) -> None:
        """Fail a trial that was interrupted, and queue its parameters again."""
        with self.lock():
            self._replace(self.storage.get_trial(trial._trial_id), reason, limit=None)

    def give_back_all(self, reason: str) -> None:
        """``give_back`` for every trial that this process has running: it was interrupted on its way into one."""
        from optuna.trial import TrialState

        with self.lock():
            for trial in self._trials():
                if trial.state == TrialState.RUNNING and self._is_ours(trial):
                    self._replace(trial, reason, limit=None)
            self._unsigned = False

    def _is_ours(self, trial: FrozenTrial) -> bool:
        worker = trial.system_attrs.get(WORKER)
        if worker is None:  # interrupted between the asking and the name; what ran unnamed before is in ``_seen``
            return self._unsigned and trial.number not in self._seen
        return worker == _this_worker()

    @contextlib.contextmanager
    def beating(self, trial: Trial) -> Iterator[None]:
        """Tell the other workers, from a thread, that this one is alive."""
        stop = threading.Event()
        thread = threading.Thread(target=self._beat, args=(trial._trial_id, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _beat(self, trial_id: int, stop: threading.Event) -> None:
        from optuna.exceptions import OptunaError

        number = 0
        while not stop.wait(BEAT_SECONDS):
            number += 1
            # A beat that is lost on the way is no reason to stop the training; a trial that was taken away ends itself.
            with contextlib.suppress(OptunaError, OSError):
                self.storage.set_trial_system_attr(trial_id, BEAT, number)
        self.storage.remove_session()

    def _bury(self) -> None:
        """Fail the running trials whose worker is dead, and queue them again."""
        from optuna.trial import TrialState

        running = [t for t in self._trials() if t.state == TrialState.RUNNING]
        self._seen = {t.number: self._seen[t.number] for t in running if t.number in self._seen}
        for trial in running:
            if self._is_dead(trial):
                self._replace(trial, "its worker died", MAX_RETRIES)

    def _is_dead(self, trial: FrozenTrial) -> bool:
        """On this machine the system knows; on another one, a beat that has not come for long says so."""
        worker = trial.system_attrs.get(WORKER)
        if worker and worker["machine"] == _machine() and worker["since"] is not None:
            return not _is_alive(worker["pid"], worker["since"])
        beat = (worker, trial.system_attrs.get(BEAT))
        before, when = self._seen.setdefault(trial.number, (beat, time.monotonic()))
        if before != beat:
            self._seen[trial.number] = (beat, time.monotonic())
            return False
        return time.monotonic() - when > GRACE_SECONDS

    def _replace(self, trial: FrozenTrial, reason: str, limit: int | None) -> None:
        from optuna import create_trial
        from optuna.trial import TrialState

        history = [*trial.system_attrs.get(_RETRIES, []), trial.number]
        kept = {"failed_trial": history[0], _RETRIES: history}
        if "fixed_params" in trial.system_attrs:
            kept["fixed_params"] = trial.system_attrs["fixed_params"]
        again = limit is None or sum(not self._was_interrupted(n) for n in history) <= limit
        # The replacement first: a death between the two steps must not lose the parameters.
        if again and trial.number not in _replaced(self._trials()):
            waiting = create_trial(
                state=TrialState.WAITING,
                params=trial.params,
                distributions=trial.distributions,
                system_attrs=kept,
            )
            self.study.add_trial(waiting)
        if not again:
            reason = f"{reason}, for the {len(history)}. time with these parameters"
        self.storage.set_trial_user_attr(trial._trial_id, REASON, reason)
        self.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)

    def _was_interrupted(self, number: int) -> bool:
        trial = next(t for t in self._trials() if t.number == number)
        return trial.user_attrs.get(REASON) == INTERRUPTED

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)


def _replaced(trials: list[FrozenTrial]) -> set[int]:
    """Numbers of the trials that another one stands in for."""
    return {number for t in trials for number in t.system_attrs.get(_RETRIES, [])}


def _this_worker() -> dict[str, Any]:
    return {"machine": _machine(), "pid": os.getpid(), "since": _started(os.getpid())}


def _machine() -> str:
    """This machine, this boot and this set of process numbers: two containers of one host differ."""
    boot, space = "", ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = str(os.stat("/proc/self/ns/pid").st_ino)
    return "/".join((socket.gethostname(), boot, space))


def _started(pid: int) -> str | None:
    """When a process started, where the system says it: process numbers are used again."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return None


def _is_alive(pid: int, since: str) -> bool:
    """Whether process ``pid`` is the one that started at ``since``, and no zombie."""
    with contextlib.suppress(OSError, IndexError):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False
    return _started(pid) == since
