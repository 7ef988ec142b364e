"""A process that works for long: nothing grows, nothing is left, and work from several threads or processes agrees."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tsattn
from tests.conftest import make_waves

ROOT = Path(__file__).parents[1]
QUICK = {"epochs": 1, "verbose": False, "accelerator": "cpu"}
linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")


def fitted(model="lucid"):
    return tsattn.Forecaster(model, horizon=4, context=24, training=QUICK).fit(make_waves(steps=120))


def memory():
    """Resident memory of this process in MB, garbage collected."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def handles():
    return len(os.listdir("/proc/self/fd"))


def soak(predicts, fits, folder):
    """Growth in MB, file handles and threads over predictions and fits, after a warm-up of the same kind."""
    table = make_waves(steps=120)
    model = fitted()

    def work(predictions, trainings):
        for number in range(predictions):
            forecast = model.predict(table, attention=number % 10 == 0)
            if number % 100 == 0:
                tsattn.Forecaster.load(model.save(folder / "model")).predict()
                forecast.plot()
        for _ in range(trainings):
            fitted()

    work(max(predicts // 5, 50), max(fits // 5, 3))
    before = memory(), handles(), threading.active_count()
    work(predicts, fits)
    after = memory(), handles(), threading.active_count()
    return tuple(b - a for a, b in zip(before, after, strict=True))


@linux
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("predicts", "fits"), [(2_000, 50)])
def test_memory_and_handles_stay_flat(predicts, fits, tmp_path):
    grown, opened, started = soak(predicts, fits, tmp_path)
    assert grown < 40  # MB; 20 kB for each of 2,000 predictions would be that much
    assert opened <= 0
    assert started <= 0


def test_threads_that_forecast_at_once_agree_with_one(tmp_path):
    model, tables = fitted(), [make_waves(steps=100 + n) for n in range(8)]
    alone = [model.predict(table, attention=True) for table in tables]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda table: model.predict(table, attention=True), tables * 3))
    for number, found in enumerate(together):
        expected = alone[number % len(tables)].windows
        np.testing.assert_array_equal(found.windows.point, expected.point)
        np.testing.assert_array_equal(found.windows.attention[0].weights, expected.attention[0].weights)


def _forecast(folder):
    return tsattn.Forecaster.load(folder).predict().windows.point


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads: Python 3.12 warns of every one
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_worker_processes_agree_with_their_parent(start, tmp_path):
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {start}")
    model = fitted()
    folder = model.save(tmp_path / "model")
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(start)) as pool:
        for found in pool.map(_forecast, [folder] * 4):
            np.testing.assert_array_equal(found, model.predict().windows.point)


def test_a_folder_that_may_only_be_read_is_enough(tmp_path):
    model = fitted("nlinear")
    folder = model.save(tmp_path / "model")
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    try:
        np.testing.assert_array_equal(_forecast(folder), model.predict().windows.point)
        assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before
    finally:
        folder.chmod(0o755)


@linux
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_script_leaves_no_process_behind(tmp_path):
    code = (
        "from tests.test_long_jobs import fitted; m = fitted(); m.predict(attention=True);"
        "import os, subprocess; me = str(os.getpid()); print(me);"
        "print(subprocess.run(['ps', '--ppid', me, '-o', 'comm='], capture_output=True, text=True).stdout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split()[1:] == ["ps"]
