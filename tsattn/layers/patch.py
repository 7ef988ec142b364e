"""Cutting windows into patches: the past aligned to its end, the future to its start.

Legend: ``L`` past steps, ``P`` steps in a past patch, ``I`` past patches; ``H`` future steps, ``Q`` steps in a future
patch, ``J`` future patches. The newest past value always ends the last patch, whatever ``L`` and ``P`` are.
"""

from __future__ import annotations

import torch
from torch import Tensor


def count(length: int, size: int) -> int:
    """Patches of ``size`` steps needed to hold ``length`` steps."""
    return -(-length // size)


def _filled(values: Tensor, dim: int, extra: int, before: bool) -> Tensor:
    """``values`` with ``extra`` zeros (False) put before or after its entries along ``dim``."""
    if extra == 0:
        return values
    shape = list(values.shape)
    shape[dim] = extra
    zeros = values.new_zeros(shape)
    return torch.cat((zeros, values) if before else (values, zeros), dim=dim)


def patch_past(values: Tensor, size: int, dim: int = 1) -> Tensor:
    """``[..., L, ...] -> [..., I, P, ...]``: zeros (False) are padded on the left to whole patches."""
    length = values.shape[dim]
    patches = count(length, size)
    return _filled(values, dim, patches * size - length, before=True).unflatten(dim, (patches, size))


def patch_future(values: Tensor, size: int, dim: int = 1) -> Tensor:
    """``[..., H, ...] -> [..., J, Q, ...]``: zeros (False) are padded on the right to whole patches."""
    length = values.shape[dim]
    patches = count(length, size)
    return _filled(values, dim, patches * size - length, before=False).unflatten(dim, (patches, size))


def past_support(length: int, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """First and end step of each past patch, counted from the first past step; the first may start below 0."""
    patches = count(length, size)
    start = tuple(length - (patches - i) * size for i in range(patches))
    return start, tuple(step + size for step in start)


def future_support(length: int, size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """First and end step of each future patch, counted from the first forecast step; the last ends at ``length``."""
    start = tuple(range(0, length, size))
    return start, tuple(min(step + size, length) for step in start)
