"""The data of the page: equal to what the library says, and honest where there is nothing to say."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.conftest import QUICK, make_waves
from tests.inspection.hand_maps import horizon_axis, panel_of, time_axis, windows_of
from tests.report.unpacked import floats, stamps_of, weights_of
from tsattn.errors import ConfigError, DataError
from tsattn.forecast import Forecast
from tsattn.inference import Record
from tsattn.inspection.diagnose import Finding
from tsattn.inspection.report import Check, TrustReport
from tsattn.inspection.statistics import Interval
from tsattn.inspection.verdict import Evidence, Thresholds
from tsattn.models.base import Axis
from tsattn.report.collect import collect
from tsattn.report.series import draw_series


def fitted(model="lucid", table=None, *, horizon=6, context=48, **settings):
    forecaster = tsattn.Forecaster(model, horizon=horizon, context=context, training=QUICK, **settings)
    return forecaster.fit(make_waves(steps=150) if table is None else table)


@pytest.fixture(scope="module")
def lucid():
    return fitted(options={"patch": 12})


@pytest.fixture(scope="module")
def pictures(lucid):
    return collect(lucid)["pictures"]


def trust_report():
    """An answer of the check with numbers that are easy to find again."""
    curves = [
        {"replace": how, "order": order, "removed": x, "effect": scale * x, "low": -np.inf, "high": scale * x + 0.1}
        for how in ("mean", "donor")
        for order, scale in (("attention", 2.0), ("random", 1.0))
        for x in np.linspace(0, 0.5, 6)
    ]
    sure = Interval(0.1, 0.1, 0.1)
    return TrustReport(
        verdict="partly",
        reasons=("It beats a random order, <b>not</b> recency.",),
        model="lucid",
        method="attention",
        windows=128,
        checks=(Check("skill", 0.123456, 0.1, np.inf, 0, True),),
        curves=pd.DataFrame(curves),
        diagnosis=tuple(
            Finding("sink", f"attention, head {n}", 0.9 + n / 100, 0.5, "One step.", "A null key.") for n in range(5)
        ),
        thresholds=Thresholds(skill=0.05),
        evidence=Evidence(sure, sure, None, None, 0.1),
    )


def stand_in(monkeypatch, check):
    """``check_attention`` replaced: the page is tested here, not the check."""
    monkeypatch.setattr("tsattn.inspection.trust.check_attention", check)


def test_weights_history_and_forecast_are_those_of_the_map(lucid, pictures):
    forecast = lucid.predict(attention=True)
    attention = forecast.attention
    for window, series in enumerate(pictures["series"]):
        assert series["id"] == f"s{window}"
        weights = attention.step_weights(window)
        assert np.abs(weights_of(series["maps"][0][0]) - weights).max() <= weights.max() / 65535
        assert np.array_equal(floats(series["history"]), attention.history(window), equal_nan=True)
        assert np.array_equal(floats(series["point"]), forecast.windows.point[window, :, 0])
        band = floats(series["band"]).reshape(2, 6)
        assert np.array_equal(band.T, forecast.windows.quantiles[window, :, 0][:, [0, -1]])
        assert stamps_of(pictures, window)[-7:-4] == ["2024-01-07 05:00", "2024-01-07 06:00", "2024-01-07 07:00"]


def test_contributions_are_signed_and_add_up(lucid, pictures):
    forecast = lucid.predict(attention=True)
    assert [layer["unit"] for layer in pictures["layers"]] == ["share", "data"]
    for window, series in enumerate(pictures["series"]):
        parts = weights_of(series["maps"][1][0])[0]
        rest = sum(forecast.contributions[name][window, 0] for name in ("known", "level"))
        assert parts.sum(axis=1) + rest == pytest.approx(forecast.windows.point[window, :, 0], rel=1e-3)


def test_the_data_are_json_without_nan(lucid):
    json.dumps(collect(lucid), allow_nan=False)


def test_facts_on_data_and_model(lucid):
    page = collect(lucid, make_waves(steps=150), check=False, windows=0)
    data, model = dict(page["data"]), dict(page["model"])
    assert data["series"] == "3 (column unique_id)"
    assert (data["from"], data["to"]) == ("2024-01-01 00:00", "2024-01-07 05:00")
    assert data["target y"] == "3.33% of the steps missing"  # 5 of 150
    assert model["options"] == "patch=12"
    assert model["parameters"] == f"{sum(p.numel() for p in lucid.network_.parameters()):,}"
    assert tsattn.__version__ in model["versions"]


def test_only_the_first_series_are_shown_and_the_page_says_so(lucid):
    page = collect(lucid, make_waves(steps=150), series=2, check=False, windows=0)
    assert [each["id"] for each in page["pictures"]["series"]] == ["s0", "s1"]
    assert page["notes"] == ["The first 2 of 3 series are shown, in the order of their ids."]


def test_series_with_nothing_to_read_are_left_out_and_counted(lucid):
    table = make_waves(steps=150)
    table.loc[(table["unique_id"] == "s1") & (table["ds"] >= "2024-01-02"), "y"] = np.nan
    page = collect(lucid, table, check=False, windows=0)
    assert [each["id"] for each in page["pictures"]["series"]] == ["s0", "s2"]
    assert "1 series without an observed value" in page["notes"][0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"series": 0}, "series must be"), ({"windows": -1}, "windows must be"), ({"series": True}, "series must be")],
)
def test_numbers_that_cannot_be_are_refused(lucid, settings, message):
    with pytest.raises(ConfigError, match=message):
        collect(lucid, **settings)


def test_a_model_without_history_needs_a_table(lucid, tmp_path):
    lucid.save(tmp_path / "run", history=False)
    with pytest.raises(DataError, match=r"report\(path, data\)"):
        collect(tsattn.Forecaster.load(tmp_path / "run"))


def test_an_unfitted_forecaster_is_refused():
    with pytest.raises(tsattn.TsattnError, match="not fitted"):
        collect(tsattn.Forecaster(horizon=1, context=2))


def test_known_covariates_that_were_not_given_show_the_last_steps_of_the_table():
    table = make_waves(steps=150)
    model = fitted(table=table, known=["price"], options={"patch": 12})
    page = collect(model, table, check=False, windows=0)
    assert "beside what happened" in page["notes"][0]
    series = page["pictures"]["series"][0]
    assert np.array_equal(floats(series["actual"]), table["y"][144:150].to_numpy(np.float32), equal_nan=True)
    assert stamps_of(page["pictures"], 0)[-1] == "2024-01-07 05:00"
    ahead = pd.date_range("2024-01-07 06:00", periods=6, freq="h")
    plan = pd.DataFrame({"unique_id": np.repeat(["s0", "s1", "s2"], 6), "ds": np.tile(ahead, 3), "price": 0.0})
    page = collect(model, table, known=plan, check=False, windows=0)
    assert page["notes"] == []
    assert page["pictures"]["series"][0]["actual"] is None


@pytest.mark.parametrize(
    ("model", "options", "why", "layers"),
    [
        ("dlinear", {}, "dlinear has no attention", []),
        ("itransformer", {"width": 8, "heads": 2, "layers": 1}, "attends over variables, not over time", []),
        (
            "patchtst",
            {"width": 8, "heads": 2, "layers": 1},
            "no map from forecast steps to past steps",
            ["contribution of each patch to the last layer, shared by its steps"],
        ),
    ],
)
def test_models_without_a_map_over_time_say_why(model, options, why, layers):
    page = collect(fitted(model, options=options))
    assert why in page["pictures"]["why"]
    assert [layer["label"] for layer in page["pictures"]["layers"]] == layers
    assert bool(page["variables"]) == (model == "itransformer")


def test_variables_stand_with_the_names_of_their_columns():
    table = make_waves(steps=150)
    table["z"] = 2 * table["y"]
    model = fitted("itransformer", table, target=["y", "z"], past=["load"], options={"width": 8, "layers": 1})
    page = collect(model)
    pairs = page["variables"][0]["pairs"]
    assert {name for pair in pairs for name in pair[:2]} >= {"y", "z", "load"}
    by_reader = pd.DataFrame(pairs, columns=["reader", "read", "weight"]).groupby("reader")["weight"].sum()
    assert by_reader.to_numpy() == pytest.approx(1.0, abs=1e-5)


def test_a_target_without_a_value_has_no_forecast_and_no_weights():
    table = make_waves(series=1, steps=150)
    table["z"] = table["y"].where(table["ds"] < "2024-01-04")
    model = fitted(table=table, target=["y", "z"], options={"patch": 12})
    with pytest.warns(tsattn.TsattnWarning, match="forecasts are NaN"):
        series = collect(model)["pictures"]["series"][0]
    assert np.isnan(floats(series["point"])[6:]).all()
    assert not np.isnan(floats(series["point"])[:6]).any()


def test_a_series_younger_than_the_context_shows_no_padding(lucid):
    table = make_waves(steps=150)
    young = table[(table["unique_id"] != "s0") | (table["ds"] >= "2024-01-06 12:00")]
    series = collect(lucid, young, check=False, windows=0)["pictures"]["series"][0]
    assert series["past"] == 18
    assert weights_of(series["maps"][0][0]).shape == (8, 6, 18)
    assert weights_of(series["maps"][0][0]).sum(axis=2) == pytest.approx(1.0, abs=1e-3)


def test_integer_time_and_no_id_column():
    table = pd.DataFrame({"ds": range(100), "y": np.sin(np.arange(100) / 5)})
    page = collect(fitted(table=table, horizon=1, context=20, options={"patch": 5}))
    assert page["pictures"]["integer"] is True
    assert stamps_of(page["pictures"], 0) == [str(n) for n in range(80, 101)]
    assert page["pictures"]["series"][0]["id"] == "the series"


def test_without_a_table_there_is_neither_check_nor_backtest(lucid):
    page = collect(lucid)
    assert "No table was given" in page["trust"]["reason"]
    assert "No table was given" in page["backtest"]["reason"]


def test_the_check_is_asked_with_the_table_and_its_answer_kept(lucid, monkeypatch):
    asked = []
    stand_in(monkeypatch, lambda forecaster, data: asked.append((forecaster, data)) or trust_report())
    table = make_waves(steps=150)
    found = collect(lucid, table, windows=0)["trust"]
    assert asked[0][1] is table
    assert found["verdict"] == "partly"
    assert found["table"]["rows"] == [["skill", "0.1235", "0.1", "∞", "0", "yes"]]
    assert found["thresholds"][0] == ("skill", "0.05")
    assert len(found["thresholds"]) == len(asdict(Thresholds()))
    assert found["seen"].endswith("ends at 2024-01-07 05:00; the model was trained on rows up to 2024-01-07 05:00.")
    assert [(curve["replace"], curve["order"]) for curve in found["curves"]] == [
        ("mean", "attention"), ("mean", "random"), ("donor", "attention"), ("donor", "random"),
    ]  # fmt: skip
    assert found["curves"][0]["effect"] == pytest.approx(2 * np.linspace(0, 0.5, 6))
    assert found["curves"][0]["low"] == [None] * 6
    where = "attention, head 0; attention, head 1; attention, head 2 and 2 more"
    assert found["findings"] == [("sink", where, "0.9 to 0.94", "One step.", "A null key.")]


def test_the_verdict_is_that_of_the_check(lucid):
    table = make_waves(steps=150)
    report = tsattn.check_attention(lucid, table)
    found = collect(lucid, table, windows=0)["trust"]
    assert (found["verdict"], found["reasons"]) == (report.verdict, list(report.reasons))
    assert [row[0] for row in found["table"]["rows"]] == report.table["check"].tolist()
    assert sum(len(curve["removed"]) for curve in found["curves"]) == len(report.curves)


def test_a_check_that_cannot_be_says_why(lucid, monkeypatch):
    def refuse(forecaster, data):
        raise ConfigError("dlinear has no attention to check.")

    stand_in(monkeypatch, refuse)
    assert collect(lucid, make_waves(steps=150), windows=0)["trust"] == {"reason": "dlinear has no attention to check."}


def test_the_backtest_is_that_of_the_forecaster(lucid):
    table = make_waves(steps=150)
    found = collect(lucid, table, check=False, windows=2, refit="never")["backtest"]
    metrics = lucid.backtest(table, windows=2, refit="never").metrics()
    assert found["in_sample"] is True
    assert found["windows"] == 6
    assert [row[0] for row in found["table"]["rows"]] == ["naive", "seasonal_naive", "lucid"]
    column = found["table"]["columns"].index("mae")
    assert [float(row[column]) for row in found["table"]["rows"]] == pytest.approx(metrics["mae"].tolist(), rel=1e-3)


def large_forecast(series=20, heads=8, horizon=96, length=512):
    panel = panel_of(
        {f"s{n:02}": list(np.arange(length) + n) for n in range(series)},
        pd.date_range("2024-01-01", periods=length, freq="h"),
    )
    weights = np.random.default_rng(0).random((series, 1, heads, horizon, length), dtype=np.float32)
    keys = [(n, length) for n in range(series)]
    windows = windows_of(
        panel, keys, weights / weights.sum(-1, keepdims=True), horizon=horizon, key=time_axis(length),
        query=horizon_axis(horizon),
    )  # fmt: skip
    return Forecast(panel, windows, (0.1, 0.5, 0.9), "made by hand")


@pytest.mark.slow
def test_maps_that_are_too_large_lose_heads_and_then_steps():
    forecast = large_forecast()
    pictures = draw_series(forecast)
    assert len(json.dumps(pictures)) < 1_900_000
    assert pictures["layers"] == [{"label": "attention", "unit": "share", "ahead": False, "heads": False, "every": 2}]
    mean = forecast.attention.step_weights(3).mean(axis=(0, 1))
    assert weights_of(pictures["series"][3]["maps"][0][0])[0, -1] == pytest.approx(mean, rel=1e-3)


def test_small_maps_lose_nothing():
    pictures = draw_series(large_forecast(series=2, heads=2, horizon=12, length=96))
    assert (pictures["layers"][0]["heads"], pictures["layers"][0]["every"]) == (True, 1)


@pytest.mark.slow
def test_the_layer_that_takes_most_gives_way_first():
    forecast = large_forecast()
    patches = tuple(range(0, 512, 64))
    key = Axis("patch", patches, tuple(start + 64 for start in patches))
    small = Record(np.full((20, 1, 8, 1, 8), 1 / 8, np.float32), Axis("horizon", (0,), (96,)), key, "small")
    windows = replace(forecast.windows, attention=(*forecast.windows.attention, small))
    layers = draw_series(replace(forecast, windows=windows))["layers"]
    assert [(each["label"], each["heads"], each["every"]) for each in layers] == [
        ("small", True, 1),
        ("attention", False, 2),
    ]
