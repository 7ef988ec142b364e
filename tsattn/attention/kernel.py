"""The attention kernel: pure functions; nothing is kept on a module.

Legend: ``J`` query tokens, ``I`` key tokens, ``D`` width of queries and keys, ``V`` width of values, ``R`` query rows
asked for; ``...`` batch dimensions, the last of which is the head where there are several.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from tsattn.attention.intervention import changed, changing
from tsattn.attention.normalisers import NORMALISERS, normalise_scores
from tsattn.attention.scores import PLAIN_SCORES, Score, check_widths, scaled_dot
from tsattn.errors import ConfigError, unknown_name

AnyScore: TypeAlias = str | Score | Callable[[Tensor, Tensor], Tensor]
_CHUNK = 1 << 22  # weights computed at once when some are asked for: 16 MB


class Attended(NamedTuple):
    """What was read, and where it was read when that was asked for."""

    output: Tensor  # [..., J, V]
    weights: Tensor | None = None  # [..., R, I] float32, before dropout


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: AnyScore = "scaled_dot",
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    normaliser: str = "softmax",
    dropout: float = 0.0,
    weights: bool | Tensor = False,
    grad: bool = False,
) -> Attended:
    """Read ``value`` where ``key`` matches ``query``: ``normaliser(score(query, key) + bias) @ value``.

    The output is the same number for number whether weights are asked for or not. Dot-product scores with a softmax go
    through torch's fused kernel, which never holds ``J * I`` numbers (on a CPU it does while a weight may be dropped);
    the others form the weights.

    Args:
        query: ``[..., J, D]``.
        key: ``[..., I, D]``, or another width where the score allows it.
        value: ``[..., I, V]``. Batch dimensions of the three broadcast.
        score: "dot", "scaled_dot", a ``Score``, or a function of query and key.
        mask: Bool, True = may attend, broadcastable to ``[..., J, I]``. A query that may attend nothing reads zeros.
        bias: Added to the scores, broadcastable to ``[..., J, I]``.
        normaliser: "softmax", "sparsemax" or "entmax15".
        dropout: Probability with which a weight is dropped. There is no hidden mode: pass 0 outside training.
        weights: True for the weights of all queries, or an int64 tensor ``[R]`` with the numbers of some of them.
            They cost ``R * I`` numbers per head and batch entry, and little more while they are made.
        grad: Whether the returned weights carry a gradient.

    Returns:
        Output ``[..., J, V]`` and weights ``[..., R, I]``: float32, before dropout, rows sum to 1; masked weights are
        exactly 0.

    Raises:
        ConfigError: an unknown score or normaliser, widths the score cannot compare, a mask that is not boolean.
    """
    _check(query, key, score, mask, normaliser)
    factors = _factors(score, query, key) if normaliser == "softmax" and not changing() else None
    if factors is not None:
        output = _fused(*factors, value, mask, bias, dropout)
        if weights is False:
            return Attended(output)
        rows = torch.arange(query.shape[-2], device=query.device) if weights is True else weights
        with torch.set_grad_enabled(grad and torch.is_grad_enabled()):
            # the numbers the kernel read: under autocast it rounds them to the precision of its output
            left, right, scale = factors[0].to(output.dtype), factors[1].to(output.dtype), factors[2]
            bias = None if bias is None else bias.to(output.dtype)
            return Attended(output, _some_rows(left, right, scale, rows, mask, bias))
    formed = changed(_formed(query, key, score, mask, bias, normaliser), mask, value)
    output = functional.dropout(formed, dropout).to(value.dtype) @ value
    if weights is False:
        return Attended(output)
    rows_asked = formed if weights is True else formed.index_select(-2, weights)
    return Attended(output, rows_asked if grad else rows_asked.detach())


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    score: AnyScore = "scaled_dot",
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    normaliser: str = "softmax",
) -> Tensor:
    """The weights alone, with their gradient: ``normaliser(score(query, key) + bias)``.

    ``query [..., J, D]``, ``key [..., I, D]``, ``mask`` (bool, True = may attend) and ``bias`` broadcastable to
    ``[..., J, I]`` -> ``[..., J, I]`` float32. Every row sums to 1; a masked weight is exactly 0, and so is a whole row
    in which nothing may be attended (never NaN, nor its gradient). Raises ConfigError as ``attend``.
    """
    _check(query, key, score, mask, normaliser)
    return changed(_formed(query, key, score, mask, bias, normaliser), mask)


def _formed(
    query: Tensor, key: Tensor, score: AnyScore, mask: Tensor | None, bias: Tensor | None, normaliser: str
) -> Tensor:
    scores = (PLAIN_SCORES[score] if isinstance(score, str) else score)(query, key)
    return normalise_scores(scores if bias is None else scores + bias, mask, normaliser)


def _check(query: Tensor, key: Tensor, score: AnyScore, mask: Tensor | None, normaliser: str) -> None:
    if isinstance(score, str):
        if score not in PLAIN_SCORES:
            raise unknown_name("score without parameters", score, PLAIN_SCORES)
        check_widths(score, query.shape[-1], key.shape[-1])
    if normaliser not in NORMALISERS:
        raise unknown_name("normaliser", normaliser, NORMALISERS)
    if mask is not None and mask.dtype != torch.bool:
        raise ConfigError(
            f"A mask is boolean, True where a query may attend; found {mask.dtype}. Numbers to be added to the scores "
            f"are a bias."
        )


def _factors(score: AnyScore, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
    """``(q', k', scale)`` with ``score = q' . k' * scale``; None for a score that is no dot product."""
    if score == "scaled_dot":
        return query, key, query.shape[-1] ** -0.5
    if score == "dot":
        return query, key, 1.0
    sides = score.factors(query, key) if isinstance(score, Score) else None
    return None if sides is None else (*sides, 1.0)


def _fused(
    query: Tensor, key: Tensor, scale: float, value: Tensor, mask: Tensor | None, bias: Tensor | None, dropout: float
) -> Tensor:
    """Softmax attention by torch's fused kernel: ``[..., J, V]``."""
    parts = [part for part in (query, key, value, mask, bias) if part is not None]
    lead = torch.broadcast_shapes(*(part.shape[:-2] for part in parts))
    blind = None
    if mask is not None:
        blind = ~mask.any(dim=-1, keepdim=True)
        mask = mask | blind  # what the kernel makes of an empty row depends on the version of torch
    if bias is not None:
        bias = bias.to(query.dtype)
        mask = bias if mask is None else torch.where(mask, bias, bias.new_tensor(-torch.inf))
    query, key, value = (_four(part.expand(*lead, *part.shape[-2:]), lead) for part in (query, key, value))
    joined, width = None if mask is None else _four(mask, lead), value.shape[-1]
    missing = width - query.shape[-1]  # torch fuses only queries, keys and values of one width
    query, key, value = _filled(query, missing), _filled(key, missing), _filled(value, -missing)
    output = functional.scaled_dot_product_attention(query, key, value, joined, dropout, scale=scale)[..., :width]
    output = output.reshape(*lead, *output.shape[-2:])
    return output if blind is None else output.masked_fill(blind, 0.0)


def _four(part: Tensor, lead: torch.Size) -> Tensor:
    """``[..., X, Y] -> [B, N, X, Y]``, the shape the fused kernels know; a head dimension of 1 stays 1."""
    shape = (1,) * (len(lead) + 2 - part.dim()) + tuple(part.shape)
    outer, head = tuple(lead[:-1]), shape[len(lead) - 1 : len(lead)] or (1,)
    expanded = part.reshape(shape).expand(*outer, *(head if lead else ()), *shape[-2:])
    return expanded.reshape(math.prod(outer), *head, *shape[-2:])


def _filled(part: Tensor, zeros: int) -> Tensor:
    """``zeros`` more entries behind each vector."""
    return functional.pad(part, (0, zeros)) if zeros > 0 else part


def _some_rows(
    query: Tensor, key: Tensor, scale: float, rows: Tensor, mask: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Softmax weights ``[..., R, I]`` of the query rows ``rows [R]``, some at a time."""
    others = [part.shape[:-2] for part in (query, key, mask, bias) if part is not None]
    lead, keys = torch.broadcast_shapes(*others), key.shape[-2]
    made = (
        _formed(
            query.index_select(-2, some),
            key,
            partial(scaled_dot, scale=scale),
            _rows_of(mask, some),
            _rows_of(bias, some),
            "softmax",
        )
        for some in rows.split(max(1, _CHUNK // max(lead.numel() * keys, 1)))
    )
    if torch.is_grad_enabled():
        return torch.cat(list(made), dim=-2)
    whole, start = query.new_empty(*lead, len(rows), keys, dtype=torch.promote_types(query.dtype, torch.float32)), 0
    for part in made:  # put in place one by one: joined, they would be held twice
        whole[..., start : start + part.shape[-2], :] = part
        start += part.shape[-2]
    return whole


def _rows_of(part: Tensor | None, rows: Tensor) -> Tensor | None:
    """The rows of a mask or bias, which may be the same for all queries."""
    if part is None or part.dim() < 2 or part.shape[-2] == 1:
        return part
    return part.index_select(-2, rows)
