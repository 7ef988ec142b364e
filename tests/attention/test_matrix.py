"""The promises of the kernel, for every combination of score, normaliser, mask, shape, precision and dropout."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from tsattn.attention import NORMALISERS, SCORES, Attended, attend, attention_weights, build_score, causal_mask
from tsattn.errors import ConfigError

B, N, D, V = 3, 2, 4, 5
MASKS = ("none", "causal", "padding", "both")
SHAPES = ((6, 6), (3, 6), (6, 3))
every_score = pytest.mark.parametrize("score", SCORES)
every_normaliser = pytest.mark.parametrize("normaliser", NORMALISERS)


def mask_for(kind: str, queries: int, keys: int) -> Tensor | None:
    """Window 0 of a padding mask hides everything, the others something."""
    observed = torch.tensor([[False] * keys, [True] * (keys - 1) + [False], [True] * keys])[:, None, None]
    causal = causal_mask(queries, keys)
    made = {"none": None, "causal": causal, "padding": observed, "both": causal & observed}[kind]
    if made is not None:
        assert not made.all()
        assert made.any()
    return made


class Case:
    """Random inputs of one shape and precision; a call repeats exactly."""

    def __init__(self, score: str, queries: int, keys: int, dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(0)
        self.query = torch.randn(B, N, queries, D).to(dtype).requires_grad_()
        self.key = torch.randn(B, N, keys, D).to(dtype).requires_grad_()
        self.value = torch.randn(B, N, keys, V).to(dtype).requires_grad_()
        self.score = build_score(score, D, D, heads=N, keys=keys)
        if not isinstance(self.score, str):
            self.score.to(dtype)

    def __call__(self, **options: object) -> Attended:
        torch.manual_seed(1)
        return attend(self.query, self.key, self.value, score=self.score, **options)


@every_score
@every_normaliser
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropout", [0.0, 0.5], ids=["eval", "train"])
def test_promises(score, normaliser, dtype, dropout):
    for (queries, keys), kind in itertools.product(SHAPES, MASKS):
        case, mask = Case(score, queries, keys, dtype), mask_for(kind, queries, keys)
        rest = {"mask": mask, "normaliser": normaliser}
        plain = case(**rest, dropout=dropout)
        asked = case(**rest, dropout=dropout, weights=True)
        assert plain.weights is None
        assert torch.equal(plain.output, asked.output)  # asking changes nothing
        weights = asked.weights
        assert weights.dtype == torch.float32
        assert not weights.requires_grad
        sums = weights.sum(-1)
        may = torch.ones(B, N, queries, keys, dtype=torch.bool) if mask is None else mask.expand(B, N, queries, keys)
        assert (weights[~may] == 0).all()  # masked weights are exactly 0
        torch.testing.assert_close(sums, may.any(-1).float(), atol=1e-6, rtol=0)  # rows sum to 1, or to 0
        assert (plain.output[~may.any(-1)] == 0).all()
        assert plain.output.dtype == dtype
        certain = case(**rest)  # without dropout, the weights are how the values were mixed
        torch.testing.assert_close(
            weights @ case.value.float(), certain.output.float(), atol=1e-5 if dtype == torch.float32 else 0.05, rtol=0
        )
        rows = torch.tensor([queries - 1, 0])
        torch.testing.assert_close(case(**rest, weights=rows).weights, weights[:, :, rows], atol=1e-6, rtol=1e-5)


@every_score
@every_normaliser
@pytest.mark.parametrize("kind", ["padding", "both"])
def test_a_row_without_keys_harms_no_gradient(score, normaliser, kind):
    """Window 0 may attend nothing: its gradients are 0, and those of the others are as if it were not there."""
    case, mask = Case(score, 6, 6), mask_for(kind, 6, 6)
    case(mask=mask, normaliser=normaliser).output.square().sum().backward()
    inputs = [t for t in (case.query, case.key, case.value) if score != "location" or t is not case.key]
    whole = [tensor.grad.clone() for tensor in inputs]
    for gradient in whole:
        assert gradient.isfinite().all()
        assert (gradient[0] == 0).all()
    tensors = [tensor[1:].detach().requires_grad_() for tensor in (case.query, case.key, case.value)]
    attend(*tensors, score=case.score, mask=mask[1:], normaliser=normaliser).output.square().sum().backward()
    for gradient, tensor in zip(whole, [t for t in tensors if t.grad is not None], strict=True):
        torch.testing.assert_close(gradient[1:], tensor.grad)


@every_score
def test_the_fused_path_and_the_explicit_one_agree(score):
    for (queries, keys), kind in itertools.product(SHAPES, MASKS):
        case, mask = Case(score, queries, keys), mask_for(kind, queries, keys)
        bias = torch.randn(N, queries, keys, requires_grad=True)
        fused = case(mask=mask, bias=bias).output
        fused.square().sum().backward()
        inputs = (case.query, case.key, case.value, bias)
        found = [tensor.grad for tensor in inputs]
        for tensor in inputs:
            tensor.grad = None
        weights = attention_weights(case.query, case.key, score=case.score, mask=mask, bias=bias)
        explicit = weights @ case.value
        explicit.square().sum().backward()
        torch.testing.assert_close(fused, explicit, atol=1e-5, rtol=1e-5)
        for gradient, tensor in zip(found, inputs, strict=True):
            if score == "location" and tensor is case.key:
                assert gradient is None  # positions alone
                continue
            torch.testing.assert_close(gradient, tensor.grad, atol=1e-4, rtol=1e-4)


@every_score
@every_normaliser
def test_under_autocast(score, normaliser):
    case, mask = Case(score, 6, 6), mask_for("both", 6, 6)
    rest = {"mask": mask, "normaliser": normaliser}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for dropout in (0.5, 0.0):
            plain, asked = (case(**rest, dropout=dropout, weights=weights) for weights in (False, True))
            assert torch.equal(plain.output, asked.output)
    assert asked.weights.dtype == torch.float32
    exact = case(mask=mask, normaliser=normaliser, weights=True).weights
    torch.testing.assert_close(asked.weights, exact, atol=0.05, rtol=0.1)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("score", ["dot", "scaled_dot", "general", "cosine"])
def test_sharp_weights_in_half_precision_are_those_of_the_output(score, autocast):
    """Scores of 100: rounded to bfloat16, they would move weights by tenths."""
    torch.manual_seed(0)
    query, key, value = (size * torch.randn(2, 2, 50, 32) for size in (4.0, 4.0, 1.0))
    layer, bias = build_score(score, 32, 32, heads=2), torch.randn(50, 50)
    if not autocast:
        query, key, value = query.bfloat16(), key.bfloat16(), value.bfloat16()
        layer = layer if isinstance(layer, str) else layer.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        read = attend(query, key, value, score=layer, bias=bias, weights=True)
    assert read.output.dtype == torch.bfloat16
    assert read.weights.max() > 0.8
    torch.testing.assert_close(read.weights @ value.float(), read.output.float(), atol=0.02, rtol=0)


def test_sharp_weights_in_full_precision_are_those_of_the_output():
    """Scores of some hundreds, where scaling the queries first would differ from the fused kernel by 1e-4."""
    torch.manual_seed(0)
    query, key, value = (size * torch.randn(2, 4, 50, 32) for size in (12.0, 12.0, 1.0))
    read = attend(query, key, value, score="scaled_dot", weights=True)
    torch.testing.assert_close(read.weights @ value, read.output, atol=1e-5, rtol=0)


@every_normaliser
def test_without_keys_zeros_are_read(normaliser):
    read = attend(torch.randn(2, 3, 4), torch.zeros(2, 0, 4), torch.zeros(2, 0, 5), normaliser=normaliser, weights=True)
    assert torch.equal(read.output, torch.zeros(2, 3, 5))
    assert read.weights.shape == (2, 3, 0)


@pytest.mark.parametrize("width", [1, 3, 9])
def test_values_of_another_width(width):
    """The fused kernel takes one width alone, so the narrower side is filled up with zeros."""
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 5, 4), torch.randn(2, 7, 4), torch.randn(2, 7, width)
    read = attend(query, key, value)
    assert read.output.shape == (2, 5, width)
    torch.testing.assert_close(read.output, attention_weights(query, key) @ value, atol=1e-6, rtol=1e-5)


@every_score
@every_normaliser
def test_weights_with_their_gradient(score, normaliser):
    case, mask = Case(score, 6, 6), mask_for("padding", 6, 6)
    weights = case(mask=mask, normaliser=normaliser, weights=True, grad=True).weights
    weights.square().sum().backward()
    found, case.query.grad = case.query.grad, None
    rest = {"score": case.score, "mask": mask, "normaliser": normaliser}
    attention_weights(case.query, case.key, **rest).square().sum().backward()
    torch.testing.assert_close(found, case.query.grad)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3), (1, 2, 1, 3)])
def test_any_batch_dimensions(lead):
    torch.manual_seed(0)
    query, key, value = torch.randn(*lead, 5, 4), torch.randn(*lead, 7, 4), torch.randn(*lead, 7, 6)
    mask = torch.rand(*lead, 5, 7) > 0.3
    read = attend(query, key, value, mask=mask, weights=True)
    assert read.output.shape == (*lead, 5, 6)
    assert read.weights.shape == (*lead, 5, 7)
    torch.testing.assert_close(read.weights @ value, read.output, atol=1e-5, rtol=0)


def test_dimensions_broadcast():
    """Learnt queries are the same for all windows, a mask for all heads."""
    torch.manual_seed(0)
    query, key, value = torch.randn(1, N, 5, D), torch.randn(B, N, 7, D), torch.randn(B, 1, 7, V)
    mask = torch.rand(B, 1, 1, 7) > 0.3
    read = attend(query, key, value, mask=mask, bias=torch.randn(5, 7), weights=torch.tensor([4]))
    assert read.output.shape == (B, N, 5, V)
    assert read.weights.shape == (B, N, 1, 7)
    one = attend(query[0], key[1], value[1], mask=mask[1], weights=True)
    without = attend(query, key, value, mask=mask, weights=True)
    torch.testing.assert_close(without.output[1], one.output)
    torch.testing.assert_close(without.weights[1], one.weights)


def test_views_and_the_smallest_sizes():
    torch.manual_seed(0)
    base = torch.randn(B, 6, N, D)
    moved = base.transpose(1, 2)
    assert not moved.is_contiguous()
    torch.testing.assert_close(attend(moved, moved, moved).output, attend(*[moved.contiguous()] * 3).output)
    single = attend(moved, moved[:, :, :1], moved[:, :, :1], weights=True)
    assert (single.weights == 1).all()
    torch.testing.assert_close(single.output, moved[:, :, :1].expand_as(moved))
    assert attend(moved[:, :, :0], moved, moved, weights=True).weights.shape == (B, N, 0, 6)


def test_many_rows_are_made_some_at_a_time(monkeypatch):
    from tsattn.attention import kernel

    case = Case("scaled_dot", 6, 6)
    whole = case(weights=True).weights
    monkeypatch.setattr(kernel, "_CHUNK", 2 * B * N * 6)  # two rows at once
    for grad in (False, True):
        torch.testing.assert_close(case(weights=True, grad=grad).weights, whole, atol=1e-6, rtol=1e-5)
        some = case(weights=torch.tensor([5, 0, 3]), grad=grad).weights
        torch.testing.assert_close(some, whole[:, :, [5, 0, 3]], atol=1e-6, rtol=1e-5)


def test_a_function_may_be_a_score():
    case = Case("dot", 6, 6)
    torch.manual_seed(1)
    read = attend(case.query, case.key, case.value, score=lambda q, k: -torch.cdist(q, k), weights=True)
    torch.testing.assert_close(read.weights, (-torch.cdist(case.query, case.key)).softmax(-1).detach())


def test_refusals():
    case = Case("dot", 6, 6)
    with pytest.raises(ConfigError, match=r"A mask is boolean, True where a query may attend; found torch.float32"):
        case(mask=torch.zeros(6, 6))
    with pytest.raises(ConfigError, match="Unknown normaliser 'softmx'"):
        case(normaliser="softmx")
    for name in ("dot", "scaled_dot"):
        with pytest.raises(
            ConfigError, match=f"The {name} score compares vectors of one width; queries have 4 and keys 5"
        ):
            attend(case.query, torch.zeros(B, N, 6, 5), case.value, score=name)
    with pytest.raises(RuntimeError):  # never filled up to one width in silence
        attend(case.query, torch.zeros(B, N, 6, 3), case.value, score=build_score("general", D, 5))
    with pytest.raises(ConfigError, match="Unknown score without parameters 'additive'"):
        attend(case.query, case.key, case.value, score="additive")
