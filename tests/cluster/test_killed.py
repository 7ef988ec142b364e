"""A worker that is killed is replaced, its part is done again, and nothing is there twice.

Each run has a Ray of its own, in a process of its own: workers have the environment of the moment Ray was started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from tsattn.errors import ClusterError
from tsattn.forecaster import Forecaster
from tsattn.models.linear import NLinear

from .conftest import CONTEXT, HORIZON, QUICK, SKIPS, same, spread

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Fragile(NLinear):
    """Kills its process, once per marker file in ``TSATTN_TEST_KILL``, as the kernel would: no handler runs.

    A marker ``wait`` makes it work for ever, once it has said so.
    """

    def forward(self, batch, need_weights=False):
        """Take one marker away and die, or forecast."""
        markers = Path(os.environ["TSATTN_TEST_KILL"])
        for marker in sorted(markers.glob("kill-*")):
            try:
                marker.unlink()
            except FileNotFoundError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        if (markers / "wait").exists():
            (markers / "waiting").touch()
            time.sleep(300)
        return super().forward(batch, need_weights)


@pytest.fixture
def fragile(table, tmp_path, monkeypatch):
    """A fitted forecaster whose network can be told to kill its process, and the folder for the markers."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tsattn[ray]'")
    markers = tmp_path / "markers"
    markers.mkdir()
    monkeypatch.setenv("TSATTN_TEST_KILL", str(markers))
    model = Forecaster(
        Fragile, horizon=HORIZON, context=CONTEXT, id="shop", time="when", target="sold", training=QUICK
    ).fit(table)
    return model, markers


def start(fragile, table, tmp_path, workers: int = 2) -> subprocess.Popen:
    """A process that forecasts on a Ray of its own."""
    model, _ = fragile
    model.save(tmp_path / "model")
    source = spread(table, tmp_path / "in")
    code = (
        "import sys; from tests.cluster.test_killed import Fragile; import tsattn\n"
        "model = tsattn.Forecaster.load(sys.argv[1], model=Fragile)\n"
        f"print(repr(model.predict(sys.argv[2], engine='ray', out=sys.argv[3], workers={workers})))"
    )
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "model"), str(source), str(tmp_path / "out")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
    )  # fmt: skip


def left(markers: Path) -> list[str]:
    """Commands of the processes that the run has started and that still live: they carry its environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"TSATTN_TEST_KILL={markers}".encode() in (place / "environ").read_bytes().split(b"\0")
            if mine and int(place.name) != os.getpid():
                found.append((place / "cmdline").read_text().replace("\0", " ")[:80])
        except OSError:
            continue
    return found


@SKIPS
def test_a_killed_worker_is_replaced_and_nothing_is_there_twice(fragile, table, tmp_path):
    model, markers = fragile
    one = model.predict(table)
    (markers / "kill-0").touch()
    ran = start(fragile, table, tmp_path)
    _, text = ran.communicate(timeout=380)
    assert ran.returncode == 0, text
    assert not list(markers.iterdir())  # it did die
    found = pd.read_parquet(tmp_path / "out")
    assert len(found) == len(found.drop_duplicates(["shop", "when"])) == 20 * HORIZON
    found = found.sort_values(["shop", "when"], ignore_index=True)
    found["when"] = found["when"].dt.as_unit("s")
    same(found, one.to_frame())
    assert {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith("part-")} == {"_skipped"}


@SKIPS
def test_a_part_that_always_kills_its_worker_ends_the_run(fragile, table, tmp_path):
    _, markers = fragile
    for number in range(200):
        (markers / f"kill-{number:03d}").touch()
    ran = start(fragile, table, tmp_path, workers=1)
    _, text = ran.communicate(timeout=380)
    assert ran.returncode == 1
    assert f"{ClusterError.__name__}: The worker was killed 3 times while it worked on one part" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "markers", "model"]


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc to find the processes")
def test_an_interrupt_leaves_neither_files_nor_processes(fragile, table, tmp_path):
    _, markers = fragile
    (markers / "wait").touch()
    ran = start(fragile, table, tmp_path)
    until = time.monotonic() + 200
    while not (markers / "waiting").exists():
        assert ran.poll() is None, ran.communicate()
        assert time.monotonic() < until
        time.sleep(0.2)
    assert left(markers)
    ran.send_signal(signal.SIGINT)
    ran.communicate(timeout=100)
    assert ran.returncode == -signal.SIGINT
    until = time.monotonic() + 30
    while left(markers) and time.monotonic() < until:
        time.sleep(0.2)
    assert left(markers) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "markers", "model"]
