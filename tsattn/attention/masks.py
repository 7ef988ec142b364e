"""Attention masks. One meaning everywhere: boolean, True = may attend.

Legend: ``I`` key tokens, ``P`` steps in a token; ``...`` any leading dimensions.
"""

from __future__ import annotations

from torch import Tensor


def seen_patches(observed: Tensor) -> Tensor:
    """A patch may be attended when any of its steps is observed: ``[..., I, P]`` bool -> ``[..., I]`` bool."""
    return observed.any(dim=-1)
