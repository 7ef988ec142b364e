"""MultiHeadAttention: options by hand, the classic mistakes, and nothing kept between calls."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from tsattn.attention import SCORES, MultiHeadAttention, attend, causal_mask, key_mask
from tsattn.errors import ConfigError


def layer_for(**options: object) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(8, 2, **options).eval()


def by_hand(layer: MultiHeadAttention, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
    """One window, scaled dot product, head by head: output ``[J, W]`` and weights ``[N, J, I]``."""
    size, reads, maps = layer.head_width, [], []
    for n in range(layer.heads):
        part = slice(n * size, (n + 1) * size)
        q, k, v = (getattr(layer, name)(x)[:, part] for name, x in (("query", query), ("key", key), ("value", key)))
        weights = torch.tensor([[float(a @ b) / size**0.5 for b in k] for a in q]).softmax(-1)
        maps.append(weights)
        reads.append(weights @ v)
    return layer.out(torch.cat(reads, dim=-1)), torch.stack(maps)


@torch.no_grad()
def test_heads_one_by_one():
    layer, query, key = layer_for(), torch.randn(3, 8), torch.randn(5, 8)
    output, weights = layer(query[None], key[None], weights=True)
    expected, maps = by_hand(layer, query, key)
    torch.testing.assert_close(output[0], expected)
    torch.testing.assert_close(weights[0], maps)


class OverHeads(torch.nn.Module):
    """The mistake: split the width into heads and multiply without moving the head dimension to the front."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        parts = [x.unflatten(-1, (self.heads, -1)) for x in (query, key, value)]  # [B, L, N, D]
        weights = (parts[0] @ parts[1].transpose(-2, -1)).softmax(-1)  # [B, L, N, N]: heads over heads
        return (weights @ parts[2]).flatten(-2), weights  # and the mask is accepted, and ignored


def test_attention_runs_over_time_and_not_over_heads():
    """Two steps, two heads of width 1. Head 0 of step 0 matches step 1; the wrong code cannot even see step 1.

    Scores of head 0: q = (10, 0), k = (0, 1): step 0 scores (0, 10) and reads step 1. Head 1 has q = (0, 0): it reads
    the mean.
    """
    query = torch.tensor([[[10.0, 0.0], [0.0, 0.0]]])
    key = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]])
    value = torch.tensor([[[1.0, 2.0], [5.0, 4.0]]])
    heads = [x.unflatten(-1, (2, 1)).transpose(1, 2) for x in (query, key, value)]
    right = attend(*heads, score="dot", weights=True)
    near_one = 1 / (1 + torch.tensor(-10.0).exp())
    torch.testing.assert_close(right.weights[0, 0, 0], torch.stack((1 - near_one, near_one)))
    torch.testing.assert_close(right.output[0, 0, 0], 1 + 4 * near_one[None])
    torch.testing.assert_close(right.output[0, 1], torch.tensor([[3.0], [3.0]]))
    wrong, weights = OverHeads(2)(query, key, value)
    assert weights.shape == (1, 2, 2, 2)  # as good a shape as the right one: only numbers tell
    changed = value.clone()
    changed[0, 1] = 100.0
    assert torch.equal(OverHeads(2)(query, key, changed)[0][0, 0], wrong[0, 0])  # step 0 never reads step 1
    moved = attend(heads[0], heads[1], changed.unflatten(-1, (2, 1)).transpose(1, 2), score="dot")
    assert not torch.allclose(moved.output[0, :, 0], right.output[0, :, 0])


@torch.no_grad()
def test_the_layer_gives_the_numbers_made_by_hand():
    """The same two steps through the layer: tokens (1, 0) and (0, 1), so that column j of a weight is what step j gets.

    As many heads as steps: heads that were not moved in front of time would give the same shapes and other numbers.
    """
    layer, tokens = MultiHeadAttention(2, 2, score="dot", bias=False), torch.eye(2)[None]
    layer.query.weight.copy_(torch.tensor([[10.0, 0.0], [0.0, 0.0]]))  # step 0 asks (10, 0), step 1 (0, 0)
    layer.key.weight.copy_(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))  # step 0 has (0, 0), step 1 (1, 0)
    layer.value.weight.copy_(torch.tensor([[1.0, 5.0], [2.0, 4.0]]))  # step 0 holds (1, 2), step 1 (5, 4)
    layer.out.weight.copy_(torch.eye(2))
    one = 1 / (1 + math.exp(-10.0))
    read = layer(tokens, weights=True)
    torch.testing.assert_close(read.output[0], torch.tensor([[1 + 4 * one, 3.0], [3.0, 3.0]]))
    torch.testing.assert_close(read.weights[0, 0], torch.tensor([[1 - one, one], [0.5, 0.5]]))
    torch.testing.assert_close(read.weights[0, 1], torch.full((2, 2), 0.5))
    causal = layer(tokens, mask=causal_mask(2), weights=True)
    torch.testing.assert_close(causal.output[0], torch.tensor([[1.0, 2.0], [3.0, 3.0]]))  # step 0 has itself alone
    torch.testing.assert_close(causal.weights[0, 0], torch.tensor([[1.0, 0.0], [0.5, 0.5]]))


def test_a_mask_is_never_ignored():
    layer, tokens = layer_for(), torch.randn(2, 6, 8)
    changed = tokens.clone()
    changed[:, 4:] = 100.0
    for mask in (causal_mask(6), key_mask(torch.tensor([[True] * 4 + [False] * 2] * 2))):
        before, after = layer(tokens, mask=mask).output, layer(changed, mask=mask).output
        assert torch.equal(before[:, :4], after[:, :4])
    ignored, poisoned = OverHeads(2)(tokens, tokens, tokens, causal_mask(6))[0], layer(changed).output
    assert torch.equal(ignored, OverHeads(2)(tokens, tokens, tokens)[0])
    assert not torch.allclose(poisoned[:, :4], layer(tokens).output[:, :4])  # without a mask they are read


def test_shared_values_make_the_mean_of_the_heads_exact():
    layer, tokens = layer_for(shared_values=True), torch.randn(3, 5, 8)
    output, weights = layer(tokens, weights=True)
    assert layer.value.out_features == layer.head_width
    mixed = weights.mean(dim=1) @ layer.value(tokens)
    torch.testing.assert_close(layer.out(mixed), output, atol=1e-6, rtol=1e-5)


def test_a_null_key_lets_a_head_read_nothing():
    layer, tokens = layer_for(null_key=True, bias=False), torch.randn(2, 5, 8)
    weights = layer(tokens, weights=True).weights
    assert weights.shape == (2, 2, 5, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 5))
    with torch.no_grad():
        layer.null_key.copy_(1e3 * layer.query(tokens)[0, 0].view(2, 1, 4))  # the first query of window 0 matches it
    read = layer(tokens, weights=True)
    torch.testing.assert_close(read.weights[0, :, 0, -1], torch.ones(2))
    torch.testing.assert_close(read.output[0, 0], torch.zeros(8), atol=1e-6, rtol=0)
    hidden = layer(tokens, mask=torch.zeros(5, 5, dtype=torch.bool), weights=True)
    torch.testing.assert_close(hidden.weights[..., -1], torch.ones(2, 2, 5))  # all that is left
    layer(tokens, bias=torch.zeros(5, 5))
    with pytest.raises(ConfigError, match="null key"):
        layer.with_scores(tokens, None)


def test_qk_norm_bounds_the_scores():
    layer, tokens = layer_for(qk_norm=True, bias=False), torch.randn(2, 5, 8)
    torch.testing.assert_close(
        layer(tokens * 1e4, weights=True).weights, layer(tokens, weights=True).weights, atol=1e-4, rtol=1e-3
    )
    plain = layer_for(bias=False)
    assert plain(tokens * 1e4, weights=True).weights.max() > 0.999  # without it, attention saturates
    layer(tokens, weights=True, grad=True).weights.square().sum().backward()
    assert layer.gain.grad.abs().min() > 0


def test_rotary_queries_may_go_on_after_the_keys():
    layer, tokens = layer_for(rotary=True), torch.randn(2, 7, 8)
    whole = layer(tokens, weights=True)
    tail = layer(tokens[:, 4:], tokens, query_start=4, weights=True)
    torch.testing.assert_close(tail.output, whole.output[:, 4:])
    torch.testing.assert_close(tail.weights, whole.weights[:, :, 4:])
    assert not torch.allclose(layer(tokens[:, 4:], tokens).output, tail.output)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (2, 3, 5, 8)])
def test_every_score_and_any_batch_dimensions(score, shape):
    layer = layer_for(score=score, keys=5)
    tokens = torch.randn(shape)
    read = layer(tokens, mask=causal_mask(5), weights=True)
    assert read.output.shape == shape
    assert read.weights.shape == (*shape[:-2], 2, 5, 5)
    assert torch.equal(read.output, layer(tokens, mask=causal_mask(5)).output)
    assert (read.weights[..., ~causal_mask(5)] == 0).all()


def test_keys_of_another_width():
    layer = layer_for(key_width=3)
    assert layer(torch.randn(2, 4, 8), torch.randn(2, 6, 3)).output.shape == (2, 4, 8)


def test_scores_are_carried_from_layer_to_layer():
    layer, tokens = layer_for(), torch.randn(2, 5, 8)
    output, weights, scores = layer.with_scores(tokens, None)
    plain = layer(tokens, weights=True)
    torch.testing.assert_close(output, plain.output, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights, plain.weights)
    carried = torch.randn(2, 2, 5, 5)
    output, weights, more = layer.with_scores(tokens, carried)
    torch.testing.assert_close(more, scores + carried)
    biased = layer(tokens, bias=carried, weights=True)
    torch.testing.assert_close(weights, biased.weights)
    torch.testing.assert_close(output, biased.output, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_nothing_is_kept_between_calls(mode):
    layer = layer_for(dropout=0.5, null_key=True, qk_norm=True, rotary=True).train(mode == "train")
    before = copy.deepcopy({**layer.__dict__, "state": layer.state_dict()})
    layer(torch.randn(2, 5, 8), weights=True)
    after = {**layer.__dict__, "state": layer.state_dict()}
    assert before.keys() == after.keys()
    assert all(torch.equal(before["state"][name], value) for name, value in after["state"].items())
    assert not [name for name, value in vars(layer).items() if isinstance(value, Tensor)]


def test_dropout_falls_in_training_alone_and_never_on_the_weights_returned():
    layer, tokens = layer_for(dropout=0.5), torch.randn(2, 5, 8)
    assert torch.equal(layer(tokens).output, layer(tokens).output)
    weights = layer(tokens, weights=True).weights
    layer.train()
    assert not torch.equal(layer(tokens).output, layer(tokens).output)
    assert torch.equal(layer(tokens, weights=True).weights, weights)


def test_a_mask_and_a_bias_may_be_the_same_for_all_keys_beside_a_null_key():
    layer, tokens = layer_for(null_key=True), torch.randn(2, 5, 8)
    rows, bias = torch.tensor([True, False, True, True, True])[:, None], torch.randn(5, 1)
    short = layer(tokens, mask=rows, bias=bias, weights=True)
    whole = layer(tokens, mask=rows.expand(5, 5), bias=bias.expand(5, 5), weights=True)
    assert torch.equal(short.weights, whole.weights)
    torch.testing.assert_close(short.weights[:, :, 1, -1], torch.ones(2, 2))


@pytest.mark.parametrize("kind", ["plain", "padding", "causal", "cross"])
def test_torch_agrees(kind):
    """``nn.MultiheadAttention`` with the same weights; its masks say True where a query may *not* attend."""
    cross = kind == "cross"
    layer, other = (
        layer_for(key_width=3 if cross else 8),
        torch.nn.MultiheadAttention(8, 2, batch_first=True, **({"kdim": 3, "vdim": 3} if cross else {})),
    )
    query, key = torch.randn(3, 6, 8), torch.randn(3, 5, 3) if cross else None
    parts = (layer.query, layer.key, layer.value)
    with torch.no_grad():
        if cross:
            for name, part in zip("qkv", parts, strict=True):
                getattr(other, f"{name}_proj_weight").copy_(part.weight)
        else:
            other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        other.out_proj.load_state_dict(layer.out.state_dict())
    observed = torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [False] * 3 + [True] * 3])
    options = {
        "padding": ({"mask": key_mask(observed)}, {"key_padding_mask": ~observed}),
        "causal": ({"mask": causal_mask(6)}, {"attn_mask": ~causal_mask(6)}),
    }
    ours, theirs = options.get(kind, ({}, {}))
    output, weights = layer(query, key, weights=True, **ours)
    read = query if key is None else key
    expected, maps = other(query, read, read, average_attn_weights=False, **theirs)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(weights, maps.detach(), atol=1e-5, rtol=1e-5)


def test_the_location_score_has_no_parameter_without_a_gradient():
    """A projection that nothing reads stops distributed training, which waits for its gradient."""
    layer = layer_for(score="location", keys=5, qk_norm=True)
    layer(torch.randn(2, 5, 8)).output.square().sum().backward()
    assert [name for name, parameter in layer.named_parameters() if parameter.grad is None] == []
    with pytest.raises(ConfigError, match="reads no keys"):
        layer_for(score="location", keys=5, null_key=True)


def test_masks_for_tokens_of_several_series_need_a_place_for_the_series():
    layer, tokens = layer_for(), torch.randn(3, 2, 5, 8)
    mask = key_mask(torch.ones(3, 5, dtype=torch.bool))  # [3, 1, 1, 5]: would be taken for [C, N, J, I]
    with pytest.raises(ConfigError, match="no place for the heads"):
        layer(tokens, mask=mask)
    assert layer(tokens, mask=mask[:, None], weights=True).weights.shape == (3, 2, 2, 5, 5)


def test_refusals():
    layer, tokens = layer_for(), torch.randn(2, 5, 8)
    with pytest.raises(ConfigError, match=r"A mask \[2, 5, 5\] for queries \[2, 5, 8\] has no place for the heads"):
        layer(tokens, mask=causal_mask(5).expand(2, 5, 5))  # two windows, two heads: torch would not notice
    with pytest.raises(ConfigError, match="no place for the heads"):
        layer.with_scores(tokens, None, mask=causal_mask(5).expand(2, 5, 5))
    with pytest.raises(ConfigError, match="at least 1; got 8 and 0"):
        MultiHeadAttention(8, 0)
    with pytest.raises(ConfigError, match=r"Unknown normaliser 'sparsmax'\. Did you mean 'sparsemax'"):
        MultiHeadAttention(8, 2, normaliser="sparsmax")
    with pytest.raises(ConfigError, match=r"dropout is a probability from 0 to 1; got 1\.5"):
        MultiHeadAttention(8, 2, dropout=1.5)
    with pytest.raises(ConfigError, match="width of a head is even; got 1"):
        MultiHeadAttention(2, 2, rotary=True)
    with pytest.raises(ConfigError, match=r"3 heads do not divide a width of 8. Change one, or give head_width."):
        MultiHeadAttention(8, 3)
    assert MultiHeadAttention(8, 3, head_width=5)(torch.randn(1, 2, 8)).output.shape == (1, 2, 8)
