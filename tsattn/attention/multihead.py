"""Multi-head attention as a layer that remembers nothing.

Legend: ``J`` query tokens, ``I`` key tokens, ``W`` width of a token, ``N`` heads, ``D`` width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tsattn.attention.intervention import changed
from tsattn.attention.kernel import Attended, attend
from tsattn.attention.normalisers import NORMALISERS, normalise_scores
from tsattn.attention.positions import rotate
from tsattn.attention.scores import PLAIN_SCORES, build_score
from tsattn.errors import ConfigError, unknown_name
from tsattn.layers.norm import full_precision


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each in its own projection of the tokens. Vaswani et al., 2017, section 3.2.2.

    The heads are moved in front of the tokens before anything is multiplied, so attention runs over tokens, never over
    heads. Weights are returned, not kept.

    Args:
        width: Width of the query tokens and of the output.
        heads: Number of heads.
        key_width: Width of the key tokens; ``width`` unless given.
        head_width: ``width // heads`` unless given.
        score: One of ``tsattn.attention.SCORES``; every head learns its own parameters.
        normaliser: "softmax", "sparsemax" or "entmax15".
        dropout: Probability with which a weight is dropped in training.
        bias: Whether the projections have a bias.
        rotary: Turn queries and keys by their positions (see ``rotate``).
        qk_norm: Bring queries and keys to root mean square 1, times a learnt gain, before they are compared: scores
            grow with the gain alone, not with the tokens. After Dehghani et al., 2023 (with RMS instead of layer
            normalisation).
        shared_values: One value projection for all heads, and the mean over heads before the output projection. The
            mean of the weights over heads is then exactly how the values were mixed. Lim et al., 2021, section 4.4.
        null_key: A learnt key with the value zero: a head can read nothing. Its weight is the last column.
        keys: Number of keys, for the "location" score alone.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_width: int | None = None,
        head_width: int | None = None,
        score: str = "scaled_dot",
        normaliser: str = "softmax",
        dropout: float = 0.0,
        bias: bool = True,
        rotary: bool = False,
        qk_norm: bool = False,
        shared_values: bool = False,
        null_key: bool = False,
        keys: int | None = None,
    ) -> None:
        """Raises ConfigError when ``heads`` does not divide ``width`` and no ``head_width`` is given, for sizes below
        1, an unknown score or normaliser, a dropout outside [0, 1], rotary positions in heads of an odd width, and a
        null key with the location score.
        """
        super().__init__()
        if min(width, heads) < 1:
            raise ConfigError(f"width and heads are whole numbers of at least 1; got {width} and {heads}.")
        if normaliser not in NORMALISERS:
            raise unknown_name("normaliser", normaliser, NORMALISERS)
        if not 0.0 <= dropout <= 1.0:
            raise ConfigError(f"dropout is a probability from 0 to 1; got {dropout}.")
        if score == "location" and null_key:
            raise ConfigError("The location score reads no keys, so a null key has nothing to offer; leave it out.")
        if head_width is None and width % heads:
            raise ConfigError(f"{heads} heads do not divide a width of {width}. Change one, or give head_width.")
        key_width = width if key_width is None else key_width
        self.head_width = width // heads if head_width is None else head_width
        self.heads, self.normaliser, self.rotary, self.rate = heads, normaliser, rotary, dropout
        if rotary and self.head_width % 2:
            raise ConfigError(
                f"Rotary positions turn pairs of entries, so the width of a head is even; got {self.head_width}."
            )
        inner = heads * self.head_width
        self.query = nn.Linear(width, inner, bias=bias)
        self.key = None if score == "location" else nn.Linear(key_width, inner, bias=bias)  # it reads no keys
        self.shared_values = shared_values
        self.value = nn.Linear(key_width, self.head_width if shared_values else inner, bias=bias)
        self.out = nn.Linear(self.head_width if shared_values else inner, width, bias=bias)
        self.null_key = nn.Parameter(torch.randn(heads, 1, self.head_width)) if null_key else None
        self.gain = nn.Parameter(torch.ones(1 if self.key is None else 2, self.head_width)) if qk_norm else None
        columns = None if keys is None else keys + null_key
        self.score = build_score(score, self.head_width, self.head_width, heads=heads, keys=columns)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        query_start: int = 0,
        weights: bool | Tensor = False,
        grad: bool = False,
    ) -> Attended:
        """Attend from ``query [..., J, W]`` to ``key [..., I, Wk]``; without ``key``, self-attention.

        Args:
            query: Tokens that ask.
            key: Tokens that are read.
            mask: Bool, True = may attend, broadcastable to ``[..., N, J, I]``. ``[B, J, I]``, without a place for the
                heads, would be taken for ``[N, J, I]`` and is refused: write ``mask[:, None]``.
            bias: Added to the scores, broadcastable to ``[..., N, J, I]``.
            query_start: Position of the first query when key 0 stands at position 0; read by rotary positions alone.
            weights, grad: As in ``attend``.

        Returns:
            Output ``[..., J, W]``; weights ``[..., N, R, I]``, with one more column at the end for the null key.

        Raises:
            ConfigError: a mask without a place for the heads.
        """
        _check_mask(mask, query)
        queries, keys, values = self._project(query, query if key is None else key, query_start)
        if self.null_key is not None:
            keys, values, mask, bias = self._with_null(keys, values, mask, bias)
        read = attend(
            queries,
            keys,
            values,
            score=self.score,
            mask=mask,
            bias=bias,
            normaliser=self.normaliser,
            dropout=self.rate if self.training else 0.0,
            weights=weights,
            grad=grad,
        )
        return Attended(self._join(read.output), read.weights)

    def with_scores(
        self, tokens: Tensor, carried: Tensor | None, *, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Self-attention whose scores are added to those of an earlier layer, ``carried [..., N, I, I]``.

        Returns the output ``[..., I, W]``, the weights and the summed scores, both ``[..., N, I, I]``. The scores are
        needed, so the fused kernel is of no use here. Raises ConfigError for a layer with a null key, and for a mask
        without a place for the heads.
        """
        _check_mask(mask, tokens)
        if self.null_key is not None:
            raise ConfigError("Scores cannot be carried from layer to layer with a null key.")
        queries, keys, values = self._project(tokens, tokens, 0)
        scores = (PLAIN_SCORES[self.score] if isinstance(self.score, str) else self.score)(queries, keys)
        if carried is not None:
            scores = scores + carried
        weights = changed(normalise_scores(scores, mask, self.normaliser), mask, values)
        read = functional.dropout(weights, self.rate if self.training else 0.0).to(values.dtype) @ values
        return self._join(read), weights, scores

    def _project(self, query: Tensor, key: Tensor, query_start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries ``[..., N, J, D]``, keys ``[..., N, I, D]``, values ``[..., N or 1, I, D]``."""
        queries = self._split(self.query(query))
        keys = key.new_zeros(*key.shape[:-2], self.heads, key.shape[-2], self.head_width)
        if self.key is not None:
            keys = self._split(self.key(key))
        values = self.value(key)
        values = values.unsqueeze(-3) if self.shared_values else self._split(values)
        if self.gain is not None:
            queries, keys = _rms(queries) * self.gain[0], _rms(keys) * self.gain[-1]
        if self.rotary:
            queries = rotate(queries, torch.arange(queries.shape[-2], device=queries.device) + query_start)
            keys = rotate(keys, torch.arange(keys.shape[-2], device=keys.device))
        return queries, keys, values

    def _join(self, read: Tensor) -> Tensor:
        """``[..., N, J, D] -> [..., J, W]``."""
        return self.out(read.mean(dim=-3) if self.shared_values else read.transpose(-3, -2).flatten(-2))

    def _split(self, tokens: Tensor) -> Tensor:
        """``[..., I, N * D] -> [..., N, I, D]``."""
        return tokens.unflatten(-1, (self.heads, self.head_width)).transpose(-3, -2)

    def _with_null(
        self, keys: Tensor, values: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """One more key that every query may attend and that holds nothing."""
        assert self.null_key is not None
        null = self.null_key.to(keys.dtype).expand(*keys.shape[:-2], 1, -1)
        keys = torch.cat((keys, null), dim=-2)
        values = torch.cat((values, values.new_zeros(*values.shape[:-2], 1, values.shape[-1])), dim=-2)
        if mask is not None:
            mask = mask.expand(*mask.shape[:-1], keys.shape[-2] - 1)  # it may be the same for all keys
            mask = torch.cat((mask, mask.new_ones(*mask.shape[:-1], 1)), dim=-1)
        if bias is not None:
            bias = bias.expand(*bias.shape[:-1], keys.shape[-2] - 1)
            bias = torch.cat((bias, bias.new_zeros(*bias.shape[:-1], 1)), dim=-1)
        return keys, values, mask, bias


def _check_mask(mask: Tensor | None, query: Tensor) -> None:
    if mask is not None and 3 <= mask.dim() <= query.dim() and any(size != 1 for size in mask.shape[:-2]):
        raise ConfigError(
            f"A mask {list(mask.shape)} for queries {list(query.shape)} has no place for the heads. Write "
            f"mask[:, None] if it differs by window, mask[None] if it differs by head."
        )


def _rms(tokens: Tensor) -> Tensor:
    """Root mean square 1 over the last dimension, computed in full precision."""
    exact = full_precision(tokens)
    return (exact * (exact.square().mean(dim=-1, keepdim=True) + 1e-6).rsqrt()).to(tokens.dtype)
