"""The metric of a study as sums that batches, folds and processes add up.

Legend as in ``tsattn.data.batch``. The values equal the functions of the same name in ``tsattn.evaluation.metrics``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tsattn.data.batch import Batch
from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.panel import Panel
from tsattn.errors import ConfigError, unknown_name
from tsattn.evaluation.metrics import seasonal_scale
from tsattn.models import Network, build

METRICS = ("mae", "mse", "mase", "weighted_quantile_loss")
BASELINES = ("naive", "seasonal_naive")


def check_metric(metric: str, levels: Sequence[float]) -> str:
    """``metric`` when it can be computed from forecasts with quantile ``levels``; raises ConfigError otherwise."""
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    if metric == "weighted_quantile_loss" and not levels:
        raise ConfigError("metric 'weighted_quantile_loss' needs quantile forecasts: output is 'point'. Choose 'mae'.")
    return metric


class Scorer:
    """Error sums of one fold: ``add`` batches, read ``sums``; ``Scorer.value`` of the sums is the metric."""

    def __init__(self, metric: str, panel: Panel, train_end: np.ndarray, levels: Sequence[float]) -> None:
        """The scale of MASE comes from the rows before ``train_end [S]``."""
        self.metric, self.levels = metric, tuple(levels)
        self._scale: Tensor | None = None  # [S, C]
        if metric == "mase":
            season = panel.schema.freq.season()
            scale, _ = seasonal_scale(panel.targets, season=season, indptr=panel.indptr, ends=train_end)
            self._scale = torch.from_numpy(np.nan_to_num(scale, nan=0.0, posinf=0.0))
        self.start()

    def start(self) -> None:
        """Forget the batches so far."""
        self.sums = torch.zeros(2, dtype=torch.float64)

    def add(self, output: dict[str, Tensor], batch: Batch) -> None:
        """Add a batch and its forecast, as ``validation_step`` returns it."""
        actual = batch.future.cpu().double()
        point = output["point"].detach().cpu().double()
        seen = batch.scored.cpu()
        if self.metric == "weighted_quantile_loss":
            self.sums += self._quantile_sums(actual, output["quantiles"].detach().cpu().double(), seen)
            return
        error = (actual - point) ** 2 if self.metric == "mse" else (actual - point).abs()
        if self._scale is not None:
            scale = self._scale[batch.series.cpu()][:, None]  # [B, 1, C]
            seen = seen & (scale > 0)
            error = error / torch.where(scale > 0, scale, 1.0)
        self.sums += torch.stack([torch.where(seen, error, 0.0).sum(), seen.sum().double()])

    def _quantile_sums(self, actual: Tensor, quantiles: Tensor, seen: Tensor) -> Tensor:
        level = torch.tensor(self.levels, dtype=torch.float64)
        error = actual[..., None] - quantiles  # [B, H, C, Q]
        loss = 2 * torch.maximum(level * error, (level - 1) * error).mean(dim=-1)
        return torch.stack([torch.where(seen, loss, 0.0).sum(), torch.where(seen, actual.abs(), 0.0).sum()])

    @staticmethod
    def value(sums: Tensor) -> float:
        """The metric; nan when nothing was scored."""
        total, count = sums.tolist()
        return total / count if count else float("nan")


def score_network(network: Network, data: ForecastDataModule, scorer: Scorer) -> float:
    """The metric of a network over the validation part of ``data``."""
    network.to("cpu").eval()
    scorer.start()
    with torch.inference_mode():
        for batch in data.val_dataloader():
            output = network(batch.without_future())
            keyed = {"point": output.point}
            scorer.add(keyed if output.quantiles is None else {**keyed, "quantiles": output.quantiles}, batch)
    return scorer.value(scorer.sums)


def score_baseline(name: str, data: ForecastDataModule, scorer: Scorer) -> float:
    """The metric of a model that is not trained, over the validation part of ``data``."""
    spec = replace(data.spec, past=0, known=0, static=0, past_categories=(), known_categories=(), static_categories=())
    return score_network(build(name, spec), data, scorer)
