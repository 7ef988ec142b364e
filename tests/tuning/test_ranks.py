"""One trial on two processes (gloo, CPU): the same parameters, the same epochs, one voice."""

from __future__ import annotations

import os

import pytest
import pytorch_lightning as pl
import torch

from tests.tuning.small import forecaster, states, tune
from tsattn.tuning.ranks import RankGroup

SPACE = {"training.learning_rate": {"choices": [1e-9, 3e-2, 1e30]}}
TWO = {"epochs": 6, "devices": 2, "strategy": "ddp"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_two_ranks_prune_fail_and_finish_as_one_process_does(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # where it is not set, Lightning sets it
    settings = {"sampler": "random", "trials": 8, "pruner_options": {"n_startup_trials": 1}}
    one = tune(tmp_path / "one", SPACE, base=forecaster(training={"epochs": 6}), **settings)
    before = dict(os.environ)
    two = tune(tmp_path / "two", SPACE, base=forecaster(training=TWO), **settings)
    assert states(two) == states(one)
    assert set(states(two)) == {"COMPLETE", "PRUNED", "FAIL"}
    assert [t.params for t in two.study.trials] == [t.params for t in one.study.trials]
    for mine, theirs in zip(two.study.trials, one.study.trials, strict=True):
        assert mine.intermediate_values.keys() == theirs.intermediate_values.keys()
        assert mine.user_attrs["epochs"] == theirs.user_attrs["epochs"]
        if mine.value is not None:
            assert mine.value == pytest.approx(theirs.value, rel=1e-4)
        else:
            assert "The loss is not finite" in mine.user_attrs["reason"]
    assert dict(os.environ) == before
    assert not torch.distributed.is_initialized()


class Killer(pl.Callback):
    """Kills the other rank in the middle of a training."""

    def __init__(self, group):
        self.group = group

    def on_train_epoch_end(self, trainer, module):
        self.group._helpers[0][0].kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_a_rank_that_is_killed_fails_the_trial_and_the_next_one_runs(tmp_path, monkeypatch):
    real = RankGroup.train
    calls = []

    def killing(self, forecaster, fold, callbacks):
        calls.append(1)
        extra = [Killer(self)] if len(calls) == 1 else []
        real(self, forecaster, fold, [*callbacks, *extra])

    monkeypatch.setattr(RankGroup, "train", killing)
    result = tune(tmp_path, trials=2, base=forecaster(training={**TWO, "epochs": 3}))
    assert states(result) == ["FAIL", "COMPLETE"]
    assert "A process of the training stopped" in result.study.trials[0].user_attrs["reason"]
