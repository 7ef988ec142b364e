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
from tsattn.attention.masks import both
from tsattn.errors import ConfigError
from tsattn.layers.norm import full_precision


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
    shift, outputs, maps = keys - queries, [], []
    for start in range(0, max(queries, 1), block):
        end = min(start + block, queries)
        low, high = max(start + shift - before, 0), max(min(end + shift + after, keys), 0)
        low = min(low, high)  # no key at all where the whole block stands before the first one
        at = torch.arange(start, end, device=query.device)[:, None] + shift
        there = torch.arange(low, high, device=query.device)
        near = both((there >= at - before) & (there <= at + after), _cut(mask, start, end, low, high))
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
    the sum, so every output is a weighted mean of values. The sample takes ``J * S * D`` numbers, ``J * I`` are never
    held.

    Args:
        query: ``[..., J, D]``.
        key: ``[..., I, D]``.
        value: ``[..., I, V]``.
        factor: Scales the number of sampled keys and of selected queries.
        causal: Queries see no key beyond their own position (queries and keys end together). Which of them are
            selected is still decided among all, later ones too.
        observed: Bool ``[..., I]``, keys that may be attended at all.
        weights: Whether to return the weights of the selected queries.

    Returns:
        Output, the numbers of the selected queries, and their weights; every other query weighs the keys it may see
        evenly.
    """
    queries, keys = query.shape[-2], key.shape[-2]
    there = torch.arange(keys, device=query.device)
    at = torch.arange(queries, device=query.device) + (keys - queries if causal else keys)  # last key it may see: [J]
    rows = _standing_out(query, key, at, observed, _some(keys, factor), _some(queries, factor))  # [..., U]
    allowed = there <= at[rows][..., None]  # [..., U, I]
    if observed is not None:
        allowed = allowed & observed[..., None, :]
    chosen = query.expand(*rows.shape[:-1], *query.shape[-2:]).gather(-2, _wide(rows, query.shape[-1]))
    read = attend(chosen, key, value, mask=allowed, weights=weights)
    mean = _running_mean(value, observed, at).to(read.output.dtype)
    mean = mean.expand(*read.output.shape[:-2], queries, value.shape[-1])
    places = _wide(rows, value.shape[-1]).expand(read.output.shape)
    return SparseAttended(mean.scatter(-2, places, read.output), rows, read.weights)


def _wide(rows: Tensor, width: int) -> Tensor:
    """``[..., U] -> [..., U, width]``, to gather and scatter whole vectors."""
    return rows[..., None].expand(*rows.shape, width)


def _running_mean(value: Tensor, observed: Tensor | None, at: Tensor) -> Tensor:
    """Mean of the observed values up to the key ``at [J]`` (0 where there is none): ``[..., I, V] -> [..., J, V]``."""
    seen = torch.ones(value.shape[-2], dtype=torch.bool, device=value.device) if observed is None else observed
    exact = torch.where(seen[..., None], full_precision(value), 0.0)
    sums = torch.nn.functional.pad(exact.cumsum(dim=-2), (0, 0, 1, 0))  # [..., 1 + I, V], 0 before the first key
    counts = torch.nn.functional.pad(seen.cumsum(dim=-1), (1, 0))[..., None]
    place = (at + 1).clamp(min=0, max=value.shape[-2])
    return sums.index_select(-2, place) / counts.index_select(-2, place).clamp(min=1)


def _some(count: int, factor: float) -> int:
    """``factor * ln(count)``, at least 1, and never more than ``count``."""
    return min(count, max(1, math.ceil(factor * math.log(max(count, 2)))))


def _standing_out(
    query: Tensor, key: Tensor, at: Tensor, observed: Tensor | None, sampled: int, selected: int
) -> Tensor:
    """The ``selected`` queries whose largest sampled score exceeds their mean score most: ``[..., U]``, ascending."""
    queries, keys = query.shape[-2], key.shape[-2]
    if not keys:
        return torch.arange(selected, device=query.device).expand(*query.shape[:-2], selected)
    spaced = torch.arange(sampled, device=key.device) * keys // max(sampled, 1)  # [S]
    sample = (spaced + torch.arange(queries, device=key.device)[:, None]) % max(keys, 1)  # [J, S]
    near = full_precision(key)[..., sample, :]  # [..., J, S, D]
    scores = (full_precision(query)[..., None, :] * near).sum(dim=-1) * query.shape[-1] ** -0.5  # [..., J, S]
    visible = sample <= at[:, None]
    if observed is not None:
        visible = visible & observed[..., sample]
    lowest = torch.finfo(scores.dtype).min
    highest = torch.where(visible, scores, lowest).amax(dim=-1)
    mean = torch.where(visible, scores, 0.0).sum(dim=-1) / visible.sum(dim=-1).clamp(min=1)
    measure = torch.where(visible.any(dim=-1), highest - mean, lowest)
    return measure.detach().topk(selected, dim=-1).indices.sort(dim=-1).values


def _cut(mask: Tensor | None, start: int, end: int, low: int, high: int) -> Tensor | None:
    """The block of a mask whose query dimension may be 1 (the same for all)."""
    if mask is None:
        return None
    rows = mask if mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., start:end, :]
    return rows if rows.shape[-1] == 1 else rows[..., low:high]
