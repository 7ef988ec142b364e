"""Reports and pruning: a bad trial stops when it should, and what is reported is comparable from fold to fold."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import optuna
import pytest

from tests.tuning.small import forecaster, states, tune
from tsattn.errors import ConfigError
from tsattn.tuning.objective import Course
from tsattn.tuning.pruning import check_pruner, make_pruner

BAD = {"training.learning_rate": {"choices": [1e-9, 3e-2]}}
QUICK = {"n_startup_trials": 1}


class Fixed(optuna.samplers.BaseSampler):
    """Gives the trials the values listed, in order."""

    def __init__(self, *values):
        self.values = values

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, name, distribution):
        return self.values[trial.number]


@pytest.fixture
def scripted(monkeypatch):
    """Make ``tune`` try the values given."""
    return lambda *values: monkeypatch.setattr("tsattn.tuning.sampling.make_sampler", lambda *_, **__: Fixed(*values))


def test_a_bad_trial_is_pruned_at_the_first_epoch_after_the_warm_up(scripted, tmp_path):
    scripted(3e-2, 1e-9, 3e-2)
    base = forecaster(training={"epochs": 8})
    result = tune(tmp_path, BAD, base=base, pruner_options=QUICK)
    assert states(result) == ["COMPLETE", "PRUNED", "COMPLETE"]
    good, bad, again = result.study.trials
    assert sorted(good.intermediate_values) == list(range(1, 17))  # eight epochs in each of two folds
    assert sorted(bad.intermediate_values) == [1, 2]  # a quarter of a training is the warm-up
    assert bad.user_attrs["epochs"] == 2
    assert bad.user_attrs["metric_by_fold"] == []
    assert again.intermediate_values == good.intermediate_values  # same seed, same training


def test_the_last_report_is_the_value(tmp_path):
    result = tune(tmp_path, trials=1)
    trial = result.study.trials[0]
    assert trial.intermediate_values[4] == pytest.approx(trial.value, rel=1e-12)
    assert trial.value == pytest.approx(np.mean(trial.user_attrs["metric_by_fold"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pruner", "options", "folds", "pruned_after"),
    [
        ("hyperband", {"min_resource": 1, "max_resource": 4, "reduction_factor": 2}, 2, None),
        ("successive_halving", {"min_resource": 1, "reduction_factor": 2}, 2, 1),
        ("wilcoxon", {"p_threshold": 0.2}, 5, 3),  # 1 / 2**3 < 0.2
        ("none", None, 2, None),
    ],
)
def test_pruners_by_name(pruner, options, folds, pruned_after, scripted, tmp_path):
    scripted(3e-2, 1e-9, 1e-9, 1e-9)
    settings = {"pruner": pruner, "pruner_options": options, "folds": folds, "val_size": 10}
    result = tune(tmp_path, BAD, trials=4, base=forecaster(training={"epochs": 2}), **settings)
    trials = result.study.trials
    if pruner == "none":
        assert states(result) == ["COMPLETE"] * 4
    elif pruner == "hyperband":  # which bracket a trial falls into depends on the name of the study and its number
        assert "PRUNED" in states(result)
    else:
        assert states(result) == ["COMPLETE", "PRUNED", "PRUNED", "PRUNED"]
        assert max(trials[1].intermediate_values) == pruned_after
    assert states(result)[0] == "COMPLETE"


def course(naive, seeds=1):
    plan = SimpleNamespace(seeds=seeds, wilcoxon=False)
    objective = SimpleNamespace(plan=plan, baselines={"seasonal_naive": naive}, ticks=10)
    return Course(objective, SimpleNamespace())


def test_the_expected_value_takes_the_naive_error_as_the_unit_of_each_fold():
    made = course([1.0, 3.0])
    assert made.expected(0.5) == pytest.approx((0.5 + 0.5 * 3.0) / 2)  # half the naive error in both
    made.end(0.5, 2, 1, pruned=False)
    # the second fold is three times as hard: the same quality gives the same expectation
    assert made.expected(1.5) == pytest.approx(1.0)
    assert made.expected(3.0) == pytest.approx((0.5 + 3.0) / 2)
    made.end(1.5, 2, 0, pruned=False)
    assert made.mean() == pytest.approx(1.0)
    assert made.by_fold() == [[0.5], [1.5]]
    assert made.best_epochs == [2, 1]


@pytest.mark.parametrize("naive", [[0.0, 3.0], [np.nan, 1.0]])
def test_without_a_naive_error_folds_count_alike(naive):
    assert course(naive).expected(0.5) == pytest.approx(0.5)


def test_seeds_are_averaged_within_their_fold():
    made = course([1.0, 2.0], seeds=2)
    for score in (1.0, 3.0, 4.0):
        made.end(score, 1, 0, pruned=False)
    assert made.by_fold() == [[1.0, 3.0], [4.0]]
    assert made.expected(6.0) == pytest.approx(3.5)


@pytest.mark.slow
def test_epochs_of_other_lengths_are_reported_at_shares_of_the_training(tmp_path):
    space = {"training.epochs": {"choices": [5, 20]}}
    result = tune(tmp_path, space, trials=3, folds=1, pruner="none", sampler="random", base=forecaster())
    steps = {t.params["training.epochs"]: sorted(t.intermediate_values) for t in result.study.trials}
    assert steps[20] == list(range(1, 11))
    assert steps[5] == [2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("medan", 2, 1), r"Unknown pruner 'medan'\. Did you mean 'median'"),
        (("median", 2, 2), "Optuna prunes for one objective only"),
        (("wilcoxon", 3, 1), "can never fire with 3"),
    ],
)
def test_pruners_that_cannot_work_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        check_pruner(*arguments)


def test_unknown_pruner_options_are_refused():
    with pytest.raises(ConfigError, match="do not fit MedianPruner"):
        make_pruner("median", {"startup": 3}, 16, 2)
