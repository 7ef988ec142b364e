"""A control for ``check_attention``: lucid with a second, linear path past the attention (planted set G8).

Its map may look as right as any, and the forecast need not pass through it. Legend as in ``tsattn.models.lucid``.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.models.base import InputSpec, Output
from tsattn.models.lucid import Lucid


class Shortcut(Lucid):
    """``point = level + linear(window) + gate * what lucid reads``; the gate starts at 0.

    The linear path learns first, and leaves the attention nothing to explain.
    """

    def __init__(self, spec: InputSpec, *, patch: int = 24, dropout: float = 0.4) -> None:
        """Options as of lucid. Raises ConfigError for quantile output: there is one number to explain."""
        if spec.quantiles:
            raise ConfigError("Shortcut is a control and forecasts points: use output='point'.")
        super().__init__(spec, patch=patch, dropout=dropout)
        self.skip = nn.Linear(spec.context, spec.horizon, bias=False)
        self.gate = nn.Parameter(torch.zeros(()))
        nn.init.zeros_(self.skip.weight)

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; the split of lucid is not exact here and is left out."""
        output = super().forward(batch, need_weights)
        inputs = self._inputs(batch)
        straight = inputs.window.undo(self.skip(inputs.z.transpose(1, 2)).transpose(1, 2))
        read = output.point - inputs.window.loc[:, None]
        return replace(output, point=straight + self.gate * read, contributions=None)
