"""Gates, and the choice among variables, of the temporal fusion transformer.

Lim, Arik, Loeff and Pfister, "Temporal fusion transformers for interpretable multi-horizon time series forecasting",
2021 (arXiv 1912.09363), sections 4.1 and 4.2.

Legend: ``W`` width of a token, ``O`` width of a result, ``K`` variables; ``...`` any leading dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tsattn.layers.norm import full_precision


class GatedLinearUnit(nn.Module):
    """``(x W5 + b5) * sigmoid(x W4 + b4)``, equation 5: the gate can close a part of the network altogether."""

    def __init__(self, width: int, out: int, dropout: float = 0.0) -> None:
        """``width -> out``; ``dropout`` falls on the input."""
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, 2 * out)  # the values, then the gates

    def forward(self, tokens: Tensor) -> Tensor:
        """``[..., W] -> [..., O]``."""
        return functional.glu(self.linear(self.dropout(tokens)), dim=-1)


class GatedSkip(nn.Module):
    """``norm(skip + GLU(x))``: what a part of the network says joins what went into it, as far as its gate opens."""

    def __init__(self, width: int, out: int, *, dropout: float = 0.0, norm: bool = True) -> None:
        """``norm`` False leaves the layer normalisation out."""
        super().__init__()
        self.gate = GatedLinearUnit(width, out, dropout)
        self.norm = nn.LayerNorm(out) if norm else nn.Identity()

    def forward(self, tokens: Tensor, skip: Tensor) -> Tensor:
        """``[..., W]``, ``[..., O] -> [..., O]``."""
        return self.norm(skip + self.gate(tokens))


class GatedResidual(nn.Module):
    """Gated residual network, equations 2 to 4: ``norm(a + GLU(W1 elu(W2 a + W3 c + b2) + b1))``.

    ``a`` is the input and ``c`` a context; where the widths differ, ``a`` is added through a linear layer.
    """

    def __init__(
        self,
        width: int,
        *,
        out: int | None = None,
        hidden: int | None = None,
        context: int = 0,
        dropout: float = 0.0,
        norm: bool = True,
    ) -> None:
        """``out`` and ``hidden`` are ``width`` unless given; ``context``: width of ``c``, 0 for none."""
        super().__init__()
        out, hidden = out or width, hidden or width
        self.first = nn.Linear(width, hidden)  # W2, b2
        self.context = nn.Linear(context, hidden, bias=False) if context else None  # W3
        self.second = nn.Linear(hidden, hidden)  # W1, b1
        self.resize = nn.Linear(width, out) if out != width else nn.Identity()
        self.gated = GatedSkip(hidden, out, dropout=dropout, norm=norm)

    def forward(self, tokens: Tensor, context: Tensor | None = None) -> Tensor:
        """``[..., W]``, context that broadcasts to it (but for its width) ``-> [..., O]``."""
        hidden = self.first(tokens)
        if self.context is not None and context is not None:
            hidden = hidden + self.context(context)
        return self.gated(self.second(functional.elu(hidden)), self.resize(tokens))


class Selected(NamedTuple):
    """The variables, each through its own network, mixed, and how they were mixed."""

    tokens: Tensor  # [..., W]
    weights: Tensor  # [..., K] float32, sums to 1


class VariableSelection(nn.Module):
    """Variable selection network, equations 6 to 8: every variable gets a weight, anew at every step.

    One variable gets the weight 1. The scores come from a gated residual network *without* its layer normalisation:
    over two variables, a normalised pair of scores would be a sign and nothing more.
    """

    def __init__(self, variables: int, width: int, *, context: bool = False, dropout: float = 0.0) -> None:
        """For ``variables`` tokens of ``width`` per step; ``context``: a vector of that width joins the choice."""
        super().__init__()
        self.each = nn.ModuleList(GatedResidual(width, dropout=dropout) for _ in range(variables))
        self.choose = None
        if variables > 1:
            self.choose = GatedResidual(
                variables * width,
                out=variables,
                hidden=width,
                context=width if context else 0,
                dropout=dropout,
                norm=False,
            )

    def forward(self, variables: list[Tensor], context: Tensor | None = None) -> Selected:
        """``K`` tensors ``[..., W]`` whose leading dimensions broadcast, and a context that broadcasts to them."""
        if self.choose is None:
            tokens = self.each[0](variables[0])
            return Selected(tokens, torch.ones_like(tokens[..., :1], dtype=torch.float32))
        shape = torch.broadcast_shapes(*(variable.shape for variable in variables))
        scores = self.choose(torch.cat([variable.expand(shape) for variable in variables], dim=-1), context)
        weights = full_precision(scores).softmax(dim=-1)
        shares = weights.to(scores.dtype).unsqueeze(-2).unbind(dim=-1)  # K of [..., 1]
        mixed = [share * own(variable) for share, own, variable in zip(shares, self.each, variables, strict=True)]
        return Selected(torch.stack(mixed).sum(dim=0), weights.float())
