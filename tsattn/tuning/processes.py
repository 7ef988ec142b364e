"""Several workers on one machine: processes that share the storage, each with devices of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING

from tsattn.errors import ConfigError, TsattnError
from tsattn.tuning.ledger import Ledger
from tsattn.tuning.progress import Progress

if TYPE_CHECKING:
    from tsattn.tuning.study import Job

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOOK_SECONDS = 0.5
_PATIENCE = 60.0  # seconds for a worker to hand its trial back after Ctrl-C
_INTERRUPTED = 130


def run_workers(
    job: Job, ledger: Ledger, workers: int, devices: Sequence[str | int] | None, progress: Progress
) -> None:
    """Start ``workers`` processes and wait for them. A worker that dies is mourned by the others: see ``ledger``.

    Raises TsattnError when all of them ended and the study has not its total, and KeyboardInterrupt after Ctrl-C.
    """
    shares = share_devices(workers, devices, _devices_of_a_trial(job))
    context = multiprocessing.get_context("spawn")  # a fork would copy locked threads and device contexts
    processes: list[BaseProcess] = []
    try:
        for share in shares:
            with _environment(share):
                process = context.Process(target=_worker, args=(job, share, workers))
                process.start()
            processes.append(process)
        while any(process.is_alive() for process in processes):
            time.sleep(_LOOK_SECONDS)
            progress()
    except KeyboardInterrupt:
        _stop(processes)
        raise
    if any(process.exitcode == _INTERRUPTED for process in processes):
        raise KeyboardInterrupt
    lost = [process.exitcode for process in processes if process.exitcode]
    late = job.until is not None and time.time() >= job.until
    if lost and not late and not ledger.finished(job.total):
        raise TsattnError(
            f"{len(lost)} of {workers} workers ended early (exit status {lost[0]}) and the study has "
            f"{ledger.counts().done} of {job.total} trials. No finished trial is lost: the same command goes on."
        )


def share_devices(workers: int, devices: Sequence[str | int] | None, each: int = 1) -> list[str | None]:
    """The visible devices of every worker, ``each`` at a time, taken in turns; None leaves the choice to Lightning.

    Raises ConfigError when there are fewer devices than one trial needs.
    """
    names = [str(device) for device in devices] if devices is not None else _all_devices()
    if devices is None and (workers == 1 or len(names) < 2):
        return [None] * workers
    if len(names) < each:
        raise ConfigError(f"One trial trains on {each} devices, and there are {len(names)} to share: {names}.")
    groups = [names[i : i + each] for i in range(0, len(names) - each + 1, each)]
    return [",".join(groups[worker % len(groups)]) for worker in range(workers)]


def _all_devices() -> list[str]:
    import torch

    visible = os.environ.get(_VISIBLE)
    if visible is not None:
        return [name for name in visible.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def _devices_of_a_trial(job: Job) -> int:
    config = job.base._config()
    return config.devices if isinstance(config.devices, int) and config.devices > 0 else 1


@contextlib.contextmanager
def _environment(share: str | None) -> Iterator[None]:
    """What a child that is started inside inherits: the devices must be set before it talks to the driver."""
    before = os.environ.get(_VISIBLE)
    if share is not None:
        os.environ[_VISIBLE] = share
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VISIBLE, None)
        else:
            os.environ[_VISIBLE] = before


def _worker(job: Job, share: str | None, workers: int) -> None:
    """The life of one process."""
    import torch

    from tsattn.tuning.study import open_study, quiet_optuna
    from tsattn.tuning.worker import work_job

    torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    try:
        with quiet_optuna():
            objective = job.objective()
            objective.device = share
            work_job(job, open_study(job, objective, create=False), objective)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _stop(processes: Sequence[BaseProcess]) -> None:
    """Ask every worker to hand its trial back and end. A terminal's Ctrl-C has reached them already."""
    with contextlib.suppress(KeyboardInterrupt):
        _wait(processes, 1.0)
        for process in processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGINT)
        _wait(processes, _PATIENCE)
    for process in processes:
        if process.is_alive():
            process.kill()


def _wait(processes: Sequence[BaseProcess], seconds: float) -> None:
    until = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
