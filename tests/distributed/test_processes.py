"""One, two and three processes tell the same: gradients, weights, validation, forecasts, maps, scores, on all ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.distributed import sharded
from tests.distributed.cases import all_cases, table

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def alone():
    return all_cases()


def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(out: Path, *flags: str, script: str = "cases", arguments: tuple[str, ...] = ()) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", *flags, "-m", f"tests.distributed.{script}", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *arguments], cwd=ROOT, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def compare(out: Path, alone: dict, world: int) -> None:
    for name, expected in alone.items():
        for rank in range(world):
            with np.load(out / f"{name} rank {rank}.npz") as told:
                assert set(told.files) == {k for k, v in expected.items() if v is not None}
                for key in told.files:
                    if key.endswith("key.bias"):
                        continue  # a softmax does not see it: its gradient is rounding, and Adam makes steps of that
                    np.testing.assert_allclose(
                        told[key], expected[key], rtol=1e-6, atol=1e-6, err_msg=f"{name}: {key}, rank {rank}"
                    )


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("world", [2, 3])
def test_several_processes_tell_what_one_tells(world, alone, tmp_path):
    process = torchrun(tmp_path, f"--nproc_per_node={world}", f"--master_port={port()}")
    _, error = process.communicate(timeout=380)
    assert process.returncode == 0, error[-3000:]
    compare(tmp_path, alone, world)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore")
def test_two_nodes_of_one_process(alone, tmp_path):
    where = port()
    nodes = [
        torchrun(
            tmp_path, "--nnodes=2", f"--node_rank={rank}", "--nproc_per_node=1", "--master_addr=127.0.0.1",
            f"--master_port={where}", arguments=("2",),
        )
        for rank in range(2)
    ]  # fmt: skip
    for node in nodes:
        _, error = node.communicate(timeout=380)
        assert node.returncode == 0, error[-3000:]
    compare(tmp_path, alone, 2)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp_cpu"])
def test_stopped_and_out_of_disk_and_in_parts(strategy, tmp_path):
    process = torchrun(
        tmp_path, "--nproc_per_node=2", f"--master_port={port()}", script="sharded", arguments=(strategy,)
    )
    _, error = process.communicate(timeout=380)
    assert process.returncode == 0, error[-3000:]
    expected = sharded.all_fits() if strategy == "fsdp_cpu" else {}
    whole = sharded.told(sharded.fit())
    compare(tmp_path, expected | {"stopped": whole, "full": whole}, 2)
    for rank in range(2):  # each process draws its own, on from where it stood
        whole, stopped = (np.load(tmp_path / f"{n} rank {rank}.npz") for n in ("dropout", "stopped with dropout"))
        for key in whole.files:
            exact = {"rtol": 0, "atol": 0} if strategy == "ddp" else {"rtol": 1e-6, "atol": 1e-6}
            np.testing.assert_allclose(stopped[key], whole[key], **exact, err_msg=key)
    kept = sorted(path.name for path in (tmp_path / "full").glob("*.json"))
    assert kept == ["step-00000001.json", "step-00000002.json"]  # the last ones before the disk was full
    assert not list((tmp_path / "full").glob(".*"))


def fit(out: Path, *flags: str, launcher: tuple[str, ...] = ()) -> None:
    """``tsattn fit`` with checkpoints, on one device unless ``flags`` say otherwise."""
    command = [sys.executable, *launcher, "-m", "tsattn", "fit", "--data", "t.csv", "--id", "null",
               "--model", "nlinear", "--horizon", "4", "--context", "12", "--out", str(out),
               "--training.epochs", "3", "--training.verbose", "false", "--training.accelerator", "cpu",
               "--training.checkpoint_steps", "2", *flags]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=out.parent, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_the_command_on_two_devices_writes_what_one_writes(tmp_path, monkeypatch):
    """Started by Lightning itself, and by ``torchrun``; one run holds the folder of checkpoints, not one process.

    And from a table on disk, whose files both processes ask for at once.
    """
    monkeypatch.setenv("TSATTN_CACHE", str(tmp_path / "cache"))
    table(300).to_csv(tmp_path / "t.csv", index=False)
    table(300).to_parquet(tmp_path / "t.parquet", index=False)
    two = ("--training.devices", "2", "--training.strategy", "ddp")
    fit(tmp_path / "one")
    fit(tmp_path / "two", *two)
    torch_run = ("-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={port()}")
    fit(tmp_path / "run", *two, launcher=torch_run)
    disk_run = (*torch_run[:-1], f"--master_port={port()}")
    fit(tmp_path / "disk", *two, "--data", "t.parquet", "--on_disk", "true", launcher=disk_run)
    names = ("one", "two", "run", "disk")
    weights = [load_file(tmp_path / name / "weights.safetensors") for name in names]
    for found in weights[1:]:
        for name, expected in weights[0].items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-6, atol=1e-6)
    assert not list(tmp_path.glob("*/checkpoints"))
