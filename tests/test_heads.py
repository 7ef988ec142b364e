"""Outputs and losses: hand numbers, gaps, quantiles that cannot cross."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import pytest
import torch

from tsattn import heads
from tsattn.errors import ConfigError
from tsattn.models import InputSpec, Output

LEVELS = (0.1, 0.5, 0.9)


def batch_of(future: list[float], observed: list[int] | None = None, scale: float = 1.0):
    batch = InputSpec(horizon=len(future), context=1).example(1)
    seen = torch.ones(len(future)) if observed is None else torch.tensor(observed)
    return replace(
        batch,
        future=torch.tensor(future).view(1, -1, 1),
        future_observed=seen.bool().view(1, -1, 1),
        scale=torch.tensor([[scale]]),
    )


def output_of(point: list[float], quantiles: list[list[float]] | None = None) -> Output:
    made = None if quantiles is None else torch.tensor(quantiles)[None, :, None]
    return Output(torch.tensor(point).view(1, -1, 1), made)


@pytest.mark.parametrize(("kind", "expected"), [("mse", (1 + 9) / 2), ("mae", (1 + 3) / 2), ("huber", (0.5 + 2.5) / 2)])
def test_point_losses(kind, expected):
    output = output_of([1.0, 2.0, 50.0])
    assert heads.loss(output, batch_of([2.0, 5.0, 0.0], [1, 1, 0]), kind).item() == pytest.approx(expected)


def test_errors_are_in_units_of_the_training_deviation():
    output, batch = output_of([10.0, 20.0]), batch_of([20.0, 50.0], scale=10.0)
    assert heads.loss(output, batch, "mse").item() == pytest.approx((1 + 9) / 2)


def test_pinball():
    output = output_of([2.0], [[1.0, 2.0, 4.0]])
    # errors 2, 1, -1: 0.1 * 2, 0.5 * 1, 0.1 * 1
    assert heads.loss(output, batch_of([3.0]), "pinball", LEVELS).item() == pytest.approx((0.2 + 0.5 + 0.1) / 3)


def test_the_median_is_trained_when_it_is_not_among_the_levels():
    output = output_of([2.0], [[4.0]])
    assert heads.loss(output, batch_of([3.0]), "pinball", (0.9,)).item() == pytest.approx((0.1 + 0.5) / 2)


@pytest.mark.parametrize("kind", ["mse", "mae", "huber", "pinball"])
def test_nothing_observed_is_zero_with_a_gradient(kind):
    point = torch.ones(1, 2, 1, requires_grad=True)
    output = Output(point, point[..., None].expand(-1, -1, -1, 3))
    batch = batch_of([float("nan"), 1.0], [0, 0])
    loss = heads.loss(output, batch, kind, LEVELS if kind == "pinball" else ())
    assert loss.item() == 0.0
    loss.backward()
    assert torch.equal(point.grad, torch.zeros_like(point))


def test_losses_of_windows_name_the_bad_one():
    batch = InputSpec(horizon=2, context=1).example(3)
    batch.future_observed[1] = False
    point = torch.zeros(3, 2, 1)
    point[2, 0] = float("inf")
    point[0] = 2.0
    losses = heads.window_losses(Output(point), batch, "mse")
    assert losses[:2].tolist() == [4.0, 0.0]
    assert not losses[2].isfinite()
    sums, counts = heads.loss_sums(Output(point), batch, "mse")
    assert sums[:2].tolist() == [8.0, 0.0]
    assert counts.tolist() == [2, 0, 2]


def test_half_precision_forecasts_are_scored_in_float32():
    output = Output(torch.full((1, 1, 1), 300.0, dtype=torch.float16))
    with torch.autocast("cpu", dtype=torch.float16):
        assert heads.loss(output, batch_of([0.0]), "mse").item() == 90000.0


def test_levels():
    assert heads.check_levels([0.9, 0.1, 0.5]) == LEVELS
    assert heads.check_levels([]) == ()
    for wrong in ([0.0, 0.5], [1.0], [-0.1], [10, 90], [float("nan")]):
        with pytest.raises(ConfigError, match="strictly between 0 and 1"):
            heads.check_levels(wrong)
    with pytest.raises(ConfigError, match=r"got 0.5 more than once"):
        heads.check_levels([0.5, 0.1, 0.5])
    with pytest.raises(ConfigError, match="numbers between 0 and 1"):
        heads.check_levels(["low"])
    with pytest.raises(ConfigError, match="numbers between 0 and 1"):
        heads.check_levels(0.5)


def test_losses_and_outputs_go_together():
    assert heads.check_loss(None, ()) == "mse"
    assert heads.check_loss(None, LEVELS) == "pinball"
    assert heads.check_loss("huber", ()) == "huber"
    with pytest.raises(ConfigError, match=r"'mae' trains output='point'; output='quantiles' is trained by pinball"):
        heads.check_loss("mae", LEVELS)
    with pytest.raises(ConfigError, match=r"'pinball' trains output='quantiles'"):
        heads.check_loss("pinball", ())
    with pytest.raises(ConfigError, match=r"Unknown loss 'huberr'. Did you mean 'huber'\?"):
        heads.check_loss("huberr", ())


def test_the_spread_starts_as_half_a_normal():
    levels = (0.05, 0.25, 0.5, 0.75, 0.9)
    offsets = heads.QuantileSpread(3, 4, levels)(torch.randn(2, 3))
    assert offsets.shape == (2, 4, 5)
    expected = torch.tensor([0.5 * NormalDist().inv_cdf(level) for level in levels])
    torch.testing.assert_close(offsets, expected.expand(2, 4, 5))


@pytest.mark.parametrize(
    "levels", [(0.9,), (0.1,), (0.5,), (0.1, 0.8, 0.9), (0.1, 0.2, 0.5), tuple(i / 100 for i in range(1, 100))]
)
@pytest.mark.parametrize("size", [0.1, 10.0, 1000.0])
def test_quantiles_cannot_cross(levels, size):
    torch.manual_seed(0)
    spread = heads.QuantileSpread(6, 5, levels)
    torch.nn.init.normal_(spread.steps.weight, std=size)
    point, scale = torch.randn(40, 5, 2) * 1e6, torch.rand(40, 2) * 1e-3
    quantiles = heads.spread_around(point, scale, spread(torch.randn(40, 2, 6)))
    assert quantiles.shape == (40, 5, 2, len(levels))
    assert (quantiles.diff(dim=-1) >= 0).all()
    below = torch.tensor([level < 0.5 for level in levels])
    above = torch.tensor([level > 0.5 for level in levels])
    assert (quantiles[..., below] <= point[..., None]).all()
    assert (quantiles[..., above] >= point[..., None]).all()
    if 0.5 in levels:
        assert torch.equal(quantiles[..., levels.index(0.5)], point)


def test_pinball_finds_the_quantiles():
    torch.manual_seed(0)
    truth = torch.randn(4000, 1, 1)
    batch = InputSpec(horizon=1, context=1).example(4000)
    batch = replace(batch, future=truth)
    spread, median = heads.QuantileSpread(1, 1, LEVELS), torch.nn.Parameter(torch.tensor(1.0))
    optimiser = torch.optim.Adam([*spread.parameters(), median], lr=0.05)
    for _ in range(200):
        point = median.expand(4000, 1, 1)
        quantiles = heads.spread_around(point, torch.ones(4000, 1), spread(torch.zeros(4000, 1, 1)))
        loss = heads.loss(Output(point, quantiles), batch, "pinball", LEVELS)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    found = quantiles[0, 0, 0].detach()
    torch.testing.assert_close(found, truth.flatten().quantile(torch.tensor(LEVELS)), atol=0.06, rtol=0)
