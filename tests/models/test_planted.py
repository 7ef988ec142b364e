"""Trained models find the planted step. Gated on skill: the map of a model that did not learn the rule says nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tsattn.data import planted
from tsattn.data.planted import Planted
from tsattn.forecaster import Forecaster

FAST = {"learning_rate": 3e-3, "epochs": 40, "verbose": False}
SMALL = {"patch": 6, "horizon_patch": 6, "dropout": 0.1}


def skill_and_hits(made: Planted, forecaster: Forecaster) -> tuple[float, float, np.ndarray]:
    """Explained share of the held-out variance, share of forecast steps whose top token holds the source, mean map."""
    held = made.held_out()
    result = forecaster.backtest(held, windows=1 if made.windows else 20, refit="never", attention=True)
    table = result.to_frame()
    skill = 1 - float(((table["actual"] - table["forecast"]) ** 2).mean() / table["actual"].var())
    maps, key = result.attention, result.attention.windows.attention[0].key
    truth = made.truth.set_index(["unique_id", "target_time"])["source_time"]
    token = np.searchsorted(np.array(key.end), np.arange(made.context), side="right")  # of each past step
    hits, means = [], []
    for window in range(len(maps)):
        weights, times = maps.step_weights(window).mean(axis=0), maps.source_times(window)  # [H, L], [L]
        name = maps.panel.ids[int(maps.windows.series[window])].as_py()
        for ahead, row in enumerate(weights, start=1):
            source = truth.get((name, int(times[-1]) + ahead))
            if source is not None and times[0] <= source:
                hits.append(token[int(row.argmax())] == token[int(source - times[0])])
        means.append(weights)
    return skill, float(np.mean(hits)), np.mean(means, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "options", "training", "level"),
    [
        ("seasonal_copy", {"patch": 12}, {"verbose": False}, 0.95),
        ("regime_lag", SMALL, FAST, 0.90),
        ("needle", SMALL, FAST, 0.95),
    ],
)
def test_lucid_finds_the_planted_step(name, options, training, level, seed):
    sizes = {} if name == "seasonal_copy" else {"series": 4_000}
    made = planted.PLANTED[name](seed=seed, **sizes)
    skill, hits, mean = skill_and_hits(made, made.fit("lucid", options=options, training=training, seed=seed))
    if skill < 0.9 * made.attainable_r2:
        pytest.skip(f"not learnt: R2 {skill:.2f} of {made.attainable_r2:.2f}")
    assert hits >= level
    if name == "needle":  # the average says nothing: it is flat, though every single map is right
        assert mean.max() < 2 * mean.mean()
    if name == "regime_lag":  # the average shows both lags, and neither is right for a window
        assert mean.sum(axis=1).max() == pytest.approx(1.0, abs=1e-4)
        assert mean.max(axis=1).max() < 0.2


@pytest.mark.slow
def test_flipping_the_marker_moves_the_attention_of_lucid():
    made = planted.regime_lag(series=4_000)
    forecaster = made.fit("lucid", options=SMALL, training=FAST)
    skill, _, _ = skill_and_hits(made, forecaster)
    if skill < 0.9 * made.attainable_r2:
        pytest.skip(f"not learnt: R2 {skill:.2f} of {made.attainable_r2:.2f}")
    held = made.held_out()
    past = held[held.groupby("unique_id").cumcount() < made.context]
    flipped = past.assign(marker=-past["marker"])
    sign = past.groupby("unique_id")["marker"].sum()
    moved = []
    before, after = (forecaster.predict(table, attention=True).attention for table in (past, flipped))
    for window in range(len(before)):
        name = before.panel.ids[int(before.windows.series[window])].as_py()
        lags = (12, 36) if sign[name] < 0 else (36, 12)
        tops = [maps.step_weights(window).mean(axis=0).argmax(axis=1) for maps in (before, after)]  # [H] each
        for top, lag in zip(tops, lags, strict=True):
            source = made.context + np.arange(made.horizon) - lag
            moved.append((top // 6 == source // 6).all())
    assert np.mean(moved) >= 0.9
