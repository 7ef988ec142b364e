"""The estimator: scikit-learn manners, same seed same result, quiet when asked, and honest errors."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import tsattn
from tests.conftest import QUICK, make_waves
from tsattn.errors import ConfigError, DataError, TrainingError
from tsattn.models import MODELS


def forecaster(model="nlinear", **changes):
    settings = {"horizon": 6, "context": 48, "training": QUICK, **changes}
    return tsattn.Forecaster(model, **settings)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_fit_predict_every_model(model, waves):
    frame = forecaster(model).fit(waves).predict().to_frame()
    assert list(frame.columns) == ["unique_id", "ds", "forecast", "q0.1", "q0.5", "q0.9"]
    assert len(frame) == 3 * 6
    assert np.isfinite(frame.drop(columns=["unique_id", "ds"])).all().all()
    assert (frame["forecast"] == frame["q0.5"]).all()
    assert (frame["ds"] == list(pd.date_range("2024-01-13 12:00", periods=6, freq="h")) * 3).all()
    assert [np.log10(level) // 1.9 for level in frame.groupby("unique_id")["forecast"].mean()] == [0, 1, 2]


def test_clone_and_params_round_trip():
    model = forecaster(target=["y", "load"], known=["price"], output=[0.2, 0.8], options={"patch": 12})
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(horizon=3).horizon == 3


def test_predict_before_fit_is_a_sklearn_error():
    with pytest.raises(NotFittedError, match="call fit"):
        forecaster().predict()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "lucit"}, r"Unknown model 'lucit'. Did you mean 'lucid'\?"),
        ({"options": {"patc": 3}, "model": "lucid"}, r"Unknown option of lucid 'patc'. Did you mean 'patch'\?"),
        ({"training": {"epoch": 3}}, r"Unknown training field 'epoch'. Did you mean 'epochs'\?"),
        ({"horizon": 0}, "horizon must be a whole number of at least 1, found 0"),
        ({"context": 2.5}, "context must be a whole number"),
        ({"output": "quantile"}, "Did you mean 'quantiles'"),
        ({"output": [0.1, 1.5]}, "between 0 and 1"),
        ({"known": ["y"]}, "'y' is both target and known"),
        ({"training": {"loss": "mse", "verbose": False}}, "output='quantiles' is trained by pinball"),
        ({"known": ["price"]}, "NLinear does not read known covariates"),
    ],
)
def test_wrong_options_name_the_fix(changes, message, waves):
    with pytest.raises(ConfigError, match=message):
        forecaster(**{"model": "nlinear", **changes}).fit(waves)


def test_same_seed_same_result_and_global_generators_untouched(waves):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = forecaster("lucid", seed=1).fit(waves).predict().windows.point
    again = forecaster("lucid", seed=1).fit(waves).predict().windows.point
    other = forecaster("lucid", seed=2).fit(waves).predict().windows.point
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_verbose_false_prints_nothing_and_leaves_no_files(tmp_path):
    code = (
        "import warnings; warnings.simplefilter('error');"
        "from tests.conftest import make_waves; import tsattn;"
        "m = tsattn.Forecaster('lucid', horizon=6, context=48, training={'epochs': 2, 'verbose': False});"
        "m.fit(make_waves()).predict(attention=True); m.backtest(make_waves(), windows=2)"
    )
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_summary_line_says_what_was_trained(waves, capfd):
    forecaster("lucid", training={"epochs": 2}).fit(waves)
    line = capfd.readouterr().err.splitlines()[0]
    assert line.startswith("Lucid: 651 windows, 6 batches per epoch, up to 2 epochs (12 steps), 75 validation windows")


def test_attention_changes_nothing_and_covers_every_series(waves):
    model = forecaster("lucid").fit(waves)
    plain, with_attention = model.predict(), model.predict(attention=True)
    np.testing.assert_array_equal(plain.windows.point, with_attention.windows.point)
    np.testing.assert_array_equal(plain.windows.quantiles, with_attention.windows.quantiles)
    frame = with_attention.attention.to_frame()
    total = frame.groupby(["unique_id", "horizon", "head"])["weight"].sum()
    assert len(total) == 3 * 6 * 8
    np.testing.assert_allclose(total, 1, atol=1e-5)
    with pytest.raises(ConfigError, match="attention=True"):
        _ = plain.attention


def test_contributions_sum_to_the_forecast(waves):
    model = forecaster("lucid", known=["price"], past=["load"], static=["kind"]).fit(waves)
    future = make_waves(steps=306)[["unique_id", "ds", "price"]]
    forecast = model.predict(known=future, attention=True)
    parts = forecast.contributions
    total = parts["history"].sum(-1) + parts["past"].sum((-1, -2)) + parts["known"] + parts["level"]
    np.testing.assert_allclose(total.transpose(0, 2, 1), forecast.windows.point, rtol=1e-5)


def test_best_weights_are_restored(waves, monkeypatch):
    """The weights after fit are those of the best validation, not the last ones."""
    from tsattn.training.module import ForecastModule

    seen = {}

    def scripted(self):
        seen[self.current_epoch] = {k: v.clone() for k, v in self.network.state_dict().items()}
        self.log("val_loss", [3.0, 1.0, 2.0, 4.0][self.current_epoch])

    monkeypatch.setattr(ForecastModule, "on_validation_epoch_end", scripted)
    model = forecaster("nlinear", training={"epochs": 4, "verbose": False}).fit(waves)
    assert model.summary_.best_epoch == 1
    for name, tensor in model.network_.state_dict().items():
        assert torch.equal(tensor, seen[1][name])
    assert any(not torch.equal(seen[1][name], seen[3][name]) for name in seen[1])


def test_epochs_are_counted_from_one_where_they_are_read(waves, monkeypatch, capsys):
    from tsattn.training.module import ForecastModule

    monkeypatch.setattr(ForecastModule, "on_validation_epoch_end", lambda self: self.log("val_loss", 1.0))
    forecaster("nlinear", training={"epochs": 2}).fit(waves)
    assert "best val_loss 1 in epoch 1;" in capsys.readouterr().err


def test_early_stopping_counts_validations(waves):
    model = forecaster(
        "nlinear",
        training={"epochs": 40, "patience": 1, "learning_rate": 0.5, "schedule": "constant", "verbose": False},
    )
    model.fit(waves)
    assert model.summary_.epochs < 40
    assert model.summary_.best_epoch is not None


def test_not_finite_loss_names_the_series(waves):
    class Broken(tsattn.Network):
        def __init__(self, spec):
            super().__init__(spec)
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, batch, need_weights=False):
            point = batch.past[:, -1:].expand(-1, self.spec.horizon, -1) * self.weight
            return tsattn.Output(torch.where(batch.series[:, None, None] == 1, torch.nan, point))

    with pytest.raises(TrainingError, match=r"not finite in epoch 1, step 1; it comes from series 's1'"):
        forecaster(Broken, output="point").fit(waves)


def test_own_network_class(waves, tmp_path):
    class Mean(tsattn.Network):
        def __init__(self, spec, *, gain: float = 1.0):
            super().__init__(spec)
            self.gain = torch.nn.Parameter(torch.tensor(gain))

        def forward(self, batch, need_weights=False):
            mean = batch.past.sum(1, keepdim=True) / batch.past_observed.sum(1, keepdim=True).clamp(min=1)
            return tsattn.Output((self.gain * mean).expand(-1, self.spec.horizon, -1))

    model = forecaster(Mean, output="point", options={"gain": 2.0}).fit(waves)
    model.save(tmp_path / "mean")
    with pytest.raises(tsattn.TsattnError, match=r"pass it as Forecaster\.load"):
        tsattn.Forecaster.load(tmp_path / "mean")
    loaded = tsattn.Forecaster.load(tmp_path / "mean", model=Mean)
    np.testing.assert_array_equal(loaded.predict().windows.point, model.predict().windows.point)


def test_short_epochs_and_validations(waves):
    training = {**QUICK, "epochs": 3, "batch_size": 16, "epoch_steps": 4, "validation_windows": 5}
    model = forecaster(training=training).fit(waves)
    assert (model.summary_.batches, model.summary_.epochs, model.summary_.steps) == (4, 3, 12)
    assert model.summary_.best_val_loss is not None
    same = forecaster(training=training).fit(waves)
    assert same.predict().to_frame().equals(model.predict().to_frame())
    for name in ("epoch_steps", "validation_windows"):
        with pytest.raises(ConfigError, match=f"training.{name} must be above 0, found 0"):
            forecaster(training={name: 0}).fit(waves)


def test_no_validation_part_keeps_the_last_weights(waves):
    model = forecaster().fit(waves, val_size=0)
    assert (model.summary_.validation_windows, model.summary_.best_epoch) == (0, None)


def test_validation_too_small_is_refused(waves):
    with pytest.raises(DataError, match="The validation part has 0 windows: val_size=3"):
        forecaster().fit(waves, val_size=3)


def test_backtest_is_honest_about_what_was_seen(waves):
    model = forecaster("nlinear").fit(waves)
    result = model.backtest(waves, windows=3)
    assert not result.in_sample
    assert result.trained_until == ("2024-01-12 17:00:00",)  # 300 - 3 * 6 rows: the row before the first origin
    assert model.backtest(waves, windows=3, refit="never").in_sample
    early = forecaster("nlinear").fit(waves[waves["ds"] < "2024-01-10"])
    kept = early.backtest(waves, windows=3)
    assert not kept.in_sample
    assert kept.trained_until == ("2024-01-09 23:00:00",)
    assert len(model.backtest(waves, windows=3, refit=True).trained_until) == 3


def test_backtest_trains_on_nothing_later_than_any_origin(waves):
    """A series that ends earlier sets the cut for all: later rows of the others would tell about its test steps."""
    ragged = pd.concat([waves[waves["unique_id"] != "s0"], waves[waves["unique_id"] == "s0"].iloc[:250]])
    poisoned = ragged.copy()
    cut = waves["ds"].iloc[250 - 3 * 6]
    late = (poisoned["ds"] >= cut) & (poisoned["unique_id"] != "s0")
    poisoned.loc[late, "y"] = 1e6
    pick = [0, 1, 2]  # the windows of s0, which is not poisoned itself
    clean = forecaster("nlinear").backtest(ragged, windows=3).windows.point[pick]
    np.testing.assert_array_equal(forecaster("nlinear").backtest(poisoned, windows=3).windows.point[pick], clean)


def test_backtest_frame_and_metrics(waves):
    result = forecaster("seasonal_naive").backtest(waves, windows=4, step=2)
    frame = result.to_frame()
    assert len(frame) == 3 * 4 * 6
    truth = frame.merge(waves, on=["unique_id", "ds"], how="left", validate="many_to_one")
    np.testing.assert_allclose(truth["actual"], truth["y"], rtol=1e-6)
    lag = (frame["ds"] - frame["origin"]) / pd.Timedelta("1h")
    assert (lag == frame["step"]).all()
    scores = result.metrics().set_index("model")
    assert list(scores.index) == ["naive", "seasonal_naive"]
    seen = frame.dropna(subset="actual")
    expected = (seen["actual"] - seen["forecast"]).abs().mean()
    np.testing.assert_allclose(scores.loc["seasonal_naive", "mae"], expected, rtol=1e-5)
    assert len(result.metrics(by="series")) == 2 * 3
    assert list(result.metrics(by="step")["step"]) == [1, 2, 3, 4, 5, 6] * 2


def test_interrupt_keeps_the_best_weights(waves, monkeypatch):
    from tsattn.training.module import ForecastModule

    original = ForecastModule.training_step

    def interrupting(self, batch, index):
        if self.current_epoch == 2:
            raise KeyboardInterrupt
        return original(self, batch, index)

    monkeypatch.setattr(ForecastModule, "training_step", interrupting)
    model = forecaster("nlinear", training={"epochs": 5, "verbose": False})
    with pytest.raises(KeyboardInterrupt):
        model.fit(waves)
    assert model.summary_.interrupted
    assert model.summary_.best_epoch in (0, 1)
    assert len(model.predict()) == 3


def test_options_and_training_are_mappings():
    with pytest.raises(ConfigError, match="options must hold options by name"):
        forecaster("lucid", options="patch")._check()
    with pytest.raises(ConfigError, match="training must hold fields by name"):
        forecaster("lucid", training="long")._check()
