"""Scores: hand numbers, and a loop over pairs as the oracle."""

from __future__ import annotations

import math

import pytest
import torch

from tsattn.attention import (
    SCORES,
    AdditiveScore,
    CosineScore,
    GeneralScore,
    LocationScore,
    Score,
    additive,
    build_score,
    cosine,
    dot,
    general,
    location,
    scaled_dot,
)
from tsattn.errors import ConfigError

QUERY = torch.tensor([[1.0, 2.0], [0.0, -1.0]])
KEY = torch.tensor([[3.0, 1.0], [0.0, 2.0], [-4.0, 0.5]])


def test_hand_numbers():
    torch.testing.assert_close(dot(QUERY, KEY), torch.tensor([[5.0, 4.0, -3.0], [-1.0, -2.0, -0.5]]))
    torch.testing.assert_close(scaled_dot(QUERY, KEY), dot(QUERY, KEY) / math.sqrt(2.0))
    torch.testing.assert_close(scaled_dot(QUERY, KEY, scale=3.0), dot(QUERY, KEY) * 3.0)
    weight = torch.tensor([[0.0, 1.0], [2.0, 0.0]])  # q W = (2 q1, q0)
    torch.testing.assert_close(general(QUERY[:1], KEY, weight), torch.tensor([[13.0, 2.0, -15.5]]))
    weight = torch.tensor([[1.0, 0.0, 2.0], [0.5, 1.0, 0.0]])
    torch.testing.assert_close(location(QUERY[:1], weight), torch.tensor([[2.0, 2.0, 2.0]]))
    torch.testing.assert_close(cosine(QUERY[1:], KEY[1:2], 7.0), torch.tensor([[-7.0]]))


def test_additive_by_hand():
    """v . tanh(q Wq + k Wk) with one hidden entry: 2 tanh(q0 + k1)."""
    query_weight, key_weight, vector = torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0], [1.0]]), torch.tensor([2.0])
    expected = [[2 * math.tanh(q + k) for k in (1.0, 2.0, 0.5)] for q in (1.0, 0.0)]
    torch.testing.assert_close(additive(QUERY, KEY, query_weight, key_weight, vector), torch.tensor(expected))


def loop(layer: Score, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """One pair at a time, from the formulae; a head dimension in front."""
    scores = torch.zeros(*query.shape[:-1], key.shape[-2])
    for n in range(query.shape[0]):
        for j in range(query.shape[-2]):
            for i in range(key.shape[-2]):
                q, k = query[n, j], key[n, i]
                if isinstance(layer, GeneralScore):
                    value = sum(q[a] * layer.weight[n, a, b] * k[b] for a in range(len(q)) for b in range(len(k)))
                elif isinstance(layer, AdditiveScore):
                    hidden = layer.query_weight[n].T @ q + layer.key_weight[n].T @ k
                    value = sum(layer.vector[n, a] * torch.tanh(hidden[a]) for a in range(len(hidden)))
                elif isinstance(layer, LocationScore):
                    value = sum(q[a] * layer.weight[n, a, i] for a in range(len(q)))
                else:
                    value = layer.temperature[n, 0, 0] * (q @ k) / (q.norm() * k.norm())
                scores[n, j, i] = value
    return scores


@pytest.mark.parametrize("name", ["general", "additive", "location", "cosine"])
def test_each_head_has_its_own_parameters_and_agrees_with_the_loop(name):
    torch.manual_seed(0)
    layer = build_score(name, 4, 4, heads=3, keys=5)
    assert isinstance(layer, Score)
    for parameter in layer.parameters():
        assert parameter.shape[0] == 3
        with torch.no_grad():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    query, key = torch.randn(3, 2, 4), torch.randn(3, 5, 4)
    torch.testing.assert_close(layer(query, key), loop(layer, query, key), atol=1e-5, rtol=1e-5)
    batched = layer(query.expand(6, 3, 2, 4), key.expand(6, 3, 5, 4))
    torch.testing.assert_close(batched[4], layer(query, key))


@pytest.mark.parametrize("name", ["general", "additive"])
def test_queries_and_keys_may_differ_in_width(name):
    layer = build_score(name, 3, 5)
    assert layer(torch.randn(2, 4, 3), torch.randn(2, 6, 5)).shape == (2, 4, 6)


@pytest.mark.parametrize("name", ["general", "cosine"])
def test_factors_are_the_score(name):
    torch.manual_seed(0)
    layer, query, key = build_score(name, 4, 4, heads=2), torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    left, right = layer.factors(query, key)
    torch.testing.assert_close(left @ right.transpose(-2, -1), layer(query, key))


def test_scores_without_factors_say_so():
    assert AdditiveScore(2, 2, 2).factors(QUERY, KEY) is None
    assert LocationScore(2, 3).factors(QUERY, KEY) is None


def test_the_temperature_stays_in_its_bounds():
    layer = CosineScore()
    torch.testing.assert_close(layer.temperature.item(), 10.0)
    for raw, bound in ((50.0, 100.0), (-50.0, 1.0)):
        with torch.no_grad():
            layer.log_temperature.fill_(raw)
        assert layer.temperature.item() == pytest.approx(bound)
        assert layer(1e6 * QUERY, KEY).abs().max() <= bound * 1.0001


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_zero_vectors_have_no_direction(dtype):
    query = torch.zeros(2, 4, dtype=dtype, requires_grad=True)
    key = torch.randn(3, 4).to(dtype)
    scores = cosine(query, key, 5.0)
    assert (scores == 0).all()
    scores.sum().backward()
    assert query.grad.isfinite().all()


@pytest.mark.parametrize("name", SCORES)
def test_scores_come_in_full_precision(name):
    score = build_score(name, 4, 4, keys=3)
    query, key = torch.randn(2, 4).bfloat16(), torch.randn(3, 4).bfloat16()
    if isinstance(score, str):
        assert {"dot": dot, "scaled_dot": scaled_dot}[score](query, key).dtype == torch.float32
    else:
        assert score.bfloat16()(query, key).dtype == torch.float32


@pytest.mark.parametrize("autocast", [False, True])
def test_products_of_half_precision_vectors_are_not_rounded(autocast):
    """A score of 300 is rounded to 2 in bfloat16, and 64 * 1,600 is beyond float16."""
    torch.manual_seed(0)
    query, key = (10 * torch.randn(5, 16)).bfloat16(), (10 * torch.randn(6, 16)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        found = dot(query, key), scaled_dot(query, key)
    exact = query.double() @ key.double().T
    torch.testing.assert_close(found[0].double(), exact, atol=1e-3, rtol=1e-6)
    torch.testing.assert_close(found[1].double(), exact / 4, atol=1e-3, rtol=1e-6)
    large = torch.full((1, 64), 40.0, dtype=torch.float16)
    assert dot(large, large).item() == 102_400


def test_refusals():
    with pytest.raises(ConfigError, match=r"Unknown attention score 'scaled-dot'. Did you mean 'scaled_dot'\?"):
        build_score("scaled-dot", 4, 4)
    for name in ("dot", "scaled_dot", "cosine"):
        with pytest.raises(ConfigError, match=r"queries have 4 and keys 5. Use 'general' or 'additive'"):
            build_score(name, 4, 5)
    with pytest.raises(ConfigError, match="location score needs the number of keys"):
        build_score("location", 4, 4)
    with pytest.raises(ConfigError, match="built for 3 keys and was given 4"):
        LocationScore(2, 3)(QUERY, torch.zeros(4, 2))
