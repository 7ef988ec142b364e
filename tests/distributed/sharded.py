"""Fits in several processes that are stopped, run out of disk, or clip. Run as a script by ``torchrun``."""

from __future__ import annotations

import os
import resource
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import FSDPStrategy, StrategyRegistry, fsdp
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
)

import tsattn
from tests.distributed.cases import HORIZON, MODELS, run, table


class OnCPU(FSDPStrategy):
    """``fsdp`` where there is no GPU: Lightning refuses it, and names no device for the parts."""

    def _setup_model(self, model: torch.nn.Module) -> torch.nn.Module:
        return FullyShardedDataParallel(
            model, device_id=torch.device("cpu"), mixed_precision=self.mixed_precision_config,
            sharding_strategy=self.sharding_strategy, **self.kwargs,
        )  # fmt: skip


def without_gpu() -> None:
    """Make ``fsdp_cpu`` known. Weights are put together without the move to the CPU, which frees what lies there."""

    def whole(module: torch.nn.Module, world_size: int, rank0_only: bool = True) -> Any:
        return FullyShardedDataParallel.state_dict_type(
            module,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(rank0_only=False),
            FullOptimStateDictConfig(rank0_only=rank0_only),
        )

    StrategyRegistry.register("fsdp_cpu", OnCPU)
    fsdp._get_full_state_dict_context = whole


class AtStep(pl.Callback):
    """Calls ``act`` before one step, on one rank."""

    def __init__(self, step: int, rank: int, act: Any) -> None:
        self.step, self.rank, self.act = step, rank, act

    def on_train_batch_start(self, trainer, *rest):
        if trainer.global_step == self.step and trainer.global_rank == self.rank:
            self.act()


def fit(
    callbacks: tuple = (),
    val_size: int = 2 * HORIZON,
    folder: Path | None = None,
    dropout: float = 0.0,
    **training: Any,
) -> Any:
    """One fit of lucid on seven windows, in batches of three."""
    made = tsattn.Forecaster(
        "lucid", horizon=HORIZON, context=12, id=None, options={**MODELS["lucid"], "dropout": dropout},
        training={
            "epochs": 3, "batch_size": 3, "verbose": False, "accelerator": "cpu", "checkpoint_steps": 1, **training,
        },
    )  # fmt: skip
    panel = tsattn.data.build.build_panel(table(7), made._roles())
    split = tsattn.data.split.chronological(panel, 12, HORIZON, val_size)
    resume = folder is not None and folder.exists()
    return made._fit_panel(panel, split, callbacks, checkpoints=folder, resume=resume)


def fill_disk() -> None:
    """From here on no file of this process may be longer than 1,000 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))


def free_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def stopped(folder: Path, **training: Any) -> Any:
    """Stopped by SIGTERM to one process alone, and gone on with."""
    with pytest.raises(SystemExit, match="143"):
        fit((AtStep(4, 1, lambda: os.kill(os.getpid(), signal.SIGTERM)),), folder=folder, **training)
    return fit(folder=folder, **training)


def full(folder: Path, **training: Any) -> Any:
    """The disk is full for the first process from the third step on."""
    try:
        return fit((AtStep(2, 0, fill_disk),), folder=folder, **training)
    finally:
        free_disk()


def told(made: Any) -> dict[str, np.ndarray]:
    """Weights and numbers of a fit."""
    found = {f"weight {name}": tensor.numpy() for name, tensor in made.network_.state_dict().items()}
    numbers = (made.summary_.best_val_loss, made.summary_.best_epoch, made.summary_.steps)
    return {**found, "numbers": np.array([np.nan if n is None else n for n in numbers], dtype=float)}


def all_fits(**training: Any) -> dict[str, dict[str, np.ndarray]]:
    """What can be compared with one process."""
    found = {"clipped": told(fit(clip=0.01, **training)), "no validation": told(fit(val_size=0, **training))}
    return found | {f"{model}, 7 windows": run(model, 7, 3, **training) for model in MODELS}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    without_gpu()
    out, strategy = Path(sys.argv[1]), sys.argv[2]
    chosen = {"devices": int(os.environ["WORLD_SIZE"]), "strategy": strategy}
    results = all_fits(**chosen) if strategy == "fsdp_cpu" else {}
    results["stopped"] = told(stopped(out / "stopped", **chosen))
    results["dropout"] = told(fit(dropout=0.3, **chosen))
    results["stopped with dropout"] = told(stopped(out / "dropout", dropout=0.3, **chosen))
    results["full"] = told(full(out / "full", **chosen))
    for name, arrays in results.items():
        np.savez(out / f"{name} rank {os.environ['RANK']}.npz", **{k: v for k, v in arrays.items() if v is not None})
