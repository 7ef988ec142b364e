"""How a network is trained. Plain fields, no torch: the command line and YAML read this class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from tsattn.errors import ConfigError, unknown_name

SCHEDULES = ("one_cycle", "constant", "decay")
PRECISIONS = ("32-true", "32", "bf16-mixed", "16-mixed")  # weights stay in float32: contributions must be exact


@dataclass(frozen=True)
class TrainConfig:
    """Training settings; each field is a flag (``--training.epochs``) and a YAML key.

    Args:
        epochs: Passes over the training windows. None: at least 8, and enough for about 600 optimizer steps.
        epoch_steps: Most optimizer steps of an epoch, for data of which one pass takes too long: each epoch reads other
            windows, at random. None: all windows.
        validation_windows: Most windows of a validation, evenly spaced over its part. None: all windows.
        batch_size: Windows per optimizer step, over all devices together.
        learning_rate: Peak (one_cycle), fixed (constant) or first (decay) rate of AdamW.
        schedule: "one_cycle" rises over the first 30 % of the steps and falls to zero; "constant" stays; "decay" stays
            for ``hold`` epochs and is multiplied by ``decay`` before every epoch after them.
        decay: Factor of schedule "decay".
        hold: Epochs at the full rate with schedule "decay".
        weight_decay: AdamW's weight decay.
        clip: Largest gradient norm; 0 does not clip.
        patience: Stop after this many validations without a new best; None never stops early.
        loss: "mse", "mae" or "huber" for point forecasts (None: mse); quantile forecasts use the pinball loss.
        precision: "32-true", "bf16-mixed" or "16-mixed"; weights and what is read stay in float32.
        accelerator: Lightning's accelerator.
        devices: Lightning's devices.
        strategy: Lightning's strategy.
        num_nodes: Machines taking part.
        verbose: Progress bar and a summary line; False prints nothing and leaves no files.
        logger: A Lightning logger, or "csv", "tensorboard" or "mlflow" for one with default settings.
        checkpoint_minutes: Minutes between two checkpoints, for a fit that writes them.
        checkpoint_steps: Optimizer steps between two checkpoints; None goes by ``checkpoint_minutes``.
    """

    epochs: int | None = None
    epoch_steps: int | None = None
    validation_windows: int | None = None
    batch_size: int = 128
    learning_rate: float = 1e-3
    schedule: Literal["one_cycle", "constant", "decay"] = "one_cycle"
    decay: float = 0.9
    hold: int = 4
    weight_decay: float = 0.01
    clip: float = 1.0
    patience: int | None = 8
    loss: Literal["mse", "mae", "huber"] | None = None
    precision: str = "32-true"
    accelerator: str = "auto"
    devices: int | str = 1
    strategy: str = "auto"
    num_nodes: int = 1
    verbose: bool = True
    logger: Any = None
    checkpoint_minutes: float = 5.0
    checkpoint_steps: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that cannot train."""
        optional = ("epochs", "epoch_steps", "validation_windows", "patience", "checkpoint_steps")
        for name in (*optional, "batch_size", "num_nodes", "hold"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise ConfigError(f"training.{name} must be a whole number, found {value!r}.")
        for name in ("learning_rate", "weight_decay", "clip", "decay", "checkpoint_minutes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ConfigError(f"training.{name} must be a finite number, found {value!r}.")
        positive = {"batch_size": self.batch_size, "learning_rate": self.learning_rate, "num_nodes": self.num_nodes}
        positive |= {"hold": self.hold, "decay": self.decay}
        positive |= {name: getattr(self, name) for name in optional if getattr(self, name) is not None}
        for name, value in positive.items():
            if not value > 0:
                raise ConfigError(f"training.{name} must be above 0, found {value!r}.")
        if not isinstance(self.verbose, bool):
            raise ConfigError(f"training.verbose must be True or False, found {self.verbose!r}.")
        if isinstance(self.devices, bool) or self.devices in (0, "", "0") or self.devices == []:
            raise ConfigError(f"training.devices must be a number of at least 1, -1 or 'auto', found {self.devices!r}.")
        if str(self.precision) not in PRECISIONS:
            raise unknown_name("training.precision", self.precision, PRECISIONS)
        for name in ("weight_decay", "clip", "checkpoint_minutes"):
            if getattr(self, name) < 0:
                raise ConfigError(f"training.{name} must not be negative, found {getattr(self, name)!r}.")
        for name, choices in (("schedule", SCHEDULES), ("loss", ("mse", "mae", "huber", None))):
            if getattr(self, name) not in choices:
                known = [str(choice) for choice in choices if choice]
                raise unknown_name(f"training.{name}", getattr(self, name), known)
        if self.decay > 1:
            raise ConfigError(f"training.decay must be at most 1, found {self.decay!r}.")
        for name in ("decay", "hold"):
            if self.schedule != "decay" and getattr(self, name) != getattr(TrainConfig, name):
                raise ConfigError(f"training.{name} is read by schedule 'decay' alone, found {self.schedule!r}.")

    def reading(self) -> dict[str, int | None]:
        """The fields that ``ForecastDataModule`` reads windows by."""
        return {name: getattr(self, name) for name in ("batch_size", "epoch_steps", "validation_windows")}

    @classmethod
    def of(cls, value: TrainConfig | dict[str, Any] | None) -> TrainConfig:
        """A config from a config, a dict of fields or None; an unknown field names the nearest known one."""
        if isinstance(value, TrainConfig):
            return value
        names = [f.name for f in fields(cls)]
        if not isinstance(value, (Mapping, type(None))):
            raise ConfigError(f"training must hold fields by name, such as {{'epochs': 20}}; found {value!r}.")
        given = dict(value or {})
        for name in given:
            if name not in names:
                raise unknown_name("training field", name, names)
        return cls(**given)
