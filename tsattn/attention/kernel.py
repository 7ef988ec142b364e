"""The attention kernel: weights as a pure function; nothing is kept on a module.

Legend: ``J`` query tokens, ``I`` key tokens, ``D`` width of a head; ``...`` batch, target and head dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tsattn.layers.norm import full_precision


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention weights, ``softmax(query . key * scale + bias)`` over the keys.

    ``query [..., J, D]``, ``key [..., I, D]``, ``mask`` (bool, True = may attend) and ``bias`` broadcastable to
    ``[..., J, I]``; ``scale`` is ``1 / sqrt(D)`` unless given -> ``[..., J, I]`` float32. Every row sums to 1; a
    masked weight is exactly 0, and so is a whole row in which nothing may be attended (never NaN, nor its gradient).
    Vaswani et al., "Attention is all you need", 2017, equation 1.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    # scaled before the product, so that half precision does not overflow; softmax in float32
    scores = full_precision((query * scale) @ key.transpose(-2, -1))  # [..., J, I]
    if bias is not None:
        scores = scores + bias
    if mask is None:
        return scores.softmax(dim=-1)
    blocked = ~mask
    # The lowest finite number, not -inf: a row of -inf would be NaN, and so would the gradient of the whole batch.
    weights = scores.masked_fill(blocked, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights.masked_fill(blocked, 0.0)
