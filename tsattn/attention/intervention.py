"""Attention weights changed while a network runs: the questions that a map alone cannot answer.

    with changed_weights(lambda call: uniform(call)):
        output = network(batch)

Every attention of ``tsattn.attention`` passes through here. While nothing is changed it costs one look at a context
variable; while something is, the weights are formed openly in place of torch's fused kernel.

Legend: ``J`` query tokens, ``I`` key tokens; ``...`` windows, targets and heads, as the network lays them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor


class Call(NamedTuple):
    """One attention of a forward pass, before it reads."""

    number: int  # counted from 0 in the order the network attends
    weights: Tensor  # [..., J, I] float32
    mask: Tensor | None  # bool, broadcastable to the weights; None hides nothing
    value: Tensor | None  # [..., I, V]; None where the network reads by itself


Change = Callable[[Call], Tensor]


class _Running:
    def __init__(self, change: Change) -> None:
        self.change, self.calls = change, 0


_RUNNING: ContextVar[_Running | None] = ContextVar("changed_weights", default=None)


@contextmanager
def changed_weights(change: Change) -> Iterator[None]:
    """Inside, every attention reads with ``change(call)``, ``[..., J, I]``, in place of its own weights.

    Calls are counted anew with each ``with``: one forward pass belongs in it. Returned maps show the changed weights.
    """
    token = _RUNNING.set(_Running(change))
    try:
        yield
    finally:
        _RUNNING.reset(token)


def changing() -> bool:
    """Whether weights are being changed."""
    return _RUNNING.get() is not None


def changed(weights: Tensor, mask: Tensor | None, value: Tensor | None = None) -> Tensor:
    """The weights to read with: these, unless something changes them."""
    running = _RUNNING.get()
    if running is None:
        return weights
    call = Call(running.calls, weights, mask, value)
    running.calls += 1
    return running.change(call)


def uniform(call: Call) -> Tensor:
    """The same weight for every key that may be read; 0 for the others, and in rows that may read nothing."""
    allowed = torch.ones_like(call.weights) if call.mask is None else call.mask.expand_as(call.weights)
    allowed = allowed.to(call.weights.dtype)
    return allowed / allowed.sum(dim=-1, keepdim=True).clamp(min=1)


def without_keys(call: Call, hidden: Tensor, *, renormalise: bool = True) -> Tensor:
    """Weights with the keys ``hidden`` (bool, broadcastable to them) at 0.

    ``renormalise``: the other keys take over, as if the scores of these were minus infinity (a knock-out). Without it
    their values are taken out and nothing takes their place (value zeroing; Mohebbi et al., 2023).
    """
    kept = call.weights.masked_fill(hidden, 0.0)
    if not renormalise:
        return kept
    total = kept.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, kept / total.clamp(min=torch.finfo(kept.dtype).tiny), torch.zeros_like(kept))
