"""TrainConfig -> Trainer: one function that trains a network on a data module and leaves the best weights in it."""

from __future__ import annotations

import contextlib
import copy
import logging
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from tsattn.data.datamodule import ForecastDataModule
from tsattn.errors import ConfigError, TrainingError, listed
from tsattn.models.base import Network
from tsattn.training.best import BestWeights, in_parts
from tsattn.training.checkpoint import TERMINATED, Checkpoints, Terminated
from tsattn.training.config import TrainConfig
from tsattn.training.module import ForecastModule
from tsattn.training.naming import refuse_other_package

_AUTOMATIC_STEPS = 600  # a small data set is passed over until the optimizer has made about this many steps
_AUTOMATIC_EPOCHS = 8
_SHARDED = ("deepspeed", "model_parallel")  # in ways of their own; fsdp is put together again
_LOGGERS = {"csv": "CSVLogger", "tensorboard": "TensorBoardLogger", "mlflow": "MLFlowLogger"}


@dataclass(frozen=True)
class TrainSummary:
    """What a run consisted of."""

    windows: int
    batches: int  # per epoch
    epochs: int  # done
    steps: int  # optimizer steps done
    validation_windows: int
    parameters: int
    best_val_loss: float | None
    best_epoch: int | None  # from 0, as Lightning counts
    seconds: float = 0.0
    interrupted: bool = False  # Ctrl-C: the best weights so far were kept

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def train(
    network: Network,
    data: ForecastDataModule,
    config: TrainConfig,
    seed: int,
    callbacks: Sequence[pl.Callback] = (),
    checkpoints: Checkpoints | None = None,
) -> TrainSummary:
    """Train ``network`` in place and leave its best weights in it. Same seed, same result.

    ``callbacks`` are given to the Trainer after our own. Ctrl-C stops cleanly, with the best weights so far; the
    summary says so. ``checkpoints`` writes them, and says where to go on from. Raises TrainingError when the loss is
    not finite, and SystemExit(143) after SIGTERM, with a checkpoint written.
    """
    windows, validation = len(data.split.train), len(data.split.validation)
    batches = data.train_batches
    epochs, every = _length(config, batches)
    parameters = sum(p.numel() for p in network.parameters())
    if not network.trainable:
        return TrainSummary(windows, batches, 0, 0, validation, parameters, None, None)
    if config.verbose:
        held = f"{validation} validation windows" if validation else "no validation part: the last weights are kept"
        print(
            f"{type(network).__name__}: {windows} windows, {batches} batches per epoch, up to {epochs} epochs "
            f"({epochs * batches} steps), {held}, {parameters} parameters",
            file=sys.stderr,
        )
    best = BestWeights()
    own = [best, *_early_stopping(config, validation)]
    started = time.monotonic()
    if checkpoints is None:
        with quiet_lightning(), seeded(seed):
            trainer = make_trainer(config, epochs, every, [*own, *callbacks])
            interrupted = _fit(trainer, _module(network, config, trainer), data)
    else:
        with checkpoints.open() as path, quiet_lightning(), seeded(seed):
            trainer = make_trainer(config, epochs, every, [checkpoints, *own, *callbacks])
            interrupted = _fit(trainer, _module(network, config, trainer), data, path)
        started -= checkpoints.seconds
    if checkpoints is not None and checkpoints.terminated:
        print(f"stopped by SIGTERM at step {trainer.global_step}; resume goes on from there", file=sys.stderr)
        raise SystemExit(TERMINATED)
    best.restore(network, trainer)
    network.to("cpu").eval()
    if not all(torch.isfinite(p).all() for p in network.parameters()):
        raise TrainingError("The weights are not finite after training. Lower learning_rate.")
    seconds = time.monotonic() - started
    if config.verbose and best.loss is not None and best.epoch is not None:
        print(f"best val_loss {best.loss:.4g} in epoch {best.epoch + 1}; {seconds:.0f} s", file=sys.stderr)
    done = (trainer.current_epoch, trainer.global_step)
    return TrainSummary(windows, batches, *done, validation, parameters, best.loss, best.epoch, seconds, interrupted)


def _module(network: Network, config: TrainConfig, trainer: pl.Trainer) -> ForecastModule:
    """What the trainer trains: the network itself, or a copy where the strategy leaves parts of its tensors."""
    return ForecastModule(
        copy.deepcopy(network) if in_parts(trainer) else network,
        loss=config.loss,
        learning_rate=config.learning_rate,
        schedule=config.schedule,
        decay=config.decay,
        hold=config.hold,
        weight_decay=config.weight_decay,
    )


def _fit(trainer: pl.Trainer, module: ForecastModule, data: ForecastDataModule, path: Path | None = None) -> bool:
    """Run the trainer, from the checkpoint ``path`` on; True when Ctrl-C stopped it.

    Lightning would exit the whole program after Ctrl-C, and ignore later ones.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(module, datamodule=data, ckpt_path=path)
    except Terminated:
        return True
    except SystemExit:
        if not trainer.interrupted:
            raise
        signal.signal(signal.SIGINT, handler)
        return True
    return False


def make_trainer(config: TrainConfig, epochs: int, every: int, callbacks: list[pl.Callback]) -> pl.Trainer:
    """A Trainer that writes nothing unless a logger was asked for.

    Raises ConfigError, with the fields of ``TrainConfig``, when Lightning has no such device, strategy or precision, or
    when the strategy leaves each process with a part of the weights.
    """
    logger = _logger(config.logger)
    if str(config.strategy).startswith(_SHARDED):
        raise ConfigError(
            f"training.strategy={config.strategy!r} cuts the weights into parts, which are not put together here: "
            f"neither the best weights nor a saved model would be whole. Use strategy='ddp', or train a ForecastModule "
            f"with a Trainer of your own."
        )
    try:
        return pl.Trainer(
            max_epochs=epochs,
            check_val_every_n_epoch=every,
            accelerator=config.accelerator,
            devices=config.devices,
            strategy=config.strategy,
            num_nodes=config.num_nodes,
            precision=config.precision,  # type: ignore[arg-type]
            gradient_clip_val=config.clip or None,
            callbacks=callbacks,
            logger=logger,
            enable_checkpointing=False,
            enable_progress_bar=config.verbose and _interactive(),
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
        )
    except (MisconfigurationException, ValueError, TypeError, RuntimeError, ImportError) as error:
        raise ConfigError(f"Lightning cannot train with {_hardware(config)}: {error}") from None


def _hardware(config: TrainConfig) -> str:
    """What was asked of the machine: the fields that are not left to Lightning."""
    names = ("accelerator", "devices", "strategy", "num_nodes", "precision")
    chosen = [name for name in names if getattr(config, name) != getattr(TrainConfig, name)]
    return listed((f"training.{name}={getattr(config, name)!r}" for name in chosen or names), len(names))


def _interactive() -> bool:
    """Whether a moving bar can be seen: a terminal or a notebook. In a log file it would be thousands of lines."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _length(config: TrainConfig, batches: int) -> tuple[int, int]:
    """Epochs to train, and how many of them lie between two validations (about 30 validations in a long run)."""
    epochs = config.epochs or max(_AUTOMATIC_EPOCHS, -(-_AUTOMATIC_STEPS // batches))
    return epochs, max(1, epochs // 30)


def _early_stopping(config: TrainConfig, validation: int) -> list[pl.Callback]:
    if not validation or config.patience is None:
        return []
    from pytorch_lightning.callbacks import EarlyStopping

    return [EarlyStopping("val_loss", patience=config.patience, verbose=False)]


def _logger(logger: Any) -> Any:
    if logger is None or logger is False:
        return False
    if isinstance(logger, str):
        from pytorch_lightning import loggers

        if logger not in _LOGGERS:
            raise ConfigError(f"training.logger {logger!r} is not one of {', '.join(_LOGGERS)} or a Lightning logger.")
        try:
            return loggers.MLFlowLogger() if logger == "mlflow" else getattr(loggers, _LOGGERS[logger])("runs")
        except ImportError as error:
            raise ConfigError(f"training.logger {logger!r} needs a package that is not installed: {error}") from None
    for each in logger if isinstance(logger, (list, tuple)) else [logger]:
        refuse_other_package(each, "logger")
        if not isinstance(each, (bool, pl.loggers.Logger)):
            raise ConfigError(f"training.logger {each!r} is not one of {', '.join(_LOGGERS)} or a Lightning logger.")
    return logger


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch for the block, and leave the global generators as they were."""
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's device and tip lines; its warnings about choices made here on purpose, too."""
    names = ("pytorch_lightning", "pytorch_lightning.utilities.rank_zero", "lightning.fabric", "lightning_fabric")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric)\.")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
