"""Checkpoints of a training, and how it goes on from one as if it had never stopped.

    step-00000120.ckpt   all of a run before its 121st step, as Lightning writes it: plain data, read with weights_only
    step-00000120.json   checksum of that file, where the run stood, and what it was a run of; written last
    lock                 held by the run that writes here; free when its process is gone

A checkpoint is written before a step, never within one, since there everything is in its place: optimizer, schedule,
early stopping, best weights so far, random states, and the batches of the epoch that are still to come. The last two
are kept, so that one that was damaged on the disk costs a few minutes and not the run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from tsattn.data.datamodule import ForecastDataModule
from tsattn.errors import ArtifactError, ConfigError, TsattnWarning, listed, warn
from tsattn.locking import FileLock
from tsattn.writing import write_whole

FORMAT = 2
KEPT = 2  # checkpoints
TERMINATED = 143  # exit status after SIGTERM, as a shell gives it


class Terminated(BaseException):
    """SIGTERM came, and a checkpoint was written: the run ends here."""


class _File(TorchCheckpointIO):
    """Keeps an error of the disk for later: raised on the process that writes, it would leave the others waiting."""

    error: OSError | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write ``checkpoint``; what went wrong is raised by ``check``."""
        self.error = None
        try:
            super().save_checkpoint(checkpoint, path, storage_options)
        except OSError as error:
            self.error = error

    def check(self) -> None:
        """Raise OSError when the last checkpoint could not be written."""
        if self.error is not None:
            raise self.error


class Checkpoints(pl.Callback):
    """Writes checkpoints of one run to a folder, every ``minutes`` or every ``steps`` optimizer steps.

    Args:
        folder: Where they go; made when it is not there.
        run: What this is a run of (parameters, data, software): a checkpoint of another run is refused, naming what
            differs.
        minutes: Time between two checkpoints.
        steps: Steps between two checkpoints instead; None goes by time.
        resume: Go on from the newest checkpoint. Without it a folder that holds some is refused.
    """

    def __init__(
        self, folder: Path, run: dict[str, Any], *, minutes: float = 5.0, steps: int | None = None, resume: bool = False
    ) -> None:
        """Nothing is read or written before ``open``."""
        self.folder, self.run, self.resume = folder, json.loads(json.dumps(run)), resume
        self.minutes, self.steps = minutes, steps
        self.seconds = 0.0  # of the training before this process
        self._started = self._written = time.monotonic()
        self._random: list[dict[str, torch.Tensor]] | None = None  # by rank; to be put back before the first step
        self.terminated = False  # SIGTERM came
        self._file = _File()
        self._complained = False

    # ------------------------------------------------------------------ the folder

    @contextlib.contextmanager
    def open(self) -> Iterator[Path | None]:
        """Hold the folder; gives the checkpoint to go on from, or None to start from the beginning.

        Raises ConfigError when another run holds the folder, when it holds checkpoints and ``resume`` was not asked
        for, and when they are of another run; ArtifactError when there are checkpoints and none is whole.
        """
        lock = contextlib.ExitStack()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if _is_first_process():  # it holds the folder for all processes of the run
                lock.enter_context(FileLock(self.folder / "lock", wait=False)())
        except BlockingIOError:
            raise ConfigError(
                f"Another run writes its checkpoints to {self.folder} right now. Wait for it, or use another folder."
            ) from None
        except OSError as error:
            raise ConfigError(f"Cannot write checkpoints to {self.folder}: {error.strerror or error}.") from None
        with lock:
            if _is_first_process():
                for half in self.folder.glob(".*.tmp"):  # of a run that was killed while it wrote
                    half.unlink(missing_ok=True)
            yield self._newest()

    def clear(self) -> None:
        """The run is done: remove its checkpoints, unless another run writes there by now."""
        lock = FileLock(self.folder / "lock", wait=False)
        with contextlib.suppress(OSError), lock():  # of files that are only in the way by now
            for path in [*self.folder.glob("step-*.json"), *self.folder.glob("step-*.ckpt")]:
                path.unlink(missing_ok=True)
            lock.remove()
            self.folder.rmdir()

    def _newest(self) -> Path | None:
        found = sorted(self.folder.glob("step-*.json"), reverse=True)
        if found and not self.resume:
            raise ConfigError(
                f"{self.folder} holds checkpoints of a run that did not end. Go on from them with resume=True "
                f"(--resume), or remove the folder."
            )
        bad = []
        for description in found:
            try:
                said = _read(description)
            except ArtifactError as error:
                bad.append(str(error))
                continue
            different = [name for name in self.run if said["run"].get(name) != self.run[name]]
            if different:
                raise ConfigError(
                    f"The checkpoints in {self.folder} are of another run: {listed(different)} differ. Give the same "
                    f"settings and data, or use another folder."
                )
            if bad:
                warn(f"{listed(bad)} Going on from the one before, {description.stem}.")
            return description.with_suffix(".ckpt")
        if bad:
            raise ArtifactError(
                f"No checkpoint in {self.folder} is whole: {listed(bad)} Remove the folder to start anew."
            )
        return None

    # ------------------------------------------------------------------ writing

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Write through ``_File``."""
        trainer.strategy.checkpoint_io = self._file

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Count the time from here, and take SIGTERM over from Lightning, which would stop within an epoch."""
        self._started = self._written = time.monotonic()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._terminate)  # Lightning puts back what was there before the training

    def _terminate(self, *signal_and_frame: Any) -> None:
        self.terminated = True

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Put the random states of a checkpoint back; write one when it is time. Raises Terminated after SIGTERM."""
        if self._random is not None:
            _set_random(self._random, trainer.global_rank)
            self._random = None
        together = trainer.strategy.reduce_boolean_decision  # all processes write, or none
        if not together(self.terminated or self._due(trainer.global_step), all=False):
            return
        self._write(trainer)
        self.terminated = together(self.terminated, all=False)  # it may have come to one of them alone
        if self.terminated:
            raise Terminated

    def _due(self, step: int) -> bool:
        if self.steps is not None:
            return step > 0 and step % self.steps == 0
        return time.monotonic() - self._written >= 60 * self.minutes

    def _write(self, trainer: pl.Trainer) -> None:
        """A full disk, or one that is gone, is no reason to lose the training: the last good checkpoint stays."""
        self._written = time.monotonic()
        name = f"step-{trainer.global_step:08d}"
        half = self.folder / f".{name}.ckpt.tmp"
        data: ForecastDataModule = trainer.datamodule  # type: ignore[attr-defined]
        with data.before_this_batch():
            trainer.save_checkpoint(half)
        if not trainer.is_global_zero:
            return
        try:
            self._file.check()
            self._publish(half, name, trainer)
        except OSError as error:
            half.unlink(missing_ok=True)
            if not self._complained:
                message = (
                    f"Cannot write a checkpoint to {self.folder}: {error.strerror or error}. The training goes on, and "
                    f"the last checkpoint stays."
                )
                # Not a warning of whoever calls us, which is Lightning: its own are silenced while it trains.
                warnings.warn_explicit(message, TsattnWarning, __file__, 1, __name__)
            self._complained = True

    def _publish(self, half: Path, name: str, trainer: pl.Trainer) -> None:
        with open(half, "rb+") as stream:
            checksum = hashlib.sha256(stream.read()).hexdigest()
            os.fsync(stream.fileno())
        os.replace(half, self.folder / f"{name}.ckpt")
        said = {"format": FORMAT, "sha256": checksum, "step": trainer.global_step, "epoch": trainer.current_epoch}
        said["run"] = self.run
        text = json.dumps({**said, "checksum": _checksum(said)}, indent=1)
        write_whole(self.folder / f"{name}.json", text.encode())
        for old in sorted(self.folder.glob("step-*.json"))[:-KEPT]:
            old.unlink(missing_ok=True)
        whole = {path.stem for path in self.folder.glob("step-*.json")}
        for path in self.folder.glob("step-*.ckpt"):
            if path.stem not in whole:
                path.unlink(missing_ok=True)

    # ------------------------------------------------------------------ what a checkpoint holds beside Lightning's

    def state_dict(self) -> dict[str, Any]:
        """Random states of the processes, and how long they have trained."""
        seconds = self.seconds + time.monotonic() - self._started
        return {"random": _random_states(), "seconds": seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the random states for the first step: until then others may draw numbers."""
        self._random, self.seconds = state_dict["random"], state_dict["seconds"]


def run_of(parameters: dict[str, Any], data: ForecastDataModule, seed: int) -> dict[str, Any]:
    """What makes two runs the same run, as plain data: parameters, data, windows and versions."""
    split = data.split
    return {
        **{name: repr(value) for name, value in parameters.items()},
        "seed": seed,
        "data": data.panel.checksum(),
        "windows": [len(split.train), len(split.validation)],
        "torch": torch.__version__,
        "pytorch-lightning": pl.__version__,
    }


def _is_first_process() -> bool:
    """Whether this is rank zero, or the only one: known before there is a Trainer, from what launchers set."""
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
    return all(os.environ.get(name, "0") == "0" for name in names)


def _read(description: Path) -> dict[str, Any]:
    """What stands in the description of a checkpoint. Raises ArtifactError when it or its file is not whole."""
    file = description.with_suffix(".ckpt")
    try:
        said = json.loads(description.read_text(encoding="utf-8"))
        checksum = said.pop("checksum")
        whole = checksum == _checksum(said) and hashlib.sha256(file.read_bytes()).hexdigest() == said["sha256"]
        said["run"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole, said = False, {}
    if not whole:
        raise ArtifactError(f"The checkpoint {description.stem} is damaged.")
    if said["format"] != FORMAT:
        raise ArtifactError(
            f"The checkpoint {description.stem} has format {said['format']}, this tsattn reads {FORMAT}."
        )
    try:
        torch.load(file, map_location="cpu", weights_only=True)  # plain data alone, whatever reads it afterwards
    except Exception as error:  # noqa: BLE001 - of a file that somebody made: any
        raise ArtifactError(f"The checkpoint {description.stem} cannot be read: {str(error).splitlines()[0]}") from None
    return said


def _checksum(said: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _random_states() -> list[dict[str, torch.Tensor]]:
    """Those of every process of the run, by rank: each draws its own dropout. All processes must ask at once."""
    own = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        own["cuda"] = torch.cuda.get_rng_state()
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [own]
    states: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, own)
    return states


def _set_random(states: list[dict[str, torch.Tensor]], rank: int) -> None:
    torch.set_rng_state(states[rank]["cpu"].cpu())
    if "cuda" in states[rank] and torch.cuda.is_available():
        torch.cuda.set_rng_state(states[rank]["cuda"].cpu())
