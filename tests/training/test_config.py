"""TrainConfig refuses what cannot train."""

from __future__ import annotations

import pytest

from tsattn.errors import ConfigError
from tsattn.training.config import TrainConfig
from tsattn.training.run import _length


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
        ({"loss": "rmse"}, "Unknown training.loss 'rmse'"),
        ({"lr": 0.1}, "Unknown training field 'lr'"),
    ],
)
def test_refusals(fields, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.of(fields)


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
