"""Stopping a trial that will not win: the callback that reports, and Optuna's pruners by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch

from tsattn.data.batch import Batch
from tsattn.errors import ConfigError, unknown_name
from tsattn.tuning.scoring import Scorer

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

PRUNERS = ("median", "hyperband", "successive_halving", "wilcoxon", "none")
_FEWEST_FOLDS = 4  # the sign test behind "wilcoxon" cannot reach p < 0.1 with fewer pairs


class Watcher(pl.Callback):
    """Scores every validation of one training and asks whether to go on.

    Every process adds up its share of the sums, so all of them hold the same score. Only rank zero calls ``decide``;
    its answer is broadcast, so all of them stop after the same epoch.

    Args:
        scorer: The metric.
        decide: ``decide(share, score)`` with the share of the training that is done and the score that the training
            would return if it stopped here -> True to stop it. None never stops.
    """

    def __init__(self, scorer: Scorer, decide: Callable[[float, float], bool] | None = None) -> None:
        """Nothing seen yet."""
        self.scorer, self.decide = scorer, decide
        self.score: float | None = None  # at the epoch of the best validation loss: the weights that are kept
        self.epochs = 0  # done
        self.pruned = False
        self._best = float("inf")

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the sums anew."""
        self.scorer.start()

    def on_validation_batch_end(  # type: ignore[override]
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: dict[str, torch.Tensor],
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Add the batch; its forecast is the one the module made for its own loss."""
        self.scorer.add(outputs, batch)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Score, and stop on every process when rank zero says so."""
        if trainer.sanity_checking:
            return
        self.epochs = trainer.current_epoch + 1
        sums = trainer.strategy.reduce(self.scorer.sums.to(pl_module.device, _widest(pl_module)), reduce_op="sum")
        loss = float(trainer.callback_metrics["val_loss"])
        if loss < self._best:
            self._best, self.score = loss, Scorer.value(sums.cpu())
        stop = False
        if trainer.is_global_zero and self.decide is not None and self.score is not None:
            stop = self.decide(self.epochs / (trainer.max_epochs or self.epochs), self.score)
        if trainer.strategy.broadcast(stop):
            self.pruned = True
            trainer.should_stop = True


def _widest(module: pl.LightningModule) -> torch.dtype:
    return torch.float32 if module.device.type == "mps" else torch.float64


def check_pruner(name: str, folds: int, objectives: int) -> str:
    """``name`` when such a pruner can ever fire in the study; raises ConfigError otherwise."""
    if name not in PRUNERS:
        raise unknown_name("pruner", name, PRUNERS)
    if objectives > 1 and name != "none":
        raise ConfigError(f"Optuna prunes for one objective only, and there are {objectives}: use pruner 'none'.")
    if name == "wilcoxon" and folds < _FEWEST_FOLDS:
        raise ConfigError(
            f"pruner 'wilcoxon' compares trials fold by fold and can never fire with {folds} of them: use folds "
            f"{_FEWEST_FOLDS} or more, or pruner 'median'."
        )
    return name


def make_pruner(name: str, options: dict[str, Any] | None, steps: int, warmup: int) -> BasePruner:
    """An Optuna pruner for trials of ``steps`` reports; the first ``warmup`` of them, and five trials, are kept.

    ``options`` are keywords of the Optuna class and go before these defaults. Raises ConfigError for one it lacks.
    """
    from optuna import pruners
    from optuna.exceptions import ExperimentalWarning

    makers: dict[str, tuple[type[BasePruner], dict[str, Any]]] = {
        "median": (pruners.MedianPruner, {"n_startup_trials": 5, "n_warmup_steps": warmup}),
        "hyperband": (pruners.HyperbandPruner, {"min_resource": warmup, "max_resource": steps}),
        "successive_halving": (pruners.SuccessiveHalvingPruner, {"min_resource": warmup}),
        "wilcoxon": (pruners.WilcoxonPruner, {}),
        "none": (pruners.NopPruner, {}),
    }
    made, defaults = makers[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        try:
            return made(**{**defaults, **(options or {})})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"pruner_options {options} do not fit {made.__name__}: {error}") from None
