"""From scores to weights: softmax, sparsemax and entmax-1.5, with a mask.

Legend: ``I`` key tokens; ``...`` any leading dimensions. Rows of the result sum to 1; masked weights are exactly 0, and
so is a whole row in which nothing may be attended (never NaN, nor its gradient).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tsattn.layers.norm import full_precision

NORMALISERS = ("softmax", "sparsemax", "entmax15")


def softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """``exp(s_i) / sum exp(s)``: ``[..., I]`` -> ``[..., I]``; every key that may be attended gets some weight."""
    if mask is None:
        return scores.softmax(dim=-1)
    # The lowest finite number, not -inf: a row of -inf is NaN on the way, in its gradient, too.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1).masked_fill(~mask, 0.0)


def sparsemax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """The nearest point of the simplex: ``max(s - tau, 0)``, weights can be exactly 0. Martins and Astudillo, 2016."""
    return _sparse(scores, mask, 2.0)


def entmax15(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Between softmax and sparsemax: ``max(s / 2 - tau, 0) ** 2``. Peters, Niculae and Martins, 2019, alpha 1.5."""
    return _sparse(scores, mask, 1.5)


def normalise_scores(scores: Tensor, mask: Tensor | None = None, normaliser: str = "softmax") -> Tensor:
    """The function of that name on ``[..., I]``; ``mask`` bool, True = may attend."""
    return {"softmax": softmax, "sparsemax": sparsemax, "entmax15": entmax15}[normaliser](scores, mask)


def _sparse(scores: Tensor, mask: Tensor | None, alpha: float) -> Tensor:
    if not scores.shape[-1]:
        return scores
    if mask is not None:
        lowest = scores.new_full((), torch.finfo(scores.dtype).min)
        top = torch.where(mask, scores.detach(), lowest).amax(dim=-1, keepdim=True)
        # 4 below the best score is far enough to get weight 0
        scores = torch.where(mask, scores - torch.where(top > lowest, top, 0.0), -4.0)
    weights = _Entmax.apply(scores, alpha)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


class _Entmax(torch.autograd.Function):
    """Weights from sorted scores; the gradient needs the weights alone: they say which keys are in the support."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float) -> Tensor:
        """``max((alpha - 1) * s - tau, 0) ** (1 / (alpha - 1))``; the threshold ``tau`` makes rows sum to 1."""
        exact = full_precision(scores)  # sums over many keys, of squares
        moved = (exact - exact.amax(dim=-1, keepdim=True)) * (alpha - 1.0)
        moved = moved.clamp(
            min=-2.0
        )  # tau is at least -1: what lies below has weight 0, and must not overflow the sums
        threshold = _threshold_linear(moved) if alpha == 2.0 else _threshold_square(moved)
        weights = (moved - threshold).clamp(min=0.0) ** (1.0 / (alpha - 1.0))
        ctx.alpha = alpha
        ctx.save_for_backward(weights)
        return weights.to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """``d * (g - mean_d(g))`` with ``d = w ** (2 - alpha)`` on the support. Peters et al., 2019, proposition 2."""
        (gradient,), (weights,) = gradients, ctx.saved_tensors
        slope = torch.where(weights > 0, weights ** (2.0 - ctx.alpha), torch.zeros_like(weights))
        mean = (gradient * slope).sum(dim=-1, keepdim=True) / slope.sum(dim=-1, keepdim=True)
        return (slope * (gradient - mean)).to(gradient.dtype), None


def _threshold_linear(moved: Tensor) -> Tensor:
    """``tau [..., 1]`` such that ``sum max(s - tau, 0) = 1``: the largest prefix of the sorted scores that fits."""
    ranked = moved.sort(dim=-1, descending=True).values
    size = torch.arange(1, moved.shape[-1] + 1, device=moved.device, dtype=moved.dtype)
    tau = (ranked.cumsum(dim=-1) - 1.0) / size  # of each prefix
    return _of_support(tau, ranked > tau)


def _threshold_square(moved: Tensor) -> Tensor:
    """``tau [..., 1]`` such that ``sum max(s - tau, 0) ** 2 = 1``: solves a quadratic for each prefix."""
    ranked = moved.sort(dim=-1, descending=True).values
    size = torch.arange(1, moved.shape[-1] + 1, device=moved.device, dtype=moved.dtype)
    mean = ranked.cumsum(dim=-1) / size
    spread = ranked.square().cumsum(dim=-1) / size - mean.square()
    tau = mean - (1.0 / size - spread).clamp(min=0.0).sqrt()
    return _of_support(tau, tau <= ranked)


def _of_support(tau: Tensor, inside: Tensor) -> Tensor:
    """The threshold of the longest prefix whose last member is still above its threshold."""
    return tau.gather(-1, inside.sum(dim=-1, keepdim=True) - 1)
