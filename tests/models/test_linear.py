"""DLinear and NLinear: hand numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tsattn.errors import ConfigError
from tsattn.models import InputSpec, build
from tsattn.models.linear import moving_average


def batch_of(values: list[float], horizon: int):
    spec = InputSpec(horizon=horizon, context=len(values))
    return spec, replace(spec.example(1), past=torch.tensor(values).view(1, -1, 1))


def test_moving_average_repeats_the_edges():
    z = torch.tensor([[[3.0, 6.0, 9.0, 0.0]]])
    assert moving_average(z, 3).tolist() == [[[4.0, 6.0, 5.0, 3.0]]]
    assert moving_average(z, 1).tolist() == z.tolist()
    assert moving_average(z[..., :1], 25).shape == (1, 1, 1)


def test_dlinear_adds_the_maps_of_trend_and_rest():
    spec, batch = batch_of([3.0, 6.0, 9.0, 0.0], horizon=2)
    network = build("dlinear", spec, kernel=3, instance_norm=False)
    with torch.no_grad():
        for layer in (network.trend, network.rest):
            layer.weight.zero_()
            layer.bias.zero_()
        network.trend.weight[0, 2] = 1.0  # the trend at step 2: 5
        network.rest.weight[0, 2] = 10.0  # the rest there: 4
        network.trend.bias[1] = 7.0
    assert network(batch).point.flatten().tolist() == [45.0, 7.0]


def test_dlinear_as_published_reads_the_values_as_they_are():
    spec, batch = batch_of([3.0, 6.0, 9.0, 0.0], horizon=2)
    network = build("dlinear", spec, instance_norm=False)
    with torch.no_grad():
        network.trend.bias.zero_()
        network.rest.bias.zero_()
    scaled = replace(batch, past=batch.past * 100.0)
    torch.testing.assert_close(network(scaled).point, network(batch).point * 100.0)


def test_dlinear_refuses_a_kernel_of_no_step():
    with pytest.raises(ConfigError, match="kernel is a whole number of steps of at least 1; got 0"):
        build("dlinear", batch_of([1.0, 2.0], horizon=1)[0], kernel=0)


def test_nlinear_moves_from_the_last_observed_value():
    spec, batch = batch_of([3.0, 6.0, 9.0, 0.0], horizon=2)
    network = build("nlinear", spec)
    with torch.no_grad():
        network.map.bias.zero_()
        network.map.weight.zero_()
        network.map.weight[1, 0] = 2.0
    torch.testing.assert_close(network(batch).point.flatten(), torch.tensor([0.0, 6.0]), atol=1e-5, rtol=0)
    gap = replace(batch, past_observed=torch.tensor([True, True, True, False]).view(1, 4, 1))
    torch.testing.assert_close(network(gap).point.flatten(), torch.tensor([9.0, 9.0 + 2 * (3.0 - 9.0)]))
