"""Studies with several workers, and with workers that die."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.trial import TrialState

from tests.conftest import make_waves
from tests.tuning.small import TRAINING
from tsattn.errors import ConfigError
from tsattn.tuning.processes import _VISIBLE, _environment, share_devices
from tsattn.tuning.storage import StorageError, open_storage

ROOT = Path(__file__).parents[2]
COUNTED = (TrialState.COMPLETE, TrialState.PRUNED)


def test_devices_are_taken_in_turns(monkeypatch):
    assert share_devices(3, ["3", 7]) == ["3", "7", "3"]
    assert share_devices(2, ["0", "1", "2", "3", "4"], each=2) == ["0,1", "2,3"]
    monkeypatch.setenv(_VISIBLE, "4,6")
    assert share_devices(2, None) == ["4", "6"]
    assert share_devices(1, None) == [None]  # one worker: Lightning chooses
    monkeypatch.setenv(_VISIBLE, "")
    assert share_devices(2, None) == [None, None]
    with pytest.raises(ConfigError, match="One trial trains on 2 devices, and there are 1 to share"):
        share_devices(2, ["0"], each=2)


def test_children_inherit_their_device_and_the_parent_keeps_its_own(monkeypatch):
    monkeypatch.delenv(_VISIBLE, raising=False)
    with _environment("5"):
        assert os.environ[_VISIBLE] == "5"
    assert _VISIBLE not in os.environ
    monkeypatch.setenv(_VISIBLE, "1")
    with _environment(None):
        assert os.environ[_VISIBLE] == "1"


@pytest.fixture
def command(tmp_path):
    """``tsattn tune`` in a folder of its own: a function of storage and flags."""
    make_waves(steps=400).to_csv(tmp_path / "waves.csv", index=False)
    config = {
        "data": "waves.csv", "model": "nlinear", "horizon": 6, "context": 24, "training": {**TRAINING, "epochs": 10},
        "space": {"training.learning_rate": {"low": 1e-3, "high": 1e-1, "log": True}}, "out": "out",
    }  # fmt: skip
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(config))

    started = []

    def start(storage, *flags):
        arguments = [sys.executable, "-m", "tsattn", "tune", "--config", "search.yaml", "--storage", storage, *flags]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        process = subprocess.Popen(
            arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            kill(process)


def load(storage, folder):
    """The study, read by Optuna alone."""
    where = storage.replace("sqlite:///", f"sqlite:///{folder}/") if "://" in storage else str(folder / storage)
    return optuna.load_study(study_name="tsattn", storage=open_storage(where))


def trials(storage, folder, *states):
    """The trials in these states; none before there is a study."""
    if not any((folder / name).exists() for name in ("s.journal", "s.db")):
        return []
    try:
        return load(storage, folder).get_trials(states=states)
    except (KeyError, StorageError):
        return []


def at_work(storage, folder):
    """The process ids of those that have a trial running."""
    running = trials(storage, folder, TrialState.RUNNING)
    return [t.system_attrs["tsattn:worker"]["pid"] for t in running if "tsattn:worker" in t.system_attrs]


def wait_for_work(process, storage, folder):
    """Until the command has begun a trial of its own; how long it takes to start depends on the machine."""
    for _ in range(600):
        if process.pid in at_work(storage, folder):
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    pytest.fail("no trial was begun in a minute")


def kill_one_at_work(storage, folder):
    """Halts a worker, and kills it if it was halted within a trial; between two there would be nothing to replace."""
    for _ in range(400):
        time.sleep(0.1)
        for victim in at_work(storage, folder):
            os.kill(victim, signal.SIGSTOP)
            within = victim in at_work(storage, folder)
            os.kill(victim, signal.SIGKILL if within else signal.SIGCONT)
            if within:
                return
    pytest.fail("no worker was at work in forty seconds")


def kill(process):
    """Everything the command started, at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def end(process, status=0):
    _, error = process.communicate(timeout=280)
    assert process.returncode == status, error
    assert "lock" not in error.lower()
    assert "Traceback" not in error, error
    return error


def check(study, total):
    """Exactly ``total`` trials count, none is left open, and everything failed has a replacement."""
    found = study.get_trials()
    states = [t.state for t in found]
    assert sum(state in COUNTED for state in states) == total
    assert set(states) <= {*COUNTED, TrialState.FAIL}
    replaced = {number for t in found for number in t.system_attrs.get("retry_history", [])}
    assert {t.number for t in found if t.state == TrialState.FAIL} == replaced


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("storage", ["s.journal", "sqlite:///s.db"])
def test_killed_at_ten_random_moments(storage, command, tmp_path):
    moments = random.Random(0)
    finished: dict[int, float | None] = {}
    for _ in range(10):
        process = command(storage, "--trials", "10000")  # more than any processor gets through before it is killed
        wait_for_work(process, storage, tmp_path)
        time.sleep(moments.uniform(0.0, 4.0))
        kill(process)
        now = {t.number: t.value for t in trials(storage, tmp_path, *COUNTED)}
        assert finished.items() <= now.items()  # nothing finished was lost or changed
        finished = now
    assert finished
    total = len(finished) + 10
    end(command(storage, "--trials", str(total)))
    study = load(storage, tmp_path)
    assert finished.items() <= {t.number: t.value for t in study.get_trials()}.items()
    check(study, total)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_of_two_workers_is_killed_and_the_other_takes_over(command, tmp_path):
    process = command("s.journal", "--trials", "40", "--workers", "2")
    kill_one_at_work("s.journal", tmp_path)
    end(process)
    study = load("s.journal", tmp_path)
    check(study, 40)
    assert sum(t.state == TrialState.FAIL for t in study.get_trials()) == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("storage", ["s.journal", "sqlite:///s.db"])
def test_four_workers_in_two_commands(storage, command, tmp_path):
    processes = [command(storage, "--trials", "24", "--workers", "2", "--devices", '["7","9"]') for _ in range(2)]
    for process in processes:
        end(process)
    study = load(storage, tmp_path)
    check(study, 24)
    workers = {t.system_attrs["tsattn:worker"]["pid"] for t in study.get_trials()}
    assert len(workers) >= 3  # the slowest to start may find nothing left
    assert {t.user_attrs["device"] for t in study.get_trials()} == {"7", "9"}
    assert len({t.params["training.learning_rate"] for t in study.get_trials()}) == 24


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_exits_130_and_writes_the_best_so_far(workers, command, tmp_path):
    process = command("s.journal", "--trials", "500", "--workers", workers)
    for _ in range(600):
        time.sleep(0.1)
        if len(trials("s.journal", tmp_path, *COUNTED)) >= 3:
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    end(process, 130)
    assert yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())["model"] == "nlinear"
    assert not load("s.journal", tmp_path).get_trials(states=(TrialState.RUNNING,))


def _binaries():
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None


@pytest.fixture
def postgresql(tmp_path_factory):
    """The URL of a server of our own."""
    pytest.importorskip("psycopg", reason="the driver psycopg is not installed")
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server on this machine (initdb is neither on PATH nor in /usr/lib/postgresql)")
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="pg"))
    as_other: dict = {}
    if os.geteuid() == 0:  # the server refuses to run as root
        import pwd

        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            user = pwd.getpwnam("nobody")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_other = {"user": user.pw_uid, "group": user.pw_gid, "cwd": folder}
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **as_other}
    subprocess.run([binaries / "initdb", "-D", folder / "data", "-U", "me", "-A", "trust"], **quiet)
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    control = [binaries / "pg_ctl", "-D", folder / "data", "-w"]
    subprocess.run([*control, "-o", options, "-l", folder / "log", "start"], **quiet)
    yield f"postgresql+psycopg://me@/postgres?host={folder}"
    subprocess.run([*control, "-m", "immediate", "stop"], **quiet)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_four_workers_on_postgresql(postgresql, command):
    processes = [command(postgresql, "--trials", "24", "--workers", "2") for _ in range(2)]
    time.sleep(9)
    kill(processes[0])
    end(processes[1])
    opened = open_storage(postgresql)
    check(optuna.load_study(study_name="tsattn", storage=opened), 24)
    opened.remove_session()
    opened.engine.dispose()
