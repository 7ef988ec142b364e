"""A training that is stopped anywhere and goes on ends with the weights of one that was never stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

import tsattn
from tests.conftest import make_waves
from tsattn.errors import ArtifactError, ConfigError, TsattnWarning
from tsattn.training import checkpoint

ROOT = Path(__file__).parents[2]
TRAINING = {"epochs": 3, "batch_size": 128, "verbose": False, "accelerator": "cpu", "checkpoint_steps": 1}


class Stop(pl.Callback):
    """Stops a training as a kill would, before the step ``at``: what the folder holds then is all there is."""

    def __init__(self, at: int, hook: str = "on_train_batch_start") -> None:
        self.at = at
        setattr(self, hook, self._stop)

    def _stop(self, trainer, *rest):
        if trainer.global_step == self.at:
            raise ZeroDivisionError


def forecaster(model="lucid", **training):
    return tsattn.Forecaster(model, horizon=6, context=24, training={**TRAINING, **training})


def fit(folder, *, model="lucid", callbacks=(), resume=False, table=None, **training):
    """One fit with checkpoints in ``folder``; its weights."""
    made = forecaster(model, **training)
    panel = tsattn.data.build.build_panel(make_waves() if table is None else table, made._roles())
    split = tsattn.data.split.chronological(panel, made.context, made.horizon, None)
    made._fit_panel(panel, split, callbacks, checkpoints=folder, resume=resume)
    return made


def assert_same(one, other):
    for name, tensor in one.network_.state_dict().items():
        assert torch.equal(tensor, other.network_.state_dict()[name]), name
    same = ("epochs", "steps", "best_val_loss", "best_epoch")
    assert [getattr(one.summary_, n) for n in same] == [getattr(other.summary_, n) for n in same]


SETTINGS = {
    "one_cycle": {},
    "decay, stops early": {"schedule": "decay", "hold": 1, "patience": 1, "learning_rate": 3e-2, "epochs": 5},
}


@pytest.mark.parametrize(
    ("settings", "every"),
    [("one_cycle", 4), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in SETTINGS)],
)
def test_stopped_before_a_step(every, settings, tmp_path):
    """Dropout, shuffle, optimizer, schedule, early stopping and the best weights so far go on where they stood."""
    settings = SETTINGS[settings]
    whole = fit(tmp_path / "whole", **settings)
    total = whole.summary_.steps
    assert total >= 10
    for at in range(total - 1, 0, -every):
        with pytest.raises(ZeroDivisionError):
            fit(tmp_path / str(at), callbacks=[Stop(at)], **settings)
        assert_same(fit(tmp_path / str(at), resume=True, **settings), whole)


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["on_validation_batch_start", "on_validation_end", "on_train_epoch_end"])
def test_stopped_around_a_validation(hook, tmp_path):
    whole = fit(tmp_path / "whole")
    for at in {whole.summary_.steps // 3, 2 * whole.summary_.steps // 3}:
        with pytest.raises(ZeroDivisionError):
            fit(tmp_path / str(at), callbacks=[Stop(at, hook)])
        assert_same(fit(tmp_path / str(at), resume=True), whole)


def test_stopped_again_and_again_and_with_few_checkpoints(tmp_path):
    whole = fit(tmp_path / "whole", checkpoint_steps=None)
    for at in (4, 9, 13):
        with pytest.raises(ZeroDivisionError):
            fit(tmp_path / "a", callbacks=[Stop(at)], resume=True, checkpoint_steps=3)
    assert_same(fit(tmp_path / "a", resume=True, checkpoint_steps=3), whole)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["seq2seq", "transformer", "patchtst", "tft", "dlinear"])
def test_every_kind_of_network(model, tmp_path):
    whole = fit(tmp_path / "whole", model=model)
    for at in (2, 7, whole.summary_.steps - 1):
        with pytest.raises(ZeroDivisionError):
            fit(tmp_path / str(at), model=model, callbacks=[Stop(at)])
        assert_same(fit(tmp_path / str(at), model=model, resume=True), whole)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A folder of a run that was stopped before its eighth step, and the run that was not."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.raises(ZeroDivisionError):
        fit(folder, callbacks=[Stop(8)])
    return folder, fit(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def copied(stopped, tmp_path):
    for path in stopped[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path, stopped[1]


def test_two_checkpoints_are_kept_and_nothing_else(stopped):
    assert sorted(path.name for path in stopped[0].iterdir()) == [
        "lock", "step-00000007.ckpt", "step-00000007.json", "step-00000008.ckpt", "step-00000008.json",
    ]  # fmt: skip
    for path in stopped[0].glob("*.ckpt"):
        torch.load(path, weights_only=True)


def damaged(data: bytes, how: str) -> bytes:
    changed = bytearray(data)
    if how == "empty":
        return b""
    if how == "cut":
        return data[: len(data) // 2]
    changed[random.Random(how).randrange(len(data))] ^= 4
    return bytes(changed)


@pytest.mark.parametrize("file", ["step-00000008.ckpt", "step-00000008.json"])
@pytest.mark.parametrize("how", ["empty", "cut", *(f"bit {n}" for n in range(4))])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(file, how, copied):
    folder, whole = copied
    (folder / file).write_bytes(damaged((folder / file).read_bytes(), how))
    with pytest.warns(TsattnWarning, match=r"step-00000008 is damaged\. Going on from the one before, step-00000007"):
        found = fit(folder, resume=True)
    assert_same(found, whole)


def test_when_none_is_whole_it_says_so(copied):
    folder, _ = copied
    for path in folder.glob("*.ckpt"):
        path.write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"No checkpoint in .* is whole.*Remove the folder to start anew"):
        fit(folder, resume=True)


def test_leftovers_of_a_kill_are_removed(copied):
    folder, whole = copied
    (folder / ".step-00000009.ckpt.tmp").write_bytes(b"half")
    (folder / "step-00000009.ckpt").write_bytes(b"whole, and not described yet")
    assert_same(fit(folder, resume=True), whole)
    assert len(list(folder.glob("*.ckpt"))) == 2
    assert not list(folder.glob(".*"))


def test_what_would_run_code_is_refused(copied):
    """A checkpoint is plain data: one that is not is no better than a damaged one."""
    folder, whole = copied
    file = folder / "step-00000008.ckpt"
    torch.save({"evil": Stop}, file)
    said = json.loads((folder / "step-00000008.json").read_text())
    said["sha256"] = checkpoint.hashlib.sha256(file.read_bytes()).hexdigest()
    del said["checksum"]
    (folder / "step-00000008.json").write_text(json.dumps({**said, "checksum": checkpoint._checksum(said)}))
    with pytest.warns(TsattnWarning, match="step-00000008 cannot be read"):
        assert_same(fit(folder, resume=True), whole)


def test_another_run_is_refused_by_name(copied):
    folder, _ = copied
    with pytest.raises(ConfigError, match=r"are of another run: training differ"):
        fit(folder, resume=True, learning_rate=1e-4)
    with pytest.raises(ConfigError, match=r"are of another run: data, windows differ"):
        fit(folder, resume=True, table=make_waves(steps=250))
    with pytest.raises(ConfigError, match=r"holds checkpoints of a run that did not end.*resume=True"):
        fit(folder)


def test_two_runs_in_one_folder_are_refused(tmp_path):
    class Second(pl.Callback):
        def on_train_start(self, trainer, module):
            with pytest.raises(ConfigError, match="Another run writes its checkpoints"):
                fit(tmp_path, resume=True)
            self.tried = True

    second = Second()
    fit(tmp_path, callbacks=[second])
    assert second.tried


def test_a_full_disk_costs_a_warning_and_not_the_training(tmp_path, monkeypatch):
    whole = fit(tmp_path / "whole")
    real = TorchCheckpointIO.save_checkpoint

    def full(self, saved, path, *rest, **named):
        if saved["global_step"] > 5:
            Path(path).write_bytes(b"a part")
            raise OSError(28, "No space left on device")
        return real(self, saved, path, *rest, **named)

    monkeypatch.setattr(TorchCheckpointIO, "save_checkpoint", full)
    with pytest.warns(TsattnWarning, match="No space left on device. The training goes on") as caught:
        assert_same(fit(tmp_path / "full"), whole)
    assert len([w for w in caught if issubclass(w.category, TsattnWarning)]) == 1
    assert sorted(p.name for p in (tmp_path / "full").glob("*.json")) == ["step-00000004.json", "step-00000005.json"]
    assert not list((tmp_path / "full").glob(".*"))
    monkeypatch.undo()
    assert_same(fit(tmp_path / "full", resume=True), whole)


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Cannot write checkpoints to"):
        fit(tmp_path / "file")
    with pytest.raises(ConfigError, match="resume=True needs checkpoints=FOLDER"):
        forecaster().fit(make_waves(), resume=True)


def test_save_removes_what_is_no_longer_needed(tmp_path):
    made = forecaster().fit(make_waves(), checkpoints=tmp_path / "c")
    assert list((tmp_path / "c").glob("*.ckpt"))
    made.save(tmp_path / "model")
    assert not (tmp_path / "c").exists()
    again = forecaster().fit(make_waves(), checkpoints=tmp_path / "c", resume=True)  # nothing there: from the start
    assert_same(again, made)


def test_checkpoints_are_due_by_time(tmp_path):
    made = checkpoint.Checkpoints(tmp_path, {}, minutes=1.0)
    assert not made._due(10)
    made._written -= 61
    assert made._due(10)
    with pytest.raises(ConfigError, match="checkpoint_minutes must not be negative"):
        forecaster(checkpoint_minutes=-1.0)._config()
    with pytest.raises(ConfigError, match="checkpoint_steps must be above 0"):
        forecaster(checkpoint_steps=0)._config()


def test_untrained_models_leave_no_folder(tmp_path):
    forecaster("naive").fit(make_waves(), checkpoints=tmp_path / "c")
    assert not (tmp_path / "c").exists()


# ------------------------------------------------------------------------------------------------ the command, killed


@pytest.fixture
def command(tmp_path):
    """``tsattn fit`` in a folder of its own, a training of some seconds: a function of its extra flags."""
    make_waves(steps=600).to_csv(tmp_path / "waves.csv", index=False)

    def start(*flags):
        fixed = ["--data", "waves.csv", "--model", "lucid", "--horizon", "6", "--context", "24",
                 "--training.epochs", "12", "--training.checkpoint_steps", "1", "--training.batch_size", "64",
                 "--training.verbose", "false", "--training.patience", "null"]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "tsattn", "fit", *fixed, *flags],
            cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    return start


def wait_for(folder: Path, process: subprocess.Popen) -> None:
    """Until there is a checkpoint, or the process is gone."""
    while not list(folder.glob("step-*.json")) and process.poll() is None:
        time.sleep(0.02)


def weights(folder):
    return (folder / "weights.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sigterm_saves_and_exits_143(command, tmp_path):
    whole = command("--out", "whole")
    assert (whole.communicate(), whole.returncode)[1] == 0
    process = command("--out", "run")
    wait_for(tmp_path / "run" / "checkpoints", process)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate()
    assert process.returncode == 143
    assert "stopped by SIGTERM" in error
    assert "Traceback" not in error
    process = command("--out", "run", "--resume", "true")
    _, error = process.communicate()
    assert process.returncode == 0, error
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    process = command("--out", "run", "--resume")
    assert "has ended: there is nothing to resume" in process.communicate()[1]
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_random_moments(command, tmp_path):
    """``kill -9`` at any moment, within a checkpoint that is being written too."""
    whole = command("--out", "whole")
    assert (whole.communicate(), whole.returncode)[1] == 0
    moments = random.Random(0)
    kills = 0
    while kills < 12:
        process = command("--out", "run", "--resume")
        wait_for(tmp_path / "run" / "checkpoints", process)
        time.sleep(moments.uniform(0.0, 0.4))
        if process.poll() is not None:
            break
        process.kill()
        process.communicate()
        kills += 1
    assert kills >= 3
    process = command("--out", "run", "--resume")
    _, error = process.communicate()
    assert process.returncode == 0, error
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
