"""Encoder and decoder blocks of a transformer. Weights are returned by each call, never kept.

Legend: ``J`` query tokens, ``I`` key tokens, ``W`` width of a token, ``N`` heads; ``...`` any batch dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from tsattn.attention.multihead import MultiHeadAttention
from tsattn.errors import unknown_name

NORMS = ("layer", "batch")


class TokenBatchNorm(nn.Module):
    """Batch normalisation of each entry of the tokens over all windows and tokens. Nie et al., 2023 (PatchTST)."""

    def __init__(self, width: int) -> None:
        """For tokens of ``width``."""
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[..., W] -> [..., W]``; a single token in training has no spread and is taken by the running statistics."""
        flat = tokens.reshape(-1, tokens.shape[-1])
        if self.training and len(flat) < 2:
            norm = self.norm
            flat = functional.batch_norm(flat, norm.running_mean, norm.running_var, norm.weight, norm.bias)
        else:
            flat = self.norm(flat)
        return flat.reshape(tokens.shape)


def build_norm(kind: str, width: int) -> nn.Module:
    """The normalisation called ``kind``. Raises ConfigError for an unknown name."""
    if kind not in NORMS:
        raise unknown_name("norm", kind, NORMS)
    return nn.LayerNorm(width) if kind == "layer" else TokenBatchNorm(width)


class FeedForward(nn.Sequential):
    """Two linear layers with a GELU between them, for each token by itself."""

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        """``width -> hidden -> width``."""
        super().__init__(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, width))


class Encoded(NamedTuple):
    """Tokens after a block, and what its attention was."""

    tokens: Tensor  # [..., I, W]
    weights: Tensor | None = None  # [..., N, I, I]
    scores: Tensor | None = None  # [..., N, I, I], to be added to those of the next block


class EncoderBlock(nn.Module):
    """Self-attention, then a feed-forward network, each with a residual and a normalisation.

    Vaswani et al., 2017, section 3.1 (normalised after the sum); Xiong et al., 2020 (``pre_norm``: before each part).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        norm: str = "layer",
        pre_norm: bool = False,
        score: str = "scaled_dot",
        normaliser: str = "softmax",
        rotary: bool = False,
        qk_norm: bool = False,
        keys: int | None = None,
    ) -> None:
        """Options of the attention as in ``MultiHeadAttention``; ``attention_dropout`` is ``dropout`` unless given."""
        super().__init__()
        self.attention = MultiHeadAttention(
            width,
            heads,
            score=score,
            normaliser=normaliser,
            dropout=dropout if attention_dropout is None else attention_dropout,
            rotary=rotary,
            qk_norm=qk_norm,
            keys=keys,
        )
        self.feedforward = FeedForward(width, hidden, dropout)
        self.norm1, self.norm2 = build_norm(norm, width), build_norm(norm, width)
        self.dropout = nn.Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(
        self,
        tokens: Tensor,
        *,
        mask: Tensor | None = None,
        weights: bool = False,
        residual_scores: bool = False,
        scores: Tensor | None = None,
    ) -> Encoded:
        """``tokens [..., I, W]``, ``mask`` broadcastable to ``[..., N, I, I]``.

        ``residual_scores`` adds ``scores`` of the block before to the own ones and returns the sum: the weights are
        then those of all blocks so far together. He et al., "RealFormer", 2020.
        """
        asked = self.norm1(tokens) if self.pre_norm else tokens
        if residual_scores:
            read, own, scores = self.attention.with_scores(asked, scores, mask=mask)
        else:
            (read, own), scores = self.attention(asked, mask=mask, weights=weights), None
        tokens = tokens + self.dropout(read)
        if self.pre_norm:
            tokens = tokens + self.dropout(self.feedforward(self.norm2(tokens)))
        else:
            tokens = self.norm1(tokens)
            tokens = self.norm2(tokens + self.dropout(self.feedforward(tokens)))
        return Encoded(tokens, own.detach() if weights and own is not None else None, scores)


class Decoded(NamedTuple):
    """Tokens after a block, and what its two attentions were."""

    tokens: Tensor  # [..., J, W]
    own: Tensor | None = None  # [..., N, J, J]
    cross: Tensor | None = None  # [..., N, J, I]


class DecoderBlock(nn.Module):
    """Self-attention among the queries, attention to the encoder's tokens, then a feed-forward network.

    Vaswani et al., 2017, section 3.1; ``pre_norm`` as in ``EncoderBlock``.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        dropout: float = 0.0,
        pre_norm: bool = False,
        score: str = "scaled_dot",
        normaliser: str = "softmax",
        rotary: bool = False,
        qk_norm: bool = False,
        queries: int | None = None,
        keys: int | None = None,
    ) -> None:
        """Options of the attentions as in ``MultiHeadAttention``; ``queries`` and ``keys`` are for "location" alone."""
        super().__init__()
        shared = {
            "score": score,
            "normaliser": normaliser,
            "dropout": dropout,
            "rotary": rotary,
            "qk_norm": qk_norm,
        }
        self.own = MultiHeadAttention(width, heads, keys=queries, **shared)  # type: ignore[arg-type]
        self.cross = MultiHeadAttention(width, heads, keys=keys, **shared)  # type: ignore[arg-type]
        self.feedforward = FeedForward(width, hidden, dropout)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(
        self,
        queries: Tensor,
        memory: Tensor,
        *,
        own_mask: Tensor | None = None,
        mask: Tensor | None = None,
        weights: bool = False,
    ) -> Decoded:
        """``queries [..., J, W]`` read one another and ``memory [..., I, W]``.

        ``own_mask`` is broadcastable to ``[..., N, J, J]``, ``mask`` to ``[..., N, J, I]``. The queries stand after the
        memory: rotary positions count on.
        """
        behind = memory.shape[-2]
        if self.pre_norm:
            own = self.own(self.norm1(queries), mask=own_mask, weights=weights)
            queries = queries + self.dropout(own.output)
            cross = self.cross(self.norm2(queries), memory, mask=mask, query_start=behind, weights=weights)
            queries = queries + self.dropout(cross.output)
            queries = queries + self.dropout(self.feedforward(self.norm3(queries)))
        else:
            own = self.own(queries, mask=own_mask, weights=weights)
            queries = self.norm1(queries + self.dropout(own.output))
            cross = self.cross(queries, memory, mask=mask, query_start=behind, weights=weights)
            queries = self.norm2(queries + self.dropout(cross.output))
            queries = self.norm3(queries + self.dropout(self.feedforward(queries)))
        return Decoded(queries, own.weights, cross.weights)
