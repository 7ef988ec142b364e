"""Planted data: the truth table is the rule, and nothing but the planted source explains the series."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tsattn.data import planted
from tsattn.data.planted import PLANTED, Planted
from tsattn.errors import ConfigError

HOURLY = "calendar_lag, hourly"


def make(name: str, seed: int = 0) -> Planted:
    if name == HOURLY:
        return planted.calendar_lag(hourly=True, days=120, seed=seed)
    return PLANTED[name](seed=seed)


def explained(made: Planted) -> pd.DataFrame:
    """Each target step that has a source: its value and the sum of its sources."""
    keys = ["unique_id", "target_time", "target"]
    sums = made.truth.groupby(keys)["contribution"].sum().reset_index()
    long = made.table.melt(["unique_id", "ds"], list(made.target), var_name="target", value_name="value")
    found = sums.merge(long, left_on=keys, right_on=["unique_id", "ds", "target"])
    assert len(found) == len(sums)  # every target step of the truth stands in the table
    return found


@pytest.mark.parametrize("name", [*PLANTED, HOURLY])
def test_the_same_seed_gives_the_same_table(name):
    first, again, other = make(name), make(name), make(name, seed=1)
    pd.testing.assert_frame_equal(first.table, again.table)
    pd.testing.assert_frame_equal(first.truth, again.truth)
    assert not first.table["y" if "y" in first.table else "y0"].equals(other.table["y" if "y" in other.table else "y0"])


@pytest.mark.parametrize("name", [n for n in (*PLANTED, HOURLY) if n not in ("null", "delayed_echo")])
def test_the_sources_explain_what_is_attainable(name):
    made = make(name)
    steps = explained(made)
    error = (steps["value"] - steps["contribution"]).to_numpy()
    assert 1 - error.var() / steps["value"].var() == pytest.approx(made.attainable_r2, abs=0.02)


@pytest.mark.parametrize("name", [n for n in (*PLANTED, HOURLY) if n != "null"])
def test_every_source_is_a_row_of_the_table_inside_the_context(name):
    made = make(name)
    truth, table = made.truth, made.table
    rows = set(zip(table["unique_id"], table["ds"], strict=True))
    assert all(key in rows for key in zip(truth["unique_id"], truth["source_time"], strict=True))
    assert set(truth["source"]) <= {*made.target, *made.past}
    if name not in (HOURLY, "calendar_lag"):
        lag = truth["target_time"] - truth["source_time"]
        assert lag.min() >= 1
        assert lag.max() <= made.context + made.horizon - 1


def test_echo_returns_where_the_truth_says():
    made = planted.delayed_echo(noise=0.0)
    table = made.table.set_index(["unique_id", "ds"])["y"]
    truth = made.truth
    assert (truth["target_time"] - truth["source_time"] == 30).all()
    assert (truth["contribution"] > 0).all()
    echo = pd.Series(
        truth["contribution"].to_numpy(), index=pd.MultiIndex.from_frame(truth[["unique_id", "target_time"]])
    )
    rest = table - echo.reindex(table.index).fillna(0.0)
    assert (rest >= -1e-12).all()  # what is left are the events themselves
    assert 0.02 < (rest > 1e-9).mean() < 0.04


def test_events_are_recovered_by_least_squares():
    made = planted.additive_events(series=1, length=4_000)
    z, y = made.table["z"].to_numpy(), made.table["y"].to_numpy()
    past = np.column_stack([z[34 - lag : len(z) - lag] for lag in (13, 21, 34)])
    weights = np.linalg.lstsq(past, y[34:], rcond=None)[0]
    np.testing.assert_allclose(weights, [1.0, -0.7, 0.4], atol=0.03)


def test_no_copy_without_its_source():
    """The other steps of the window say nothing about the next ones."""
    made = planted.seasonal_copy(series=1, length=4_000)
    y = made.table["y"].to_numpy()
    rows = np.arange(60, len(y))
    context = np.column_stack([y[rows - lag] for lag in range(1, 49)])
    with_source = np.delete(context, [], axis=1)
    without = np.delete(context, 35, axis=1)  # lag 36

    def r2(features: np.ndarray) -> float:
        half = len(rows) // 2
        weights = np.linalg.lstsq(features[:half], y[rows][:half], rcond=None)[0]
        error = y[rows][half:] - features[half:] @ weights
        return 1 - error.var() / y[rows][half:].var()

    assert r2(with_source) > 0.85
    assert r2(without) < 0.6


def test_a_regime_decides_the_lag():
    made = planted.regime_lag(series=500)
    marker = made.table.groupby("unique_id")["marker"].sum()
    assert set(marker) == {-1.0, 1.0}
    lag = made.truth["target_time"] - made.truth["source_time"]
    by_sign = lag.groupby(made.truth["unique_id"].map(marker)).unique()
    assert by_sign[-1.0].tolist() == [12]
    assert by_sign[1.0].tolist() == [36]


def test_a_needle_is_anywhere():
    made = planted.needle(series=3_000)
    place = made.truth.drop_duplicates("unique_id")["source_time"]
    counts = np.bincount(place, minlength=48)
    assert counts.min() > 0.4 * counts.mean()
    flagged = made.table[made.table["flag"] == 1].set_index("unique_id")["ds"]
    assert (made.truth.set_index("unique_id")["source_time"] == flagged.reindex(made.truth["unique_id"])).all()


@pytest.mark.parametrize("hourly", [False, True])
def test_calendar_lags_are_seven_days_on_the_clock(hourly):
    made = planted.calendar_lag(hourly=hourly, days=320, series=1)
    truth = made.truth
    target, source = truth["target_time"], truth["source_time"]
    if hourly:
        steps = (target - source).dt.total_seconds() / 3_600
        assert set(steps) == {167.0, 168.0, 169.0}  # the clock changes
        target, source = target.dt.tz_localize(None), source.dt.tz_localize(None)
    assert (target - source == pd.Timedelta(days=7)).all()
    rows = made.table.groupby("unique_id").cumcount()
    place = dict(zip(zip(made.table["unique_id"], made.table["ds"], strict=True), rows, strict=True))
    ids = truth["unique_id"]
    distance = {
        place[one, t] - place[one, s] for one, t, s in zip(ids, truth["target_time"], truth["source_time"], strict=True)
    }
    assert len(distance) > 2  # rows are missing: counting them would be wrong


def test_variables_follow_one_another():
    made = planted.variable_map(variables=4, horizon=2, lag=3)
    pairs = set(zip(made.truth["target"], made.truth["source"], strict=True))
    assert pairs == {("y0", "y1"), ("y1", "y2"), ("y2", "y3"), ("y3", "y0")}


def test_parts_do_not_meet():
    for name in ("needle", "seasonal_copy"):
        made = make(name)
        fitted, held = made._part(held_out=False), made.held_out()
        if made.windows:
            assert not set(fitted["unique_id"]) & set(held["unique_id"])
        else:
            overlap = fitted.merge(held, on=["unique_id", "ds"])
            assert overlap.groupby("unique_id").size().eq(made.context).all()  # the context of the first window


def test_windows_are_trained_at_their_origin_alone():
    made = planted.needle(series=40)
    forecaster = made.fit("lucid", training={"epochs": 1, "verbose": False})
    assert forecaster.summary_.windows == 24  # four fifths of three quarters
    assert forecaster.summary_.validation_windows == 6


@pytest.mark.parametrize(
    ("generator", "wrong"),
    [
        (planted.seasonal_copy, {"lag": 36, "context": 72}),
        (planted.additive_events, {"lags": (3, 21, 34)}),
        (planted.variable_map, {"lag": 2, "horizon": 3}),
        (planted.variable_map, {"variables": 1}),
    ],
)
def test_rules_that_would_not_identify_the_source_are_refused(generator, wrong):
    with pytest.raises(ConfigError):
        generator(**wrong)
