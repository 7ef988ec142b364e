"""Forecast: the table, the text, and what it says when there is no attention."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from tsattn.data.build import build_panel
from tsattn.data.schema import Roles
from tsattn.errors import ConfigError
from tsattn.forecast import Forecast
from tsattn.inference import WindowForecasts

LEVELS = (0.1, 0.5, 0.9)


def forecast_of(table: pd.DataFrame, roles: Roles, *, horizon: int = 3, quantiles: bool = True, **options) -> Forecast:
    """Forecast after the last row of every series; step h of target c of series s is 100 s + 10 c + h."""
    panel = build_panel(table, roles)
    s, h, c = np.meshgrid(np.arange(len(panel)), np.arange(horizon), np.arange(len(roles.target)), indexing="ij")
    point = (100.0 * s + 10 * c + h).astype(np.float32)
    windows = WindowForecasts(
        series=np.arange(len(panel)),
        origin=panel.lengths,
        point=point,
        quantiles=np.stack([point - 1, point, point + 1], axis=-1) if quantiles else None,
        actual=np.full_like(point, np.nan),
    )
    return Forecast(panel, windows, LEVELS if quantiles else (), "toy", **options)


def table_of(ids: list, times: object, **targets: float) -> pd.DataFrame:
    columns = targets or {"y": 1.0}
    return pd.concat([pd.DataFrame({"unique_id": i, "ds": times, **columns}) for i in ids], ignore_index=True)


def test_to_frame_hand_numbers():
    forecast = forecast_of(table_of(["a", "b"], pd.date_range("2024-01-01", periods=4, freq="D")), Roles())
    frame = forecast.to_frame()
    assert list(frame) == ["unique_id", "ds", "forecast", "q0.1", "q0.5", "q0.9"]
    assert frame["unique_id"].tolist() == ["a"] * 3 + ["b"] * 3
    assert frame["ds"].tolist() == list(pd.date_range("2024-01-05", periods=3)) * 2
    assert frame["forecast"].tolist() == [0, 1, 2, 100, 101, 102]
    assert (frame["q0.9"] - frame["q0.1"]).tolist() == [2.0] * 6
    assert len(forecast) == 2


def test_to_frame_several_targets_and_points_only():
    table = table_of(["a", "b"], range(4), y=1.0, z=2.0)
    frame = forecast_of(table, Roles(target=("y", "z")), horizon=2, quantiles=False).to_frame()
    assert list(frame) == ["unique_id", "ds", "target", "forecast"]
    assert frame["target"].tolist() == ["y", "z"] * 4
    assert frame["ds"].tolist() == [4, 4, 5, 5] * 2
    assert frame["forecast"].tolist() == [0, 10, 1, 11, 100, 110, 101, 111]


def test_to_frame_without_id():
    table = pd.DataFrame({"ds": pd.date_range("2024-01-31", periods=3, freq=pd.offsets.MonthEnd()), "y": 1.0})
    frame = forecast_of(table, Roles.of(None, "ds", "y")).to_frame()
    assert list(frame)[:2] == ["ds", "forecast"]
    assert frame["ds"].dt.strftime("%m-%d").tolist() == ["04-30", "05-31", "06-30"]


@pytest.mark.parametrize("ids", [["a", "b"], [3, 11]])
@pytest.mark.parametrize("tz", [None, "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_merges_with_the_table_it_came_from(ids, tz, unit):
    """The keys have the types of the table, so that the truth of the horizon joins on, over a clock change."""
    times = pd.date_range("2024-03-30 20:00", periods=12, freq="h", tz=tz).as_unit(unit)
    table = table_of(ids, times)
    past = table.groupby("unique_id").head(9)
    frame = forecast_of(past, Roles()).to_frame()
    assert frame["ds"].dtype == table["ds"].dtype
    joined = frame.merge(table, on=["unique_id", "ds"], how="inner")
    assert len(joined) == len(frame) == 6
    assert joined["y"].notna().all()


def test_text_and_html_escape():
    name = "<script>alert(1)</script>"
    table = table_of([name, "b"], range(4))
    forecast = forecast_of(table, Roles(), skipped={"c": "empty"})
    assert repr(forecast) == "Forecast('toy', 2 series x 3 steps, 1 skipped)"
    shown = forecast._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    evil = Forecast(forecast.panel, forecast.windows, LEVELS, name)
    assert "<script>" not in evil._repr_html_()


def test_without_attention_it_says_how_to_ask():
    forecast = forecast_of(table_of(["a"], range(4)), Roles())
    with pytest.raises(ConfigError, match="attention=True"):
        _ = forecast.attention
    assert forecast.contributions is None


def test_plot_without_attention():
    figure = forecast_of(table_of(["a", "b"], range(4)), Roles()).plot(max_series=1)
    assert len(figure.axes) == 1
    assert figure.get_suptitle() == "toy: 1 of 2 series, 1 left out"


IDS = {
    "text": (["a", "b"], ["b", 1, -1]),
    "integers": ([1, 7], [7, np.int32(7), "7"]),  # an integer is an id where ids are integers, never a position
    "floats": ([0.5, 1.5], [1.5, "1.5", 1]),
    "dates": (
        [dt.date(2024, 1, 1), dt.date(2024, 2, 1)],
        [dt.date(2024, 2, 1), pd.Timestamp("2024-02-01"), "2024-02-01"],
    ),
    "stamps": (
        list(pd.to_datetime(["2024-01-01", "2024-02-01"])),
        [pd.Timestamp("2024-02-01"), np.datetime64("2024-02-01")],
    ),
    "booleans": ([False, True], [True, "True", 1]),
}


@pytest.mark.parametrize("kind", IDS)
def test_plot_of_one_series_by_an_id_of_any_type(kind):
    ids, asked = IDS[kind]
    forecast = forecast_of(table_of(ids, range(4)), Roles())
    for series in asked:
        (axes,) = forecast.plot(series).axes
        assert axes.get_title(loc="left").startswith(f"{ids[1]},")


def test_plot_of_a_series_that_is_not_there():
    forecast = forecast_of(table_of([1, 7], range(4)), Roles())
    for series in (0, 2.5, "x", dt.date(2024, 1, 1), None.__class__):
        with pytest.raises(ConfigError, match=r"No series .* in this forecast of 2: 1, 7"):
            forecast.plot(series)


def test_the_road_from_fit_to_map():
    """A trained forecaster: same ids and origins in table, map and picture; weights sum to one."""
    from tsattn.forecaster import Forecaster

    times = pd.date_range("2024-01-01", periods=120, freq="h")
    wave = np.sin(np.arange(120) * 2 * np.pi / 24)
    table = pd.concat([pd.DataFrame({"unique_id": i, "ds": times, "y": wave * n}) for i, n in (("a", 1), ("b", 5))])
    model = Forecaster(horizon=6, context=24, options={"patch": 6}, training={"epochs": 1, "verbose": False})
    forecast = model.fit(table).predict(attention=True)
    frame = forecast.attention.to_frame()
    sums = frame.groupby(["unique_id", "origin", "horizon", "head"])["weight"].sum()
    assert len(sums) == 2 * 6 * 8
    np.testing.assert_allclose(sums, 1.0, atol=1e-5)
    assert set(frame["origin"]) == {times[-1]}
    assert set(frame["target_time"]) == set(forecast.to_frame()["ds"])
    assert forecast.plot()._repr_png_().startswith(b"\x89PNG")
