"""The learnt part of reversible instance normalisation.

Legend: ``B`` windows, ``T`` steps, ``C`` targets.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tsattn.layers.norm import WindowScale

_ABOVE_ZERO = 1e-10  # as published, added to a gain before it divides


class InstanceAffine(nn.Module):
    """A gain and a shift for each target after its normalisation, undone after the forecast.

    Kim et al., "Reversible instance normalization", ICLR 2022, equations 2 and 3. Starts as the identity.
    """

    def __init__(self, targets: int) -> None:
        """For ``targets`` columns."""
        super().__init__()
        self.gain = nn.Parameter(torch.ones(targets))
        self.shift = nn.Parameter(torch.zeros(targets))

    def forward(self, z: Tensor, window: WindowScale) -> tuple[Tensor, WindowScale]:
        """``z [B, T, C]`` moved, and the window that undoes both steps; its scale is negative where the gain is."""
        gain, shift = self.gain.to(window.scale.dtype), self.shift.to(window.scale.dtype)
        scale = window.scale / (gain + _ABOVE_ZERO)
        return z * self.gain + self.shift, WindowScale(window.loc - scale * shift, scale)
