"""The M4 benchmark: published scores of untrained forecasts on the real files, hand numbers, refusals."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsattn.errors import ConfigError, DataError
from tsattn.evaluation import m4
from tsattn.evaluation.benchmark import benchmark
from tsattn.evaluation.m4 import M4, M4Protocol, _seasonal_error, find_m4, run_m4

TOY = M4Protocol("toy", series=3, horizon=4, season=2, naive2_smape=10.0, naive2_mase=2.0)
FILE = Path(os.environ.get("TSATTN_DATA", ""), "M4-Hourly-test.csv")
needs_files = pytest.mark.skipif(
    not FILE.is_file(), reason=f"{FILE.name} is not on this machine: name its folder in TSATTN_DATA"
)


def toy_table(lengths=(20, 30, 25)) -> pd.DataFrame:
    make = np.random.default_rng(0)
    parts = []
    for number, length in enumerate(lengths):
        split = np.where(np.arange(length) < length - 4, "train", "test")
        y = 10.0 + make.standard_normal(length)
        parts.append(pd.DataFrame({"unique_id": f"H{number}", "ds": np.arange(1, length + 1), "y": y, "split": split}))
    return pd.concat(parts, ignore_index=True)


def test_hand_numbers():
    actual, forecast = np.array([[1.0, 3.0], [10.0, 10.0]]), np.array([[3.0, 3.0], [10.0, 30.0]])
    score = TOY.score(actual, forecast, scale=np.array([[0.5], [4.0]]))
    # sMAPE: series 1 (200 * 2 / 4 + 0) / 2 = 50; series 2 (0 + 200 * 20 / 40) / 2 = 50
    assert score.smape == pytest.approx(50.0)
    # MASE: series 1 (2 + 0) / 2 / 0.5 = 2; series 2 (0 + 20) / 2 / 4 = 2.5
    assert score.mase == pytest.approx(2.25)
    assert score.owa == pytest.approx((50.0 / 10.0 + 2.25 / 2.0) / 2)


def test_seasonal_error_by_hand():
    train = pd.DataFrame({"unique_id": ["a"] * 4 + ["b"] * 3, "y": [1.0, 5.0, 2.0, 9.0, 0.0, 0.0, 7.0]})
    np.testing.assert_allclose(_seasonal_error(train, 2), [[(1 + 4) / 2], [7.0]])


@needs_files
def test_the_floors_are_the_published_ones():
    result = run_m4("m4_hourly", model="naive", context=1, verbose=False)
    published = {name: score for name, score, _ in result.published}
    for ours, theirs in (("naive", "Naive"), ("seasonal_naive", "sNaive")):
        assert result.floors[ours].smape == pytest.approx(published[theirs].smape, abs=6e-4)
        assert result.floors[ours].mase == pytest.approx(published[theirs].mase, abs=6e-4)
        assert result.floors[ours].owa == pytest.approx(published[theirs].owa, abs=1e-3)
    road = result.seeds[0].score  # through the forecaster, in float32
    assert road.owa == pytest.approx(result.floors["naive"].owa, rel=1e-6)
    lines = str(result).splitlines()
    assert any("ES-RNN" in line and "0.440" in line for line in lines)


@needs_files
def test_the_validation_part_ends_before_the_test():
    full = m4.load_dataset("m4_hourly")
    blind = full.assign(y=full["y"].where(full["split"] == "train", 1e9))
    for table in (full, blind):
        train, actual = m4._cut(table, M4["m4_hourly"], "validation")
        assert actual.shape == (414, 48)
        assert actual.max() < 1e9
        assert len(train) == 373372 - 2 * 414 * 48
        assert set(train.columns) == {"unique_id", "ds", "y"}


def test_a_trained_model_on_toy_series(monkeypatch):
    monkeypatch.setitem(m4.M4, "m4_hourly", TOY)
    monkeypatch.setattr(m4, "load_dataset", lambda *a, **k: toy_table())
    result = run_m4("m4_hourly", model="nlinear", context=6, seeds=(0, 1), training={"epochs": 2}, verbose=False)
    assert [seed.seed for seed in result.seeds] == [0, 1]
    assert result.mean("owa") == pytest.approx(np.mean([seed.score.owa for seed in result.seeds]))
    assert result.spread("owa") > 0
    assert result.training == {"loss": "mae", "epochs": 2}
    again = run_m4("m4_hourly", model="nlinear", context=6, seeds=(0,), training={"epochs": 2}, verbose=False)
    assert again.seeds[0].score == result.seeds[0].score
    assert result.to_dict()["mean"]["owa"] == result.mean("owa")


def test_an_incomplete_file_is_refused(monkeypatch):
    monkeypatch.setitem(m4.M4, "m4_hourly", TOY)
    monkeypatch.setattr(m4, "load_dataset", lambda *a, **k: toy_table().iloc[:-1])
    with pytest.raises(DataError, match="3 series of 4 test steps; found 3 series with 3 to 4"):
        run_m4("m4_hourly", model="naive", context=1)


def test_refusals():
    assert find_m4("M4 Hourly") is M4["m4_hourly"]
    assert find_m4("ETTh1") is None
    assert find_m4("nothing") is None
    with pytest.raises(ConfigError, match="Unknown M4 benchmark 'ETTh1'"):
        run_m4("ETTh1")
    with pytest.raises(ConfigError, match="Unknown part 'train'"):
        run_m4("m4_hourly", part="train")
    with pytest.raises(ConfigError, match="The horizon of m4_hourly is 48 steps"):
        benchmark("m4_hourly", horizon=96)
