"""Attention that does not look everywhere: a local window, and ProbSparse attention.

Legend: ``J`` query tokens, ``I`` key tokens, ``D`` width of queries and keys, ``V`` width of values, ``S`` keys sampled
per query, ``U`` selected queries; ``...`` batch and head dimensions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tsattn.attention.kernel import AnyScore, Attended, attend
from tsattn.attention.masks import both, causal_mask, local_mask
from tsattn.errors import ConfigError


def local_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    before: int,
    after: int = 0,
    mask: Tensor | None = None,
    block: int = 128,
    score: AnyScore = "scaled_dot",
    normaliser: str = "softmax",
    dropout: float = 0.0,
    weights: bool = False,
) -> Attended:
    """``attend`` under ``local_mask``, block by block: work and memory grow with ``J * (before + after + block)``.

    Each query reads ``before`` steps back, its own and ``after`` steps ahead; queries and keys end together. Shapes and
    the other arguments as in ``attend``; ``weights=True`` gives ``[..., J, I]``, zero outside the window. Raises
    ConfigError for a negative ``before`` or ``after``. Child et al., "Generating long sequences with sparse
    transformers", 2019, is one of many sources.
    """
    if before < 0 or after < 0 or block < 1:
        raise ConfigError(f"before and after are at least 0 and block at least 1; got {before}, {after}, {block}.")
    queries, keys = query.shape[-2], key.shape[-2]
    window = local_mask(queries, keys, before=before, after=after, device=query.device)
    outputs, maps = [], []
    for start in range(0, queries, block):
        end = min(start + block, queries)
        shift = keys - queries
        low, high = max(start + shift - before, 0), max(min(end + shift + after, keys), 0)
        low = min(low, max(high - 1, 0))  # at least one key, all of it masked
        high = max(high, low + 1)
        near = both(window[start:end, low:high], _cut(mask, start, end, low, high))
        read = attend(
            query[..., start:end, :],
            key[..., low:high, :],
            value[..., low:high, :],
            score=score,
            mask=near,
            normaliser=normaliser,
            dropout=dropout,
            weights=weights,
        )
        outputs.append(read.output)
        if read.weights is not None:
            maps.append(torch.nn.functional.pad(read.weights, (low, keys - high)))
    return Attended(torch.cat(outputs, dim=-2), torch.cat(maps, dim=-2) if maps else None)


class SparseAttended(NamedTuple):
    """What ProbSparse attention read, and which queries were given an attention of their own."""

    output: Tensor  # [..., J, V]
    rows: Tensor  # [..., U] int64, numbers of the selected queries, ascending
    weights: Tensor | None = None  # [..., U, I] float32, of the selected queries


def prob_sparse_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    factor: float = 5.0,
    causal: bool = False,
    observed: Tensor | None = None,
    weights: bool = False,
) -> SparseAttended:
    """Full attention for the queries that need one; the others read the mean of the values they may see.

    A query needs one when its largest score stands out from its mean score: ``M(q) = max s - mean s`` over a sample of
    the keys. Zhou et al., "Informer", 2021, equations 4 and 5. Sample and selection hold ``factor * ln`` of their
    number. Two things differ from the paper's code: the sample is a fixed, evenly spaced one that moves with the
    query, so two calls give the same result; and causal queries that are not selected read the running *mean*, not
    the sum, so every output is a weighted mean of values.

    Args:
        query: ``[..., J, D]``.
        key: ``[..., I, D]``.
        value: ``[..., I, V]``.
        factor: Scales the number of sampled keys and of selected queries.
        causal: Queries see no key beyond their own position (queries and keys end together).
        observed: Bool ``[..., I]``, keys that may be attended at all.
        weights: Whether to return the weights of the selected queries.

    Returns:
        Output, the numbers of the selected queries, and their weights; every other query weighs the keys it may see
        evenly.
    """
    queries, keys = query.shape[-2], key.shape[-2]
    mask = _visible(query, key, causal, observed)  # [..., J, I]
    rows = _standing_out(query, key, mask, _some(keys, factor), _some(queries, factor))  # [..., U]
    seen = mask.to(value.dtype)
    mean = (seen @ value) / seen.sum(dim=-1, keepdim=True).clamp(min=1)  # [..., J, V]
    chosen = query.gather(-2, rows[..., None].expand(*rows.shape, query.shape[-1]))
    allowed = mask.expand(*rows.shape[:-1], queries, keys).gather(-2, rows[..., None].expand(*rows.shape, keys))
    read = attend(chosen, key, value, mask=allowed, weights=weights)
    mean = mean.expand(*rows.shape[:-1], queries, value.shape[-1])
    output = mean.scatter(-2, rows[..., None].expand(*rows.shape, value.shape[-1]), read.output)
    return SparseAttended(output, rows, read.weights)


def _visible(query: Tensor, key: Tensor, causal: bool, observed: Tensor | None) -> Tensor:
    queries, keys = query.shape[-2], key.shape[-2]
    mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device)
    if causal:
        mask = causal_mask(queries, keys, device=query.device)
    return mask if observed is None else mask & observed[..., None, :]


def _some(count: int, factor: float) -> int:
    """``factor * ln(count)``, at least 1 and at most ``count``."""
    return max(1, min(count, math.ceil(factor * math.log(max(count, 2)))))


def _standing_out(query: Tensor, key: Tensor, mask: Tensor, sampled: int, selected: int) -> Tensor:
    """The ``selected`` queries whose largest sampled score exceeds their mean score most: ``[..., U]``, ascending."""
    queries, keys = query.shape[-2], key.shape[-2]
    spaced = torch.arange(sampled, device=key.device) * keys // sampled  # [S]
    sample = (spaced + torch.arange(queries, device=key.device)[:, None]) % keys  # [J, S]
    near = key[..., sample, :]  # [..., J, S, D]
    scores = (query[..., None, :] * near).sum(dim=-1) * query.shape[-1] ** -0.5  # [..., J, S]
    visible = mask.gather(-1, sample.expand(*mask.shape[:-2], queries, sampled))
    lowest = scores.new_tensor(torch.finfo(scores.dtype).min)
    highest = torch.where(visible, scores, lowest).amax(dim=-1)
    mean = torch.where(visible, scores, scores.new_zeros(())).sum(dim=-1) / visible.sum(dim=-1).clamp(min=1)
    measure = torch.where(visible.any(dim=-1), highest - mean, lowest)
    return measure.detach().topk(selected, dim=-1).indices.sort(dim=-1).values


def _cut(mask: Tensor | None, start: int, end: int, low: int, high: int) -> Tensor | None:
    """The block of a mask whose query dimension may be 1 (the same for all)."""
    if mask is None:
        return None
    rows = mask if mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., start:end, :]
    return rows if rows.shape[-1] == 1 else rows[..., low:high]
