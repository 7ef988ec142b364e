"""Views of attention maps: hand numbers, slow oracles, and what must be refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tsattn.data.build import build_panel
from tsattn.data.schema import Roles
from tsattn.errors import ConfigError
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.views import row_entropy, spearman
from tsattn.models.base import Axis

from .hand_maps import horizon_axis, one_hot, panel_of, time_axis, windows_of

NAN = float("nan")
HOURS = pd.date_range("2024-03-29", periods=120, freq="h", tz="Europe/Berlin")  # across the clock change of 31 March


def random_map(key: Axis, *, horizon: int = 3, heads: int = 2, gap: bool = True, seed: int = 0) -> AttentionMap:
    """Two series of unequal history, four windows, random shares; a gap and padding weigh 0."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=120)
    if gap:
        values[50] = NAN
    panel = panel_of({"a": list(values), "b": list(values[:30])}, HOURS, freq="h")
    keys = [(0, 60), (0, 53), (1, 3), (1, 30)]
    length = max(key.end)
    weights = rng.dirichlet(np.ones(len(key)), size=(4, 1, heads, horizon))
    attention = AttentionMap(panel, windows_of(panel, keys, weights, horizon=horizon, key=key), model="made")
    read = np.stack([attention.observed(w) for w in range(4)])
    covers = np.array([[s <= step < e for step in range(length)] for s, e in zip(key.start, key.end, strict=True)])
    seen = (read[:, None] & covers).any(axis=2)  # [W, I]
    weights = weights * seen[:, None, None, None]
    weights /= weights.sum(axis=-1, keepdims=True)
    return AttentionMap(panel, windows_of(panel, keys, weights, horizon=horizon, key=key), model="made")


KEYS = {
    "steps": time_axis(8),
    "patches": Axis("patch", (-1, 2, 5), (2, 5, 8)),
    "overlapping": Axis("patch", (0, 2, 4, 6), (4, 6, 8, 8)),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_to_numpy_is_the_slow_sum_over_tokens(key):
    attention = random_map(key)
    found = attention.to_numpy()
    assert found.shape == (4, 2, 3, 8)
    for window in range(4):
        read = attention.observed(window)
        expected = np.zeros((2, 3, 8))
        for token, (start, end) in enumerate(zip(key.start, key.end, strict=True)):
            steps = [step for step in range(max(start, 0), end) if read[step]]
            for step in steps:
                weight = attention.windows.attention[0].weights[window, 0, :, :, token]
                expected[:, :, step] += weight / len(steps)
        np.testing.assert_allclose(found[window], expected, atol=1e-6)
        np.testing.assert_allclose(attention.step_weights(window), found[window])
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, atol=1e-6)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_by_lag_is_the_mean_over_pairs(key):
    attention = random_map(key)
    table = attention.by_lag().set_index("lag")
    pairs: dict[int, list[float]] = {}
    for window in range(4):
        weights = attention.step_weights(window).mean(axis=0)
        for horizon in range(1, 4):
            for step in np.flatnonzero(attention.observed(window)):
                pairs.setdefault(8 - 1 - step + horizon, []).append(weights[horizon - 1, step])
    assert list(table.index) == sorted(pairs)
    for lag, weights in pairs.items():
        assert table.loc[lag, "weight"] == pytest.approx(np.mean(weights))
        assert table.loc[lag, "pairs"] == len(weights)
    assert (table["low"] <= table["high"]).all()


def test_a_planted_lag_is_a_diagonal_by_age_and_one_lag():
    panel = panel_of({"a": list(range(40))}, list(range(40)))
    weights = np.zeros((2, 1, 1, 4, 12))
    for horizon in range(1, 5):
        weights[..., horizon - 1, 12 - 1 - (7 - horizon)] = 1.0  # lag 7
    windows = windows_of(panel, [(0, 20), (0, 30)], weights, horizon=4, key=time_axis(12))
    attention = AttentionMap(panel, windows)
    table = attention.by_lag()
    assert table.loc[table["weight"].idxmax(), "lag"] == 7
    assert table["weight"].max() == pytest.approx(1.0)
    assert table.loc[table["lag"] != 7, "weight"].max() == 0.0
    np.testing.assert_array_equal(attention.profile().argmax(axis=1), 12 - 1 - (7 - np.arange(1, 5)))
    assert set(attention.to_frame()["lag"]) == {7}
    tops = attention.top(1, by="horizon")
    assert (tops["lag"] == 7).all()
    assert (tops["target_time"] - tops["source_time"] == 7).all()
    assert (tops["value"] == tops["source_time"]).all()  # the values are the times
    np.testing.assert_allclose(attention.effective_steps(), 1.0)
    assert attention.sel(horizon=2).by_lag()["lag"].tolist() == list(range(2, 14))


def test_even_rows_have_lift_one_and_full_entropy():
    key = KEYS["overlapping"]
    panel = panel_of({"a": list(range(20))}, list(range(20)))
    windows = windows_of(panel, [(0, 12)], np.full((1, 1, 1, 2, 4), 0.25), horizon=2, key=key)
    attention = AttentionMap(panel, windows)
    steps = attention.to_numpy()[0, 0, 0]
    np.testing.assert_allclose(steps, np.array([1, 1, 2, 2, 2, 2, 3, 3]) / 16, atol=1e-7)  # the last patch is short
    np.testing.assert_allclose(attention.lift().to_numpy(), 1.0, atol=1e-6)
    assert attention.lift().unit == "lift"
    even = AttentionMap(
        panel, windows_of(panel, [(0, 12)], np.full((1, 1, 1, 2, 8), 1 / 8), horizon=2, key=time_axis(8))
    )
    np.testing.assert_allclose(even.entropy(), 1.0, atol=1e-6)
    np.testing.assert_allclose(even.effective_steps(), 8.0, atol=1e-5)
    table = even.by_lag()
    np.testing.assert_allclose(table["weight"], table["even"])


def test_by_calendar_takes_the_clock_of_the_zone():
    attention = random_map(KEYS["steps"])
    table = attention.by_calendar("target.hour", "hour")
    frame = attention.mean("head").to_frame(min_weight=-1)  # every pair, unobserved ones too
    kept = frame.merge(attention.to_frame()[["unique_id", "origin", "source_time"]].drop_duplicates())
    expected = (
        kept.assign(target=kept["target_time"].dt.hour, hour=kept["source_time"].dt.hour)
        .groupby(["target", "hour"])["weight"].agg(["mean", "size"])
    )  # fmt: skip
    assert len(table) == len(expected)
    np.testing.assert_allclose(table["weight"], expected["mean"], atol=1e-6)
    np.testing.assert_array_equal(table["pairs"], expected["size"])
    with pytest.raises(ConfigError, match="two different"):
        attention.by_calendar("hour", "hour")
    with pytest.raises(ConfigError, match="Did you mean 'dayofweek'"):
        attention.by_calendar("hour", "day_of_week")
    whole = AttentionMap(
        p := panel_of({"a": [1, 2, 3]}, [1, 2, 3]),
        windows_of(p, [(0, 3)], one_hot((1, 1, 1, 1, 3), 1), horizon=1, key=time_axis(3)),
    )
    with pytest.raises(ConfigError, match="integer"):
        whole.by_calendar()


def test_sel_by_id_origin_horizon_head():
    attention = random_map(KEYS["patches"])
    one = attention.sel(series="b")
    assert len(one) == 2
    np.testing.assert_array_equal(one.to_numpy(), attention.to_numpy()[2:])
    origin = attention.to_frame()["origin"].unique()[0]
    assert len(attention.sel(origin=origin)) == len(attention.sel(origin=str(origin))) == 1
    np.testing.assert_array_equal(attention.sel(horizon=[3, 1]).to_numpy(), attention.to_numpy()[:, :, [2, 0]])
    np.testing.assert_array_equal(attention.sel(head=-1).to_numpy(), attention.to_numpy()[:, [1]])
    assert attention.sel(horizon=2, head=0).notes == ("head 0", "forecast step 2")
    assert set(attention.sel(horizon=2).to_frame()["horizon"]) == {2}
    with pytest.raises(ConfigError, match="No series 'c' among 2"):
        attention.sel(series=["a", "c"])
    with pytest.raises(ConfigError, match="No window"):
        attention.sel(origin="1999-01-01")
    with pytest.raises(IndexError, match="from 1 to 3"):
        attention.sel(horizon=4)
    with pytest.raises(IndexError, match="not in this map"):
        attention.sel(horizon=2).sel(horizon=1)
    with pytest.raises(ConfigError, match=r"Unknown layer 'atention'.*'attention'"):
        attention.sel(layer="atention")


def test_means_and_per_step():
    attention = random_map(KEYS["overlapping"])
    full = attention.to_numpy()
    np.testing.assert_allclose(attention.mean("head").to_numpy()[:, 0], full.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(attention.mean("horizon").to_numpy()[:, :, 0], full.mean(axis=2), atol=1e-6)
    both = attention.sel(horizon=[1, 3]).mean(("head", "horizon")).to_numpy()
    np.testing.assert_allclose(both[:, 0, 0], full[:, :, [0, 2]].mean(axis=(1, 2)), atol=1e-6)
    steps = attention.per_step()
    assert len(steps.windows.attention[0].key) == 8
    np.testing.assert_array_equal(steps.to_numpy(), full)
    pd.testing.assert_frame_equal(steps.to_frame(), attention.to_frame())
    with pytest.raises(ConfigError, match="mean over"):
        attention.mean("window")


def test_the_mean_over_heads_counts_every_head():
    """A mean over the heads that look at a step alone would give 0.54 here, and rank the wrong step first."""
    panel = panel_of({"a": [1, 2]}, [1, 2])
    weights = np.array([[[[[0.9, 0.1]], [[0.0, 1.0]], [[0.0, 1.0]], [[0.0, 1.0]]]]])
    attention = AttentionMap(panel, windows_of(panel, [(0, 2)], weights, horizon=1, key=time_axis(2)))
    np.testing.assert_allclose(attention.mean("head").to_numpy()[0, 0, 0], [0.225, 0.775], atol=1e-7)


def test_compare_maps_of_the_same_windows():
    attention = random_map(KEYS["steps"])
    same = attention.compare(attention)
    assert same["total_variation"].max() == 0.0
    np.testing.assert_allclose(same["spearman"], 1.0)
    panel = attention.panel
    first, second = (
        AttentionMap(panel, windows_of(panel, [(0, 60)], one_hot((1, 1, 1, 3, 8), hot), horizon=3, key=time_axis(8)))
        for hot in (0, 7)
    )
    np.testing.assert_allclose(first.compare(second)["total_variation"], 1.0)
    with pytest.raises(ConfigError, match="1 and 4 windows"):
        first.compare(attention)
    moved = AttentionMap(panel, windows_of(panel, [(0, 61)], one_hot((1, 1, 1, 3, 8), 0), horizon=3, key=time_axis(8)))
    with pytest.raises(ConfigError, match="other series or origins"):
        first.compare(moved)
    shorter = AttentionMap(
        panel, windows_of(panel, [(0, 60)], one_hot((1, 1, 1, 3, 5), 0), horizon=3, key=time_axis(5))
    )
    with pytest.raises(ConfigError, match="8 and 5 past steps"):
        first.compare(shorter)


def test_spearman_and_entropy_hand_numbers():
    assert spearman(np.array([1.0, 2, 3]), np.array([10.0, 30, 20])) == pytest.approx(0.5)
    assert spearman(np.array([1.0, 2, 2]), np.array([1.0, 5, 5])) == pytest.approx(1.0)
    assert np.isnan(spearman(np.array([1.0, 1, 1]), np.array([1.0, 2, 3])))
    assert row_entropy(np.array([0.5, 0.5, 0.0])) == pytest.approx(np.log(2))
    assert np.isnan(row_entropy(np.zeros(3)))


def test_signed_maps_rank_by_size_and_refuse_a_lift():
    panel = panel_of({"a": [1, 2, 3]}, [1, 2, 3])
    weights = np.array([[[[[0.5, -2.0, 0.1]]]]])
    attention = AttentionMap(
        panel, windows_of(panel, [(0, 3)], weights, horizon=1, key=time_axis(3)), method="made", signed=True
    )
    assert attention.top(1)["weight"].tolist() == [-2.0]
    assert attention.to_frame()["weight"].tolist() == pytest.approx([0.5, -2.0, 0.1])
    with pytest.raises(ConfigError, match="signed"):
        attention.lift()


def test_variables_have_the_names_of_the_columns():
    table = pd.DataFrame({"ds": range(4), "y": [1.0, 2, 3, 4], "z": [1.0, 2, 3, 4], "rain": [0.0, 1, 0, 1]})
    panel = build_panel(table, Roles.of(None, "ds", ("y", "z"), past=["rain"]))
    axis = Axis("variable", (0, 0, 0), (4, 4, 4), ("target 0", "target 1", "past 0"))
    weights = np.arange(9.0).reshape(1, 1, 1, 3, 3)
    windows = windows_of(panel, [(0, 4)], weights, horizon=1, key=axis, query=axis)
    attention = AttentionMap(panel, windows, model="itransformer")
    frame = attention.variables()
    assert list(frame.columns) == list(frame.index) == ["y", "z", "rain"]
    assert frame.loc["z", "rain"] == 5.0
    for view in (attention.by_lag, attention.top, attention.to_numpy, attention.per_step, attention.entropy):
        with pytest.raises(ConfigError, match=r"variables, not over time.*attention.variables\(\)"):
            view()
    with pytest.raises(ConfigError, match="No layer of made has variables"):
        random_map(KEYS["steps"]).variables()


def test_several_targets_by_name():
    table = pd.DataFrame({"ds": range(4), "y": [1.0, 2, 3, 4], "z": [1.0, NAN, 3, 4]})
    panel = build_panel(table, Roles.of(None, "ds", ("y", "z")))
    weights = np.zeros((1, 2, 1, 1, 4))
    weights[0, 0, 0, 0], weights[0, 1, 0, 0] = [1, 0, 0, 0], [0, 0, 1, 0]
    attention = AttentionMap(panel, windows_of(panel, [(0, 4)], weights, horizon=1, key=time_axis(4)))
    assert attention.top(1, target="z")["source_time"].tolist() == [2]
    assert attention.top(1, target="z")["value"].tolist() == [3.0]
    assert attention.top(1)["source_time"].tolist() == [0]
    with pytest.raises(ConfigError, match="Unknown target 'x'"):
        attention.top(1, target="x")


def test_to_xarray_has_real_stamps():
    pytest.importorskip("xarray")
    attention = random_map(KEYS["patches"])
    found = attention.to_xarray()
    assert dict(found.sizes) == {"window": 4, "head": 2, "horizon": 3, "age": 8}
    assert found.attrs["time_zone"] == "Europe/Berlin"
    np.testing.assert_array_equal(found["attention"], attention.to_numpy())
    frame = attention.to_frame()
    row = frame.iloc[-1]
    cell = found.isel(window=3).sel(horizon=row["horizon"], age=row["lag"] - row["horizon"]).isel(head=row["head"])
    assert cell["attention"] == pytest.approx(row["weight"])
    assert pd.Timestamp(cell["source_time"].values, tz="UTC") == row["source_time"]
    assert pd.Timestamp(cell["target_time"].values, tz="UTC") == row["target_time"]
    assert str(cell["series"].values) == row["unique_id"]


def test_save_and_load_keep_everything(tmp_path):
    attention = replace(random_map(KEYS["patches"]), levels=(0.1, 0.5, 0.9)).sel(horizon=[1, 3])
    for name in ("map.npz", "map.parquet"):
        found = AttentionMap.load(attention.save(tmp_path / "deep" / name))
        about = (found.model, found.levels, found.kept, found.notes)
        assert about == ("made", (0.1, 0.5, 0.9), (0, 2), attention.notes)
        pd.testing.assert_frame_equal(found.to_frame(), attention.to_frame())
        np.testing.assert_array_equal(found.history(1), attention.history(1))
        np.testing.assert_array_equal(found.windows.quantiles, attention.windows.quantiles)
    table = pd.read_parquet(tmp_path / "deep" / "map.parquet")  # open to any tool, beside the map
    pd.testing.assert_frame_equal(table, attention.to_frame(), check_dtype=False, check_column_type=False)
    with pytest.raises(ConfigError, match=r"\.npz"):
        attention.save(tmp_path / "map.csv")
    assert horizon_axis(3).kind == "horizon"
