"""The naive forecasts: hand numbers, gaps, textbook quantiles, and a slow oracle."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
import torch

from tsattn.models import InputSpec, build

LEVELS = (0.1, 0.5, 0.975)


def forecast(name: str, values: list[float | None], horizon: int, season: int = 1, scale: float = 1.0):
    spec = InputSpec(horizon=horizon, context=len(values), season=season, quantiles=LEVELS)
    batch = spec.example(1)
    past = torch.tensor([0.0 if value is None else value for value in values]).view(1, -1, 1)
    seen = torch.tensor([value is not None for value in values]).view(1, -1, 1)
    return build(name, spec)(replace(batch, past=past, past_observed=seen, scale=torch.tensor([[scale]])))


def deviations(output) -> list[float]:
    """The deviation behind the quantiles of each step."""
    width = output.quantiles[0, :, 0, 2] - output.point[0, :, 0]
    return (width / NormalDist().inv_cdf(0.975)).tolist()


def test_naive_repeats_the_last_value():
    output = forecast("naive", [1.0, 4.0, 2.0], 3)
    assert output.point.flatten().tolist() == [2.0, 2.0, 2.0]
    size = math.sqrt((3**2 + 2**2) / 2)
    assert deviations(output) == pytest.approx([size, size * math.sqrt(2), size * math.sqrt(3)], rel=1e-5)
    assert output.quantiles[0, 0, 0, 0].item() == pytest.approx(2.0 - 1.2815516 * size, rel=1e-5)
    assert torch.equal(output.quantiles[..., 1], output.point)


def test_naive_skips_gaps_and_counts_them():
    output = forecast("naive", [1.0, 4.0, None, None], 2)
    assert output.point.flatten().tolist() == [4.0, 4.0]
    assert deviations(output) == pytest.approx([3 * math.sqrt(3), 3 * math.sqrt(4)], rel=1e-5)


def test_naive_without_neighbours_uses_the_distances_from_the_last_value():
    assert deviations(forecast("naive", [1.0, None, 5.0], 1, scale=2.5)) == pytest.approx([math.sqrt(8)], rel=1e-5)
    assert forecast("naive", [None, None], 2).point.flatten().tolist() == [0.0, 0.0]


def test_seasonal_naive_repeats_the_last_season():
    output = forecast("seasonal_naive", [9.0, 1.0, 2.0, 3.0, 11.0, 22.0, 33.0], 7, season=3)
    assert output.point.flatten().tolist() == [11.0, 22.0, 33.0, 11.0, 22.0, 33.0, 11.0]
    size = math.sqrt((6**2 + 10**2 + 20**2 + 30**2) / 4)
    seasons = [1, 1, 1, 2, 2, 2, 3]
    assert deviations(output) == pytest.approx([size * math.sqrt(k) for k in seasons], rel=1e-5)


def test_seasonal_naive_takes_the_latest_observed_value_of_the_same_place():
    output = forecast("seasonal_naive", [1.0, 2.0, 3.0, 11.0, None, 33.0], 3, season=3)
    assert output.point.flatten().tolist() == [11.0, 2.0, 33.0]
    size = math.sqrt((10**2 + 30**2) / 2)
    assert deviations(output) == pytest.approx([size, size * math.sqrt(2), size], rel=1e-5)


def test_seasonal_naive_falls_back_to_the_last_value():
    output = forecast("seasonal_naive", [4.0, 6.0], 5, season=4)
    assert output.point.flatten().tolist() == [6.0, 6.0, 4.0, 6.0, 6.0]
    assert deviations(output)[0] == pytest.approx(2.0, rel=1e-5)
    assert forecast("seasonal_naive", [5.0], 3, season=24).point.flatten().tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("context", [1, 5, 12, 30])
@pytest.mark.parametrize("season", [1, 4, 7])
def test_a_slow_oracle_agrees(context, season):
    make = torch.Generator().manual_seed(context * season)
    spec = InputSpec(horizon=9, context=context, targets=2, season=season)
    batch = spec.example(20)
    past = torch.randn(batch.past.shape, generator=make)
    seen = torch.rand(batch.past.shape, generator=make) > 0.4
    point = build("seasonal_naive", spec)(replace(batch, past=past, past_observed=seen)).point
    for b in range(20):
        for c in range(2):
            observed = [t for t in range(context) if seen[b, t, c]]
            for h in range(9):
                same = [t for t in observed if (context + h - t) % season == 0]
                step = same[-1] if same else observed[-1] if observed else None
                assert point[b, h, c].item() == (0.0 if step is None else past[b, step, c].item())


def test_levels_of_1e30_do_not_overflow():
    output = forecast("seasonal_naive", [1e30, 3e30, 2e30, 4e30], 2, season=2)
    assert output.quantiles.isfinite().all()
    assert deviations(output) == pytest.approx([1e30, 1e30], rel=1e-4)
