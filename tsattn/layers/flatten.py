"""A linear layer from all tokens of a series to its forecast, and what it read from each of them.

Legend: ``B`` windows, ``C`` targets, ``I`` tokens of width ``W``, ``H`` horizon.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class FlattenHead(nn.Module):
    """Tokens laid end to end, then one linear layer: shared by the targets, or one for each. Nie et al., 2023."""

    def __init__(self, tokens: int, width: int, horizon: int, *, targets: int = 1) -> None:
        """``targets`` above 1: that many layers, one for each."""
        super().__init__()
        self.tokens = tokens
        linears = [nn.Linear(tokens * width, horizon) for _ in range(targets)]
        self.weight = nn.Parameter(torch.stack([linear.weight.detach() for linear in linears]))  # [C or 1, H, I * W]
        self.bias = nn.Parameter(torch.stack([linear.bias.detach() for linear in linears]))  # [C or 1, H]

    def forward(self, tokens: Tensor) -> Tensor:
        """``[B, C, I, W] -> [B, C, H]``."""
        flat = tokens.flatten(2)
        if len(self.weight) == 1:
            return functional.linear(flat, self.weight[0], self.bias[0])
        return torch.einsum("bcf,chf->bch", flat, self.weight) + self.bias

    def parts(self, tokens: Tensor) -> Tensor:
        """What each token adds, ``[B, C, I, W] -> [B, C, H, I]``: summed over the tokens, plus ``bias``, the output."""
        weight = self.weight.unflatten(2, (self.tokens, -1)).expand(tokens.shape[1], -1, -1, -1)  # [C, H, I, W]
        return torch.einsum("bciw,chiw->bchi", tokens, weight)
