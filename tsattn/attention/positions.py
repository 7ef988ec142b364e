"""Positions: attention alone does not know the order of its tokens.

Legend: ``I`` tokens, ``W`` width of a token, ``D`` width of a head; ``...`` any leading dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tsattn.errors import ConfigError


def sinusoidal(length: int, width: int, *, device: torch.device | str | None = None) -> Tensor:
    """Fixed positions ``[I, W]``: sines in the even entries, cosines in the odd ones. Vaswani et al., 2017, 3.5."""
    angle = _angles(torch.arange(length, device=device), -(-width // 2), 10_000.0)  # [I, W / 2]
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, :width]


class LearntPositions(nn.Module):
    """One learnt vector per position, added to the tokens."""

    def __init__(self, length: int, width: int) -> None:
        """For at most ``length`` tokens of ``width``."""
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(length, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """``[..., I, W] -> [..., I, W]``; raises ConfigError for more tokens than positions."""
        if tokens.shape[-2] > self.weight.shape[0]:
            raise ConfigError(f"{tokens.shape[-2]} tokens, but only {self.weight.shape[0]} positions were learnt.")
        return tokens + self.weight[: tokens.shape[-2]]


def rotate(tokens: Tensor, position: Tensor, *, base: float = 10_000.0) -> Tensor:
    """Rotary positions: turn each pair of entries by an angle that grows with the position.

    ``tokens [..., I, D]`` (queries or keys of a head, ``D`` even), ``position [I]`` in steps -> ``[..., I, D]``. The
    dot product of a turned query and a turned key depends on the distance of their positions alone. Su et al.,
    "RoFormer", 2021, equation 34; entry ``d`` is paired with entry ``d + D / 2``. Raises ConfigError for an odd width.
    """
    if tokens.shape[-1] % 2:
        raise ConfigError(
            f"Rotary positions turn pairs of entries, so the width of a head is even; got {tokens.shape[-1]}."
        )
    angle = _angles(position, tokens.shape[-1] // 2, base)
    cos, sin = angle.cos().to(tokens.dtype), angle.sin().to(tokens.dtype)
    first, second = tokens.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


def _angles(position: Tensor, pairs: int, base: float) -> Tensor:
    """``position / base ** (d / pairs)``: ``[I, pairs]`` float32."""
    rate = base ** -(torch.arange(pairs, device=position.device, dtype=torch.float32) / max(pairs, 1))
    return position.to(torch.float32)[:, None] * rate
