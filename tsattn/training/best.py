"""The weights a training ends with: those of the best validation, whole on every process."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from tsattn.errors import TrainingError

_PREFIX = "network."  # what a ForecastModule calls its network


class BestWeights(pl.Callback):
    """Keeps the weights of the best validation in memory, or the last ones, and puts them back when training ends."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self.loss: float | None = None
        self.epoch: int | None = None
        self._weights: dict[str, Tensor] | None = None

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Copy the weights when the validation loss is a new best."""
        value = trainer.callback_metrics.get("val_loss")
        if trainer.sanity_checking or value is None or not torch.isfinite(value):
            return
        if self.loss is None or float(value) < self.loss:
            self.loss, self.epoch = float(value), trainer.current_epoch
            self._weights = whole_weights(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Copy the last weights where there was no validation, while all processes are still there to ask."""
        if self._weights is None and in_parts(trainer):
            self._weights = whole_weights(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """The best so far, for a checkpoint."""
        return {"loss": self.loss, "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the best of a checkpoint."""
        self.loss, self.epoch, self._weights = state_dict["loss"], state_dict["epoch"], state_dict["weights"]

    def restore(self, network: nn.Module, trainer: pl.Trainer) -> None:
        """Put the best weights into ``network``; without a validation the last ones are there already.

        Raises TrainingError when no process has them: stopped, in parts, before the first validation.
        """
        if self._weights is not None:
            network.load_state_dict(self._weights)
        elif in_parts(trainer):
            raise TrainingError(
                "Stopped before the first validation: every process has a part of the weights, and they were not put "
                "together yet. Train for longer, or go on from a checkpoint."
            )


def in_parts(trainer: pl.Trainer) -> bool:
    """Whether each process holds a part of every weight."""
    from pytorch_lightning.strategies import FSDPStrategy

    return isinstance(trainer.strategy, FSDPStrategy)


def whole_weights(trainer: pl.Trainer, module: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights of the network of ``module``. With weights in parts, all processes must ask at once."""
    if not in_parts(trainer):
        return {name.removeprefix(_PREFIX): tensor.detach().clone() for name, tensor in module.state_dict().items()}
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    assert trainer.model is not None
    weights: dict[str, Any] = get_model_state_dict(trainer.model, options=StateDictOptions(full_state_dict=True))
    return {name.removeprefix(_PREFIX): tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}
