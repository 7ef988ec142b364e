"""softmax, sparsemax, entmax-1.5: hand numbers, bisection as the oracle, masks, gradients."""

from __future__ import annotations

import math

import pytest
import torch

from tsattn.attention import NORMALISERS, entmax15, softmax, sparsemax
from tsattn.attention.normalisers import normalise_scores

ALPHA = {"softmax": 1.0, "sparsemax": 2.0, "entmax15": 1.5}
every = pytest.mark.parametrize("name", NORMALISERS)


def bisection(scores: torch.Tensor, alpha: float) -> torch.Tensor:
    """``max((alpha - 1) s - tau, 0) ** (1 / (alpha - 1))`` with tau found by halving, in double precision."""
    moved = (alpha - 1) * scores.double()
    low, high = moved.amax(-1, keepdim=True) - 1.0, moved.amax(-1, keepdim=True)
    for _ in range(100):
        middle = (low + high) / 2
        total = ((moved - middle).clamp(min=0) ** (1 / (alpha - 1))).sum(-1, keepdim=True)
        low, high = torch.where(total >= 1, middle, low), torch.where(total >= 1, high, middle)
    return (moved - low).clamp(min=0) ** (1 / (alpha - 1))


def test_hand_numbers():
    torch.testing.assert_close(softmax(torch.tensor([math.log(3.0), 0.0])), torch.tensor([0.75, 0.25]))
    # sparsemax: (1.0, 0.4, -2): two in the support, tau = (1.4 - 1) / 2 = 0.2
    torch.testing.assert_close(sparsemax(torch.tensor([1.0, 0.4, -2.0])), torch.tensor([0.8, 0.2, 0.0]))
    torch.testing.assert_close(sparsemax(torch.tensor([3.0, 1.0])), torch.tensor([1.0, 0.0]))
    # entmax-1.5 of (d, 0): with p = (1 + x) / 2 and x = d / 4 * sqrt(8 - d^2 / 4) / 2 ... by its equations, d = 1:
    # s / 2 = (0.5, 0), (0.5 - t)^2 + t^2 = 1 -> t = (0.5 - sqrt(1.75)) / 2
    t = (0.5 - math.sqrt(1.75)) / 2
    torch.testing.assert_close(entmax15(torch.tensor([1.0, 0.0])), torch.tensor([(0.5 - t) ** 2, t**2]))
    torch.testing.assert_close(entmax15(torch.tensor([2.0, 0.0])), torch.tensor([1.0, 0.0]))


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("keys", [1, 2, 7, 100])
def test_bisection_agrees(name, spread, keys):
    torch.manual_seed(0)
    scores = spread * torch.randn(50, keys, dtype=torch.float64)
    found = normalise_scores(scores, normaliser=name)
    torch.testing.assert_close(found, bisection(scores, ALPHA[name]), atol=1e-9, rtol=1e-7)


def test_weights_can_be_exactly_zero():
    torch.manual_seed(0)
    scores = 3 * torch.randn(100, 20)
    shares = {name: float((normalise_scores(scores, normaliser=name) == 0).double().mean()) for name in NORMALISERS}
    assert shares["softmax"] == 0
    assert 0.5 < shares["entmax15"] < shares["sparsemax"]


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_mask_is_the_same_as_leaving_the_key_out(name, dtype):
    torch.manual_seed(0)
    scores = (5 * torch.randn(6, 9)).to(dtype)
    mask = torch.tensor([True, False, True, True, False, False, True, True, False])
    weights = normalise_scores(scores, mask.expand(6, 9), name)
    assert weights.dtype == dtype
    assert (weights[:, ~mask] == 0).all()
    torch.testing.assert_close(weights[:, mask], normalise_scores(scores[:, mask], normaliser=name))


@every
@pytest.mark.parametrize("shift", [-1e4, 0.0, 1e4])
def test_rows_sum_to_one_and_do_not_depend_on_a_shift(name, shift):
    torch.manual_seed(0)
    scores = torch.randn(30, 12, dtype=torch.float64)
    mask = torch.rand(30, 12) > 0.4
    mask[:, 0] = True
    weights = normalise_scores(scores + shift, mask, name)
    torch.testing.assert_close(weights.sum(-1), torch.ones(30, dtype=torch.float64))
    torch.testing.assert_close(weights, normalise_scores(scores, mask, name), atol=1e-9, rtol=1e-7)


@every
def test_a_row_without_keys_is_zero_and_harms_no_gradient(name):
    torch.manual_seed(0)
    scores = torch.randn(3, 5, requires_grad=True)
    mask = torch.rand(3, 5) > 0.3
    mask[:, 0] = True
    mask[1] = False
    weights = normalise_scores(scores, mask, name)
    assert (weights[1] == 0).all()
    weights.square().sum().backward()
    alone = scores[[0, 2]].detach().requires_grad_()
    normalise_scores(alone, mask[[0, 2]], name).square().sum().backward()
    assert torch.equal(scores.grad[1], torch.zeros(5))
    torch.testing.assert_close(scores.grad[[0, 2]], alone.grad)


@every
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_no_gradient_is_nan_on_the_way(name):
    scores = torch.randn(2, 3, requires_grad=True)
    with torch.autograd.detect_anomaly():
        normalise_scores(scores, torch.tensor([[False] * 3, [True] * 3]), name).square().sum().backward()
    assert scores.grad.isfinite().all()


@every
def test_gradients(name):
    torch.manual_seed(0)
    scores = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(4, 6) > 0.3
    mask[:, 0] = True
    assert torch.autograd.gradcheck(lambda s: normalise_scores(s, None, name), (scores,))
    assert torch.autograd.gradcheck(lambda s: normalise_scores(s, mask, name), (scores,))


@every
def test_scores_beyond_all_bounds(name):
    scores = torch.tensor([[1e30, -1e30, 0.0], [3e38, 3e38, -3e38]])
    weights = normalise_scores(scores, torch.tensor([[True, True, True], [True, True, False]]), name)
    torch.testing.assert_close(weights, torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]))


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("spread", [0.01, 1.0, 100.0, 1e4])
def test_half_precision_is_the_rounded_result_of_the_exact_one(name, dtype, spread):
    torch.manual_seed(0)
    scores = (spread * torch.randn(20, 300)).to(dtype).requires_grad_()
    weights = normalise_scores(scores, normaliser=name)
    exact = normalise_scores(scores.detach().double().requires_grad_(), normaliser=name)
    torch.testing.assert_close(weights.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-6)
    weights.square().sum().backward()
    assert scores.grad.dtype == dtype
    assert scores.grad.isfinite().all()


@every
def test_many_keys_far_below(name):
    """Their sum is beyond float32; the two best keys share everything."""
    scores = torch.full((300,), -1e38)
    scores[[3, 70]] = 1e38
    expected = torch.zeros(300)
    expected[[3, 70]] = 0.5
    torch.testing.assert_close(normalise_scores(scores, normaliser=name), expected)
