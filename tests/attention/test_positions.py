"""Positions: the published formulae, and what rotary positions promise."""

from __future__ import annotations

import math

import pytest
import torch

from tsattn.attention import LearntPositions, rotate, sinusoidal
from tsattn.errors import ConfigError


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_sinusoidal_by_its_formula(width):
    table = sinusoidal(7, width)
    assert table.shape == (7, width)
    for position in range(7):
        for entry in range(width):
            pairs = math.ceil(width / 2)
            angle = position / 10_000 ** ((entry // 2) / pairs)
            expected = math.sin(angle) if entry % 2 == 0 else math.cos(angle)
            assert table[position, entry].item() == pytest.approx(expected, abs=1e-6)


def test_learnt_positions_are_added():
    positions = LearntPositions(5, 3)
    tokens = torch.randn(2, 4, 3)
    torch.testing.assert_close(positions(tokens), tokens + positions.weight[:4])
    with pytest.raises(ConfigError, match="6 tokens, but only 5 positions"):
        positions(torch.zeros(6, 3))


def test_rotation_by_hand():
    """Width 2 has one pair and the angle of the position itself."""
    turned = rotate(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 2]))
    torch.testing.assert_close(turned, torch.tensor([[1.0, 0.0], [math.cos(2.0), math.sin(2.0)]]))


def test_products_depend_on_the_distance_alone():
    torch.manual_seed(0)
    query, key = torch.randn(1, 8, dtype=torch.float64), torch.randn(1, 8, dtype=torch.float64)

    def product(at: int, other: int) -> float:
        return (rotate(query, torch.tensor([at])) @ rotate(key, torch.tensor([other])).T).item()

    assert product(3, 1) == pytest.approx(product(103, 101), rel=1e-4)
    assert len({round(product(9, other), 3) for other in range(10)}) == 10
    assert rotate(query, torch.tensor([9])).norm().item() == pytest.approx(query.norm().item())


def test_an_odd_width_is_refused():
    with pytest.raises(ConfigError, match="width of a head is even; got 3"):
        rotate(torch.zeros(1, 3), torch.tensor([0]))
