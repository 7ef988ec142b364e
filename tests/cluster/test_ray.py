"""Two workers of a local Ray give what one process gives."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tsattn.errors import ConfigError, DataError
from tsattn.forecaster import Forecaster

from .conftest import CONTEXT, HORIZON, QUICK, SKIPS, by_id, make_known, same, spread

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # Sockets and files of Ray's own processes, which it leaves to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@SKIPS
def test_forecasts_are_those_of_one_process_with_series_spread_over_files(cluster, forecaster, table, tmp_path):
    known = make_known(table)
    known.to_parquet(tmp_path / "known.parquet")
    one = forecaster.predict(table, known=known)
    with pytest.warns(match=r"1 of 21 series cannot be forecast .*'003'"):
        found = forecaster.predict(
            spread(table, tmp_path / "in"), known=tmp_path / "known.parquet", engine="ray", out=tmp_path / "out",
            workers=2,
        )  # fmt: skip
    same(found.to_frame(), one.to_frame())
    assert found.skipped == one.skipped
    assert len(found) == len(one) == 20
    assert repr(found) == f"PartitionedForecast('lucid', 20 series, 1 skipped, in {tmp_path / 'out'})"
    skipped = pd.read_parquet(tmp_path / "out" / "_skipped")
    assert skipped.to_dict("records") == [{"id": "003", "reason": one.skipped["003"]}]
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) > 1
    assert len(pd.read_parquet(tmp_path / "out")) == 20 * HORIZON  # the folder is a table; _skipped is no part of it
    seen: set[str] = set()
    for file in files:  # each holds whole series, and to the last bit what one process makes of these series alone
        frame = pq.read_table(file).to_pandas()
        ids = set(frame["shop"])
        assert not ids & seen
        seen |= ids
        alone = forecaster.predict(table[table["shop"].isin(ids)], known=known).to_frame()
        np.testing.assert_array_equal(frame["forecast"], alone["forecast"])
    assert cluster.is_initialized()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@SKIPS
def test_backtest_scores_and_summary_are_those_of_one_process(cluster, forecaster, table, tmp_path):
    options = {"windows": 5, "step": 3, "refit": "never", "attention": "summary"}
    one = forecaster.backtest(table, **options)
    source = by_id(table, tmp_path / "in")
    found = forecaster.backtest(source, **options, engine="ray", out=tmp_path / "out", workers=2)
    same(found.to_frame(), one.to_frame())
    assert found.skipped == one.skipped
    assert set(found.skipped) == {"003", "004"}
    assert found.in_sample
    assert found.trained_until == one.trained_until
    for by in (None, "series", "step"):
        pd.testing.assert_frame_equal(found.metrics(by), one.metrics(by), rtol=1e-6)
        naive = [table[table["model"] != "lucid"] for table in (found.metrics(by), one.metrics(by))]
        pd.testing.assert_frame_equal(*naive, rtol=1e-12)  # these have no float32 in them that a batch could change
    mine, whole = found.attention, one.attention
    assert len(mine) == len(whole) > 64
    np.testing.assert_allclose(mine.profile(by_head=True), whole.profile(by_head=True), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(mine.deviation(), whole.deviation(), atol=1e-6)
    np.testing.assert_allclose(mine.entropy(), whole.entropy(), rtol=1e-5)
    pd.testing.assert_frame_equal(mine.by_lag(), whole.by_lag(), rtol=1e-5)
    for rows, cols in (("hour", "dayofweek"), ("target.hour", "hour")):
        pd.testing.assert_frame_equal(mine.by_calendar(rows, cols), whole.by_calendar(rows, cols), rtol=1e-5)
    samples = [summary.sample.to_frame().drop(columns="weight") for summary in (mine, whole)]
    pd.testing.assert_frame_equal(*samples)  # the same windows


def test_bad_data_is_one_message_and_nothing_is_written(cluster, forecaster, table, tmp_path):
    twice = pd.concat([table, table[table["shop"] == "007"].head(2)])
    source = spread(twice, tmp_path / "in")
    with pytest.raises(DataError, match=r"2 duplicate rows in columns 'shop', 'when'.*one part of the table") as error:
        forecaster.backtest(source, windows=1, refit="never", engine="ray", out=tmp_path / "out", workers=2)
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="trains nothing, and this model was trained on rows up to 2024-04"):
        forecaster.backtest(spread(table, tmp_path / "ok"), windows=1, engine="ray", out=tmp_path / "out", workers=2)
    damaged = tmp_path / "ok" / "3.parquet"
    data = damaged.read_bytes()
    damaged.write_bytes(data[:100] + bytes(2000) + data[2100:])  # the footer is as it was: found out by a worker
    with pytest.raises(DataError, match=rf"^Cannot read {damaged}"):
        forecaster.backtest(tmp_path / "ok", windows=1, engine="ray", out=tmp_path / "out", workers=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "ok"]


@SKIPS
def test_command_line(cluster, table, tmp_path, capfd):
    """With a Ray of its own, which is gone afterwards; ``cluster`` keeps the order of this module: it comes last."""
    from tsattn.cli import main

    cluster.shutdown()
    model = Forecaster("lucid", horizon=HORIZON, context=CONTEXT, id="shop", time="when", target="sold",
                       options={"patch": 6}, training=QUICK).fit(table)  # fmt: skip
    model.save(tmp_path / "model")
    source = spread(table, tmp_path / "in")
    options = ["--model", str(tmp_path / "model"), "--data", str(source), "--engine", "ray", "--workers", "2"]
    out, lags = tmp_path / "out", tmp_path / "lags.csv"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backtest = ["backtest", *options, "--windows", "2", "--refit", "never", "--attention", str(lags)]
        assert main([*backtest, "--out", str(out)]) == 0
    text = capfd.readouterr()
    assert all(name in text.out for name in ("lucid", "naive", "seasonal_naive", "mase"))
    assert "in sample" in text.err
    assert list(pd.read_csv(lags)["lag"]) == list(range(1, CONTEXT + HORIZON))
    assert not cluster.is_initialized()
    (source / "bad.parquet").write_bytes(b"no parquet")
    assert main(["predict", *options, "--out", str(tmp_path / "new")]) == 2
    assert capfd.readouterr().err.startswith(f"tsattn: Cannot read {source}")
