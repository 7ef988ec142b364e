"""What a forecast is, and the loss that trains it.

Output "point" (no quantile levels): the mean (loss "mse"), the median (loss "mae") or between them (loss "huber").
Output "quantiles": the point is the median, and every level is the point plus a signed offset that grows with the
level, so quantiles cannot cross, whatever the parameters are. Errors are in units of the series' training deviation.

Legend: ``B`` windows, ``H`` horizon, ``C`` targets, ``Q`` quantile levels, ``F`` features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from tsattn.data.batch import Batch
from tsattn.errors import ConfigError, listed, unknown_name
from tsattn.layers.norm import full_precision

if TYPE_CHECKING:  # the models import this file
    from tsattn.models.base import Output

POINT_LOSSES = ("mse", "mae", "huber")
QUANTILE_LOSSES = ("pinball",)


def check_levels(levels: Iterable[float]) -> tuple[float, ...]:
    """Quantile levels, sorted. Raises ConfigError for a level outside (0, 1) or given twice."""
    try:
        found = sorted(float(level) for level in levels)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"Quantile levels are numbers between 0 and 1, such as (0.1, 0.5, 0.9); got {levels!r}."
        ) from error
    outside = [level for level in found if not 0.0 < level < 1.0]
    if outside:
        raise ConfigError(f"Quantile levels lie strictly between 0 and 1; got {listed(outside)}.")
    repeated = sorted({level for level, following in pairwise(found) if level == following})
    if repeated:
        raise ConfigError(f"Each quantile level may be given once; got {listed(repeated)} more than once.")
    return tuple(found)


def check_loss(kind: str | None, levels: tuple[float, ...]) -> str:
    """The loss to train with: ``kind``, or the default of the output. Raises ConfigError when they do not match."""
    allowed = QUANTILE_LOSSES if levels else POINT_LOSSES
    if kind is None:
        return allowed[0]
    if kind in allowed:
        return kind
    if kind not in POINT_LOSSES + QUANTILE_LOSSES:
        raise unknown_name("loss", kind, allowed)
    output, fix = ("quantiles", "point") if levels else ("point", "quantiles")
    raise ConfigError(f"Loss {kind!r} trains output={fix!r}; output={output!r} is trained by {' or '.join(allowed)}.")


class QuantileSpread(nn.Module):
    """Signed distances of the quantiles from the median, from features of the window.

    Starts as half a unit of the normal distribution's quantiles, the same for every step.
    """

    def __init__(self, features: int, horizon: int, levels: tuple[float, ...]) -> None:
        """``features`` F; ``levels`` sorted."""
        super().__init__()
        self.levels = levels
        self.shape = (horizon, len(levels))
        self.steps = nn.Linear(features, horizon * len(levels))
        nn.init.zeros_(self.steps.weight)
        with torch.no_grad():
            self.steps.bias.copy_(self._start().repeat(horizon))

    def _start(self) -> Tensor:
        """Biases ``[Q]`` whose softplus is half the gap between neighbouring normal quantiles."""
        normal = NormalDist()
        nodes = [0.5, *(level for level in self.levels if level > 0.5)]
        below = [0.5, *(level for level in reversed(self.levels) if level < 0.5)]
        gap = dict.fromkeys(self.levels, 1.0)
        for chain in (nodes, below):
            for inner, outer in pairwise(chain):
                gap[outer] = 0.5 * abs(normal.inv_cdf(outer) - normal.inv_cdf(inner))
        return torch.tensor([math.log(math.expm1(max(gap[level], 1e-6))) for level in self.levels])

    def forward(self, features: Tensor) -> Tensor:
        """``[..., F] -> [..., H, Q]`` in deviations of the window: non-decreasing along Q, exactly 0 at level 0.5."""
        raw = full_precision(self.steps(features)).unflatten(-1, self.shape)  # [..., H, Q]
        with torch.autocast(raw.device.type, enabled=False):
            return _offsets(functional.softplus(raw), self.levels)


def _offsets(steps: Tensor, levels: tuple[float, ...]) -> Tensor:
    """Non-negative gaps ``[..., Q]`` -> offsets ``[..., Q]``, summed from the median outwards."""
    below = sum(level < 0.5 for level in levels)
    above = sum(level > 0.5 for level in levels)
    # cummax: a parallel sum may fall by one rounding step
    low = steps[..., :below].flip(-1).cumsum(-1)
    high = steps[..., len(levels) - above :].cumsum(-1)
    parts = []
    if below:
        parts.append(-low.cummax(-1).values.flip(-1))
    if below + above < len(levels):
        parts.append(torch.zeros_like(steps[..., :1]))
    if above:
        parts.append(high.cummax(-1).values)
    return torch.cat(parts, dim=-1)


def spread_around(point: Tensor, scale: Tensor, offsets: Tensor) -> Tensor:
    """Quantiles in data units: ``point [B, H, C]``, ``scale [B, C]``, ``offsets [B, C, H, Q]`` -> ``[B, H, C, Q]``.

    One product and one sum, both monotone in float arithmetic: sorted offsets give sorted quantiles.
    """
    return point[..., None] + scale[:, None, :, None] * offsets.transpose(1, 2)


def _pinball(error: Tensor, level: float) -> Tensor:
    """Pinball loss of ``error = truth - forecast``: ``level * error``, or ``(level - 1) * error`` when negative."""
    return torch.maximum(level * error, (level - 1.0) * error)


def _errors(output: Output, batch: Batch, kind: str, levels: tuple[float, ...]) -> Tensor:
    """Loss of each entry, ``[B, H, C]``, 0 where the future is unobserved."""
    unit = torch.where(batch.scale > 0, batch.scale, torch.ones_like(batch.scale))[:, None]  # [B, 1, C]

    def error(forecast: Tensor) -> Tensor:
        return torch.where(batch.scored, (batch.future - full_precision(forecast)) / unit, 0.0)

    if kind == "mse":
        return error(output.point).square()
    if kind == "mae":
        return error(output.point).abs()
    if kind == "huber":
        wrong = error(output.point)
        return functional.huber_loss(wrong, torch.zeros_like(wrong), reduction="none")
    assert output.quantiles is not None, "the network was built without quantile levels"
    losses = [_pinball(error(output.quantiles[..., q]), level) for q, level in enumerate(levels)]
    if 0.5 not in levels:  # the point is the median all the same
        losses.append(_pinball(error(output.point), 0.5))
    return torch.stack(losses).mean(dim=0)


def loss_sums(output: Output, batch: Batch, kind: str, levels: tuple[float, ...] = ()) -> tuple[Tensor, Tensor]:
    """Sum of the losses of each window, ``[B]``, and how many observed future entries it has, ``[B]``.

    Sums and counts can be added over devices; means of batches with gaps cannot.
    """
    with torch.autocast(output.point.device.type, enabled=False):
        errors = _errors(output, batch, kind, levels)
    return errors.sum(dim=(1, 2)), batch.scored.sum(dim=(1, 2))


def window_losses(output: Output, batch: Batch, kind: str, levels: tuple[float, ...] = ()) -> Tensor:
    """Mean loss of each window, ``[B]``, to trace a loss that is not finite to its series; 0 where unobserved."""
    sums, counts = loss_sums(output, batch, kind, levels)
    return sums / counts.clamp(min=1)


def loss(output: Output, batch: Batch, kind: str, levels: tuple[float, ...] = ()) -> Tensor:
    """Mean loss over the observed future entries of the batch; errors in units of ``batch.scale``.

    ``kind``: "mse", "mae", "huber" (turning at one deviation) for the point, "pinball" for quantiles (mean over the
    levels, plus the median when it is not among them). Nothing observed: 0, with a gradient of 0.
    """
    sums, counts = loss_sums(output, batch, kind, levels)
    return sums.sum() / counts.sum().clamp(min=1)
