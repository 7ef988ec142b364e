"""TrainConfig refuses what cannot train."""

from __future__ import annotations

import numpy as np
import pytest

import tsattn
from tests.conftest import QUICK, make_waves
from tsattn.errors import ConfigError
from tsattn.training.config import TrainConfig
from tsattn.training.run import _length, make_trainer


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "training.epochs must be above 0, found 0"),
        ({"batch_size": -1}, "training.batch_size must be above 0"),
        ({"learning_rate": float("nan")}, "training.learning_rate must be a finite number"),
        ({"clip": -1}, "training.clip must not be negative"),
        ({"schedule": "one_cycl"}, "Unknown training.schedule 'one_cycl'. Did you mean 'one_cycle'"),
        ({"schedule": "decay", "decay": 1.5}, "training.decay must be at most 1, found 1.5"),
        ({"schedule": "decay", "hold": 0}, "training.hold must be above 0, found 0"),
        ({"schedule": "constant", "decay": 0.5}, "training.decay is read by schedule 'decay' alone, found 'constant'"),
        ({"hold": 2}, "training.hold is read by schedule 'decay' alone, found 'one_cycle'"),
        ({"devices": 0}, "training.devices must be a number of at least 1, -1 or 'auto', found 0"),
        ({"devices": True}, "training.devices must be .*, found True"),
        ({"verbose": "no"}, "training.verbose must be True or False, found 'no'"),
        ({"precision": 16}, "Unknown training.precision 16"),
        ({"loss": "rmse"}, "Unknown training.loss 'rmse'"),
        ({"lr": 0.1}, "Unknown training field 'lr'"),
    ],
)
def test_refusals(fields, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.of(fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"accelerator": "gpuu"}, "training.accelerator='gpuu': .*invalid accelerator name"),
        ({"accelerator": None}, "training.accelerator=None: .*invalid accelerator name"),
        ({"accelerator": "tpu"}, "training.accelerator='tpu': "),
        ({"strategy": "dpp"}, "training.strategy='dpp': .*invalid strategy name"),
        ({"strategy": 3}, "training.strategy=3: "),
        (
            {"accelerator": "cpu", "strategy": "single_xla"},
            "training.accelerator='cpu', training.strategy='single_xla'",
        ),
        ({"strategy": "deepspeed"}, "training.strategy='deepspeed' cuts the weights into parts"),
        ({"accelerator": "cpu", "strategy": "fsdp"}, "training.strategy='fsdp': The strategy `fsdp` requires a GPU"),
        ({"accelerator": "cpu", "devices": -2}, "training.accelerator='cpu', training.devices=-2: "),
        ({"accelerator": "cpu", "devices": "x"}, "training.accelerator='cpu', training.devices='x': "),
        ({"accelerator": "cpu", "devices": None}, "training.accelerator='cpu', training.devices=None: "),
        ({"logger": 5}, "training.logger 5 is not one of csv, tensorboard, mlflow or a Lightning logger"),
    ],
)
def test_what_lightning_refuses_names_the_fields(fields, message):
    with pytest.raises(ConfigError, match=message):
        make_trainer(TrainConfig.of({"verbose": False, **fields}), 1, 1, [])


@pytest.mark.parametrize("seed", [-1, 1.5, "a", None, 2**32, 2**70, True])
def test_seeds(seed):
    with pytest.raises(ConfigError, match=r"seed must be a whole number from 0 to 2\*\*32 - 1, found"):
        tsattn.Forecaster("nlinear", horizon=6, context=48, seed=seed).fit(make_waves())
    with pytest.raises(ConfigError, match="seed must be a whole number"):
        tsattn.ForecastDataModule(make_waves(), horizon=6, context=48, seed=seed)


def test_the_largest_seed_trains():
    forecaster = tsattn.Forecaster("nlinear", horizon=6, context=48, seed=np.uint32(2**32 - 1), training=QUICK)
    assert len(forecaster.fit(make_waves()).predict()) == 3


def test_of_accepts_all_forms():
    config = TrainConfig(epochs=3)
    assert TrainConfig.of(config) is config
    assert TrainConfig.of({"epochs": 3}) == config
    assert TrainConfig.of(None) == TrainConfig()


@pytest.mark.parametrize(("batches", "expected"), [(1, (600, 20)), (100, (8, 1)), (75, (8, 1)), (10, (60, 2))])
def test_automatic_length(batches, expected):
    """Small data sets get about 600 steps and about 30 validations; at least one validation always happens."""
    assert _length(TrainConfig(), batches) == expected
    assert _length(TrainConfig(epochs=3), batches) == (3, 1)
