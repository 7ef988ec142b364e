"""Patches: the past ends on a patch, the future starts on one."""

from __future__ import annotations

import pytest
import torch

from tsattn.layers.patch import future_support, past_support, patch_future, patch_past


def test_the_past_is_padded_on_the_left():
    steps = torch.arange(1.0, 8.0).view(1, 7)
    assert patch_past(steps, 3).tolist() == [[[0, 0, 1], [2, 3, 4], [5, 6, 7]]]
    assert past_support(7, 3) == ((-2, 1, 4), (1, 4, 7))


def test_the_future_is_padded_on_the_right():
    steps = torch.arange(1.0, 8.0).view(1, 7)
    assert patch_future(steps, 3).tolist() == [[[1, 2, 3], [4, 5, 6], [7, 0, 0]]]
    assert future_support(7, 3) == ((0, 3, 6), (3, 6, 7))


@pytest.mark.parametrize("length", [15, 16, 17, 96, 100])
@pytest.mark.parametrize("size", [1, 8, 16])
def test_every_step_is_in_exactly_one_patch(length, size):
    steps = torch.arange(1, length + 1).expand(2, 3, length)
    for cut in (patch_past, patch_future):
        patches = cut(steps, size, dim=2)
        assert patches.shape == (2, 3, -(-length // size), size)
        assert sorted(patches[0, 0].flatten().tolist())[-length:] == list(range(1, length + 1))
    assert patch_past(steps, size, dim=2)[0, 0, -1, -1] == length
    start, end = past_support(length, size)
    assert end[-1] == length
    assert all(b - a == size for a, b in zip(start, end, strict=True))


def test_masks_are_padded_with_false_and_trailing_dimensions_stay():
    observed = torch.ones(2, 5, 3, dtype=torch.bool)
    patches = patch_past(observed, 4)
    assert patches.shape == (2, 2, 4, 3)
    assert patches.dtype == torch.bool
    assert not patches[:, 0, :3].any()
    assert patches.sum() == observed.sum()
