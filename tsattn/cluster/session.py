"""A Ray to work with: the one that is there, or one of our own on this machine, which ends with the work."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tsattn.errors import ConfigError

# For the processes of a Ray that we start: nothing is reported to anybody, and C++ notes stay in Ray's log files.
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


def check_workers(workers: int | None) -> None:
    """Raises ConfigError for a number of workers that cannot be."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ConfigError(f"workers must be a whole number of at least 1, found {workers!r}.")


def import_ray() -> Any:
    """The module ``ray``, with ``ray.data``. Raises ConfigError where it is not installed."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError(
            f"engine='ray' needs Ray Data, which cannot be imported ({error}). Install it with "
            f'pip install "tsattn[ray]".'
        ) from None
    return ray


@contextmanager
def session(workers: int | None) -> Iterator[tuple[Any, int]]:
    """The module ``ray``, connected, and the number of workers to start (unset: one for each CPU of the cluster).

    A Ray that runs in this process already is used and left running. Otherwise the cluster of RAY_ADDRESS is joined,
    and left again. Otherwise a Ray of ``workers`` CPUs is started on this machine, and stopped.
    """
    check_workers(workers)
    with warnings.catch_warnings():
        # Ray warns about its own options and environment, also on import: nothing a caller could change.
        warnings.filterwarnings("ignore", module=r"ray\b")
        ray = import_ray()
        ours = not ray.is_initialized()
        if ours:
            _start(ray, workers)
        try:
            with _quiet(ray):
                yield ray, workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        finally:
            if ours:
                ray.shutdown()


def _start(ray: Any, workers: int | None) -> None:
    """Join the cluster of RAY_ADDRESS, or start a Ray on this machine."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    address = os.environ.get("RAY_ADDRESS")
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update({name: value for name, value in _ENVIRONMENT.items() if before[name] is None})
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            # "local": without it, any Ray that somebody started on this machine would be joined.
            ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = f"join the Ray cluster at RAY_ADDRESS={address}" if address else "start Ray on this machine"
        raise ConfigError(f"Cannot {where}: {error}") from None
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """No progress bars and no log lines of Ray Data; parts come back in order. All is put back afterwards."""
    context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    wanted = {"enable_progress_bars": False, "print_on_execution_start": False}
    before = {name: getattr(context, name) for name in wanted}
    level, order = logger.level, context.execution_options.preserve_order
    for name, value in wanted.items():
        setattr(context, name, value)
    context.execution_options.preserve_order = True
    logger.setLevel(logging.CRITICAL)  # what goes wrong is raised
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)
        context.execution_options.preserve_order = order
        logger.setLevel(level)
