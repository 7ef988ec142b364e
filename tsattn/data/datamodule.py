"""The LightningDataModule: table -> panel -> split -> windows, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from tsattn.data.build import build_panel
from tsattn.data.panel import Panel
from tsattn.data.schema import Roles, Schema
from tsattn.data.split import Split, chronological
from tsattn.data.statistics import Scaling, training_statistics
from tsattn.data.windows import EpochSampler, WindowLoader, WindowSource, check_seed
from tsattn.models.base import InputSpec
from tsattn.training.naming import OnePackage


class ForecastDataModule(OnePackage, pl.LightningDataModule):
    """Windows of a table for a ``pytorch_lightning.Trainer``.

    Args:
        table: pandas, polars or Arrow table in long format, the path of a CSV or Parquet file or folder, or a Panel.
        horizon: Steps to forecast.
        context: Past steps a forecast reads.
        id: Id column; None for a single series.
        time: Time column (stamps or integers).
        target: Target column or columns.
        known: Covariates known in the future; ``calendar.hour`` and the like need no column.
        past: Covariates observed up to the origin only.
        static: Columns with one value per series.
        freq: Frequency; None infers it.
        val_size: Validation steps or fraction at the end of each series; 0 none; None a tenth, at least one horizon.
        batch_size: Windows per batch over all devices together.
        epoch_steps: Most batches of an epoch, other windows in each; None reads all.
        validation_windows: Most windows of the validation, evenly spaced; None reads all.
        quantiles: Levels the network should forecast; empty for a point forecast.
        seed: Seed of the shuffle.
    """

    def __init__(
        self,
        table: Any,
        *,
        horizon: int,
        context: int,
        id: str | None = "unique_id",
        time: str = "ds",
        target: str | Sequence[str] = "y",
        known: Sequence[str] = (),
        past: Sequence[str] = (),
        static: Sequence[str] = (),
        freq: str | int | None = None,
        val_size: int | float | None = None,
        batch_size: int = 128,
        epoch_steps: int | None = None,
        validation_windows: int | None = None,
        quantiles: Sequence[float] = (),
        seed: int = 0,
    ) -> None:
        """Keep the settings; the table is read when first needed."""
        super().__init__()
        self._table, self._freq = table, freq
        self._roles = Roles.of(id, time, target, known, past, static)
        self.horizon, self.context, self.val_size = horizon, context, val_size
        self.batch_size, self.quantiles, self.seed = batch_size, tuple(quantiles), check_seed(seed)
        self.epoch_steps, self.validation_windows = epoch_steps, validation_windows
        self._split: Split | None = None
        self._sampler: EpochSampler | None = None

    @classmethod
    def from_panel(cls, panel: Panel, split: Split, **settings: Any) -> ForecastDataModule:
        """A module over a panel that is already built and cut."""
        module = cls(panel, **settings)
        module._split = split
        return module

    @cached_property
    def panel(self) -> Panel:
        """The panel of the table."""
        return self._table if isinstance(self._table, Panel) else build_panel(self._table, self._roles, freq=self._freq)

    @property
    def split(self) -> Split:
        """Training and validation windows."""
        if self._split is None:
            self._split = chronological(self.panel, self.context, self.horizon, self.val_size)
        return self._split

    @cached_property
    def _statistics(self) -> tuple[Scaling, np.ndarray]:
        return training_statistics(self.panel, self.split.train_end)

    @property
    def scaling(self) -> Scaling:
        """Statistics of the covariates in the training part."""
        return self._statistics[0]

    @property
    def scale(self) -> np.ndarray:
        """The unit of the loss: deviation of the targets of each series in the training part, ``[S, C]``."""
        return self._statistics[1]

    @cached_property
    def source(self) -> WindowSource:
        """The flat tensors the windows are read from."""
        return WindowSource(self.panel, self.context, self.horizon, self.scaling, self.scale)

    @cached_property
    def spec(self) -> InputSpec:
        """The sizes a network must be built for: ``tsattn.models.build(name, data.spec)``."""
        return input_spec(self.panel.schema, self.horizon, self.context, self.quantiles)

    def setup(self, stage: str | None = None) -> None:
        """Build everything, and keep the flat tensors on the accelerator when they fit there."""
        self._sampler = None  # a run starts at its first epoch, with the processes it has
        device = self.trainer.strategy.root_device if self.trainer is not None else torch.device("cpu")
        if _fits(self.source, device):
            self.source.to(device)

    @property
    def train_batches(self) -> int:
        """Batches in an epoch."""
        batches = -(-len(self.split.train) // self.batch_size)
        return batches if self.epoch_steps is None else min(batches, self.epoch_steps)

    def train_dataloader(self) -> WindowLoader:
        """Shuffled windows; the sampler knows its position."""
        if self._sampler is None:  # kept, so that a second call does not start the epochs again
            self._sampler = self._batches(
                len(self.split.train), self.batch_size, shuffle=True, seed=self.seed, most=self.epoch_steps
            )
        return WindowLoader(self.source, self.split.train, self._sampler)

    def val_dataloader(self) -> WindowLoader | list[Any]:
        """Windows of the validation part in order; empty without one."""
        windows = len(self.split.validation)
        if windows == 0:
            return []
        read = min(windows, self.validation_windows or windows)
        sampler = self._batches(windows, max(self.batch_size, 256), shuffle=False, read=read)
        return WindowLoader(self.source, self.split.validation, sampler)

    def state_dict(self) -> dict[str, Any]:
        """Where the shuffle stands: a checkpoint in the middle of an epoch goes on with the batches still to come."""
        return {} if self._sampler is None else self._sampler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        if state_dict:
            self.train_dataloader().batches.load_state_dict(state_dict)

    def before_this_batch(self) -> contextlib.AbstractContextManager[None]:
        """Inside, ``state_dict`` says where the shuffle stood before the batch that is being trained on."""
        assert self._sampler is not None  # there is a batch
        return self._sampler.one_back()

    def _batches(self, windows: int, size: int, **settings: Any) -> EpochSampler:
        rank = self.trainer.global_rank if self.trainer is not None else 0
        world = self.trainer.world_size if self.trainer is not None else 1
        return EpochSampler(windows, size, rank=rank, world=world, **settings)


def input_spec(schema: Schema, horizon: int, context: int, quantiles: Sequence[float] = ()) -> InputSpec:
    """The spec of windows read from a panel of this schema."""
    return InputSpec(
        horizon=horizon,
        context=context,
        targets=len(schema.roles.target),
        past=len(schema.numeric("past")),
        known=len(schema.numeric("known")),
        static=len(schema.numeric("static")),
        past_categories=schema.sizes("past"),
        known_categories=schema.sizes("known"),
        static_categories=schema.sizes("static"),
        season=schema.freq.season(),
        quantiles=tuple(quantiles),
    )


def _fits(source: WindowSource, device: torch.device) -> bool:
    """Whether the flat tensors take less than half of the accelerator's free memory."""
    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    return source.nbytes < free / 2
