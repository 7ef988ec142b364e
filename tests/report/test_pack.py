"""What is packed comes back: weights to 16 bits, stamps to the letter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.inspection.hand_maps import panel_of
from tests.report.unpacked import weights_of
from tsattn.report.pack import Detail, coarser, pack_map, pack_times, time_texts


def schema_of(times):
    return panel_of({"a": list(range(len(times)))}, times).schema


def texts(times):
    panel = panel_of({"a": list(range(len(times)))}, times)
    return time_texts(panel.times(np.zeros(len(times), dtype=int), np.arange(len(times))), panel.schema)


@pytest.mark.parametrize("signed", [False, True])
def test_weights_come_back_to_16_bits(signed):
    weights = np.random.default_rng(0).random((3, 5, 40)) - (0.5 if signed else 0.0)
    raw = pack_map(weights)
    assert raw["signed"] is signed
    assert np.abs(weights_of(raw) - weights).max() <= np.abs(weights).max() / (32767 if signed else 65535)


def test_what_was_read_alike_is_kept_once():
    tokens = np.array([[[0.1, 0.6, 0.3]], [[0.2, 0.2, 0.6]]])  # two heads, one query, three patches
    weights = np.repeat(np.repeat(tokens, 24, axis=1), 10, axis=2)
    raw = pack_map(weights)
    assert raw["shape"] == [2, 1, 3]
    assert weights_of(raw) == pytest.approx(weights, abs=1e-5)


def test_a_gap_within_a_patch_stays_a_gap():
    weights = np.full((1, 2, 6), 0.2)
    weights[..., 3] = 0.0
    assert (weights_of(pack_map(weights))[..., 3] == 0).all()


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 5), (1, 4, 1)])
def test_small_and_empty_maps(shape):
    assert weights_of(pack_map(np.zeros(shape))) == pytest.approx(np.zeros(shape))


def test_coarser_keeps_the_mean_over_every_forecast_step():
    weights = np.random.default_rng(1).random((4, 10, 7))
    raw = pack_map(weights, Detail(heads=False, every=4))
    assert raw["step"] == [0, 4, 8]
    kept = weights_of(raw)
    assert kept[:, :3] == pytest.approx(weights.mean(axis=0)[None, ::4], abs=1e-4)
    assert kept[0, 3] == pytest.approx(weights.mean(axis=(0, 1)), abs=1e-4)


def test_detail_gets_smaller_until_nothing_is_left_to_leave_out():
    found, detail = [], Detail()
    while detail is not None:
        found.append(detail)
        detail = coarser(detail, 5, excess=1.4)
    assert found == [Detail(), Detail(heads=False), *(Detail(heads=False, every=k) for k in (2, 3, 5))]
    assert coarser(Detail(), 5, excess=2.5, heads=1) == Detail(every=3)


def test_the_hour_that_autumn_repeats_is_told_apart():
    hours = pd.date_range("2024-10-27 01:00", periods=4, freq="h", tz="Europe/Berlin")
    assert texts(hours) == [
        "2024-10-27 01:00 +02:00",
        "2024-10-27 02:00 +02:00",
        "2024-10-27 02:00 +01:00",
        "2024-10-27 03:00 +01:00",
    ]


@pytest.mark.parametrize(
    ("times", "first"),
    [
        (pd.date_range("2024-03-01", periods=3, freq="D"), "2024-03-01"),
        (pd.date_range("2024-03-01", periods=3, freq="MS", tz="Asia/Kolkata"), "2024-03-01"),
        (pd.date_range("2024-03-01", periods=3, freq="30min"), "2024-03-01 00:00"),
        (pd.date_range("2024-03-01", periods=3, freq="5s"), "2024-03-01 00:00:00"),
        (pd.date_range("2024-03-01", periods=3, freq="h", tz="America/St_Johns"), "2024-03-01 00:00 -03:30"),
        ([7, 8, 9], "7"),
    ],
)
def test_stamps_are_no_finer_than_they_need(times, first):
    assert texts(times)[0] == first


def test_stamps_of_several_axes_share_one_pool():
    panel = panel_of({"a": list(range(48))}, pd.date_range("2024-01-01", periods=48, freq="h"))
    times = panel.times(np.zeros(48, dtype=int), np.arange(48))
    packed = pack_times([times[:30], times[20:]], panel.schema)
    assert packed["days"] == ["2024-01-01", "2024-01-02"]
    assert len(packed["clocks"]) == 24
    assert len(packed["axes"]) == 2
