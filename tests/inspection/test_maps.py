"""Attention maps: hand numbers for weights, stamps and lags, and the tidy table."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tsattn.data.build import build_panel
from tsattn.data.schema import Roles
from tsattn.errors import ConfigError
from tsattn.inference import Record
from tsattn.inspection.maps import AttentionMap
from tsattn.models.base import Axis

from .hand_maps import horizon_axis, one_hot, panel_of, time_axis, windows_of

NAN = float("nan")
PATCHES = Axis("patch", (-1, 2, 5), (2, 5, 8))  # three patches of 3 steps; the first begins before the window


def patch_map(**options: object) -> AttentionMap:
    """Hourly, 7 steps, step 4 missing, context 8 (one step of padding), origin after the last row.

    Window steps 0..7 are padding, 0, 1, 2, 3, gap, 5, 6: patch 0 covers window steps 0 and 1 (one observed), patch 1
    2 to 4 (three), patch 2 5 to 7 (two). One query token for two forecast steps.
    """
    panel = panel_of({"a": [0, 1, 2, 3, NAN, 5, 6]}, pd.date_range("2024-01-01", periods=7, freq="h"), freq="h")
    weights = np.array([[[[[0.1, 0.6, 0.3]], [[0.0, 0.0, 1.0]]]]])  # two heads
    windows = windows_of(panel, [(0, 7)], weights, horizon=2, key=PATCHES, query=Axis("horizon", (0,), (2,)))
    return AttentionMap(panel, windows, **options)


def test_patch_weight_is_spread_over_observed_steps():
    weights = patch_map().step_weights(0)
    assert weights.shape == (2, 2, 8)
    np.testing.assert_allclose(weights[0, 0], [0, 0.1, 0.2, 0.2, 0.2, 0, 0.15, 0.15], atol=1e-7)
    np.testing.assert_allclose(weights[1, 1], [0, 0, 0, 0, 0, 0, 0.5, 0.5], atol=1e-7)
    assert weights[:, :, [0, 5]].max() == 0.0  # exactly: padding and gap


def test_overlapping_patches_add_up():
    panel = panel_of({"a": [0, 1, 2, 3]}, [0, 1, 2, 3])
    weights = np.array([[[[[0.4, 0.6]]]]])
    windows = windows_of(panel, [(0, 4)], weights, horizon=1, key=Axis("patch", (0, 1), (3, 4)))
    found = AttentionMap(panel, windows).step_weights(0)[0, 0]
    np.testing.assert_allclose(found, [0.4 / 3, 1 / 3, 1 / 3, 0.2], atol=1e-7)


def test_forecast_steps_among_the_keys():
    """Past steps keep their own weight; what fell on forecast steps is told apart, and the two add up."""
    panel = panel_of({"a": [0, NAN, 2]}, [0, 1, 2])
    weights = np.array([[[[[0.5, 0.0, 0.2, 0.3, 0.0], [0.1, 0.0, 0.0, 0.3, 0.6]]]]])
    key = Axis("time", tuple(range(5)), tuple(range(1, 6)), ahead=2)
    attention = AttentionMap(panel, windows_of(panel, [(0, 3)], weights, horizon=2, key=key))
    assert attention.length == 3
    np.testing.assert_array_equal(attention.history(0), [0, NAN, 2])
    past, ahead = attention.step_weights(0), attention.ahead_weights(0)
    np.testing.assert_allclose(past, [[[0.5, 0.0, 0.2], [0.1, 0.0, 0.0]]], atol=1e-7)
    np.testing.assert_allclose(ahead, [[[0.3, 0.0], [0.3, 0.6]]], atol=1e-7)
    frame = attention.to_frame()
    assert frame[["horizon", "lag"]].values.tolist() == [[1, 3], [1, 1], [2, 4]]
    assert patch_map().ahead_weights(0).shape == (2, 2, 2)
    assert (patch_map().ahead_weights(0) == 0).all()


def test_history_and_times_count_padding_back():
    attention = patch_map()
    np.testing.assert_array_equal(attention.history(0), [NAN, 0, 1, 2, 3, NAN, 5, 6])
    np.testing.assert_array_equal(attention.observed(0), [False, True, True, True, True, False, True, True])
    stamps = attention.source_times(0).astype("datetime64[ns]")
    assert stamps[0] == np.datetime64("2023-12-31T23:00")
    assert stamps[-1] == np.datetime64("2024-01-01T06:00")


def test_to_frame_hand_numbers():
    frame = patch_map().to_frame()
    assert list(frame) == [
        "unique_id", "origin", "horizon", "target_time", "source_time", "lag", "layer", "head", "weight",
    ]  # fmt: skip
    assert len(frame) == 2 * 6 + 2 * 2  # two steps; head 0 reads six past steps, head 1 two
    row = frame[(frame["head"] == 0) & (frame["horizon"] == 2) & (frame["lag"] == 3)].iloc[0]
    assert row["unique_id"] == "a"
    assert row["layer"] == "attention"
    assert row["origin"] == pd.Timestamp("2024-01-01 06:00")
    assert row["target_time"] == pd.Timestamp("2024-01-01 08:00")
    assert row["source_time"] == pd.Timestamp("2024-01-01 05:00")
    assert row["weight"] == pytest.approx(0.15)
    assert set(frame["lag"] - frame["horizon"]) == {0, 1, 3, 4, 5, 6}  # the ages; 2 is the gap, 7 the padding


def test_to_frame_weights_sum_to_one():
    rng = np.random.default_rng(0)
    times = pd.date_range("2024-03-29", periods=60, freq="h", tz="Europe/Berlin")
    panel = panel_of({"a": list(range(60)), "b": list(range(40))}, times)
    weights = rng.dirichlet(np.ones(5), size=(3, 1, 2, 4))
    windows = windows_of(panel, [(0, 60), (0, 30), (1, 40)], weights, horizon=4, key=time_axis(5))
    frame = AttentionMap(panel, windows).to_frame()
    sums = frame.groupby(["unique_id", "origin", "horizon", "head"])["weight"].sum()
    assert len(sums) == 3 * 4 * 2
    np.testing.assert_allclose(sums, 1.0, atol=1e-6)
    assert str(frame["source_time"].dt.tz) == "Europe/Berlin"
    hours = (frame["target_time"] - frame["source_time"]) / pd.Timedelta("1h")
    assert (hours == frame["lag"]).all()  # absolute time, across the clock change


def test_to_frame_min_weight_and_window():
    attention = patch_map()
    assert attention.to_frame(min_weight=0.19)["weight"].min() > 0.19
    assert len(attention.to_frame(-1)) == len(attention.to_frame(0)) == len(attention.to_frame())
    assert len(attention.to_frame(min_weight=2.0)) == 0


def test_irregular_months_and_integers():
    panel = panel_of({"a": [1, 2, 3, 4]}, pd.date_range("2024-01-31", periods=4, freq=pd.offsets.MonthEnd()))
    windows = windows_of(panel, [(0, 4)], one_hot((1, 1, 1, 1, 4), 1), horizon=1, key=time_axis(4))
    row = AttentionMap(panel, windows).to_frame().iloc[0]
    assert (row["source_time"], row["target_time"]) == (pd.Timestamp("2024-02-29"), pd.Timestamp("2024-05-31"))
    panel = panel_of({"a": [1, 2, 3, 4]}, [10, 15, 20, 25])
    windows = windows_of(panel, [(0, 4)], one_hot((1, 1, 1, 1, 4), 1), horizon=1, key=time_axis(4))
    row = AttentionMap(panel, windows).to_frame().iloc[0]
    assert (row["source_time"], row["origin"], row["target_time"], row["lag"]) == (15, 25, 30, 3)


def test_several_targets_have_their_own_gaps():
    table = pd.DataFrame({"ds": range(4), "y": [1.0, NAN, 3, 4], "z": [1.0, 2, 3, 4]})
    panel = build_panel(table, Roles.of(None, "ds", ("y", "z")))
    key = Axis("patch", (0, 2), (2, 4))
    windows = windows_of(panel, [(0, 4)], one_hot((1, 2, 1, 1, 2), 0), horizon=1, key=key)
    frame = AttentionMap(panel, windows).to_frame()
    assert list(frame.columns[:2]) == ["target", "origin"]
    assert frame[["target", "source_time", "weight"]].values.tolist() == [["y", 0, 1.0], ["z", 0, 0.5], ["z", 1, 0.5]]


def test_layers_without_a_map_are_left_out():
    attention = patch_map()
    step = time_axis(8)
    own = Record(np.full((1, 1, 1, 8, 8), 1 / 8, dtype=np.float32), step, step, "encoder")
    variable = Axis("variable", (0,), (8,))
    across = Record(np.ones((1, 1, 1, 1, 1), dtype=np.float32), variable, variable, "variables")
    record = attention.windows.attention[0]
    both = AttentionMap(attention.panel, replace(attention.windows, attention=(own, record, across)))
    assert (both.mapped, both.layers, both.length) == ([1], ["encoder", "attention", "variables"], 8)
    pd.testing.assert_frame_equal(both.to_frame(), attention.to_frame())
    none = AttentionMap(attention.panel, replace(attention.windows, attention=(across,)))
    with pytest.raises(ConfigError, match="variable x variable"):
        none.to_frame()


def test_out_of_range_names_the_range():
    attention = patch_map()
    with pytest.raises(IndexError, match="window 3 does not exist: there are 1, from 0 to 0"):
        attention.step_weights(3)
    with pytest.raises(IndexError, match="window -2"):
        attention.to_frame(-2)
    with pytest.raises(IndexError, match="target 1"):
        attention.history(0, 1)
    with pytest.raises(IndexError, match="layer 5"):
        attention.step_weights(0, layer=5)


def test_padding_before_the_range_of_stamps_does_not_matter():
    """Yearly data in a context that would begin in the year 1512: the table only has observed steps."""
    panel = panel_of({"a": list(range(12))}, pd.date_range("2012-01-01", periods=12, freq=pd.offsets.YearBegin()))
    windows = windows_of(panel, [(0, 12)], one_hot((1, 1, 1, 1, 512), 511), horizon=1, key=time_axis(512))
    assert AttentionMap(panel, windows).to_frame()["source_time"].tolist() == [pd.Timestamp("2023-01-01")]


def test_an_id_column_that_clashes_is_refused():
    table = pd.DataFrame({"lag": "JFK", "ds": range(4), "y": range(4)})
    panel = build_panel(table, Roles.of("lag", "ds", "y"))
    windows = windows_of(panel, [(0, 4)], one_hot((1, 1, 1, 1, 4), 0), horizon=1, key=time_axis(4))
    with pytest.raises(ConfigError, match="'lag'"):
        AttentionMap(panel, windows).to_frame()


def test_repr_is_one_line():
    assert repr(patch_map()) == "AttentionMap(1 windows x 8 past steps, layers ['attention'])"


def test_to_frame_of_many_windows_is_quick():
    """60 windows x 8 heads x 24 steps x 168: 1.9 million rows, about two seconds."""
    times = pd.date_range("2024-01-01", periods=300, freq="h", tz="Europe/Berlin")
    panel = panel_of({"a": list(range(300)), "b": list(range(300))}, times)
    keys = [(series, 200 + origin) for series in range(2) for origin in range(30)]
    key = Axis("patch", tuple(range(0, 168, 24)), tuple(range(24, 169, 24)))
    weights = np.full((60, 1, 8, 24, 7), 1 / 7)
    attention = AttentionMap(panel, windows_of(panel, keys, weights, horizon=24, key=key, query=horizon_axis(24)))
    start = time.perf_counter()
    assert len(attention.to_frame()) == 60 * 8 * 24 * 168
    assert time.perf_counter() - start < 20
