"""Attention weights: hand numbers, masks, half precision."""

from __future__ import annotations

import math

import pytest
import torch

from tsattn.attention.kernel import attention_weights
from tsattn.attention.masks import seen_patches


def test_hand_numbers():
    query, key = torch.tensor([[1.0, 0.0]]), torch.tensor([[math.log(2.0), 5.0], [0.0, -3.0]])
    torch.testing.assert_close(attention_weights(query, key, score="dot"), torch.tensor([[2 / 3, 1 / 3]]))
    halved = attention_weights(query, key)  # scores divided by sqrt(2)
    ratio = math.exp(math.log(2.0) / math.sqrt(2.0))
    torch.testing.assert_close(halved, torch.tensor([[ratio / (1 + ratio), 1 / (1 + ratio)]]))


def test_bias_is_added_to_the_scores():
    query, key = torch.zeros(1, 4), torch.zeros(3, 4)
    weights = attention_weights(query, key, bias=torch.tensor([[0.0, math.log(2.0), 0.0]]))
    torch.testing.assert_close(weights, torch.tensor([[0.25, 0.5, 0.25]]))


def test_masked_weights_are_exactly_zero():
    torch.manual_seed(0)
    query, key = 30 * torch.randn(2, 3, 5, 4), 30 * torch.randn(2, 3, 6, 4)
    mask = torch.rand(2, 3, 5, 6) > 0.5
    assert not mask.all()
    weights = attention_weights(query, key, mask=mask)
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).float())


def test_a_mask_gives_what_leaving_the_key_out_gives():
    torch.manual_seed(0)
    query, key = torch.randn(5, 4), torch.randn(6, 4)
    mask = torch.tensor([True, False, True, True, False, True])
    torch.testing.assert_close(attention_weights(query, key, mask=mask)[:, mask], attention_weights(query, key[mask]))


def test_a_fully_masked_row_is_zero_and_harms_no_gradient():
    torch.manual_seed(0)
    query, key = torch.randn(2, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    mask = torch.tensor([[False, False, False], [True, True, False]])
    weights = attention_weights(query, key, mask=mask)
    assert torch.equal(weights[0], torch.zeros(3))
    weights.square().sum().backward()
    whole = query.grad.clone(), key.grad.clone()
    assert whole[0].isfinite().all()
    assert torch.equal(whole[0][0], torch.zeros(4))
    query.grad = key.grad = None
    attention_weights(query[1:], key, mask=mask[1:]).square().sum().backward()
    torch.testing.assert_close(query.grad[1], whole[0][1])
    torch.testing.assert_close(key.grad, whole[1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(dtype):
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 8, dtype=dtype) * 50, torch.randn(2, 4, 8, dtype=dtype) * 50
    mask = torch.tensor([True, True, False, True])
    weights = attention_weights(query, key, mask=mask)
    assert weights.dtype == torch.promote_types(dtype, torch.float32)
    assert weights.isfinite().all()
    assert (weights[..., 2] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, dtype=weights.dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 8), torch.randn(2, 4, 8)
    mask = torch.tensor([[[True, True, False, True]], [[False] * 4]])
    with torch.autocast("cpu", dtype=dtype):
        weights = attention_weights(query, key, mask=mask)
    assert weights.dtype == torch.float32
    assert torch.equal(weights[1], torch.zeros(3, 4))
    torch.testing.assert_close(weights, attention_weights(query, key, mask=mask), atol=0.02, rtol=0.05)


def test_seen_patches():
    observed = torch.tensor([[[True, False], [False, False]]])
    assert seen_patches(observed).tolist() == [[True, False]]
