"""Pictures of maps, read back from their meshes: which cell is bright, and at which date, lag or hour it lies."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from tsattn.data.frequency import Frequency
from tsattn.errors import ConfigError
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.pictures.canvas import wrapped
from tsattn.inspection.pictures.lags import peaks_of
from tsattn.inspection.pictures.seasons import name_of, named_lags
from tsattn.models.base import Axis

from .hand_maps import horizon_axis, one_hot, panel_of, time_axis, windows_of

NAN = float("nan")
HOURS = pd.date_range("2024-01-01", periods=400, freq="h")  # a Monday


def one_map(
    times: object, values: list, weights: np.ndarray, key: Axis, *, query: Axis | None = None, **options: object
) -> AttentionMap:
    """One series, its windows ending at the last value."""
    panel = panel_of({"a": values}, times)
    horizon = max(query.end) if query else weights.shape[3]
    windows = windows_of(panel, [(0, len(values))] * len(weights), weights, horizon=horizon, key=key, query=query)
    return AttentionMap(panel, windows, (0.1, 0.5, 0.9), "toy", **options)


def lagged(lag: int = 24, *, length: int = 48, horizon: int = 6, origins: tuple[int, ...] = (100, 133)) -> AttentionMap:
    """Every forecast step reads the step ``lag`` before it; two heads, several windows of hourly data."""
    weights = np.zeros((len(origins), 1, 2, horizon, length), dtype=np.float32)
    for step in range(horizon):
        weights[..., step, length + step - lag] = 1.0
    panel = panel_of({"a": list(np.arange(400.0))}, HOURS)
    windows = windows_of(panel, [(0, o) for o in origins], weights, horizon=horizon, key=time_axis(length))
    return AttentionMap(panel, windows, (0.1, 0.5, 0.9), "toy")


def mesh_of(ax: Axes) -> tuple[np.ndarray, np.ndarray, np.ma.MaskedArray]:
    """Edges along x and y, and the colours ``[y, x]``."""
    mesh = next(c for c in ax.collections if isinstance(c, QuadMesh))
    corners = mesh.get_coordinates()
    values = np.ma.masked_invalid(mesh.get_array()).reshape(len(corners) - 1, -1)
    return corners[0, :, 0], corners[:, 0, 1], values


def brightest(ax: Axes) -> tuple[tuple[float, float], tuple[float, float]]:
    """The sides of the brightest cell, along x and y."""
    x, y, values = mesh_of(ax)
    row, column = np.unravel_index(int(values.filled(-np.inf).argmax()), values.shape)
    return (x[column], x[column + 1]), (y[row], y[row + 1])


def hatched(ax: Axes) -> list:
    return [patch for patch in ax.patches if patch.get_hatch()]


def panels(figure: Figure) -> list[Axes]:
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def words(ax: Axes) -> str:
    return " ".join(text.get_text() for text in ax.texts).replace("\n", " ")


def pixels(figure: Figure) -> np.ndarray:
    """Render; what matplotlib dislikes is a warning, and so an error here. ``[height, width, 4]``, 0 to 1."""
    from matplotlib.image import imread

    out = BytesIO()
    figure.savefig(out, format="png", dpi=figure.dpi)
    out.seek(0)
    return imread(out)


def number(stamp: str, tz: str | None = None) -> float:
    return float(mdates.date2num(pd.Timestamp(stamp, tz=tz)))


# ------------------------------------------------------------------ heat map


@pytest.mark.parametrize("tz", [None, "America/New_York"])
def test_heatmap_is_bright_at_its_date_and_horizon(tz):
    """Across the night in which New York skips two o'clock; forecast step 3 of 4 reads the sixth step."""
    times = pd.date_range("2024-03-09 22:00", periods=10, freq="h", tz=tz)
    weights = np.full((1, 1, 2, 4, 10), 0.05)
    weights[..., 2, 5] = 0.55
    ax = one_map(times, list(range(10)), weights, time_axis(10)).plot("heatmap")
    x, y = brightest(ax)
    read, asked = times[5], times[9] + pd.Timedelta("3h")
    assert x[0] < mdates.date2num(read) < x[1]
    assert y[0] < mdates.date2num(asked) < y[1]
    assert sum(x) / 2 == pytest.approx(mdates.date2num(read))
    if tz:
        assert mdates.date2num(read) == number("2024-03-10 04:00", tz)
        assert tz in ax.get_xlabel()
    low, high = ax.get_ylim()
    assert low < high  # later forecast steps lie higher
    assert ax.get_xlim()[1] == pytest.approx(number_between(times[9], times[9] + pd.Timedelta("1h")))  # the origin


def number_between(first: pd.Timestamp, second: pd.Timestamp) -> float:
    return (mdates.date2num(first) + mdates.date2num(second)) / 2


def test_the_brightest_pixel_is_the_planted_cell():
    """Rendered: an upside-down or shifted picture fails here, whatever its mesh says."""
    weights = np.zeros((1, 1, 1, 4, 8))
    weights[..., 1, 2] = 1.0
    ax = one_map(list(range(8)), list(range(8)), weights, time_axis(8)).plot("heatmap", guides=False)
    picture = pixels(ax.figure)
    height = len(picture)

    def colour(x: float, y: float) -> np.ndarray:
        across, up = ax.transData.transform((x, y))
        return picture[height - 1 - int(up), int(across), :3]

    yellow, black = (0.993248, 0.906157, 0.143936), (0.267004, 0.004874, 0.329415)  # the ends of viridis
    np.testing.assert_allclose(colour(2, 9), yellow, atol=0.01)  # step 2 was read for the time 9
    for x, y in ((2, 8), (2, 10), (1, 9), (3, 9), (5, 10)):
        np.testing.assert_allclose(colour(x, y), black, atol=0.01)


def test_heatmap_by_age_and_by_lag():
    attention = lagged(24)
    by_age = attention.plot("heatmap", x="age")
    x, y, values = mesh_of(by_age)
    assert by_age.get_xlim()[0] > by_age.get_xlim()[1]  # newest at the right
    for row in range(6):
        column = int(values[row].argmax())
        assert {x[column], x[column + 1]} == {24 - (row + 1) - 0.5, 24 - (row + 1) + 0.5}
        assert (y[row], y[row + 1]) == (row + 0.5, row + 1.5)
    by_lag = attention.plot("heatmap", x="lag")
    x, _, values = mesh_of(by_lag)
    assert by_lag.get_xlim()[0] > by_lag.get_xlim()[1]
    columns = values.filled(0).argmax(axis=1)
    assert len(set(columns)) == 1  # a fixed lag is upright
    assert sorted((x[columns[0]], x[columns[0] + 1])) == [23.5, 24.5]
    assert values.mask.sum() == 6 * 5  # 53 lags, of which a row can read 48
    assert "mean of 2 heads and 2 windows" in words(by_lag)


def test_guides_run_through_the_cells_of_their_lag():
    attention = lagged(24)
    for x in ("time", "age", "lag"):
        ax = attention.plot("heatmap", x=x)
        (guide,) = [line for line in ax.lines if line.get_label() == "lag 1 day"]
        edges, rows, values = mesh_of(ax)
        for row in range(6):
            column = int(values[row].filled(0).argmax())
            middle = np.interp((rows[row] + rows[row + 1]) / 2, guide.get_ydata(), guide.get_xdata())
            assert middle == pytest.approx((edges[column] + edges[column + 1]) / 2)
        assert "1 day" in words(ax)
    assert not attention.plot("heatmap", guides=False).lines


def test_a_patch_is_one_cell():
    """Context 10 in patches of 4, the first of which begins before the window; two query tokens of 2 steps."""
    key = Axis("patch", (-2, 2, 6), (2, 6, 10))
    query = Axis("horizon", (0, 2), (2, 4))
    weights = np.array([[[[[0.2, 0.7, 0.1], [0.1, 0.3, 0.6]]]]])
    attention = one_map(list(range(10)), list(range(10)), weights, key, query=query)
    ax = attention.plot("heatmap")
    x, y, values = mesh_of(ax)
    np.testing.assert_allclose(x, [-0.5, 1.5, 5.5, 9.5])
    np.testing.assert_allclose(y, [9.5, 11.5, 13.5])
    np.testing.assert_allclose(values, weights[0, 0, 0], rtol=1e-6)
    assert "one cell per patch" in words(ax)
    assert any(other.get_ylabel() == "attention (share per patch)" for other in ax.figure.axes)
    x, _, values = mesh_of(attention.plot("heatmap", x="lag"))
    assert values.shape == (4, 13)
    np.testing.assert_allclose(values[0].compressed(), np.repeat([0.2, 0.7, 0.1], [2, 4, 4]), rtol=1e-6)


def test_overlapping_patches_are_shared_among_steps():
    key = Axis("patch", (0, 2), (4, 6))
    ax = one_map(list(range(6)), list(range(6)), np.array([[[[[0.8, 0.2]]]]]), key).plot("heatmap")
    _, _, values = mesh_of(ax)
    np.testing.assert_allclose(values[0], [0.2, 0.2, 0.25, 0.25, 0.05, 0.05], rtol=1e-6)


def test_gaps_are_hatched_and_padding_is_blank():
    """Context 6, four rows, the third missing: two steps of padding and a gap, in patches of 3."""
    key = Axis("patch", (0, 3), (3, 6))
    ax = one_map(HOURS[:4], [1, 2, NAN, 4], np.array([[[[[0.4, 0.6]] * 5]]]), key).plot("heatmap")
    x, _, values = mesh_of(ax)
    there = (mdates.date2num(HOURS[:4]) + 0.0).tolist()
    blank = [bool(values.mask[0, np.searchsorted(x, when) - 1]) for when in there]
    assert blank == [False, False, True, False]
    assert values.mask[0, 0]  # padding
    spans = sorted(patch.get_x() for patch in hatched(ax))
    assert len(spans) == 2
    assert spans[1] == pytest.approx(number_between(HOURS[1], HOURS[2]))
    assert "hatched: not observed" in words(ax)
    pixels(ax.figure)


def test_irregular_months_and_integer_time():
    times = pd.date_range("2024-01-31", periods=4, freq=pd.offsets.MonthEnd())
    x, y = brightest(one_map(times, [1, 2, 3, 4], one_hot((1, 1, 1, 1, 4), 1), time_axis(4)).plot("heatmap"))
    assert x[0] < number("2024-02-29") < x[1]
    assert y[0] < number("2024-05-31") < y[1]
    assert x[1] == (number("2024-02-29") + number("2024-03-31")) / 2
    ax = one_map([10, 15, 20, 25], [1, 2, 3, 4], one_hot((1, 1, 1, 2, 4), 2), time_axis(4)).plot("heatmap")
    np.testing.assert_array_equal(mesh_of(ax)[0], [7.5, 12.5, 17.5, 22.5, 27.5])
    np.testing.assert_array_equal(mesh_of(ax)[1], [27.5, 32.5, 37.5])
    pixels(ax.figure)


def test_some_forecast_steps_leave_a_hatched_row():
    ax = lagged(24).sel(horizon=[1, 2, 5]).plot("heatmap", x="age")
    _, y, values = mesh_of(ax)
    assert y.tolist() == [0.5, 1.5, 2.5, 4.5, 5.5]
    assert values.mask.all(axis=1).tolist() == [False, False, True, False]
    assert [(p.get_y(), p.get_height()) for p in hatched(ax)] == [(2.5, 2.0)]


def test_several_series_each_in_its_own_time():
    panel = panel_of({"a": list(range(30)), "b": list(range(20))}, HOURS[:30], freq="h")
    weights = np.concatenate([one_hot((1, 1, 1, 1, 8), 1), one_hot((1, 1, 1, 1, 8), 6)])
    windows = windows_of(panel, [(0, 30), (1, 20)], weights, horizon=1, key=time_axis(8))
    attention = AttentionMap(panel, windows, (), "toy")
    for window, origin, hot in ((0, 30, 1), (1, 20, 6)):
        ax = attention.plot("heatmap", window=window)
        x, _ = brightest(ax)
        assert x[0] < mdates.date2num(HOURS[origin - 8 + hot]) < x[1]
        assert ax.get_title(loc="left").startswith("ab"[window])
    values = mesh_of(attention.plot("heatmap", x="age"))[2]
    np.testing.assert_allclose(values[0], [0, 0.5, 0, 0, 0, 0, 0.5, 0])


def test_signed_maps_have_a_diverging_scale_around_zero():
    weights = np.array([[[[[-2.0, 0.5, 0.0, 1.0]]]]])
    attention = one_map([1, 2, 3, 4], [1, 2, 3, 4], weights, time_axis(4), method="contribution", signed=True)
    attention = replace(attention, unit="data")
    ax = attention.plot("heatmap")
    mesh = next(c for c in ax.collections if isinstance(c, QuadMesh))
    assert (mesh.norm.vmin, mesh.norm.vmax) == (-2, 2)
    assert mesh.norm(0.0) == pytest.approx(0.5)
    assert mesh.cmap.name == "RdBu_r"
    assert "both sides of 0" in words(ax)
    assert "contribution (an attribution)" in words(ax)
    assert "what was read" not in words(ax)
    strip = attention.plot()
    mesh = next(c for c in strip.child_axes[0].collections if isinstance(c, QuadMesh))
    assert (mesh.norm.vmin, mesh.norm.vmax) == (-2, 2)
    assert any("of y" in other.get_ylabel() for other in strip.figure.axes)
    assert "even spread" not in words(strip)


def test_shares_are_on_a_printed_scale_from_zero():
    attention = lagged(24)
    mesh = next(c for c in attention.plot("heatmap").collections if isinstance(c, QuadMesh))
    assert mesh.norm(0.25) == pytest.approx(0.5)  # square root
    even = one_map(list(range(4)), [1, 2, 3, 4], np.array([[[[[0.9, 0.1, 0.0, 0.0]]]]]), time_axis(4))
    ax = even.plot("heatmap", scale="log")
    mesh = next(c for c in ax.collections if isinstance(c, QuadMesh))
    assert (mesh.norm.vmin, mesh.norm.vmax) == pytest.approx((0.1, 0.9))
    assert not np.ma.getmaskarray(mesh.get_array()).any()  # a zero is no gap
    assert "logarithmic colours from 10 %" in words(ax)
    with pytest.raises(ConfigError, match="scale"):
        even.plot("heatmap", scale="cube")


def test_what_fell_on_forecast_steps_is_said():
    key = Axis("time", tuple(range(5)), tuple(range(1, 6)), ahead=2)
    weights = np.array([[[[[0.5, 0.0, 0.2, 0.3, 0.0], [0.1, 0.0, 0.0, 0.3, 0.6]]]]])
    ax = one_map([0, 1, 2], [0, 1, 2], weights, key).plot("heatmap")
    assert "60 % was read from forecast steps" in words(ax)
    assert mesh_of(ax)[2].shape == (2, 3)


# ------------------------------------------------------------------ lag profile


def test_lags_show_the_planted_lag_by_name():
    ax = lagged(24).plot("lags")
    (mean,) = [line for line in ax.lines if line.get_label() == "mean"]
    assert mean.get_xdata()[np.argmax(mean.get_ydata())] == 24
    assert "peak: lag 24 (1 day) at 100 %" in words(ax)
    named = {line.get_label(): line.get_xdata()[0] for line in ax.lines if line.get_label().startswith("_lag")}
    assert named == {"_lag 1 day": 24, "_lag 2 days": 48}
    (even,) = [line for line in ax.lines if line.get_label() == "even spread"]
    np.testing.assert_allclose(even.get_ydata(), 1 / 48)
    assert "mean of 2 heads, 2 windows and 6 forecast steps" in words(ax)
    pixels(ax.figure)
    lift = lagged(24).lift().plot("lags")
    (even,) = [line for line in lift.lines if line.get_label() == "even spread"]
    np.testing.assert_array_equal(even.get_ydata(), 1.0)
    with pytest.raises(ConfigError, match="count"):
        lagged(24).plot("lags", count=-1)


def test_peaks_are_high_apart_and_may_be_plateaus():
    weight = np.array([0.0, 1, 1, 1, 0, 0, 3, 0, 0, -2, 0, 0.01, 0, 5])
    assert peaks_of(weight, 3).tolist() == [[13, 13], [6, 6], [9, 9]]
    assert peaks_of(weight, 9)[3].tolist() == [1, 3]
    assert len(peaks_of(weight, 9)) == 4  # a ripple is no peak
    assert len(peaks_of(np.full(5, 0.2), 3)) == 0
    assert len(peaks_of(weight, 0)) == 0


def test_lags_have_names():
    assert named_lags(Frequency.parse("h"), 200) == {24 * i: f"{i} day{'s' if i > 1 else ''}" for i in range(1, 7)} | {
        168: "1 week",
        192: "8 days",
    }
    assert named_lags(Frequency.parse("h"), 800) == {24: "1 day"} | {
        168 * i: f"{i} week{'s' if i > 1 else ''}" for i in range(1, 5)
    }
    assert named_lags(Frequency.parse("15min"), 100) == {96: "1 day"}
    assert named_lags(Frequency.parse("MS"), 40) == {12: "1 year", 24: "2 years", 36: "3 years"}
    assert named_lags(Frequency.parse("B"), 11) == {5: "1 week", 10: "2 weeks"}
    assert named_lags(Frequency.parse("5h"), 100) == {}  # a day is no whole number of steps
    assert named_lags(Frequency.parse(1), 100) == {}
    assert name_of(Frequency.parse("D"), 14) == "2 weeks"
    assert name_of(Frequency.parse("D"), 3) is None


# ------------------------------------------------------------------ calendar


def test_calendar_has_a_bright_diagonal_for_a_daily_lag():
    figure = lagged(24, origins=tuple(range(100, 148, 6))).plot("calendar")
    left, right = panels(figure)
    x, y, values = mesh_of(right)  # hour read by hour of the forecast
    assert values.shape == (24, 24)
    for row in range(24):
        columns = np.flatnonzero(values[row].filled(0) > 0)
        assert columns.tolist() == [row]
        assert (x[row] + x[row + 1]) / 2 == (y[row] + y[row + 1]) / 2 == row
    assert mesh_of(left)[2].shape == (24, 7)
    assert [text.get_text() for text in left.get_xticklabels()][:2] == ["Mon", "Tue"]
    assert mesh_of(left)[2].mask[:, 6].all()  # no Sunday was read
    assert any(patch.get_hatch() for patch in left.patches)
    assert "hatched: no such pair" in figure.get_supxlabel()
    assert "clock of the table" in figure.get_supxlabel()
    pixels(figure)


def test_calendar_of_months_writes_how_many_pairs():
    months = pd.date_range("2020-01-01", periods=36, freq="MS")
    weights = one_hot((1, 1, 1, 3, 24), 12)
    attention = one_map(months, list(range(36)), weights, time_axis(24))
    ax = attention.plot("calendar", rows="month", cols="target.quarter")
    _, _, values = mesh_of(ax)
    assert values.shape == (12, 4)
    assert values.filled(0).argmax() == 0  # January was read for the first quarter
    assert values[0, 0] == pytest.approx(0.5)  # of two Januaries in the window
    assert "6" in {text.get_text() for text in ax.texts}  # 2 Januaries x 3 forecast steps
    assert "6 pairs per cell" in words(ax)
    assert isinstance(attention.plot("calendar"), Axes)  # one panel suits months
    with pytest.raises(ConfigError, match="rows"):
        attention.plot("calendar", rows="month")
    with pytest.raises(ConfigError, match="integer"):
        one_map([1, 2], [1, 2], one_hot((1, 1, 1, 1, 2), 0), time_axis(2)).plot("calendar")


def test_three_hourly_data_have_eight_hours():
    times = pd.date_range("2024-01-01 02:00", periods=60, freq="3h")
    attention = one_map(times, list(range(60)), one_hot((1, 1, 1, 2, 16), 0), time_axis(16))
    right = panels(attention.plot("calendar"))[0]
    assert mesh_of(right)[2].shape[0] == 8
    assert right.get_yticklabels()[0].get_text() == "2"


# ------------------------------------------------------------------ heads


def test_heads_share_one_scale_and_wear_badges():
    weights = np.zeros((3, 1, 3, 4, 10))
    weights[:, :, 0] = 0.1  # uniform
    weights[:, :, 1, :, 7] = 1.0  # always the same step
    for window in range(3):
        for step in range(4):
            weights[window, :, 2, step, step + 2 * window] = 1.0
    values = list(np.arange(12.0))
    figure = one_map(list(range(12)), values, weights, time_axis(10)).plot("heads")
    shown = panels(figure)
    assert len(shown) == 3
    assert ["uniform" in words(ax) for ax in shown] == [True, False, False]
    assert ["sink" in words(ax) for ax in shown] == [False, True, False]
    titles = [ax.get_title() for ax in shown]
    assert titles == ["head 0: 10 of 10 steps", "head 1: 1 of 10 steps", "head 2: 1 of 10 steps"]
    norms = [next(c for c in ax.collections if isinstance(c, QuadMesh)).norm for ax in shown]
    assert len({id(norm) for norm in norms}) == 1
    x, y, colours = mesh_of(shown[1])
    assert int(colours[0].argmax()) == 7
    assert (x[7], x[8]) == (-3, -2)  # the last past step ends at 0
    assert (y[0], y[-1]) == (0, 4)
    pixels(figure)


def test_heads_without_a_map_and_too_many():
    key = Axis("patch", (0, 4), (4, 8))
    attention = one_map(list(range(8)), list(range(8)), one_hot((1, 1, 2, 2, 2), 1), key, query=horizon_axis(2))
    record = attention.windows.attention[0]
    encoder = replace(record, query=key, layer="encoder")
    both = replace(attention, windows=attention.windows.with_attention(encoder, record))
    figure = both.plot("heads")
    assert len(panels(figure)) == 2
    assert "1 other layer: every=True" in figure.get_supxlabel()
    assert len(panels(both.plot("heads", every=True))) == 4
    alone = replace(attention, windows=attention.windows.with_attention(encoder))
    assert panels(alone.plot("heads"))[0].get_ylabel() == "encoder\npast step"
    many = replace(record, weights=np.repeat(record.weights, 100, axis=2))
    with pytest.raises(ConfigError, match="choose some with sel"):
        replace(attention, windows=attention.windows.with_attention(many)).plot("heads")


# ------------------------------------------------------------------ variables


def variable_map(*records: object) -> AttentionMap:
    attention = one_map([0, 1, 2, 3], [1, 2, 3, 4], one_hot((2, 1, 1, 1, 4), 0), time_axis(4))
    return replace(attention, windows=attention.windows.with_attention(*records))


def variables_record(weights: np.ndarray, layer: str, *, query: Axis | None = None) -> object:
    names = ("target", *(f"extra {i}" for i in range(weights.shape[-1] - 1)))
    key = Axis("variable", (0,) * len(names), (4,) * len(names), names)
    base = one_map([0, 1, 2, 3], [1, 2, 3, 4], one_hot((2, 1, 1, 1, 4), 0), time_axis(4)).windows.attention[0]
    return replace(base, weights=np.stack([weights, weights])[:, None, None], query=query or key, key=key, layer=layer)


def test_variables_by_variables():
    weights = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4]])
    ax = variable_map(variables_record(weights, "encoder")).plot("variables")
    _, _, values = mesh_of(ax)
    np.testing.assert_allclose(values, weights)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["y", "extra 0", "extra 1"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["y", "extra 0", "extra 1"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row at the top, as in the table
    assert "70 %" in {text.get_text() for text in ax.texts}
    pixels(ax.figure)


def test_variables_by_step_and_several_layers():
    past = np.array([[0.1, 0.9], [0.3, 0.7], [0.2, 0.8], [0.2, 0.8]])
    selection = variables_record(past, "past selection", query=time_axis(4))
    ax = variable_map(selection).plot("variables")
    x, _, values = mesh_of(ax)
    np.testing.assert_allclose(values, past.T[::-1])  # most selected first
    assert [text.get_text() for text in ax.get_yticklabels()] == ["extra 0  80 %", "y  20 %"]
    np.testing.assert_array_equal(x, [-3.5, -2.5, -1.5, -0.5, 0.5])
    two = variable_map(selection, variables_record(np.eye(2), "encoder"))
    figure = two.plot("variables")
    assert len(panels(figure)) == 2
    assert mesh_of(two.plot("variables", layer="past selection"))[2].shape == (2, 4)
    with pytest.raises(ConfigError, match="variables as keys"):
        lagged().plot("variables")


# ------------------------------------------------------------------ compare


def test_compare_two_lags_on_one_grid():
    first, second = lagged(24), lagged(30)
    figure = first.plot("compare", other=second)
    one, two, change = panels(figure)
    np.testing.assert_allclose(mesh_of(change)[2], mesh_of(one)[2] - mesh_of(two)[2])
    meshes = [next(c for c in ax.collections if isinstance(c, QuadMesh)) for ax in (one, two, change)]
    assert meshes[0].norm is meshes[1].norm
    assert meshes[2].norm.vmin == -meshes[2].norm.vmax == -1
    assert meshes[2].cmap.name == "RdBu_r"
    assert "total variation 1.00" in figure.get_suptitle()
    assert "Spearman -0.02" in figure.get_suptitle()
    same = first.plot("compare", other=first, window=0)
    assert "total variation 0.00, Spearman 1.00" in same.get_suptitle()
    assert panels(same)[2].get_xlabel().startswith("ds that was read")
    pixels(same)


def test_compare_puts_patches_beside_steps():
    steps = one_map(list(range(8)), list(range(8)), np.full((1, 1, 1, 2, 8), 0.125), time_axis(8))
    patches = one_map(list(range(8)), list(range(8)), np.full((1, 1, 1, 2, 2), 0.5), Axis("patch", (0, 4), (4, 8)))
    one, two, change = panels(steps.plot("compare", other=patches))
    assert mesh_of(one)[2].shape == mesh_of(two)[2].shape == (2, 8)
    np.testing.assert_allclose(mesh_of(change)[2], 0.0, atol=1e-8)


def test_compare_other_units_as_shares():
    steps = one_map(list(range(4)), list(range(4)), np.array([[[[[0.5, 0.5, 0.0, 0.0]]]]]), time_axis(4))
    effect = one_map(list(range(4)), list(range(4)), np.array([[[[[-3.0, 1.0, 0.0, 0.0]]]]]), time_axis(4),
                     method="contribution", signed=True, unit="data")  # fmt: skip
    figure = steps.plot("compare", other=effect)
    np.testing.assert_allclose(mesh_of(panels(figure)[1])[2][0], [0.75, 0.25, 0, 0])
    assert "drawn as shares by size" in figure.get_supxlabel()


def test_compare_refuses_other_windows():
    with pytest.raises(ConfigError, match="48 and 36 past steps"):
        lagged(24).plot("compare", other=lagged(24, length=36))
    with pytest.raises(ConfigError, match="other series or origins"):
        lagged(24).plot("compare", other=lagged(24, origins=(100, 134)))
    with pytest.raises(ConfigError, match="no dates"):
        lagged(24).plot("compare", other=lagged(30), x="time")
    with pytest.raises(ConfigError, match="AttentionMap"):
        lagged(24).plot("compare", other="b")


# ------------------------------------------------------------------ all kinds


def test_unknown_kinds_and_options_are_named():
    attention = lagged()
    with pytest.raises(ConfigError, match="Did you mean 'heatmap'"):
        attention.plot("heat")
    with pytest.raises(ConfigError, match="option of the picture 'lags' 'window'"):
        attention.plot("lags", window=1)
    with pytest.raises(ConfigError, match="x axis"):
        attention.plot("heatmap", x="date")
    with pytest.raises(ConfigError, match="not interactive"):
        attention.plot("lags", interactive=True)


@pytest.mark.parametrize("kind", ["strip", "heatmap", "lags", "calendar"])
def test_one_panel_goes_into_given_axes(kind):
    figure = Figure(figsize=(12, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert lagged().plot(kind, ax=left) is left
    assert not right.has_data()
    assert "toy, attention" in words(left)
    pixels(figure)


@pytest.mark.slow
def test_pictures_leave_pyplot_alone():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    attention = lagged()
    for kind in ("heatmap", "lags", "calendar", "heads"):
        shown = attention.plot(kind)
        assert shown._repr_png_().startswith(b"\x89PNG")  # a notebook shows it
    attention.plot("compare", other=attention)
    assert pyplot.get_fignums() == before


def test_names_are_no_formulae():
    panel = panel_of({"$x_1$": list(np.arange(60.0))}, HOURS[:60], target="price $")
    weights = one_hot((1, 1, 1, 2, 24), 3)
    attention = AttentionMap(panel, windows_of(panel, [(0, 60)], weights, horizon=2, key=time_axis(24)), (), "a $ b $")
    for kind in ("strip", "heatmap", "lags", "calendar", "heads"):
        shown = attention.plot(kind)
        pixels(shown if isinstance(shown, Figure) else shown.figure)


def test_a_number_and_its_unit_stay_on_one_line():
    text = wrapped([f"peaks: {', '.join(f'{lag} at 0.{lag} %' for lag in range(100, 112))}"], 2.0, most=20)
    assert text.count("\n") > 3
    assert "\n%" not in text
