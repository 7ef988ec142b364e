"""Where the pieces join: what one part promises and the next relies on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from sklearn.base import clone

import tsattn
from tests.conftest import QUICK, make_waves
from tsattn.errors import ConfigError, DataError
from tsattn.models import MODELS
from tsattn.training.run import quiet_lightning


def forecaster(model="nlinear", **changes):
    return tsattn.Forecaster(model, **{"horizon": 6, "context": 48, "training": QUICK, **changes})


CASES = [(name, {}) for name in sorted(MODELS)] + [("dlinear", {"instance_norm": False}), ("lucid", {"summary": False})]


@pytest.mark.parametrize(("model", "options"), CASES, ids=lambda value: str(value))
def test_the_unit_of_the_loss_is_not_read_by_any_network(model, options):
    """``scale`` is known when training and absent when forecasting a new series: no forecast may depend on it."""
    data = tsattn.ForecastDataModule(make_waves(), horizon=6, context=48, quantiles=[0.1, 0.9])
    network = tsattn.build(model, data.spec, **options).eval()
    batch = next(iter(data.val_dataloader())).without_future()
    other = replace(batch, scale=batch.scale * 1000)
    assert torch.equal(network(batch).point, network(other).point)
    assert torch.equal(network(batch).quantiles, network(other).quantiles)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_later_rows_change_no_forecast(model):
    """Poison everything from an origin on: forecasts from it stay bit-identical, through the public face."""
    table = make_waves()
    cut = table["ds"].iloc[280]
    poisoned = table.assign(y=table["y"].where(table["ds"] < cut, 1e6))
    fitted = forecaster(model).fit(table[table["ds"] < cut])
    clean, dirty = (fitted.backtest(t, windows=1, step=1, refit="never") for t in (table.iloc[:], poisoned))
    before = fitted.predict(table[table["ds"] < cut]).windows.point
    np.testing.assert_array_equal(before, fitted.predict(poisoned[poisoned["ds"] < cut]).windows.point)
    first = fitted.backtest(table[table["ds"] < cut + pd.Timedelta("6h")], windows=1).windows.point
    again = fitted.backtest(poisoned[poisoned["ds"] < cut + pd.Timedelta("6h")], windows=1).windows.point
    np.testing.assert_array_equal(first, again)
    assert clean.windows.point.shape == dirty.windows.point.shape


@pytest.mark.parametrize("model", sorted(MODELS))
def test_company_and_order_change_no_forecast(model):
    table = make_waves()
    fitted = forecaster(model).fit(table)
    together = fitted.predict(table.sample(frac=1, random_state=0)).windows.point
    for number in range(3):
        alone = fitted.predict(table[table["unique_id"] == f"s{number}"]).windows.point
        np.testing.assert_allclose(alone[0], together[number], rtol=1e-5)


def test_resume_in_the_middle_of_an_epoch_is_no_interruption(tmp_path):
    """A run that goes on from a checkpoint ends with the weights of a run that was never stopped."""

    def pieces():
        data = tsattn.ForecastDataModule(make_waves(), horizon=6, context=48, seed=3)
        torch.manual_seed(0)
        return tsattn.ForecastModule(tsattn.build("nlinear", data.spec), learning_rate=1e-2), data

    def trainer(callbacks=(), **settings):
        plain = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        return pl.Trainer(**plain, max_epochs=3, callbacks=list(callbacks), num_sanity_val_steps=0, **settings)

    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if trainer.global_step == 9:  # the third batch of the second epoch
                raise ZeroDivisionError

    with quiet_lightning():
        whole, data = pieces()
        trainer(enable_checkpointing=False).fit(whole, data)
        keep = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
        with pytest.raises(ZeroDivisionError):
            trainer([Stop(), keep]).fit(*pieces())
        resumed, data = pieces()
        trainer(enable_checkpointing=False).fit(resumed, data, ckpt_path=str(tmp_path / "step=8.ckpt"))
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_a_data_module_used_twice_trains_the_same():
    data = tsattn.ForecastDataModule(make_waves(), horizon=6, context=48)
    ends = []
    for _ in range(2):
        torch.manual_seed(0)
        module = tsattn.ForecastModule(tsattn.build("nlinear", data.spec))
        with quiet_lightning():
            runner = pl.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
            runner.fit(module, data)
        ends.append(module.network.map.weight.detach().clone())
    assert torch.equal(*ends)


def test_a_failed_fit_leaves_the_forecaster_as_it_was():
    table = make_waves()
    model = forecaster("lucid")
    with pytest.raises(ConfigError):
        model.set_params(options={"heads": 0}).fit(table)
    with pytest.raises(tsattn.TsattnError, match="not fitted"):
        model.predict()
    before = model.set_params(options=None).fit(table).predict().windows.point
    with pytest.raises(ConfigError):
        model.set_params(options={"heads": 0}).fit(table)
    np.testing.assert_array_equal(model.predict().windows.point, before)


def test_set_params_after_fit_does_not_touch_what_was_fitted():
    model = forecaster().fit(make_waves())
    assert model.set_params(horizon=3).predict().windows.point.shape == (3, 6, 1)


def test_backtest_and_save_after_set_params_are_those_of_the_fit(tmp_path):
    table = make_waves()
    model = forecaster("lucid", options={"patch": 6})
    model.fit(table[table["ds"] < "2024-01-10"])
    expected = model.backtest(table, windows=2).to_frame()
    trained = model.backtest(table, windows=2, refit=True).to_frame()
    before = model.predict().to_frame()
    model.set_params(horizon=3, context=24, output="point", options=None, target="load", model="naive")
    message = r"6 parameters were changed since fit \(context, horizon, .*\): the backtest uses those of the fit.*clone"
    for refit, frame in ((False, expected), (True, trained)):
        with pytest.warns(tsattn.TsattnWarning, match=message):
            result = model.backtest(table, windows=2, refit=refit)
        pd.testing.assert_frame_equal(result.to_frame(), frame)
    assert "'lucid'" in repr(model.predict())
    loaded = tsattn.Forecaster.load(model.save(tmp_path / "m"))
    pd.testing.assert_frame_equal(loaded.predict().to_frame(), before)
    assert (loaded.horizon, loaded.model, loaded.options) == (6, "lucid", {"patch": 6})
    pd.testing.assert_frame_equal(loaded.backtest(table, windows=2).to_frame(), expected)
    assert clone(model).horizon == 3


def test_options_changed_in_place_are_no_part_of_the_fit(tmp_path):
    options = {"patch": 6}
    model = forecaster("lucid", options=options).fit(make_waves())
    options["patch"] = 12
    assert tsattn.Forecaster.load(model.save(tmp_path / "m")).options == {"patch": 6}


def test_rows_kept_for_the_future_are_no_validation():
    """A table that ends in rows without a target (future values of known columns) is cut before them."""
    table = make_waves()
    table["y"] = table["y"].where(table["ds"] < table["ds"].iloc[260])
    model = forecaster("lucid", known=["price"], training={"epochs": 2, "verbose": False}).fit(table)
    assert model.summary_.best_val_loss is not None
    assert model.summary_.epochs == 2


def test_levels_in_any_order_are_sorted_everywhere():
    data = tsattn.ForecastDataModule(make_waves(), horizon=6, context=48, quantiles=(0.9, 0.5, 0.1))
    assert data.spec.quantiles == (0.1, 0.5, 0.9)
    with pytest.raises(ConfigError, match="more than once"):
        _ = tsattn.ForecastDataModule(make_waves(), horizon=6, context=48, quantiles=(0.5, 0.5)).spec
    with pytest.raises(ConfigError, match="horizon must be a whole number of at least 1, found 0"):
        tsattn.InputSpec(horizon=0, context=3)


@pytest.mark.parametrize("precision", ["bf16-true", "16-true", "64-true", "fp8"])
def test_precisions_that_would_cost_exactness_are_refused(precision):
    with pytest.raises(ConfigError, match=r"Unknown training\.precision"):
        forecaster(training={"precision": precision}).fit(make_waves())


def test_mixed_precision_trains_and_stays_exact():
    model = forecaster("lucid", training={**QUICK, "precision": "bf16-mixed"}).fit(make_waves())
    forecast = model.predict(attention=True)
    parts = forecast.contributions
    total = parts["history"].sum(-1) + parts["past"].sum((-1, -2)) + parts["known"] + parts["level"]
    np.testing.assert_allclose(total.transpose(0, 2, 1), forecast.windows.point, rtol=1e-5)


def test_every_observed_truth_is_scored_for_model_and_baselines_alike():
    table = make_waves()
    table["z"] = table["y"].where(table.groupby("unique_id").cumcount() >= 290)  # nothing to read before most origins
    result = forecaster(target=["y", "z"]).backtest(table, windows=2)
    seen = ~np.isnan(result.windows.actual)
    assert int(seen[..., 0].sum()) == int(table.groupby("unique_id").tail(12)["y"].notna().sum())
    assert not seen[::2, :, 1].any()  # the older origins have nothing of z to read: no forecast, no score
    truth = table.groupby("unique_id").tail(6)["z"].notna().to_numpy().reshape(3, 6)
    np.testing.assert_array_equal(seen[1::2, :, 1], truth)
    for windows in result.baselines.values():
        np.testing.assert_array_equal(windows.actual, result.windows.actual)
    assert result.metrics()["mae"].notna().all()


def test_series_without_a_window_are_named_with_the_reason():
    table = make_waves(series=5)
    row = table.groupby("unique_id").cumcount()
    table = table[(table["unique_id"] != "s0") | (row < 6)]  # no step before a horizon of 6
    table.loc[(table["unique_id"] == "s3") & (row >= 200), "y"] = np.nan
    message = (
        r"2 of 5 series have no window in the backtest and are skipped \(1 nothing observed in the 48 steps before its "
        r"origins, 1 too short\): 's0', 's3'\. See Backtest\.skipped"
    )
    with pytest.warns(tsattn.TsattnWarning, match=message):
        result = forecaster("naive").backtest(table, windows=2)
    assert result.skipped == {"s0": "too short", "s3": "nothing observed in the 48 steps before its origins"}
    assert set(result.to_frame()["unique_id"]) | set(result.skipped) == set(table["unique_id"])


def test_scores_of_nothing_are_nan_and_said():
    table = make_waves()
    row = table.groupby("unique_id").cumcount()
    table["z"] = table["y"].where(row < 288)
    table["late"] = table["y"].where((row < 200) | (row >= 295))
    with pytest.warns(tsattn.TsattnWarning) as caught:
        scores = forecaster("naive", target=["y", "z", "late"]).backtest(table, windows=2).metrics()
    assert [str(warning.message) for warning in caught] == [
        "The scores of 'z' are NaN: in 6 windows none of the 36 forecast steps was observed. Choose other origins, or "
        "more rows.",
        "The scores of 'late' are NaN: in 6 windows before the 12 observed steps there was nothing of it to read. "
        "Choose other origins, or more rows.",
    ]
    assert scores.groupby("target")["mae"].apply(lambda column: column.isna().all()).to_dict() == {
        "y": False,
        "z": True,
        "late": True,
    }


def test_a_target_with_nothing_to_read_is_nan_and_said():
    table = make_waves()
    table["z"] = table["y"].where((table.groupby("unique_id").cumcount() < 240) | (table["unique_id"] != "s0"))
    model = forecaster("nlinear", target=["y", "z"], context=24).fit(table)
    with pytest.warns(tsattn.TsattnWarning, match="1 forecasts are NaN.*z of 's0'"):
        point = model.predict().windows.point
    assert np.isnan(point[0, :, 1]).all()
    assert np.isfinite(point[0, :, 0]).all()
    assert np.isfinite(point[1:]).all()


def test_a_table_of_another_frequency_is_refused():
    table = make_waves()
    with pytest.raises(DataError, match=r"trained at frequency 'h', but no two rows .* are one step apart"):
        forecaster("naive").fit(table).predict(table[table["ds"].dt.hour == 0])


def test_a_model_without_ids_refuses_several_series():
    table = make_waves()
    model = forecaster("naive").fit(table[table["unique_id"] == "s0"].drop(columns="unique_id"))
    with pytest.raises(DataError, match="this one has 3 ids"):
        model.predict(table)


def test_values_that_float32_cannot_tell_apart_are_mentioned():
    table = make_waves(series=1)
    with pytest.warns(tsattn.TsattnWarning, match="in float32 its values keep steps of"):
        forecaster("naive").fit(table.assign(y=1.7e9 + np.arange(len(table))))


def test_a_save_that_fails_leaves_the_model_that_was_there(tmp_path, monkeypatch):
    model = forecaster().fit(make_waves())
    model.save(tmp_path / "m")
    monkeypatch.setattr("tsattn.artifact.json.dumps", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.save(tmp_path / "m")
    monkeypatch.undo()
    assert len(tsattn.Forecaster.load(tmp_path / "m").predict()) == 3


def test_a_network_for_other_windows_is_refused():
    data = tsattn.ForecastDataModule(make_waves(), horizon=6, context=48)
    other = tsattn.ForecastDataModule(make_waves(), horizon=6, context=24)
    module = tsattn.ForecastModule(tsattn.build("nlinear", other.spec))
    runner = pl.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    with quiet_lightning(), pytest.raises(ConfigError, match=r"context 24 \(data: 48\)"):
        runner.fit(module, data)


def test_a_wide_table_may_have_a_series_called_y():
    wide = pd.DataFrame({"ds": [1, 2], "y": [1.0, 2.0], "unique_id": [3.0, 4.0]})
    long = tsattn.from_wide(wide)
    assert list(long.columns) == ["ds", "unique_id", "y"]
    assert list(long["unique_id"]) == ["y", "y", "unique_id", "unique_id"]
    assert list(long["y"]) == [1.0, 2.0, 3.0, 4.0]


def test_a_category_no_training_window_has_stays_unknown():
    table = make_waves()
    late = table.groupby("unique_id").cumcount() >= 280  # inside the validation part
    table["mood"] = np.where(late, "new", "old")
    model = forecaster("lucid", past=["mood"], training={"epochs": 3, "verbose": False}).fit(table)
    unknown, new, old = model.network_.past_vector.embeddings[0].weight.detach()
    assert model.schema_.categories["mood"] == ("new", "old")
    assert torch.equal(new, unknown)
    assert not torch.equal(old, unknown)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"windows": 0}, "windows must be a whole number of at least 1, found 0"),
        ({"windows": 2.5}, "windows must be a whole number"),
        ({"windows": 2, "step": 0}, "step must be a whole number of at least 1, found 0"),
        ({"windows": 2, "refit": 1}, "refit must be True, False or 'never', found 1"),
    ],
)
def test_backtest_arguments(arguments, message):
    with pytest.raises(ConfigError, match=message):
        forecaster("naive").backtest(make_waves(), **arguments)


@pytest.mark.parametrize("name", ["model", "naive", "forecast", "q0.5"])
def test_a_column_named_like_a_result_is_refused_before_training(name):
    with pytest.raises(ConfigError, match=f"a column '{name}' of their own"):
        forecaster(id=name).fit(make_waves().rename(columns={"unique_id": name}))


def test_validation_without_anything_observed_says_so():
    table = make_waves(series=1)
    table.loc[200:298, "y"] = np.nan  # the validation part keeps one value, whose windows have nothing to read
    with pytest.raises(DataError, match="no observed step to score"):
        forecaster(context=12).fit(table, val_size=20)
