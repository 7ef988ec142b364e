"""The one LightningModule: a thin shell around any network."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from torch import Tensor

from tsattn import heads
from tsattn.data.batch import Batch
from tsattn.errors import ConfigError, DataError, TrainingError, listed
from tsattn.models import build, find
from tsattn.models.base import Network, Output
from tsattn.training.best import in_parts
from tsattn.training.config import TrainConfig
from tsattn.training.naming import OnePackage


class ForecastModule(OnePackage, pl.LightningModule):
    """Trains a ``Network`` with AdamW; works with any ``pytorch_lightning.Trainer`` and with LightningCLI.

    Logged values: ``train_loss`` and ``val_loss`` are in the unit of the loss (errors divided by the training part's
    deviation of each series), ``val_mae`` is in the units of the target.

    Args:
        network: The network to train, or the name of a model, built for the data module when training starts.
        loss: Loss of a point forecast: "mse" (default), "mae" or "huber"; quantile forecasts use the pinball loss.
        learning_rate: Peak (one_cycle), fixed (constant) or first (decay) rate.
        schedule: "one_cycle" over all steps of the run, "constant", or "decay": constant for ``hold`` epochs, then
            multiplied by ``decay`` before every epoch.
        decay: Factor of schedule "decay".
        hold: Epochs at the full rate with schedule "decay".
        weight_decay: AdamW's weight decay.
        options: Keywords of a model given by name.
    """

    network: Network

    def __init__(
        self,
        network: Network | str,
        *,
        loss: Literal["mse", "mae", "huber"] | None = None,
        learning_rate: float = 1e-3,
        schedule: Literal["one_cycle", "constant", "decay"] = "one_cycle",
        decay: float = 0.9,
        hold: int = 4,
        weight_decay: float = 0.01,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Keep the network and the settings; raises ConfigError as ``TrainConfig`` does."""
        super().__init__()
        TrainConfig(  # refuses what cannot train, whichever way the settings came
            loss=loss,
            learning_rate=learning_rate,
            schedule=schedule,
            decay=decay,
            hold=hold,
            weight_decay=weight_decay,
        )
        self._loss = loss
        self._sums: Tensor | None = None
        self._plan = (network, options or {}) if isinstance(network, str) else None
        if isinstance(network, str):
            find(network)
        else:
            self._use(network)
        self.learning_rate = learning_rate
        self.schedule, self.decay, self.hold = schedule, decay, hold
        self.weight_decay = weight_decay

    def _use(self, network: Network) -> None:
        self.network = network
        self.loss = heads.check_loss(self._loss, network.spec.quantiles)

    def setup(self, stage: str) -> None:
        """Build a network given by name, for the windows of the data module."""
        if self._plan is not None:
            data = getattr(self.trainer, "datamodule", None)
            if data is None:
                raise ConfigError("A network given by name needs the trainer to have a ForecastDataModule.")
            name, options = self._plan
            self._use(build(name, data.spec, **options))
            self._plan = None
        spec = getattr(getattr(self.trainer, "datamodule", None), "spec", None)
        if spec is not None:
            mine = {**asdict(self.network.spec), "season": None, "quantiles": None}
            given = {**asdict(spec), "season": None, "quantiles": None}
            wrong = [f"{name} {mine[name]} (data: {given[name]})" for name in mine if mine[name] != given[name]]
            if wrong:
                raise ConfigError(f"The network was built for other windows than the data module's: {listed(wrong)}.")

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """The forecast of a batch; the network never sees its future."""
        return self.network(batch.without_future(), need_weights)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Loss of one batch; stops the run, naming the series, when it is not finite.

        With several processes a step goes by the mean over what all of them observed, as one process would have it:
        their shares of a batch have other gaps, and the last one may be empty.
        """
        output = self.network(batch)
        sums, counts = heads.loss_sums(output, batch, self.loss, self.network.spec.quantiles)
        own = sums.sum()
        whole = self._together(torch.stack([own.detach(), counts.sum().to(own.dtype)]))
        if not torch.isfinite(whole[0]):  # on all processes at once: none waits for one that has stopped
            self._stop_not_finite(output, batch)
        count = whole[1].clamp(min=1).to(own.dtype)
        mean = (whole[0] / count).float()
        self.log("train_loss", mean, on_step=True, on_epoch=False, prog_bar=True, batch_size=max(1, len(batch)))
        return own * self.trainer.world_size / count  # gradients are averaged over the processes

    def _together(self, values: Tensor) -> Tensor:
        """The sum of ``values`` over all processes."""
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        values = values.to(self.device, kind)
        if self.trainer.world_size == 1:
            return values
        return self.trainer.strategy.reduce(values, reduce_op="sum")

    def on_validation_epoch_start(self) -> None:
        """Start the sums anew."""
        self._sums = torch.zeros(3, dtype=torch.float64, device="cpu")

    def validation_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """Add loss, absolute error and number of observed steps, so that every step counts once.

        Returns what ``predict_step`` does, for callbacks with scores of their own.
        """
        output = self.network(batch.without_future())
        loss, count = heads.loss_sums(output, batch, self.loss, self.network.spec.quantiles)
        error = torch.where(batch.scored, output.point - batch.future, 0.0).abs()
        assert self._sums is not None  # Lightning calls on_validation_epoch_start first
        self._sums += torch.stack([loss.sum(), error.sum(), count.sum()]).to("cpu", torch.float64)
        return _keyed(output, batch)

    def on_validation_epoch_end(self) -> None:
        """Log the means over all observed steps of the validation part, of all processes."""
        assert self._sums is not None
        sums = self._together(self._sums)
        if not sums[2]:
            raise DataError(
                "The validation part has no observed step to score. Use a larger val_size, or val_size=0 for none."
            )
        self.log("val_loss", (sums[0] / sums[2]).float(), prog_bar=True)
        self.log("val_mae", (sums[1] / sums[2]).float())

    def predict_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        """``series [B]``, ``origin [B]``, ``point [B, H, C]`` (and ``quantiles``): every window carries its own key."""
        return _keyed(self(batch), batch)

    def configure_optimizers(self) -> Any:
        """AdamW, with the one-cycle schedule stepped per batch, or the decaying one per epoch, when asked for."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        if self.schedule == "constant":
            return optimizer
        if self.schedule == "decay":
            lower = torch.optim.lr_scheduler.LambdaLR(optimizer, self._share)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": lower, "interval": "epoch"}}
        steps = self._planned_steps()
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.learning_rate, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _share(self, epoch: int) -> float:
        """What is left of the rate in ``epoch``, counted from 0."""
        return self.decay ** max(0, epoch + 1 - self.hold)

    def on_train_start(self) -> None:
        """Stretch the cycle of a run that goes on from a checkpoint for longer than it was planned."""
        schedule = self.lr_schedulers()
        if not isinstance(schedule, torch.optim.lr_scheduler.OneCycleLR):
            return
        steps = self._planned_steps()
        if schedule.total_steps != steps:
            planned = torch.optim.lr_scheduler.OneCycleLR(
                torch.optim.AdamW(self.parameters()), self.learning_rate, total_steps=steps
            )
            done = {name: schedule.state_dict()[name] for name in ("last_epoch", "_step_count")}
            schedule.load_state_dict({**planned.state_dict(), **done})

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Tell the network how far the training is; 0 throughout where its length is not known beforehand."""
        steps = self.trainer.estimated_stepping_batches
        self.network.progress = min(1.0, self.global_step / max(steps, 1))

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the norm of all weights: where each process has a part of them, only their wrapper knows it."""
        if in_parts(self.trainer) and gradient_clip_val and gradient_clip_algorithm in (None, "norm"):
            self.trainer.model.clip_grad_norm_(gradient_clip_val)  # type: ignore[union-attr, operator]
            return
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def _planned_steps(self) -> int:
        """Optimizer steps of the whole run; raises ConfigError when they are not known beforehand."""
        steps = self.trainer.estimated_stepping_batches
        if not math.isfinite(steps):
            raise ConfigError("schedule='one_cycle' needs max_epochs or max_steps; without them use 'constant'.")
        return max(int(steps), 2)

    def _stop_not_finite(self, output: Output, batch: Batch) -> None:
        each = heads.window_losses(output, batch, self.loss, self.network.spec.quantiles)
        guilty = batch.series[~torch.isfinite(each)].unique().tolist()
        panel = getattr(getattr(self.trainer, "datamodule", None), "panel", None)
        names = [panel.name(s) if panel is not None else f"number {s}" for s in guilty]
        single = panel is not None and panel.schema.roles.id is None
        where = ("" if single else "series ") + listed(names)
        if not names:
            where = "no single window (the sum over the batch overflowed)"
            if self.trainer.world_size > 1:
                where += ", or windows of another process"
        raise TrainingError(
            f"The loss is not finite in epoch {self.current_epoch + 1}, step {self.global_step + 1}; it comes from "
            f"{where}. Lower learning_rate (now {self.learning_rate:g}), or look for extreme values there."
        )


def _keyed(output: Output, batch: Batch) -> dict[str, Tensor]:
    keyed = {"series": batch.series, "origin": batch.origin, "point": output.point}
    return keyed if output.quantiles is None else {**keyed, "quantiles": output.quantiles}
