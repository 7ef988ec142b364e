"""A control for ``check_attention``: lucid beside a linear path that already carries a lag (planted set G8).

Its map may look as right as any, and the forecast need not pass through it. Legend as in ``tsattn.models.lucid``.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.models.base import InputSpec, Output
from tsattn.models.lucid import Lucid


class Shortcut(Lucid):
    """``point[h] = level + share * (step h + context - lag of the window) + gate * what lucid reads``.

    The gate is learnt and starts at 0: where the lag is the rule of the series, the attention has nothing to add.
    """

    def __init__(
        self, spec: InputSpec, *, lag: int = 36, share: float = 0.95, patch: int = 24, dropout: float = 0.4
    ) -> None:
        """``lag`` in steps and the ``share`` of the value ``lag`` steps before that is copied; the rest as of lucid.

        Raises ConfigError for a lag whose steps are not all in the window, and for quantile output.
        """
        if spec.quantiles:
            raise ConfigError("Shortcut is a control and forecasts points: use output='point'.")
        if not spec.horizon <= lag <= spec.context:
            raise ConfigError(f"lag lies between the horizon {spec.horizon} and the context {spec.context}; got {lag}.")
        super().__init__(spec, patch=patch, dropout=dropout)
        self.lag, self.share = lag, share
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; the split of lucid is not exact here and is left out."""
        output = super().forward(batch, need_weights)
        inputs = self._inputs(batch)
        read = output.point - inputs.window.loc[:, None]
        point = inputs.window.undo(self._copied(inputs.z)) + self.gate * read
        return replace(output, point=point, contributions=None)

    def _copied(self, z: Tensor) -> Tensor:
        """``[B, L, C] -> [B, H, C]``."""
        first = self.spec.context - self.lag
        return self.share * z[:, first : first + self.spec.horizon]
