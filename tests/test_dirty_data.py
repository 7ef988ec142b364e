"""From a table to a forecast: every id and date comes back, and nothing a table can hold turns into NaN."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tsattn
from tests.conftest import QUICK
from tsattn.errors import DataError, TsattnWarning

LENGTHS = (1, 2, 3, 30, 97, 120, 500)
H, L = 7, 24


def forecaster(model="naive", **changes):
    return tsattn.Forecaster(model, **{"horizon": H, "context": L, "training": QUICK, **changes})


def identity(ids=None, freq="h") -> pd.DataFrame:
    """Series k is constant at k; they end at different times."""
    ids = [f"s{k}" for k in range(len(LENGTHS))] if ids is None else ids
    parts = [
        pd.DataFrame({"unique_id": ids[k], "ds": pd.date_range("2024-01-01", periods=length, freq=freq), "y": float(k)})
        for k, length in enumerate(LENGTHS)
    ]
    return pd.concat(parts, ignore_index=True)


def wave(length=120, seed=0, **columns) -> pd.DataFrame:
    y = np.sin(np.arange(length) / 4) + 0.1 * np.random.default_rng(seed).normal(size=length) + 5
    ds = pd.date_range("2024-01-01", periods=length, freq="h")
    return pd.DataFrame({"unique_id": "a", "ds": ds, "y": y, **columns})


def numbers(frame: pd.DataFrame) -> np.ndarray:
    return frame[[name for name in frame.columns if name == "forecast" or name.startswith("q0")]].to_numpy()


# ------------------------------------------------------------------ K1: ids and rows


IDS = {
    "object": lambda: pd.Series(list("gfedcba"), dtype=object),
    "string": lambda: pd.Series(list("gfedcba"), dtype="string"),
    "arrow": lambda: pd.Series(list("gfedcba"), dtype=pd.ArrowDtype(pa.string())),
    "category": lambda: pd.Series(pd.Categorical(list("gfedcba"), categories=list("zcbagfed"))),
    "int": lambda: pd.Series([2**53 + 1, 2**24 + 1, 10, 9, 100100037, -1, 0]),
    "int32": lambda: pd.Series([7, 6, 5, 4, 3, 2, 1], dtype="int32"),
}


@pytest.mark.parametrize("model", ["naive", "seasonal_naive", "nlinear"])
@pytest.mark.parametrize("kind", IDS)
def test_each_id_comes_back_as_its_constant(model, kind):
    ids = IDS[kind]()
    table = identity().assign(unique_id=ids[identity().unique_id.str[1:].astype(int)].to_numpy())
    table["unique_id"] = table.unique_id.astype(ids.dtype)
    forecast = forecaster(model).fit(table.sample(frac=1, random_state=0)).predict()
    frame = forecast.to_frame()
    assert len(frame) == len(LENGTHS) * H
    assert len(forecast) == len(LENGTHS)
    assert not forecast.skipped
    level = {name: float(k) for k, name in enumerate(ids)}
    assert set(frame.unique_id) == set(level)
    np.testing.assert_allclose(frame.forecast, [level[name] for name in frame.unique_id], atol=0.05)
    last = table.groupby("unique_id", observed=True).ds.max()
    wanted = pd.concat(
        [
            pd.DataFrame({"unique_id": name, "ds": pd.date_range(end, periods=H + 1, freq="h")[1:]})
            for name, end in last.items()
        ]
    )
    wanted["unique_id"] = wanted.unique_id.astype(frame.unique_id.dtype)
    assert len(frame.merge(wanted, on=["unique_id", "ds"])) == len(wanted)


def test_ids_in_are_ids_out_and_skipped():
    table = identity()
    table.loc[table.unique_id.isin(["s0", "s4"]), "y"] = np.nan
    model = forecaster("nlinear").fit(table)
    message = r"2 of 7 series cannot be forecast and are skipped, .*last 24 steps: 's0', 's4'"
    with pytest.warns(TsattnWarning, match=message):
        forecast = model.predict()
    assert set(forecast.skipped) == {"s0", "s4"}
    assert set(forecast.to_frame().unique_id) | set(forecast.skipped) == set(table.unique_id)
    with pytest.raises(
        DataError, match="No series can be forecast: none of 1 has an observed target in its last 24 steps"
    ):
        model.predict(table[table.unique_id == "s4"])


def test_all_series_too_short_to_train():
    with pytest.raises(DataError, match=r"horizon 7 needs at least 8 steps, the longest of 3 series \('s2'\) has 3"):
        forecaster("nlinear").fit(identity()[lambda df: df.unique_id.isin(["s0", "s1", "s2"])], val_size=0)


@pytest.mark.parametrize("rows", [1, 2, L - 1, L, L + 1])
@pytest.mark.parametrize("model", ["naive", "nlinear"])
def test_few_rows_are_enough_to_forecast(rows, model):
    fitted = forecaster(model).fit(identity())
    frame = fitted.predict(wave(rows)).to_frame()
    assert len(frame) == H
    assert np.isfinite(numbers(frame)).all()
    assert frame.ds.iloc[0] == pd.Timestamp("2024-01-01") + pd.Timedelta(hours=rows)


# ------------------------------------------------------------------ dates


@pytest.mark.parametrize("freq", ["D", "h", "3h", "MS", "ME", "B", "W-TUE", "integer"])
@pytest.mark.parametrize("last_missing", [False, True])
def test_the_first_forecast_is_one_step_after_the_last_row(freq, last_missing):
    stamps = np.arange(40) * 5 if freq == "integer" else pd.date_range("2024-01-31", periods=40, freq=freq)
    table = pd.DataFrame({"unique_id": "a", "ds": stamps[:-H], "y": np.arange(40.0 - H)})
    if last_missing:
        table.loc[table.index[-1], "y"] = np.nan
    frame = forecaster(context=8).fit(table).predict().to_frame()
    assert frame.ds.tolist() == list(stamps[-H:])
    assert (frame.forecast == 40 - H - 1 - last_missing).all()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("tz", [None, "UTC", "Europe/Berlin"])
def test_zone_and_unit_are_kept(unit, tz):
    table = wave(60).assign(ds=lambda df: df.ds.dt.as_unit(unit).dt.tz_localize(tz))
    frame = forecaster().fit(table).predict().to_frame()
    assert frame.ds.dtype == table.ds.dtype
    assert frame.ds.iloc[0] == table.ds.iloc[-1] + pd.Timedelta(hours=1)


@pytest.mark.parametrize("tz", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("end", ["2022-10-30 00:00", "2022-11-06 00:00", "2023-03-26 00:00", "2023-03-12 00:00"])
def test_forecasts_across_a_clock_change(tz, end):
    known = pd.date_range(end=end, periods=48, freq="h", tz=tz)
    frame = forecaster().fit(pd.DataFrame({"unique_id": "a", "ds": known, "y": 1.0})).predict().to_frame()
    assert frame.ds.tolist() == list(pd.date_range(known[-1], periods=H + 1, freq="h")[1:])
    assert frame.ds.dt.tz_convert("UTC").is_monotonic_increasing


def test_dates_and_ids_are_those_of_the_table_passed():
    model = forecaster("nlinear").fit(wave(60))
    new = wave(90).assign(unique_id="new")
    frame = model.predict(new).to_frame()
    assert set(frame.unique_id) == {"new"}
    assert frame.ds.iloc[0] == new.ds.iloc[-1] + pd.Timedelta(hours=1)


def test_an_unseen_id_is_forecast_like_a_known_one():
    model = forecaster("nlinear").fit(identity())
    values = wave(50)
    known, new = (model.predict(values.assign(unique_id=name)).to_frame() for name in ("s3", "never seen"))
    np.testing.assert_array_equal(numbers(known), numbers(new))


# ------------------------------------------------------------------ every table, any company


@pytest.mark.parametrize("kind", ["polars", "arrow", "csv", "parquet", "shuffled"])
def test_every_kind_of_table_gives_the_same_forecast(kind, tmp_path):
    parts = [
        wave(80, seed, price=np.arange(80.0), kind="k" + str(seed)).assign(unique_id=f"s{seed}") for seed in range(3)
    ]
    table = pd.concat(parts, ignore_index=True)
    table.loc[[5, 100], "y"] = np.nan
    path = tmp_path / f"table.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "parquet":
        table.to_parquet(path)
    source = {
        "polars": lambda: pl.from_pandas(table),
        "arrow": lambda: pa.Table.from_pandas(table),
        "shuffled": lambda: table.sample(frac=1, random_state=1),
    }.get(kind, lambda: path)()
    frames = [
        forecaster("lucid", past="price", static="kind").fit(data).predict().to_frame() for data in (table, source)
    ]
    assert frames[0].unique_id.tolist() == frames[1].unique_id.tolist()
    assert (frames[0].ds == frames[1].ds).all()
    np.testing.assert_array_equal(numbers(frames[0]), numbers(frames[1]))


def test_a_forecast_does_not_depend_on_its_company():
    table = pd.concat([wave(60, seed).assign(unique_id=f"s{seed:02}") for seed in range(33)], ignore_index=True)
    model = forecaster("nlinear").fit(table)
    together = model.predict(table).to_frame()
    for count in (1, 3):
        some = table[table.unique_id.isin([f"s{seed:02}" for seed in range(count)])]
        alone = model.predict(some).to_frame()
        np.testing.assert_allclose(numbers(alone), numbers(together[: count * H]), rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------ missing and extreme values


@pytest.mark.parametrize("holes", ["first", "middle", "last", "most", "all but one"])
@pytest.mark.parametrize("model", ["naive", "seasonal_naive", "nlinear"])
def test_missing_values_never_come_out(holes, model):
    table = wave(120)
    rows = {"first": slice(0, 30), "middle": slice(50, 51), "last": slice(119, 120), "most": slice(60, 117)}
    gone = table.index[rows[holes]] if holes in rows else table.index[table.index != 115]
    table.loc[gone, "y"] = np.nan
    company = pd.concat([table, wave(120, 1).assign(unique_id="b")])
    frame = forecaster(model).fit(company).predict().to_frame()
    assert len(frame) == 2 * H
    assert np.isfinite(numbers(frame)).all()


EXTREMES = {
    "zero": np.zeros(80),
    "seven": np.full(80, 7.0),
    "tiny": np.full(80, -1e-12),
    "huge": np.full(80, 1e12),
    "spike": np.where(np.arange(80) == 70, 1e5, 0.0),
    "small wave": 1e-12 * np.sin(np.arange(80)),
    "half": np.linspace(-6e4, 6e4, 80).astype("float16"),
    "near the limit": 1e37 * np.sin(np.arange(80)),
}


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("model", ["naive", "nlinear"])
def test_extremes_stay_finite_and_constants_constant(kind, model):
    values = EXTREMES[kind]
    table = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2024-01-01", periods=80, freq="h"), "y": values})
    frame = forecaster(model).fit(table).predict().to_frame()
    assert np.isfinite(numbers(frame)).all()
    if len(set(values.tolist())) == 1:
        np.testing.assert_allclose(frame.forecast, values[0], rtol=1e-3, atol=1e-20)


def test_half_precision_overflow_is_named():
    with np.errstate(over="ignore"):
        half = np.array([1.0, 7e4] * 40).astype("float16")
    with pytest.raises(DataError, match="target column 'y' holds 40 infinite of 80 values"):
        forecaster().fit(wave(80).assign(y=half))


# ------------------------------------------------------------------ K2: no look-ahead


COVARIATES = {"known": ["price", "calendar.hour"], "past": ["load"]}


def covariates(length=150, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return wave(length, price=rng.normal(size=length), load=rng.normal(size=length))


@pytest.mark.filterwarnings("ignore:The scores of 'y' are NaN")  # of a poison that leaves nothing to score
@pytest.mark.parametrize("poison", [1e6, np.nan, "noise"])
def test_the_first_origin_of_a_backtest_cannot_see_what_follows(poison):
    table = covariates()
    fitted = forecaster("lucid", **COVARIATES).fit(table[:100])
    dirty = table.copy()
    first = 150 - 6 * H  # step of the first forecast of the oldest origin
    value = np.random.default_rng(1).normal(size=150 - first) * 1e3 if poison == "noise" else poison
    dirty.loc[first:, ["y", "load"]] = np.broadcast_to(np.asarray(value).reshape(-1, 1), (150 - first, 2))
    kept = []
    for data in (table, dirty):
        frame = fitted.backtest(data, windows=6, step=H).to_frame()
        assert frame.origin.min() == table.ds[first - 1]
        kept.append(numbers(frame[frame.origin == frame.origin.min()]))
    np.testing.assert_array_equal(*kept)


def test_scale_and_statistics_are_those_of_the_history():
    table = covariates(110)
    loud = table.copy()
    loud.loc[100:, ["y", "price", "load"]] *= 100
    fits = [forecaster("lucid", **COVARIATES).fit(data, val_size=10) for data in (table, loud)]
    assert fits[0].scaling_.to_dict() == fits[1].scaling_.to_dict()
    new = covariates(60, seed=5)
    scaled = new.copy()
    scaled.loc[50:, ["y", "load"]] *= 100
    known = new[["unique_id", "ds", "price"]][50 : 50 + H]
    a, b = (fits[0].predict(data[:50], known=known).to_frame() for data in (new, scaled))
    np.testing.assert_array_equal(numbers(a), numbers(b))


def test_known_covariates_through_the_public_api():
    table = covariates()
    model = forecaster("lucid", **COVARIATES).fit(table[:100])
    known = table[["unique_id", "ds", "price"]]
    exact = model.predict(known=known[100 : 100 + H]).to_frame()
    np.testing.assert_array_equal(numbers(exact), numbers(model.predict(known=known).to_frame()))
    with pytest.raises(
        DataError, match=r"needs 2024-01-05 04:00:00 to .* 10:00:00, given: 2024-01-05 04:00:00 to .* 05:00:00"
    ):
        model.predict(known=known[100:102])
    with pytest.raises(DataError, match=r"pass predict\(known=table\)"):
        model.predict()


@pytest.mark.parametrize("refit", [True, False])
def test_a_backtest_that_reaches_back_too_far(refit):
    table = pd.concat([wave(40), wave(12).assign(unique_id="b")])
    short = r"Too few rows to train on before.*horizon 7 needs at least 8 steps, .*fewer windows, a smaller"
    with pytest.raises(DataError, match=short):
        forecaster("nlinear").backtest(table, windows=10, refit=refit)
    done = forecaster("nlinear").fit(table).backtest(table, windows=10, refit="never")
    assert len(done.windows.series) == 6  # five origins of the long series, one of the short one
