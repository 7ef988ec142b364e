"""Studies: honest, exact in their total, readable, and clear about what went wrong."""

from __future__ import annotations

import re
import threading
import weakref

import matplotlib
import numpy as np
import optuna
import pandas as pd
import pytest
import yaml

import tsattn
from tests.conftest import make_waves
from tests.tuning.small import SPACE, TRAINING, forecaster, states, tune
from tsattn.cli import main
from tsattn.errors import ConfigError, DataError
from tsattn.training.module import ForecastModule
from tsattn.tuning.ledger import BEAT, WORKER
from tsattn.tuning.objective import Objective
from tsattn.tuning.run import TuningError, as_forecaster
from tsattn.tuning.storage import StorageError

RATES = {"training.learning_rate": {"low": 1e-3, "high": 1e-1, "log": True}}


def values(result):
    return [(trial.params, trial.values, trial.intermediate_values) for trial in result.study.trials]


def test_the_test_part_is_never_read(tmp_path):
    table = make_waves(steps=200)
    spoilt = table.copy()
    last = spoilt.groupby("unique_id").cumcount() >= 180  # a tenth
    spoilt.loc[last, ["y", "price", "load"]] = 1e9
    tiny = {"patch": 12, "heads": 1, "head_width": 2, "width": 4}
    base = forecaster("lucid", known=["price"], options=tiny, training={"epochs": 1})
    found = [
        tune(tmp_path / name, data=data, base=base, trials=2, refit=True)
        for name, data in (("clean", table), ("spoilt", spoilt))
    ]
    assert values(found[0]) == values(found[1])
    forecasts = [r.best_forecaster.predict(known=table[["unique_id", "ds", "price"]]).to_frame() for r in found]
    pd.testing.assert_frame_equal(*forecasts)
    assert found[0].best_forecaster.predict(known=table).to_frame()["ds"].min() == pd.Timestamp("2024-01-08 12:00")
    whole = tune(tmp_path / "whole", data=spoilt, base=base, trials=2, test_size=0)
    assert values(whole) != values(found[0])  # the test can fail


def test_a_study_continues_to_exactly_its_total_with_new_points(tmp_path):
    at_once = tune(tmp_path / "a", RATES, trials=6)
    tune(tmp_path / "b", RATES, trials=3)
    continued = tune(tmp_path / "b", RATES, trials=6)
    assert values(continued) == values(at_once)
    rates = [trial.params["training.learning_rate"] for trial in continued.study.trials]
    assert len(set(rates)) == 6
    assert rates[0] == TRAINING["learning_rate"]  # the forecaster as given comes first
    assert len(tune(tmp_path / "b", RATES, trials=4).study.trials) == 6  # nothing left to do


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["sqlite:///{}/study.db", "{}/study.log"])
def test_storages(storage, tmp_path):
    place = storage.format(tmp_path)
    tune(tmp_path, storage=place, trials=2)
    result = tune(tmp_path, storage=place, trials=3)
    assert states(result) == ["COMPLETE"] * 3


@pytest.mark.slow
def test_attributes_tell_how_a_trial_came_about(tmp_path):
    result = tune(tmp_path, seeds=2, trials=1, out=tmp_path / "out")
    told = result.study.trials[0].user_attrs
    assert told["seeds"] == [0, 1]
    assert np.shape(told["metric_by_fold"]) == (2, 2)
    assert told["metric_by_fold"][0][0] != told["metric_by_fold"][0][1]  # the seeds differ
    assert told["epochs"] == 8
    assert told["seconds"] > 0
    assert told["parameters"] > 0
    assert told["versions"]["optuna"] == optuna.__version__
    assert told["config"]["training"]["learning_rate"] == 1e-2
    loaded = tsattn.Forecaster.load(told["checkpoint"])
    assert loaded.context == 24


def test_the_objective_is_the_mean_of_the_folds_of_a_plain_fit(tmp_path):
    """The same number by hand: cut, fit, forecast, score."""
    from tsattn.data.build import build_panel
    from tsattn.data.split import rolling_folds, without_test
    from tsattn.data.windows import WindowSource
    from tsattn.evaluation.metrics import mae
    from tsattn.inference import forecast_windows

    result = tune(tmp_path, trials=1)
    base = forecaster()
    panel = without_test(build_panel(make_waves(steps=200), base._roles()), 6, None)
    scores = []
    for fold in range(2):
        split = rolling_folds(panel, 6, 2).split(fold, 24)
        fitted = forecaster()._fit_panel(panel, split)
        series, origin = split.validation.locate(np.arange(len(split.validation)))
        windows = forecast_windows(fitted.network_, WindowSource(panel, 24, 6, fitted.scaling_), series, origin)
        scores.append(float(mae(windows.actual, windows.point)))
    assert result.study.trials[0].user_attrs["metric_by_fold"] == [[pytest.approx(s, rel=1e-6)] for s in scores]
    assert result.best_value == pytest.approx(np.mean(scores), rel=1e-6)


@pytest.mark.slow
def test_several_objectives_have_a_front(tmp_path):
    space = {"model": {"choices": ["nlinear", "dlinear", "seasonal_naive"]}}
    result = tune(
        tmp_path, space, trials=6, objectives=["error", "parameters"], sampler="random", out=tmp_path, metric="mase"
    )
    front = result.pareto_frame()
    assert list(front.columns[2:4]) == ["mase", "parameters"]
    models = dict(zip(front["number"], front["model"], strict=True))
    assert "seasonal_naive" in models.values()  # no parameters at all: nothing beats it there
    frame = result.trials_frame().set_index("model")
    assert frame.loc[["seasonal_naive"], "mase"].iloc[0] == pytest.approx(
        result.baseline_frame().set_index("model").loc["seasonal_naive", "mase"]
    )
    assert result.best_value == front["mase"].min()
    assert "Pareto front" in (tmp_path / "summary.html").read_text()
    with pytest.raises(ConfigError, match="prunes for one objective only"):
        tune(tmp_path, space, objectives=["error", "seconds"], pruner="median")


@pytest.mark.slow
def test_a_trial_that_cannot_be_fails_with_its_reason_and_the_study_goes_on(tmp_path):
    space = {"options.input_feeding": {"choices": [True, False]}, "options.attention": {"choices": ["none", "dot"]}}
    base = forecaster("seq2seq", options={"patch": 6, "width": 4}, training={"epochs": 1})
    result = tune(tmp_path, space, base=base, trials=8, folds=1, sampler="random", pruner="none")
    frame = result.trials_frame()
    wrong = frame["options.input_feeding"] & (frame["options.attention"] == "none")
    assert wrong.any()
    assert (frame["state"] == np.where(wrong, "fail", "complete")).all()
    assert frame.loc[wrong, "reason"].str.startswith("ConfigError: input_feeding hands on what attention found").all()
    assert len(frame) == 8  # a failed trial counts


def test_when_every_trial_failed_the_first_reason_is_told(tmp_path):
    space = {"options.attention": {"choices": ["none"]}}
    base = forecaster("seq2seq", options={"input_feeding": True})
    with pytest.raises(TuningError, match=r"no complete trial \(3 fail\)\. The first reason: ConfigError: input_feed"):
        tune(tmp_path, space, base=base)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_fails_the_trial(tmp_path):
    result = tune(tmp_path, {"training.learning_rate": {"choices": [1e-2, 1e30]}}, trials=4, sampler="random")
    frame = result.trials_frame()
    assert frame.loc[frame["training.learning_rate"] == 1e30, "reason"].str.contains("The loss is not finite").all()


@pytest.mark.slow
def test_ctrl_c_leaves_a_usable_study_and_the_best_so_far(tmp_path, monkeypatch):
    real, calls = Objective.train_here, []

    def stopping(self, *given):
        calls.append(1)
        if len(calls) == 4:  # in the second trial, its second fold
            raise KeyboardInterrupt
        real(self, *given)

    monkeypatch.setattr(Objective, "train_here", stopping)
    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path, RATES, trials=3, out=tmp_path / "out")
    assert yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())["training"]["learning_rate"] == 1e-2
    monkeypatch.undo()
    result = tune(tmp_path, RATES, trials=3)
    assert states(result) == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert result.study.trials[1].user_attrs["reason"] == "interrupted"
    assert result.study.trials[2].params == result.study.trials[1].params
    assert sum(t.params["training.learning_rate"] == 1e-2 for t in result.study.trials) == 1


@pytest.mark.slow
def test_a_fault_of_ours_stops_the_study_and_keeps_the_trial(tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(Objective, "train_here", lambda *_: {}["x"])
        with pytest.raises(KeyError):
            tune(tmp_path)
    result = tune(tmp_path)
    assert states(result) == ["FAIL", "COMPLETE", "COMPLETE", "COMPLETE"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"space": RATES}, r"space \(training\.learning_rate\) differ"),
        ({"base": forecaster(context=48)}, r"forecaster \(context\) differ"),
        ({"metric": "mse"}, "metric differ"),
        ({"folds": 3}, "folds differ"),
        ({"data": make_waves(steps=199)}, "data differ"),
    ],
)
def test_a_study_of_something_else_is_refused(change, message, tmp_path):
    tune(tmp_path, trials=1)
    with pytest.raises(ConfigError, match=message):
        tune(tmp_path, **change)


def test_where_training_runs_may_change_from_run_to_run(tmp_path):
    tune(tmp_path, trials=1)
    assert len(tune(tmp_path, trials=2, base=forecaster(training={"accelerator": "auto"})).study.trials) == 2


@pytest.mark.slow
def test_a_study_of_another_tool_is_refused(tmp_path):
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/s.db", study_name="tsattn")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(ConfigError, match="was not made by tsattn"):
        tune(tmp_path, storage=f"sqlite:///{tmp_path}/s.db")


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("/proc/nowhere/s.journal", "Cannot write the journal"),
        ("sqlite:////nowhere/at/all.db", "Cannot open the storage"),
        ("nosuch://x", "no database URL"),
        ("postgresql+pg9000://me:secret@host/db", r"me:\*\*\*@host"),
    ],
)
def test_storages_that_cannot_be_used(storage, message, tmp_path):
    with pytest.raises(StorageError, match=message) as error:
        tune(tmp_path, storage=storage)
    assert "secret" not in str(error.value)


def test_a_file_that_is_no_journal(tmp_path):
    (tmp_path / "study.journal").write_text("hello\nworld\n")
    with pytest.raises(StorageError, match="is no journal of Optuna"):
        tune(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trials": 0}, "trials must be a whole number of at least 1"),
        ({"workers": 0}, "workers must be"),
        ({"seeds": 0}, "seeds must be"),
        ({"objectives": ["eror"]}, "Did you mean 'error'"),
        ({"objectives": []}, "objectives must be one or more"),
        ({"sampler": "grid"}, "Unknown sampler 'grid'"),
        ({"metric": "weighted_quantile_loss", "base": forecaster(output="point")}, "needs quantile forecasts"),
        ({"base": forecaster(training={"num_nodes": 2})}, "A trial trains on one machine"),
    ],
)
def test_wrong_settings(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(message)):
        tune(tmp_path, **settings)


def test_too_few_rows(tmp_path):
    with pytest.raises(DataError, match="Fold 1 of 2 has 0"):
        tune(tmp_path, data=make_waves(steps=18))


@pytest.mark.slow
def test_timeout_starts_nothing_late(tmp_path):
    with pytest.raises(TuningError, match="has no trial yet"):
        tune(tmp_path, timeout=0)
    assert states(tune(tmp_path)) == ["COMPLETE"] * 3


@pytest.mark.slow
def test_result_tables_and_plots(tmp_path):
    result = tune(tmp_path, RATES, trials=4, out=tmp_path / "out")
    frame = result.trials_frame()
    assert frame["fold_1"].add(frame["fold_2"]).div(2).tolist() == pytest.approx(frame["mae"].tolist())
    style = dict(matplotlib.rcParams)
    for draw in (result.plot_history, result.plot_importances, result.plot_parallel, result.plot_intermediate):
        assert draw().axes
    assert dict(matplotlib.rcParams) == style  # Optuna's own style is for its pictures alone
    with pytest.raises(ConfigError, match="see plot_history"):
        result.plot_pareto()
    page = (tmp_path / "out" / "summary.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert "seasonal_naive" in page
    assert "http" not in page  # nothing is loaded from anywhere
    assert pd.read_csv(tmp_path / "out" / "trials.csv").shape[0] == 4
    assert repr(result).startswith("TuneResult of study 'tsattn': 4 trials, best mae")


@pytest.mark.slow
def test_refit_trains_on_everything_before_the_test(tmp_path):
    result = tune(tmp_path, refit=True, out=tmp_path / "out")
    best = result.best_forecaster
    assert best.summary_.validation_windows == 0
    assert best.summary_.epochs == round(np.mean(result.best_trial.user_attrs["best_epochs"]))
    assert best.trained_until_ == pd.Timestamp("2024-01-08 11:00").value  # 180 of 200 hours
    tested = best.backtest(make_waves(steps=200), windows=2)
    assert not tested.in_sample
    assert tested.trained_until == tuple(tested.trained_until[:1])
    assert tsattn.Forecaster.load(tmp_path / "out" / "model").predict() is not None


def test_forecasters_from_configs(tmp_path):
    path = tmp_path / "fit.yaml"
    path.write_text("data: waves.csv\nout: run\nmodel: nlinear\nhorizon: 6\ncontext: 24\n")
    assert as_forecaster(path).context == 24
    assert as_forecaster({"horizon": 6, "context": 24}).model == "lucid"
    with pytest.raises(ConfigError, match="Did you mean 'horizon'"):
        as_forecaster({"horizn": 6})
    with pytest.raises(ConfigError, match="no horizon"):
        as_forecaster({"context": 24})
    with pytest.raises(ConfigError, match="Cannot read the config"):
        as_forecaster(tmp_path / "none.yaml")


class Own(tsattn.models.linear.NLinear):
    """A network of the user's."""


@pytest.mark.slow
def test_a_network_of_the_users_own(tmp_path):
    result = tune(tmp_path, base=forecaster(Own), trials=2, refit=True)
    assert isinstance(result.best_forecaster.network_, Own)
    assert result.best_config["model"] == "Own"


@pytest.mark.slow
def test_memory_is_given_back_after_every_trial(tmp_path, monkeypatch):
    """Networks and modules of finished trials are gone; threads too."""
    import gc

    made = []
    real = ForecastModule.__init__

    def noting(self, *given, **named):
        real(self, *given, **named)
        made.append(weakref.ref(self))

    monkeypatch.setattr(ForecastModule, "__init__", noting)
    before = threading.active_count()
    result = tune(tmp_path, trials=6)
    gc.collect()
    assert len(made) == 12
    assert sum(ref() is not None for ref in made) == 0
    assert threading.active_count() == before
    assert all(WORKER in trial.system_attrs and BEAT not in trial.system_attrs for trial in result.study.trials)


@pytest.fixture
def config(tmp_path):
    table = tmp_path / "waves.csv"
    make_waves(steps=200).to_csv(table, index=False)
    path = tmp_path / "search.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "data": str(table), "model": "nlinear", "horizon": 6, "context": 24, "training": TRAINING,
                "space": SPACE, "trials": 3, "storage": str(tmp_path / "s.journal"), "out": str(tmp_path / "out"),
            }
        )
    )  # fmt: skip
    return str(path)


@pytest.mark.slow
def test_command_writes_a_config_that_fit_runs_as_it_is(config, tmp_path, capsys):
    assert main(["tune", "--config", config, "--trials", "2", "--refit", "true"]) == 0
    out = capsys.readouterr()
    assert "seasonal_naive" in out.out
    assert "2/2 trials, best mae" in out.err
    assert main(["tune", "--config", config]) == 0
    assert "2 trials done, 1 to do" in capsys.readouterr().err
    assert main(["fit", "--config", str(tmp_path / "out" / "best.yaml")]) == 0
    assert (tmp_path / "out" / "best" / "model.json").exists()
    assert (tmp_path / "out" / "model" / "model.json").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--storage", "/proc/nowhere/s.journal"], "Cannot write the journal"),
        (["--data", "gone.csv"], "No such file or folder: gone.csv"),
        (["--metric", "mda"], "Unknown metric 'mda'"),
        (["--out", "/proc/nowhere"], "Cannot write to '/proc/nowhere'"),
        (["--space", '{"options.x": {"low": 1, "high": 2}}'], "Unknown key of the space for nlinear 'options.x'"),
    ],
)
def test_command_with_bad_input_is_one_message_and_status_2(flags, message, config, capsys):
    assert main(["tune", "--config", config, *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_command_refuses_another_space_under_the_same_name(config, capsys):
    assert main(["tune", "--config", config]) == 0
    assert main(["tune", "--config", config, "--training.epochs", "3"]) == 2
    assert "forecaster (training) differ" in capsys.readouterr().err
