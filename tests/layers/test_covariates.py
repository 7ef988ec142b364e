"""Covariates as vectors."""

from __future__ import annotations

import torch

from tsattn.layers.covariates import CovariateVector, StepEffect, embedding_width


def test_numbers_first_then_categories():
    vector = CovariateVector(2, (4, 30))
    assert [embedding_width(n) for n in (1, 4, 30, 1000)] == [1, 2, 6, 8]
    assert (vector.width, vector.columns) == (2 + 2 + 6, 4)
    numeric, codes = torch.randn(3, 5, 2), torch.randint(0, 4, (3, 5, 2))
    out = vector(numeric, codes)
    assert out.shape == (3, 5, 10)
    assert torch.equal(out[..., :2], numeric)
    assert torch.equal(out[0, 0, 2:4], vector.embeddings[0].weight[codes[0, 0, 0]])


def test_unknown_is_neutral_and_stays_so():
    vector = CovariateVector(0, (3,))
    out = vector(torch.zeros(1, 2, 0), torch.tensor([[[0], [1]]]))
    assert torch.equal(out[0, 0], torch.zeros(vector.width))
    out.sum().backward()
    assert torch.equal(vector.embeddings[0].weight.grad[0], torch.zeros(vector.width))
    assert (vector.embeddings[0].weight.grad[1] != 0).all()


def test_contributions_are_summed_by_column():
    vector = CovariateVector(1, (4, 9))
    assert vector.by_column(torch.tensor([[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]])).tolist() == [[1.0, 5.0, 60.0]]
    numbers = CovariateVector(2, ())
    parts = torch.randn(3, 2)
    assert torch.equal(numbers.by_column(parts), parts)


def test_no_covariates_is_an_empty_vector():
    vector = CovariateVector(0, ())
    assert vector.width == 0
    assert vector(torch.zeros(2, 7, 0), torch.zeros(2, 7, 0, dtype=torch.int64)).shape == (2, 7, 0)


def test_step_effect_starts_at_zero_and_depends_on_one_step_only():
    torch.manual_seed(0)
    effect = StepEffect(2, 3, targets=4)
    known, static = torch.randn(5, 6, 2), torch.randn(5, 3)
    assert torch.equal(effect(known, static), torch.zeros(5, 6, 4))
    torch.nn.init.normal_(effect.out.weight)
    before = effect(known, static)
    moved = known.clone()
    moved[:, 2] += 1
    changed = (effect(moved, static) != before).any(dim=-1)
    assert changed[:, 2].all()
    assert not changed[:, [0, 1, 3, 4, 5]].any()
    assert (effect(known, static + 1) != before).any()


def test_step_effect_of_one_role_alone():
    assert StepEffect(2, 0, targets=1)(torch.randn(3, 4, 2), torch.zeros(3, 0)).shape == (3, 4, 1)
    assert StepEffect(0, 2, targets=1)(torch.zeros(3, 4, 0), torch.randn(3, 2)).shape == (3, 4, 1)
