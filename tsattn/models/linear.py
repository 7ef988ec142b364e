"""Linear baselines: DLinear and NLinear.

Zeng et al., "Are transformers effective for time series forecasting?", AAAI 2023. Weights are shared by the targets.

Legend: ``B`` windows, ``C`` targets, ``L`` context, ``H`` horizon, ``S`` segments of the window.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.heads import QuantileSpread, spread_around
from tsattn.layers.norm import WindowScale, full_precision, last_observed, normalise
from tsattn.models.base import InputSpec, Network, Output

SEGMENTS = 16  # the distance of the quantiles reads this many means of |z|


def moving_average(z: Tensor, kernel: int) -> Tensor:
    """Centred mean over ``kernel`` steps with replicated edges: ``[B, C, L] -> [B, C, L]``."""
    before = (kernel - 1) // 2
    padded = functional.pad(z, (before, kernel - 1 - before), mode="replicate")
    return functional.avg_pool1d(padded, kernel, stride=1)


class _Linear(Network):
    """What the two share: window units in, forecast in data units with quantiles out."""

    def __init__(self, spec: InputSpec) -> None:
        """Quantiles are read from how far the window strays from its mean."""
        super().__init__(spec)
        self.segments = min(SEGMENTS, spec.context)
        self.spread = QuantileSpread(self.segments, spec.horizon, spec.quantiles) if spec.quantiles else None

    def _output(self, future: Tensor, z: Tensor, window: WindowScale) -> Output:
        """``future [B, C, H]`` and ``z [B, C, L]`` in units of the window -> Output in data units."""
        point = window.undo(future.transpose(1, 2))
        if self.spread is None:
            return Output(point)
        strayed = functional.adaptive_avg_pool1d(z.abs(), self.segments)  # [B, C, S]
        return Output(point, spread_around(point, window.scale, self.spread(strayed)))


class DLinear(_Linear):
    """A moving average and what it leaves, each continued by its own linear map.

    The published model normalises nothing and is meant for tables standardised beforehand: ``instance_norm=False``
    gives it. Unobserved steps are 0.
    """

    def __init__(self, spec: InputSpec, *, kernel: int = 25, instance_norm: bool = True) -> None:
        """``kernel``: steps of the moving average; ``instance_norm``: normalise each window by itself."""
        super().__init__(spec)
        if isinstance(kernel, bool) or not isinstance(kernel, int) or kernel < 1:
            raise ConfigError(f"kernel is a whole number of steps of at least 1; got {kernel!r}.")
        self.kernel, self.instance_norm = kernel, instance_norm
        self.trend = nn.Linear(spec.context, spec.horizon)
        self.rest = nn.Linear(spec.context, spec.horizon)

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; there is no attention to ask for."""
        z, window = self._window(batch)
        z = z.to(self.trend.weight.dtype).transpose(1, 2)  # [B, C, L]
        trend = moving_average(z, self.kernel)
        return self._output(self.trend(trend) + self.rest(z - trend), z, window)

    def _window(self, batch: Batch) -> tuple[Tensor, WindowScale]:
        """The window in its own units, or as it is."""
        if self.instance_norm:
            return normalise(batch.past, batch.past_observed)
        past = torch.where(batch.past_observed, full_precision(batch.past), 0.0)
        return past, WindowScale(torch.zeros_like(past[:, 0]), torch.ones_like(past[:, 0]))


class NLinear(_Linear):
    """One linear map of the window's distance from its last observed value."""

    def __init__(self, spec: InputSpec) -> None:
        """No options."""
        super().__init__(spec)
        self.map = nn.Linear(spec.context, spec.horizon)

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; there is no attention to ask for."""
        z, window = normalise(batch.past, batch.past_observed)
        z = z.to(self.map.weight.dtype)
        last = last_observed(z, batch.past_observed)[0][:, None]  # [B, 1, C]
        moved = torch.where(batch.past_observed, z - last, 0.0).transpose(1, 2)  # [B, C, L]
        return self._output(self.map(moved) + last.transpose(1, 2), z.transpose(1, 2), window)
