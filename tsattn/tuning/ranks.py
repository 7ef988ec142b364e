"""One trial on several devices: this process is rank zero and owns the trial, helper processes are the other ranks.

Lightning would start its other ranks by running the user's script again, and each would draw a trial of its own. Here
the helpers know nothing of the study: they are told the parameters, so all ranks have the same, and they train along.
They stay from trial to trial, so the panel is sent once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

import torch
from pytorch_lightning import Callback

from tsattn.errors import ConfigError, TrainingError
from tsattn.forecaster import Forecaster
from tsattn.training.config import TrainConfig
from tsattn.training.run import make_trainer, quiet_lightning
from tsattn.tuning.objective import Objective
from tsattn.tuning.pruning import Watcher

if TYPE_CHECKING:
    from tsattn.tuning.study import Job

_LAST_WORDS = 5.0  # seconds for a helper to say why it stopped


def ranks_of(config: TrainConfig) -> int:
    """Processes that train one model together, all on this machine. Raises ConfigError for several machines."""
    if config.num_nodes > 1:
        raise ConfigError(
            "A trial trains on one machine. Leave training.num_nodes at 1 and run the same command on every machine, "
            "with one database as storage: trials are spread over them."
        )
    if config.devices in (1, "1"):
        return 1
    with quiet_lightning():
        return make_trainer(config, 1, 1, []).world_size


class RankGroup:
    """Trains forecasters on ``size`` ranks; use it as a context manager."""

    def __init__(self, job: Job, objective: Objective, size: int) -> None:
        """The helpers start with the first training."""
        self.job, self.objective, self.size = job, objective, size
        self._helpers: list[tuple[BaseProcess, Connection]] = []
        self._place: dict[str, str] = {}

    def __enter__(self) -> RankGroup:
        """Nothing starts yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the helpers."""
        self.close()

    def train(self, forecaster: Forecaster, fold: int, callbacks: Sequence[Callback]) -> None:
        """Fit on the training part of ``fold`` with all ranks.

        Raises what rank zero raised, or TrainingError with what stopped a helper; the next training starts new helpers.
        """
        forecaster._check()  # refused here, before anybody waits for anybody
        if not all(process.is_alive() for process, _ in self._helpers):
            self.close()
        try:
            if not self._helpers:
                self._start()
            for _, pipe in self._helpers:
                pipe.send((forecaster.get_params(deep=False), fold))
            with _environment({**self._place, "LOCAL_RANK": "0"}):
                self.objective.train_here(forecaster, fold, callbacks)
            self._wait()
        except BaseException as error:
            words = "" if isinstance(error, TrainingError) else self._last_words()
            self.close()
            if words and not isinstance(error, (KeyboardInterrupt, ConfigError)):
                raise TrainingError(f"A process of the training stopped: {words}") from error
            raise

    def close(self) -> None:
        """End the helpers and leave the group."""
        for process, pipe in self._helpers:
            pipe.close()
            process.kill()
            process.join()
        self._helpers = []
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def _start(self) -> None:
        self._place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "NODE_RANK": "0"}
        context = multiprocessing.get_context("spawn")
        for rank in range(1, self.size):
            ours, theirs = context.Pipe()
            place = {**self._place, "LOCAL_RANK": str(rank)}
            process = context.Process(target=_helper, args=(self.job, place, theirs, self.size), daemon=True)
            process.start()
            theirs.close()
            self._helpers.append((process, ours))
        self._wait()  # until all are there: one that cannot start must not leave the others waiting in the group

    def _wait(self) -> None:
        """Until every helper says that it is ready again; raises TrainingError with what stopped it."""
        for _, pipe in self._helpers:
            try:
                words = pipe.recv()
            except (EOFError, OSError):
                words = "A process of the training stopped: it was killed"
            if words:
                raise TrainingError(words)

    def _last_words(self) -> str:
        """What a helper said when it stopped; nothing while all of them run."""
        for process, pipe in self._helpers:
            try:
                if pipe.poll(_LAST_WORDS / len(self._helpers)) and (words := pipe.recv()):
                    return str(words)
            except (EOFError, OSError):
                process.join(_LAST_WORDS)
                return f"it was killed (exit status {process.exitcode})"
        return ""


def _helper(job: Job, place: dict[str, str], pipe: Connection, size: int) -> None:
    """The life of a rank above zero: train what it is told until the pipe closes. It ends with the first error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank zero hears Ctrl-C and ends us
    torch.set_num_threads(max(1, torch.get_num_threads() // size))
    os.environ.update(place)
    objective = job.objective()
    pipe.send("")
    while True:
        try:
            parameters, fold = pipe.recv()
        except EOFError:
            return
        try:
            objective.train_here(Forecaster(**parameters), fold, [Watcher(objective.scorer(fold))])
        except Exception as error:  # noqa: BLE001 - whatever it is, rank zero must not wait for us
            with contextlib.suppress(OSError):
                pipe.send(f"{type(error).__name__}: {error}")
            return
        pipe.send("")


@contextlib.contextmanager
def _environment(place: dict[str, str]) -> Iterator[None]:
    """What tells Lightning that the other ranks are there already; taken back afterwards.

    So is what Lightning sets: it shares the processor out among the ranks, by a variable and in torch.
    """
    before, threads = dict(os.environ), torch.get_num_threads()
    os.environ.update(place)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        torch.set_num_threads(threads)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
