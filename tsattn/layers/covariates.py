"""Covariates as vectors: numbers stay as they are, categories are embedded.

Legend: ``K`` numeric columns, ``Kc`` categorical columns, ``E`` width of the vector; ``...`` any leading dimensions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def embedding_width(codes: int) -> int:
    """Width of the embedding of a column with ``codes`` codes: its square root, at most 8."""
    return min(8, math.ceil(math.sqrt(codes)))


class CovariateVector(nn.Module):
    """Numeric columns beside embedded categories: one vector per step (or per series).

    Code 0, "unknown", is the zero vector and stays it (``padding_idx``); the others start there, so that a category no
    training window has stays neutral, too.
    """

    def __init__(self, numeric: int, categories: tuple[int, ...]) -> None:
        """``numeric`` columns, and one embedding per entry of ``categories`` (number of codes, the 0 included)."""
        super().__init__()
        widths = [embedding_width(codes) for codes in categories]
        self.embeddings = nn.ModuleList(
            nn.Embedding(codes, width, padding_idx=0) for codes, width in zip(categories, widths, strict=True)
        )
        for weight in self.embeddings.parameters():
            nn.init.zeros_(weight)
        self.columns = numeric + len(categories)
        self.width = numeric + sum(widths)  # E
        # Which column each entry of the vector belongs to, so that contributions can be summed by column.
        self.owner = [*range(numeric)] + [numeric + c for c, width in enumerate(widths) for _ in range(width)]

    def forward(self, numeric: Tensor, codes: Tensor) -> Tensor:
        """``[..., K]`` float, ``[..., Kc]`` int64 -> ``[..., E]``."""
        parts = [numeric, *(embed(codes[..., c]) for c, embed in enumerate(self.embeddings))]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else numeric

    def by_column(self, parts: Tensor) -> Tensor:
        """Sums the entries of each column: ``[..., E] -> [..., K + Kc]``; numeric columns come first."""
        if self.columns == self.width:
            return parts
        owner = torch.tensor(self.owner, device=parts.device)
        return parts.new_zeros(*parts.shape[:-1], self.columns).index_add(-1, owner, parts)


class ColumnTokens(nn.Module):
    """One token for each covariate column: a linear map of all its steps (a category's embeddings)."""

    def __init__(self, numeric: int, categories: tuple[int, ...], steps: int, width: int) -> None:
        """``numeric`` columns and one per entry of ``categories`` (number of codes), each of ``steps`` steps."""
        super().__init__()
        self.vector = CovariateVector(numeric, categories)
        self.columns, owner = self.vector.columns, self.vector.owner
        self.places = [[e for e, column in enumerate(owner) if column == k] for k in range(self.columns)]
        self.embed = nn.ModuleList(nn.Linear(steps * len(places), width) for places in self.places)
        self.width = width

    def forward(self, numeric: Tensor, codes: Tensor) -> Tensor:
        """``[..., T, K]`` float, ``[..., T, Kc]`` int64 -> ``[..., K + Kc, W]``."""
        vector = self.vector(numeric, codes)  # [..., T, E]
        if not self.columns:
            return vector.new_zeros(*vector.shape[:-2], 0, self.width)
        tokens = [embed(vector[..., places].flatten(-2)) for embed, places in zip(self.embed, self.places, strict=True)]
        return torch.stack(tokens, dim=-2)


class StepEffect(nn.Module):
    """What known and static covariates add to the targets at each step, in deviations of the window.

    The same small network at every step, past and future, so its share of the past can be taken out of what is read.
    Its last layer is zero at the start: an untrained network ignores the covariates.
    """

    def __init__(self, known: int, static: int, targets: int, width: int = 32) -> None:
        """``known`` and ``static`` are widths of vectors; one output per target."""
        super().__init__()
        self.known = nn.Linear(known, width) if known else None
        self.static = nn.Linear(static, width, bias=self.known is None) if static else None
        self.out = nn.Linear(width, targets, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, known: Tensor, static: Tensor) -> Tensor:
        """``known [B, T, Ek]``, ``static [B, Es]`` -> ``[B, T, C]``."""
        hidden = known.new_zeros(*known.shape[:2], self.out.in_features)  # [B, T, W]
        if self.known is not None:
            hidden = hidden + self.known(known)
        if self.static is not None:
            hidden = hidden + self.static(static)[:, None]
        return self.out(nn.functional.gelu(hidden))
