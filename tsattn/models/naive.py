"""The forecasts every score is printed beside: the last value, and the last season. Nothing is trained.

Hyndman and Athanasopoulos, "Forecasting: principles and practice", 3rd edition, sections 5.2 and 5.5.

Legend: ``B`` windows, ``C`` targets, ``L`` context, ``H`` horizon; ``R`` seasons of ``M`` steps in the window.
"""

from __future__ import annotations

from statistics import NormalDist

import torch
from torch import Tensor

from tsattn.data.batch import Batch
from tsattn.layers.norm import full_precision, last_observed, root_mean_square
from tsattn.layers.patch import patch_past
from tsattn.models.base import Network, Output


def _difference_size(past: Tensor, observed: Tensor, lag: int) -> tuple[Tensor, Tensor]:
    """Root mean square of ``y[t] - y[t - lag]`` over observed pairs, ``[B, C]``, and whether there is a pair."""
    if past.shape[1] <= lag:
        return torch.zeros_like(past[:, 0]), torch.zeros_like(observed[:, 0])
    both = observed[:, lag:] & observed[:, :-lag]
    return root_mean_square(past[:, lag:] - past[:, :-lag], both), both.any(dim=1)


class Naive(Network):
    """Every step is the last observed value of the window (0 when there is none).

    Quantiles: normal, deviation ``s * sqrt(h)``, ``h`` counted from the last observed step, ``s`` the root mean
    square of the window's one-step changes, or of its distances from the last value when it has no two neighbours.
    """

    trainable = False

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; there is no attention to ask for."""
        past, observed = full_precision(batch.past), batch.past_observed
        return self._output(*self._walk(past, observed))

    def _walk(self, past: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """The last value and the deviation of a random walk from it: two ``[B, H, C]``."""
        last, age = last_observed(past, observed)  # [B, C]
        ahead = torch.arange(1, self.spec.horizon + 1, device=past.device).view(1, -1, 1)
        size = self._step_size(past, observed)
        deviation = size[:, None] * (ahead + age[:, None]).sqrt()
        return last[:, None].expand_as(deviation), deviation

    def _step_size(self, past: Tensor, observed: Tensor) -> Tensor:
        """Size of a one-step change, ``[B, C]``; of the distances from the last value when no neighbours are seen."""
        size, known = _difference_size(past, observed, 1)
        moved = root_mean_square(past - last_observed(past, observed)[0][:, None], observed)
        return torch.where(known, size, moved)

    def _output(self, point: Tensor, deviation: Tensor) -> Output:
        """Normal quantiles around ``point [B, H, C]``; the 0.5 quantile is the point itself."""
        if not self.spec.quantiles:
            return Output(point)
        normal = NormalDist()
        nodes = deviation.new_tensor([normal.inv_cdf(level) for level in self.spec.quantiles])
        return Output(point, point[..., None] + deviation[..., None] * nodes)


class SeasonalNaive(Naive):
    """Every step is the latest observed value at the same place of the season; the last value where there is none.

    Quantiles: normal, deviation ``s * sqrt(k)`` with ``k = floor((h - 1) / m) + 1`` seasons between the forecast and
    the value it repeats (more when that value is older than one season), ``s`` the root mean square of the window's
    seasonal changes; of its one-step changes when no two steps lie a season apart.
    """

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; there is no attention to ask for."""
        past, observed = full_precision(batch.past), batch.past_observed
        season = self.spec.season
        steps = torch.arange(self.spec.horizon, device=past.device)
        # Seasons aligned to the end of the window: the step h after it has the place h mod m.
        folded, seen = patch_past(past, season), patch_past(observed, season)  # [B, R, M, C]
        latest, age = last_observed(folded, seen)  # [B, M, C], age in seasons
        value, age = latest[:, steps % season], age[:, steps % season]  # [B, H, C]
        size, paired = _difference_size(past, observed, season)
        size = torch.where(paired, size, self._step_size(past, observed))
        seasons = (steps // season + 1).view(1, -1, 1) + age
        last, walk = self._walk(past, observed)
        found = age < folded.shape[1]
        point = torch.where(found, value, last)
        return self._output(point, torch.where(found, size[:, None] * seasons.sqrt(), walk))
