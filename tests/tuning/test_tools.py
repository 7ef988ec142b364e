"""The study is an ordinary Optuna study: its own command and its dashboard open it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.tuning.small import tune

BIN = Path(sys.executable).parent


def tool(name):
    found = shutil.which(name, path=str(BIN)) or shutil.which(name)
    if found is None:
        pytest.skip(f"the command {name} is not installed")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["sqlite:///{}/s.db", "{}/s.journal"])
def test_the_optuna_command_reads_it(storage, tmp_path):
    place = storage.format(tmp_path)
    result = tune(tmp_path, storage=place)
    where = ["--storage", place, "--study-name", "tsattn", "-f", "json"]

    def optuna(*arguments):
        done = subprocess.run([tool("optuna"), *arguments, *where], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    assert [trial["state"] for trial in optuna("trials")] == ["COMPLETE"] * 3
    best = optuna("best-trial")
    assert best["value"] == {"mae": result.best_value}
    assert best["user_attrs"]["config"]["model"] == "nlinear"


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["sqlite:///{}/s.db", "{}/s.journal"])
def test_the_dashboard_serves_it(storage, tmp_path):
    place = storage.format(tmp_path)
    tune(tmp_path, storage=place)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [tool("optuna-dashboard"), place, "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        studies = json.loads(_answer(f"http://127.0.0.1:{port}/api/studies"))["study_summaries"]
        assert [study["study_name"] for study in studies] == ["tsattn"]
        number = studies[0]["study_id"]
        detail = json.loads(_answer(f"http://127.0.0.1:{port}/api/studies/{number}?after=0"))
        assert [trial["state"] for trial in detail["trials"]] == ["Complete"] * 3
    finally:
        server.terminate()
        server.wait(timeout=30)


def _answer(url):
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                return reply.read()
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"no answer from {url}")
