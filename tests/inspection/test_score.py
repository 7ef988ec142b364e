"""Scores of maps against planted truth: hand-made maps whose scores are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tsattn.data import planted
from tsattn.data.build import build_panel
from tsattn.data.schema import Roles
from tsattn.errors import ConfigError
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.score import score_against_truth
from tsattn.models.base import Axis

from .hand_maps import time_axis, windows_of

MADE = planted.seasonal_copy(series=2, length=200)  # lag 36, horizon 12, context 48


def maps(weights: np.ndarray, key: Axis, made: planted.Planted = MADE, **options: object) -> AttentionMap:
    """Two windows of each series, all with ``weights [H, I]``."""
    panel = build_panel(made.table, Roles.of("unique_id", "ds", "y", past=made.past), freq=made.freq)
    keys = [(0, 100), (0, 150), (1, 100), (1, 188)]
    every = np.broadcast_to(weights, (4, 1, 1, *weights.shape)).copy()
    return AttentionMap(panel, windows_of(panel, keys, every, horizon=made.horizon, key=key), **options)


def diagonal(lag: int) -> np.ndarray:
    """All weight ``lag`` steps before each of 12 forecast steps, of 48 past ones."""
    weights = np.zeros((12, 48))
    weights[np.arange(12), 48 + np.arange(12) - lag] = 1.0
    return weights


def test_the_right_lag_scores_one_and_a_wrong_one_nothing():
    found = score_against_truth(maps(diagonal(36), time_axis(48)), MADE)
    assert (found.hit, found.mass, found.precision, found.sign, found.rows) == (1.0, 1.0, 1.0, None, 48)
    wrong = score_against_truth(maps(diagonal(35), time_axis(48)), MADE)
    assert (wrong.hit, wrong.mass) == (0.0, 0.0)
    assert wrong.precision < 0.05


def test_an_even_map_scores_by_chance():
    found = score_against_truth(maps(np.full((12, 48), 1 / 48), time_axis(48)), MADE)
    assert found.mass == pytest.approx(1 / 48)
    assert found.precision == pytest.approx(1 / 48)


def test_a_patch_is_right_when_it_holds_the_source():
    patches = Axis("patch", (0, 12, 24, 36), (12, 24, 36, 48))
    weights = np.tile([0.1, 0.7, 0.1, 0.1], (12, 1))
    found = score_against_truth(maps(weights, patches), MADE)
    assert (found.hit, found.mass) == (1.0, pytest.approx(0.7))


def test_signs_are_those_of_the_contributions():
    made = planted.additive_events(series=2, length=200)
    lags, weights = (13, 21, 34), (1.0, -0.7, 0.4)
    attention = maps(np.zeros((6, 48)), time_axis(48), made)
    record = attention.windows.attention[0]
    z = made.table.pivot(index="ds", columns="unique_id", values="z").to_numpy()
    for window, (series, origin) in enumerate(zip(attention.windows.series, attention.windows.origin, strict=True)):
        for step in range(6):
            for lag, weight in zip(lags, weights, strict=True):
                record.weights[window, 0, 0, step, 48 + step - lag] = weight * z[origin + step - lag, series]
    signed = replace(attention, signed=True)
    found = score_against_truth(signed, made)
    assert (found.hit, found.mass, found.sign) == (1.0, 1.0, 1.0)
    assert found.precision == 1.0  # all three before all others
    record.weights[:] *= -1
    assert score_against_truth(signed, made).sign == 0.0
    with pytest.raises(ConfigError, match="No forecast step"):
        score_against_truth(signed, made, source="y")
