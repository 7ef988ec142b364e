"""Attention masks. One meaning everywhere: boolean, True = may attend; broadcastable to ``[..., J, I]``.

Legend: ``J`` query tokens, ``I`` key tokens, ``P`` steps in a token; ``...`` any leading dimensions.

Where queries and keys are the same sequence, or the queries are its end, the last query stands at the last key: query
``j`` stands at key ``j + I - J``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def causal_mask(queries: int, keys: int | None = None, *, device: torch.device | str | None = None) -> Tensor:
    """No query sees beyond its own position: ``[J, I]``. ``keys`` is ``queries`` unless given.

    With more queries than keys the first ones stand before every key and see nothing.
    """
    query, key = _positions(queries, queries if keys is None else keys, device)
    return key <= query


def local_mask(
    queries: int, keys: int | None = None, *, before: int, after: int = 0, device: torch.device | str | None = None
) -> Tensor:
    """Each query sees ``before`` steps back, its own and ``after`` steps ahead: ``[J, I]``."""
    query, key = _positions(queries, queries if keys is None else keys, device)
    return (key >= query - before) & (key <= query + after)


def key_mask(observed: Tensor) -> Tensor:
    """Hides padding and gaps from every query of every head: ``[B, I] -> [B, 1, 1, I]``."""
    return observed[..., None, None, :]


def both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """May attend where both masks allow it; None hides nothing."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


def seen_patches(observed: Tensor) -> Tensor:
    """A patch may be attended when any of its steps is observed: ``[..., I, P]`` bool -> ``[..., I]`` bool."""
    return observed.any(dim=-1)


def _positions(queries: int, keys: int, device: torch.device | str | None) -> tuple[Tensor, Tensor]:
    """Where the queries ``[J, 1]`` and the keys ``[1, I]`` stand: compared, they never take ``J * I`` integers."""
    query = torch.arange(queries, device=device)[:, None] + (keys - queries)
    return query, torch.arange(keys, device=device)[None]
