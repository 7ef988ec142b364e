"""Counting trials: dead workers, interruptions, retries, several hands."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, TimeoutError

import optuna
import pytest
from optuna.trial import TrialState

from tsattn.locking import FileLock
from tsattn.tuning import ledger as module
from tsattn.tuning.ledger import BEAT, INTERRUPTED, REASON, WORKER, Counts, Ledger
from tsattn.tuning.storage import claim_lock, open_storage
from tsattn.tuning.worker import work


@pytest.fixture(params=["journal", "sqlite"])
def make(request, tmp_path):
    place = str(tmp_path / "s.journal") if request.param == "journal" else f"sqlite:///{tmp_path}/s.db"

    def ledger():
        opened = open_storage(place)
        study = optuna.create_study(storage=opened, study_name="s", load_if_exists=True)
        return Ledger(study, opened, claim_lock(place, opened, "s"))

    return ledger


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def bury_worker(ledger, trial, **changes):
    """As if ``trial`` belonged to a process that is gone."""
    owner = {"machine": module._machine(), "pid": dead_pid(), "since": "1", **changes}
    ledger.storage.set_trial_system_attr(trial._trial_id, WORKER, owner)


def test_claims_stop_at_the_total(make):
    one, other = make(), make()
    first, second = one.claim(2), other.claim(2)
    assert {first.number, second.number} == {0, 1}
    assert one.claim(2) is None
    assert not one.finished(2)
    one.study.tell(first, 1.0)
    other.study.tell(second, state=TrialState.PRUNED)
    assert other.finished(2)
    assert one.counts() == Counts(complete=1, pruned=1, failed=0, running=0, lost=0)
    assert one.claim(3).number == 2  # the total may be raised


@pytest.mark.slow
def test_many_hands_never_claim_too_many(make):
    hands = [make() for _ in range(6)]
    claimed = []

    def claim(hand):
        while (trial := hand.claim(10)) is not None:
            claimed.append(trial.number)

    threads = [threading.Thread(target=claim, args=(hand,)) for hand in hands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == list(range(10))


def test_a_trial_of_a_dead_worker_is_failed_and_retried_with_its_parameters(make):
    ledger = make()
    lost = ledger.claim(1)
    x = lost.suggest_float("x", 0, 1)
    bury_worker(ledger, lost)
    again = make().claim(1)
    assert again.number == 1
    assert again.suggest_float("x", 0, 1) == x
    trials = ledger.study.trials
    assert [t.state for t in trials] == [TrialState.FAIL, TrialState.RUNNING]
    assert trials[0].user_attrs[REASON] == "its worker died"
    assert trials[1].system_attrs["retry_history"] == [0]
    ledger.study.tell(again.number, 1.0)
    assert ledger.counts() == Counts(complete=1, pruned=0, failed=0, running=0, lost=1)
    assert ledger.finished(1)


def test_a_living_worker_is_left_alone(make):
    ledger = make()
    ledger.claim(1)
    assert make().claim(1) is None
    assert [t.state for t in ledger.study.trials] == [TrialState.RUNNING]


@pytest.mark.slow
def test_parameters_that_kill_their_worker_are_given_up(make):
    ledger = make()
    for _ in range(10):
        bury_worker(ledger, ledger.claim(1))
    bury_worker(ledger, ledger.claim(1))  # ten nights of bad luck are made good
    assert ledger.claim(1) is None  # from then on it is the trial itself, and counts as failed
    assert ledger.counts() == Counts(complete=0, pruned=0, failed=1, running=0, lost=10)
    assert ledger.study.trials[-1].user_attrs[REASON] == "its worker died, for the 11. time with these parameters"


def test_an_interruption_between_claim_and_training_gives_the_trial_back(make, monkeypatch):
    ledger, other = make(), make()
    theirs = other.claim(3)
    other.storage.set_trial_system_attr(theirs._trial_id, WORKER, {"machine": "elsewhere", "pid": 1, "since": None})

    def interrupted(*rest):
        raise KeyboardInterrupt

    monkeypatch.setattr("tsattn.tuning.worker.run_trial", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work(ledger, None, 3)
    running = [t.number for t in ledger.study.trials if t.state == TrialState.RUNNING]
    assert running == [theirs.number]
    assert ledger.counts() == Counts(complete=0, pruned=0, failed=0, running=1, lost=1)


def test_an_interruption_within_the_claim_gives_the_trial_back_and_no_other(make, monkeypatch):
    ledger = make()
    theirs = make().study.ask()  # of somebody who works on the study with Optuna alone, and signs nothing
    sign = ledger.storage.set_trial_system_attr

    def interrupted(trial_id, name, value):
        if name == WORKER:
            raise KeyboardInterrupt
        sign(trial_id, name, value)

    monkeypatch.setattr(ledger.storage, "set_trial_system_attr", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work(ledger, None, 3)
    assert [t.number for t in ledger.study.trials if t.state == TrialState.RUNNING] == [theirs.number]
    assert ledger.counts() == Counts(complete=0, pruned=0, failed=0, running=1, lost=1)


def test_interruptions_are_no_deaths(make):
    ledger = make()
    for _ in range(5):
        ledger.give_back(ledger.claim(1), INTERRUPTED)
    bury_worker(ledger, ledger.claim(1))
    assert ledger.claim(1) is not None
    assert ledger.counts() == Counts(complete=0, pruned=0, failed=0, running=1, lost=6)


def test_a_death_between_the_two_steps_of_a_burial(make, monkeypatch):
    """The replacement is queued, the trial not yet failed: nobody queues a second one."""
    ledger = make()
    bury_worker(ledger, ledger.claim(1))
    with monkeypatch.context() as broken:
        broken.setattr(ledger.storage, "set_trial_state_values", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ledger.claim(1)
    assert make().claim(1).number == 1
    assert [t.state for t in ledger.study.trials] == [TrialState.FAIL, TrialState.RUNNING]


@pytest.mark.parametrize("elsewhere", [{"machine": "other"}, {"since": None}])
def test_on_another_machine_a_missing_beat_tells(elsewhere, make, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    ledger = make()
    trial = ledger.claim(1)
    bury_worker(ledger, trial, **elsewhere)
    watcher = make()
    assert watcher.claim(1) is None  # first seen
    clock[0] = 50
    ledger.storage.set_trial_system_attr(trial._trial_id, BEAT, 1)
    assert watcher.claim(1) is None  # it beats
    clock[0] = 105
    assert watcher.claim(1) is None  # 55 s since that beat
    clock[0] = 115
    assert watcher.claim(1).number == 1


def test_a_running_worker_beats(make, monkeypatch):
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    ledger = make()
    trial = ledger.claim(1)
    done = threading.Event()
    with ledger.beating(trial):
        for _ in range(500):
            if make().study.trials[0].system_attrs.get(BEAT, 0) >= 2:
                break
            done.wait(0.01)
    beats = make().study.trials[0].system_attrs[BEAT]
    assert beats >= 2
    done.wait(0.05)
    assert make().study.trials[0].system_attrs[BEAT] == beats


def test_zombies_are_dead():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    since = module._started(process.pid)
    assert module._is_alive(process.pid, since)
    assert not module._is_alive(process.pid, "1")  # the number was used again
    process.stdin.close()
    for _ in range(1000):
        if not module._is_alive(process.pid, since):
            break
        threading.Event().wait(0.01)
    assert not module._is_alive(process.pid, since)  # a zombie: nobody has waited for it yet
    process.wait()


def test_a_new_sqlite_file_gets_its_tables_from_one_process(tmp_path):
    """Two that make them at once would find the version of the other already there."""
    file = tmp_path / "s.db"
    with ThreadPoolExecutor() as threads:
        with FileLock(tmp_path / "s.db.claims")():
            opening = threads.submit(open_storage, f"sqlite:///{file}")
            with pytest.raises(TimeoutError):
                opening.result(timeout=1)
            assert not file.exists()
        opening.result(timeout=30).engine.dispose()
    assert file.stat().st_size
