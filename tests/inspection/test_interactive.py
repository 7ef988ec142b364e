"""Interactive pictures: what a cell tells on hover, and where it lies."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tsattn.errors import ConfigError, TsattnError
from tsattn.inspection.maps import AttentionMap
from tsattn.models.base import Axis

from .hand_maps import one_hot, panel_of, time_axis, windows_of

NAN = float("nan")


@pytest.fixture
def attention() -> AttentionMap:
    """Ten hours in New York, which skip two o'clock; forecast step h reads past step 2 h; step 7 is missing."""
    times = pd.date_range("2024-03-09 22:00", periods=10, freq="h", tz="America/New_York")
    values = [float(i) for i in range(10)]
    values[7] = NAN
    panel = panel_of({"<b>a": values}, times, target="y & <z>")
    weights = np.zeros((1, 1, 2, 3, 10))
    for step in range(3):
        weights[..., step, 2 * (step + 1)] = 1.0
    return AttentionMap(panel, windows_of(panel, [(0, 10)], weights, horizon=3, key=time_axis(10)), (0.1, 0.9), "toy")


def test_a_missing_plotly_names_the_extra(attention, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    for kind in ("strip", "heatmap"):
        with pytest.raises(ImportError, match=r'pip install "tsattn\[plotly\]"') as caught:
            attention.plot(kind, interactive=True)
        assert isinstance(caught.value, TsattnError)


def test_heatmap_cells_tell_date_value_and_weight(attention):
    pytest.importorskip("plotly")
    figure = attention.plot("heatmap", interactive=True)
    gaps, mesh = figure.data
    z = np.asarray(mesh.z, dtype=float)
    assert np.nanargmax(z, axis=1).tolist() == [2, 4, 6]
    assert np.isnan(z[:, 7]).all()
    assert np.isfinite(np.asarray(gaps.z, dtype=float)[:, 7]).all()  # grey
    text = mesh.text[1][4]
    assert text.split("<br>") == [
        "2024-03-10 03:00:00-04:00",
        "y &amp; &lt;z> 4",
        "for 2024-03-10 10:00:00-04:00",
        "lag 7",
        "attention 100 % per step",
    ]
    assert "nothing to read" in mesh.text[0][7]
    edges = pd.DatetimeIndex(np.asarray(mesh.x))
    assert len(edges) == 11
    assert edges[2:4].tolist() == [pd.Timestamp("2024-03-10 00:30"), pd.Timestamp("2024-03-10 01:30")]  # -04:00
    assert "clock at the origin: -04:00" in figure.layout.xaxis.title.text
    assert "&lt;b>a" in figure.layout.title.text
    assert "<b>" not in figure.layout.title.text


def test_a_patch_is_one_cell_that_tells_its_span():
    pytest.importorskip("plotly")
    panel = panel_of({"a": list(range(10))}, list(range(10)))
    key = Axis("patch", (0, 5), (5, 10))
    windows = windows_of(panel, [(0, 10)], one_hot((1, 1, 1, 2, 2), 1), horizon=2, key=key)
    figure = AttentionMap(panel, windows, (), "toy").plot("heatmap", interactive=True)
    (mesh,) = figure.data
    assert np.asarray(mesh.z).shape == (2, 2)
    assert list(mesh.x) == [-0.5, 4.5, 9.5]
    assert mesh.text[0][1].split("<br>") == ["5 to 9", "mean y 7", "for 10", "lag 1 to 5", "attention 100 % per patch"]


def test_a_mean_over_windows_by_age(attention):
    pytest.importorskip("plotly")
    twice = replace(attention, windows=attention.windows.take(np.array([0, 0])))
    mesh = twice.plot("heatmap", x="age", interactive=True).data[-1]
    assert mesh.text[0][2].startswith("age 7<br>for step 1<br>lag 8")
    with pytest.raises(ConfigError, match="interactive heat map"):
        twice.plot("heatmap", x="lag", interactive=True)


def test_strip_has_history_forecast_and_weights(attention):
    pytest.importorskip("plotly")
    figure = attention.plot(interactive=True, horizon=2)
    traces = {trace.name: trace for trace in figure.data if trace.name}
    np.testing.assert_array_equal(np.asarray(traces["history"].y), [0, 1, 2, 3, 4, 5, 6, NAN, 8, 9])
    np.testing.assert_array_equal(np.asarray(traces["forecast"].y), [0, 1, 2])
    mesh = figure.data[-1]
    assert np.nanargmax(np.asarray(mesh.z, dtype=float)) == 4
    assert mesh.text[0][4].split("<br>")[::2] == ["2024-03-10 03:00:00-04:00", "attention 100 %, rank 1"]
    assert mesh.text[0][7].endswith("not observed<br>nothing to read")
    stamps = pd.DatetimeIndex(np.asarray(traces["history"].x))
    edges = pd.DatetimeIndex(np.asarray(mesh.x))
    assert edges[4] < stamps[4] < edges[5]
    assert "at forecast step 2" in figure.layout.title.text
    assert figure.to_html(include_plotlyjs=False)
