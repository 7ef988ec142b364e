"""The summary of many windows is that of the full maps, in memory that does not grow."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from tsattn.errors import ConfigError
from tsattn.forecaster import Forecaster
from tsattn.inference import WindowForecasts
from tsattn.inspection.summary import KEPT, AttentionSummary

from .hand_maps import panel_of, time_axis, windows_of

QUICK = {"epochs": 1, "verbose": False}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for name, length in (("a", 260), ("b", 200), ("c", 40)):
        y = rng.normal(size=length)
        y[length // 2 : length // 2 + 3] = np.nan
        parts.append(
            pd.DataFrame({"unique_id": name, "ds": pd.date_range("2024-03-20", periods=length, freq="h"), "y": y})
        )
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("lucid", {"patch": 5}),
        ("transformer", {"width": 8, "heads": 2, "hidden": 8}),
        ("tft", {"width": 8, "heads": 2}),
    ],
)
def test_a_summary_says_what_the_full_maps_say(table, model, options):
    forecaster = Forecaster(model, horizon=6, context=24, options=options, training=QUICK).fit(table)
    backtest = {
        kind: forecaster.backtest(table, windows=60, step=2, refit="never", attention=kind)
        for kind in (True, "summary")
    }
    full, summary = (backtest[kind].attention for kind in (True, "summary"))
    np.testing.assert_array_equal(backtest[True].windows.point, backtest["summary"].windows.point)
    assert backtest["summary"].windows.attention == ()
    assert len(summary) == len(full) > KEPT
    np.testing.assert_allclose(summary.profile(), full.profile(), atol=1e-6)
    weights = full.to_numpy().astype(np.float64)
    read = np.stack([full.observed(w) for w in range(len(full))])[:, None, None]
    mean = (weights * read).sum(axis=0) / read.sum(axis=0)
    np.testing.assert_allclose(summary.profile(by_head=True), mean, atol=1e-6)
    spread = np.sqrt((np.square(weights - mean) * read).sum(axis=0) / read.sum(axis=0))
    np.testing.assert_allclose(summary.deviation(), spread, atol=1e-6)
    np.testing.assert_allclose(summary.entropy(), np.nanmean(full.entropy(), axis=0), atol=1e-6)
    np.testing.assert_allclose(summary.effective_steps(), np.nanmean(full.effective_steps(), axis=0), rtol=1e-5)
    kept = ["lag", "weight", "even", "pairs"]
    pd.testing.assert_frame_equal(summary.by_lag()[kept], full.by_lag()[kept], atol=1e-7)
    pd.testing.assert_frame_equal(
        summary.by_calendar("target.hour", "hour"), full.by_calendar("target.hour", "hour"), atol=1e-7
    )
    with pytest.raises(ConfigError, match=r"hour x dayofweek.*for week x hour ask backtest\(attention=True\)"):
        summary.by_calendar("week", "hour")


def test_the_sample_holds_whole_windows_each_as_likely_as_any(table):
    forecaster = Forecaster("lucid", horizon=6, context=24, options={"patch": 5}, training=QUICK).fit(table)
    full, summary = (
        forecaster.backtest(table, windows=60, step=2, refit="never", attention=kind).attention
        for kind in (True, "summary")
    )
    sample = summary.sample
    assert len(sample) == KEPT
    places = {(s, o): w for w, (s, o) in enumerate(zip(full.windows.series, full.windows.origin, strict=True))}
    for window, key in enumerate(zip(sample.windows.series, sample.windows.origin, strict=True)):
        np.testing.assert_array_equal(sample.step_weights(window), full.step_weights(places[key]))
    assert len({*zip(sample.windows.series, sample.windows.origin, strict=True)}) == KEPT


def batches(count: int, size: int = 200) -> tuple[AttentionSummary, list[WindowForecasts]]:
    """Batches of windows of one series, numbered by their origin."""
    panel = panel_of({"a": list(range(count + 40))}, list(range(count + 40)))
    weights = np.random.default_rng(0).dirichlet(np.ones(24), size=(size, 1, 2, 4)).astype(np.float32)
    made = [
        windows_of(panel, [(0, 30 + start + i) for i in range(size)], weights, horizon=4, key=time_axis(24))
        for start in range(0, count, size)
    ]
    return AttentionSummary(panel, (), "made"), made


def test_the_sample_is_even_over_time():
    summary, made = batches(4_000)
    for batch in made:
        summary.add(batch)
    origins = np.sort(summary.sample.windows.origin - 30)
    assert len(np.unique(origins)) == KEPT
    assert 0.35 < (origins < 2_000).mean() < 0.65


def test_memory_does_not_grow_with_the_number_of_windows():
    peaks = []
    for count in (1_000, 10_000):
        summary, made = batches(count)
        summary.add(made[0])
        tracemalloc.start()
        for batch in made[1:]:
            summary.add(batch)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(summary) == count
    assert peaks[1] < 1.1 * peaks[0]


def test_models_without_attention_and_wrong_words_are_refused(table):
    plain = Forecaster("dlinear", horizon=6, context=24, options={"kernel": 5}, training=QUICK).fit(table)
    with pytest.raises(ConfigError, match="'dlinear' has none"):
        _ = plain.backtest(table, windows=3, refit="never", attention="summary").attention
    with pytest.raises(ConfigError, match="attention must be True, False or 'summary', found 'full'"):
        plain.backtest(table, windows=3, refit="never", attention="full")
