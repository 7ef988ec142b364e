"""Pictures, read back: what is drawn where, and in which words."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import BytesIO

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.figure import Figure

from tsattn.data.build import build_panel
from tsattn.data.schema import Roles
from tsattn.errors import ConfigError
from tsattn.forecast import Forecast
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.plots import plot_forecast, plot_strip
from tsattn.models.base import Axis

from .hand_maps import one_hot, panel_of, time_axis, windows_of

NAN = float("nan")
LEVELS = (0.1, 0.5, 0.9)


def one_map(
    times: object, values: list, weights: np.ndarray, *, horizon: int, key: Axis, **options: object
) -> AttentionMap:
    panel = panel_of({"a": values}, times)
    windows = windows_of(panel, [(0, len(values))], weights, horizon=horizon, key=key)
    return AttentionMap(panel, windows, LEVELS, "toy", **options)


def strip_of(ax: Axes) -> tuple[np.ndarray, np.ma.MaskedArray]:
    """Edges ``[n + 1]`` on the time axis and colours ``[n]`` of the cells."""
    mesh = next(c for c in ax.child_axes[0].collections if isinstance(c, QuadMesh))
    return mesh.get_coordinates()[0, :, 0], np.ma.masked_invalid(mesh.get_array()).ravel()


def lines_of(ax: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {line.get_label(): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in ax.lines}


def drawn(figure: Figure) -> Figure:
    """Render: what matplotlib dislikes is a warning, and so an error here."""
    figure.savefig(BytesIO(), format="png")
    return figure


def number(stamp: str, tz: str | None = None) -> float:
    return float(mdates.date2num(pd.Timestamp(stamp, tz=tz)))


@pytest.mark.parametrize("tz", [None, "America/New_York"])
def test_one_hot_is_bright_at_its_date(tz):
    """Across the night in which New York skips two o'clock; hot is the sixth step."""
    times = pd.date_range("2024-03-09 22:00", periods=10, freq="h", tz=tz)
    attention = one_map(times, list(range(10)), one_hot((1, 1, 2, 3, 10), 5), horizon=3, key=time_axis(10))
    ax = plot_strip(attention)
    edges, colours = strip_of(ax)
    assert int(colours.argmax()) == 5
    assert colours.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    hot = float(mdates.date2num(times[5]))
    assert edges[5] < hot < edges[6]
    assert (edges[5] + edges[6]) / 2 == pytest.approx(hot)
    if tz:
        assert hot == number("2024-03-10 04:00", tz)
        assert "America/New_York" in ax.get_xlabel()
    x, y = lines_of(ax)["history"]
    np.testing.assert_allclose(x, mdates.date2num(times))
    np.testing.assert_array_equal(y, np.arange(10))
    drawn(ax.figure)
    hours = [text.get_text() for text in ax.get_xticklabels()]
    assert ("02:00" in hours) == (tz is None)  # the labels are in the zone of the data
    assert "04:00" in hours


def test_strip_and_lines_share_the_time_axis():
    times = pd.date_range("2024-01-01", periods=6, freq="D")
    ax = plot_strip(one_map(times, list(range(6)), one_hot((1, 1, 1, 2, 6), 0), horizon=2, key=time_axis(6)))
    drawn(ax.figure)
    strip = ax.child_axes[0]
    assert strip.get_xlim() == ax.get_xlim()
    x = number("2024-01-03")
    assert strip.transData.transform((x, 0.5))[0] == pytest.approx(ax.transData.transform((x, 0.0))[0])
    bottom = ax.transAxes.inverted().transform(strip.transAxes.transform((0, 1)))[1]
    values = np.concatenate([y for label, (_, y) in lines_of(ax).items() if label != "origin"])
    low = ax.transAxes.inverted().transform(ax.transData.transform((0, values.min())))[1]
    assert low > bottom  # the data stay above the strip


def test_irregular_months_and_the_origin():
    times = pd.date_range("2024-01-31", periods=4, freq=pd.offsets.MonthEnd())
    ax = plot_strip(one_map(times, [1, 2, 3, 4], one_hot((1, 1, 1, 2, 4), 1), horizon=2, key=time_axis(4)))
    edges, colours = strip_of(ax)
    assert colours.tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(edges[2], (number("2024-02-29") + number("2024-03-31")) / 2)
    assert lines_of(ax)["origin"][0][0] == number("2024-04-30")
    np.testing.assert_allclose(lines_of(ax)["forecast (median)"][0], [number("2024-05-31"), number("2024-06-30")])
    assert "origin 2024-04-30" in ax.get_title(loc="left")


def test_integer_time():
    ax = plot_strip(one_map([10, 15, 20, 25], [1, 2, 3, 4], one_hot((1, 1, 1, 1, 4), 2), horizon=1, key=time_axis(4)))
    edges, colours = strip_of(ax)
    np.testing.assert_array_equal(edges, [7.5, 12.5, 17.5, 22.5, 27.5])
    assert colours.tolist() == [0, 0, 1, 0]
    assert ax.get_title(loc="left") == "a, origin 25, 1 steps ahead"
    drawn(ax.figure)


def test_horizon_picks_one_step():
    weights = np.zeros((1, 1, 2, 3, 4))
    weights[..., [0, 1, 2], [0, 1, 2]] = 1.0  # forecast step h reads past step h
    times = pd.date_range("2024-01-01", periods=4, freq="h")
    attention = one_map(times, [1, 2, 3, 4], weights, horizon=3, key=time_axis(4))
    for step in (1, 2, 3):
        ax = plot_strip(attention, horizon=step)
        assert strip_of(ax)[1].argmax() == step - 1
        x, y = lines_of(ax)[f"step {step}"]
        assert (x[0], y[0]) == (pytest.approx(number(f"2024-01-01 0{3 + step}:00")), step - 1)
    np.testing.assert_allclose(strip_of(plot_strip(attention))[1], [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-7)
    for step in (0, -1, 4):
        with pytest.raises(IndexError, match=f"horizon {step} does not exist: there are 3, from 1 to 3"):
            plot_strip(attention, horizon=step)


def test_padding_and_gaps_are_blank():
    """Context 6, four rows, the third missing: two steps of padding, and a gap in line and strip."""
    times = pd.date_range("2024-01-01", periods=4, freq="h")
    attention = one_map(times, [1, 2, NAN, 4], np.full((1, 1, 1, 2, 6), 1 / 3), horizon=2, key=time_axis(6))
    ax = plot_strip(attention)
    assert np.ma.getmaskarray(strip_of(ax)[1]).tolist() == [True, True, False, False, True, False]
    hatched = [c for c in ax.child_axes[0].collections if isinstance(c, PolyCollection) and not isinstance(c, QuadMesh)]
    assert len(hatched) == 1
    assert hatched[0].get_hatch()
    edges = strip_of(ax)[0]
    spans = [(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in hatched[0].get_paths()]
    np.testing.assert_allclose(spans, [(edges[0], edges[2]), (edges[4], edges[5])])
    assert np.isnan(lines_of(ax)["history"][1]).tolist() == [True, True, False, False, True, False]
    dots = next(line for line in ax.lines if line.get_marker() == "o")
    np.testing.assert_array_equal(dots.get_ydata(), [4])  # a value without neighbours is still seen
    drawn(ax.figure)


def test_a_series_of_one_point_and_a_horizon_of_one():
    panel = panel_of({"a": [5.0]}, pd.DatetimeIndex(["2024-01-01"]), freq="D")
    windows = windows_of(panel, [(0, 1)], one_hot((1, 1, 1, 1, 500), 499), horizon=1, key=time_axis(500))
    ax = plot_strip(AttentionMap(panel, windows))
    dots = [float(line.get_ydata()[0]) for line in ax.lines if line.get_marker() == "o"]
    assert dots == [5.0, 0.0]  # history and forecast
    assert len(strip_of(ax)[1]) == 3  # 499 steps of padding would hide them
    drawn(ax.figure)


def test_padding_before_the_range_of_stamps():
    times = pd.date_range("1700-01-01", periods=30, freq=pd.offsets.YearBegin(), unit="us")
    attention = one_map(times, list(range(30)), one_hot((1, 1, 1, 1, 60), 59), horizon=1, key=time_axis(60))
    assert len(strip_of(plot_strip(attention))[1]) == 30


def test_several_targets():
    table = pd.DataFrame({"ds": range(4), "y": [1.0, 2, 3, 4], "z $2": [10.0, 20, 30, NAN]})
    panel = build_panel(table, Roles.of(None, "ds", ("y", "z $2")))
    weights = one_hot((1, 2, 1, 1, 4), 1)
    weights[:, 1] = one_hot((1, 1, 1, 1, 4), 2)[0]
    attention = AttentionMap(panel, windows_of(panel, [(0, 4)], weights, horizon=1, key=time_axis(4)), LEVELS, "toy")
    ax = attention.plot(target=1)
    assert ax.get_ylabel() == "z $2"
    assert strip_of(ax)[1].argmax() == 2
    np.testing.assert_array_equal(lines_of(ax)["history"][1], [10, 20, 30, NAN])
    np.testing.assert_array_equal(lines_of(ax)["forecast (median)"][1], [10])
    assert ax.get_title(loc="left").startswith("origin 3")  # no id column
    figure = plot_forecast(Forecast(panel, attention.windows, LEVELS, "toy"))
    assert [ax.get_ylabel() for ax in rows_of(figure)] == ["y", "z $2"]
    with pytest.raises(IndexError, match="target 2"):
        attention.plot(target=2)


def test_words_on_a_strip():
    times = pd.date_range("2024-01-01", periods=4, freq="h")
    attention = one_map(times, [1, 2, 3, 4], np.full((1, 1, 2, 3, 4), 0.25), horizon=3, key=time_axis(4))
    ax = plot_strip(attention)
    assert ax.get_title(loc="left") == "a, origin 2024-01-01 03:00:00, 3 steps ahead"
    caption = " ".join(text.get_text() for text in ax.texts).replace("\n", " ")
    for words in (
        "toy",
        "'attention'",
        "mean of 2 heads and 3 forecast steps",
        "what was read, not why",
        "25 % per step",
    ):
        assert words in caption
    bar = next(other for other in ax.figure.axes if other is not ax)
    assert bar.get_ylabel() == "attention (share per step)"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "history", "forecast (median)", "80 % interval", "origin",
    ]  # fmt: skip
    assert "widest interval" in words_of(plot_strip(AttentionMap(attention.panel, attention.windows)))


def test_the_caption_says_how_much_was_read_from_forecast_steps():
    weights = np.array([[[[[0.5, 0.0, 0.2, 0.3, 0.0], [0.1, 0.0, 0.0, 0.3, 0.6]]]]])
    key = Axis("time", tuple(range(5)), tuple(range(1, 6)), ahead=2)
    attention = one_map([0, 1, 2], [0, 1, 2], weights, horizon=2, key=key)
    for horizon, share in ((None, 60), (1, 30), (2, 90)):
        ax = plot_strip(attention, horizon=horizon)
        caption = " ".join(text.get_text() for text in ax.texts).replace("\n", " ")
        assert f"{share} % was read from forecast steps" in caption
    plain = plot_strip(one_map([0, 1, 2], [0, 1, 2], weights[..., :3], horizon=2, key=time_axis(3)))
    assert "read from forecast" not in " ".join(text.get_text() for text in plain.texts).replace("\n", " ")


def test_the_truth_is_shown_where_it_is_known():
    times = pd.date_range("2024-01-01", periods=6, freq="h")
    panel = panel_of({"a": [1, 2, 3, 4, 5, 6]}, times)
    windows = windows_of(panel, [(0, 4)], one_hot((1, 1, 1, 2, 4), 0), horizon=2, key=time_axis(4), quantiles=False)
    windows = replace(windows, actual=np.array([[[5.0], [6.0]]], dtype=np.float32))
    lines = lines_of(plot_strip(AttentionMap(panel, windows)))
    np.testing.assert_array_equal(lines["actual"][1], [5, 6])
    np.testing.assert_array_equal(lines["forecast"][0], lines["actual"][0])


def test_window_out_of_range():
    attention = one_map(range(4), [1, 2, 3, 4], one_hot((1, 1, 1, 1, 4), 0), horizon=1, key=time_axis(4))
    with pytest.raises(IndexError, match="window 1 does not exist: there are 1, from 0 to 0"):
        plot_strip(attention, 1)


def test_draws_into_given_axes_only():
    attention = one_map(range(4), [1, 2, 3, 4], one_hot((1, 1, 1, 1, 4), 0), horizon=1, key=time_axis(4))
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot_strip(attention, ax=left) is left
    assert not right.has_data()
    drawn(figure)


def test_no_figure_is_left_in_pyplot():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    attention = one_map(range(4), [1, 2, 3, 4], one_hot((1, 1, 1, 1, 4), 0), horizon=1, key=time_axis(4))
    drawn(plot_strip(attention).figure)
    plot_forecast(Forecast(attention.panel, attention.windows, LEVELS, "toy"))
    assert pyplot.get_fignums() == before


def test_a_notebook_shows_it_without_pyplot():
    attention = one_map(range(4), [1, 2, 3, 4], one_hot((1, 1, 1, 1, 4), 0), horizon=1, key=time_axis(4))
    figure = plot_forecast(Forecast(attention.panel, attention.windows, LEVELS, "toy"))
    for shown in (figure, plot_strip(attention)):
        assert shown._repr_png_().startswith(b"\x89PNG")


@pytest.mark.slow
def test_plots_do_not_import_pyplot():
    import subprocess

    names = "heatmap, lags, calendar, heads, variables, compare, trust"
    code = f"""import sys, tsattn.inspection.plots
from tsattn.inspection.pictures import {names}
sys.exit('matplotlib.pyplot' in sys.modules)"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------ plot_forecast


def rows_of(figure: Figure) -> list[Axes]:
    """The axes with series, without the colour bars."""
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def words_of(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def many(count: int = 9, *, attention: bool = True) -> Forecast:
    ids = {f"s{i} $x$" if i == 1 else f"s{i}": [float(i)] * 30 for i in range(count)}
    panel = panel_of(ids, pd.date_range("2024-01-01", periods=30, freq="D"))
    weights = np.full((count, 1, 2, 3, 12), 1 / 12)
    windows = windows_of(panel, [(i, 30) for i in range(count)], weights, horizon=3, key=time_axis(12))
    return Forecast(panel, windows if attention else replace(windows, attention=()), LEVELS, "toy", {"lost": "empty"})


def test_rows_titles_and_what_is_left_out():
    figure = drawn(plot_forecast(many(), max_series=3))
    rows = rows_of(figure)
    assert len(rows) == 3
    assert figure.get_suptitle() == "toy: 3 of 9 series, 6 left out, 1 skipped for want of data"
    assert rows[1].get_title(loc="left") == "s1 $x$, origin 2024-01-30"
    assert not rows[1]._left_title.get_parse_math()  # a price is no formula
    assert all(len(ax.child_axes) == 1 for ax in rows)
    assert words_of(rows[0]) == ["history", "forecast (median)", "80 % interval", "origin"]
    assert "what was read, not why" in figure.get_supxlabel()
    assert plot_forecast(many(2)).get_suptitle().startswith("toy: 2 series")


def test_one_series_by_position_or_id():
    for series in (2, "s2", -7):
        (ax,) = rows_of(plot_forecast(many(), series=series))
        assert ax.get_title(loc="left").startswith("s2,")
    with pytest.raises(IndexError, match="series 9 does not exist: there are 9, from 0 to 8"):
        plot_forecast(many(), series=9)
    with pytest.raises(ConfigError, match="s22"):
        plot_forecast(many(), series="s22")


def test_history_cuts_lines_and_strip():
    (ax,) = rows_of(plot_forecast(many(), series=0, history=3))
    assert len(lines_of(ax)["history"][0]) == 3
    assert len(strip_of(ax)[1]) == 3
    assert "75 % of the attention lies further back" in ax.get_title(loc="left")
    with pytest.raises(IndexError, match="history 0"):
        plot_forecast(many(), history=0)


def test_without_attention():
    figure = drawn(plot_forecast(many(2, attention=False)))
    assert all(not ax.child_axes for ax in figure.axes)
    assert len(figure.axes) == 2
    assert len(lines_of(figure.axes[0])["history"][0]) == 24
