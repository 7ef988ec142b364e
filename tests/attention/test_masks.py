"""Masks by hand: True = may attend, everywhere."""

from __future__ import annotations

import torch

from tsattn.attention import both, causal_mask, key_mask, local_mask


def rows(mask: torch.Tensor) -> list[str]:
    return ["".join("x" if may else "." for may in row) for row in mask.tolist()]


def test_causal():
    assert rows(causal_mask(3)) == ["x..", "xx.", "xxx"]
    assert rows(causal_mask(2, 4)) == ["xxx.", "xxxx"]  # the queries are the end of the keys
    assert rows(causal_mask(4, 2)) == ["..", "..", "x.", "xx"]  # the first queries stand before every key


def test_local():
    assert rows(local_mask(4, before=1)) == ["x...", "xx..", ".xx.", "..xx"]
    assert rows(local_mask(4, before=0, after=2)) == ["xxx.", ".xxx", "..xx", "...x"]
    assert rows(local_mask(2, 5, before=1)) == ["..xx.", "...xx"]


def test_keys():
    observed = torch.tensor([[True, False, True], [False, False, False]])
    mask = key_mask(observed)
    assert mask.shape == (2, 1, 1, 3)
    assert mask[0, 0, 0].tolist() == [True, False, True]


def test_both():
    causal = causal_mask(2)
    assert both(None, None) is None
    assert both(causal, None) is both(None, causal) is causal
    assert rows(both(causal, torch.tensor([False, True]))) == ["..", ".x"]
