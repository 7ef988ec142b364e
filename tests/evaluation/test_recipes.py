"""Recipes of the benchmarks: the command reads them; those of published models hold the numbers of the authors."""

from __future__ import annotations

import pytest

from tsattn.cli.parser import make_parser
from tsattn.evaluation.benchmark import benchmark
from tsattn.evaluation.m4 import find_m4
from tsattn.evaluation.protocol import find_protocol
from tsattn.models import InputSpec, build
from tsattn.resources import resource_path
from tsattn.training.config import TrainConfig
from tsattn.training.module import ForecastModule

RECIPES = sorted(resource_path("configs").glob("benchmark/*.yaml"))


def recipe(name):
    """The settings, the network and the training of a recipe, as the command reads them."""
    path = resource_path("configs") / "benchmark" / f"{name}.yaml"
    found = make_parser("benchmark", benchmark).parse_args(["--config", str(path)])
    rules = find_m4(found.dataset)
    spec = InputSpec(horizon=rules.horizon if rules else found.horizon, context=found.context, targets=7)
    return found, build(found.model, spec, **found.options), TrainConfig.of(found.training)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_for_a_published_horizon(path):
    found, network, config = recipe(path.stem)
    if find_m4(found.dataset) is None:
        assert found.horizon in find_protocol(found.dataset).horizons
    else:
        assert found.horizon is None  # its rules fix it
    searched = f"{found.model}_{found.dataset.lower()}"  # by benchmarks/accuracy.py; "_paper": what the authors took
    assert path.stem in (searched, f"{searched}_paper")
    assert network.trainable
    assert config.loss in (None, "mse", "mae", "huber")


def test_patchtst_on_etth1():
    """16 (P), 8 (S), 3 layers, 4 heads, 16 (D), 128 (F): section A.1.4 for the small sets; 42 patches."""
    _, network, config = recipe("patchtst_etth1_paper")
    assert (network.size, network.stride, network.count, len(network.blocks)) == (16, 8, 42, 3)
    assert [block.attention.heads for block in network.blocks] == [4, 4, 4]
    assert [block.attention.rate for block in network.blocks] == [0.0, 0.0, 0.0]
    assert (network.embed.out_features, network.blocks[0].feedforward[0].out_features) == (16, 128)
    assert (network.dropout.p, network.blocks[2].dropout.p, network.head_dropout.p) == (0.3, 0.3, 0.0)
    assert (config.epochs, config.batch_size, config.weight_decay, config.patience) == (100, 128, 0.0, 100)
    expected = [1e-4] * 4 + [9e-5, 8.1e-5, 7.29e-5]
    assert rates(network, config, 7) == pytest.approx(expected)


def test_itransformer_on_etth1():
    _, network, config = recipe("itransformer_etth1")
    assert (network.embed.in_features, network.embed.out_features, len(network.blocks)) == (96, 256, 2)
    assert [block.attention.heads for block in network.blocks] == [8, 8]
    assert [block.attention.rate for block in network.blocks] == [0.1, 0.1]
    assert network.blocks[0].feedforward[0].out_features == 256
    assert (config.epochs, config.batch_size, config.weight_decay, config.patience) == (10, 32, 0.0, 3)
    assert rates(network, config, 5) == pytest.approx([1e-4, 1e-4, 5e-5, 2.5e-5, 1.25e-5])


def rates(network, config, epochs):
    """The learning rate of the first epochs."""
    settings = {name: getattr(config, name) for name in ("learning_rate", "schedule", "decay", "hold", "weight_decay")}
    schedule = ForecastModule(network, **settings).configure_optimizers()["lr_scheduler"]["scheduler"]
    found = []
    for _ in range(epochs):
        found.append(schedule.get_last_lr()[0])
        schedule.optimizer.step()
        schedule.step()
    return found
