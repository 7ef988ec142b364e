"""Every kind of table gives the same columns, and every unreadable one says what to do."""

from __future__ import annotations

import datetime as dt
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsattn.data.columns import category_values, id_values, number_values
from tsattn.data.stamps import time_values
from tsattn.data.table import column_names, from_wide, read_columns
from tsattn.errors import DataError, TsattnWarning

NAMES = ["unique_id", "ds", "y", "kind", "flag"]


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "unique_id": ["b", "b", "a", "a"],
            "ds": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-01", "2024-01-02"]),
            "y": [1.5, np.nan, -3.0, 4.0],
            "kind": ["x", None, "NA", "x"],
            "flag": [True, False, True, True],
        }
    )


def as_file(table: pd.DataFrame, folder, kind: str):
    path = folder / f"table.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "parquet":
        table.to_parquet(path)
    else:
        path = folder / "parts"
        pq.write_to_dataset(pa.Table.from_pandas(table, preserve_index=False), path, partition_cols=["unique_id"])
    return path


def decoded(columns):
    codes, ids = id_values(columns["unique_id"], "unique_id")
    times, tz, _ = time_values(columns["ds"], "ds")
    order = np.lexsort((times, codes))
    kinds, labels = category_values(columns["kind"])
    flags, flag_labels = category_values(columns["flag"])
    return {
        "ids": [ids[int(code)].as_py() for code in codes[order]],
        "times": times[order].tolist(),
        "tz": tz,
        "y": repr(number_values(columns["y"], "y", "target")[order].tolist()),
        "kind": [None if code < 0 else labels[code] for code in kinds[order]],
        "flag": [flag_labels[code] for code in flags[order]],
    }


@pytest.mark.parametrize("kind", ["polars", "lazy", "arrow", "dict", "csv", "parquet", "folder", "arrow-backed"])
def test_every_source_gives_equal_columns(kind, tmp_path):
    table = frame()
    source = {
        "polars": lambda: pl.from_pandas(table),
        "lazy": lambda: pl.from_pandas(table).lazy(),
        "arrow": lambda: pa.Table.from_pandas(table, preserve_index=False),
        "dict": lambda: pa.Table.from_pandas(table, preserve_index=False).to_pydict(),
        "arrow-backed": lambda: table.convert_dtypes(dtype_backend="pyarrow"),
    }.get(kind, lambda: as_file(table, tmp_path, kind))()
    assert sorted(column_names(source)) == sorted(NAMES)
    assert decoded(read_columns(source, NAMES)) == decoded(read_columns(table, NAMES))
    assert decoded(read_columns(str(source) if kind in ("csv", "parquet") else source, NAMES))["kind"][0] == "NA"


def test_record_batches_are_tables():
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    batch = table.to_batches()[0]
    assert column_names(batch) == NAMES
    assert decoded(read_columns(batch, NAMES)) == decoded(read_columns(table, NAMES))
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["y", "y"])
    with pytest.raises(DataError, match="more than one column named 'y'"):
        read_columns(twice, ["y"])


def test_what_only_lists_its_columns_is_no_table():
    class Exchange:
        def __init__(self, table):
            self.__dataframe__ = table.__dataframe__

    with pytest.raises(DataError, match=r"Cannot read a table from Exchange. Pass a pandas, polars or Arrow table"):
        read_columns(Exchange(pa.table({"y": [1.0]})), ["y"])


IDS = {
    "object": pd.Series(["b", "a", "b"], dtype=object),
    "string": pd.Series(["b", "a", "b"], dtype="string"),
    "arrow": pd.Series(["b", "a", "b"], dtype=pd.ArrowDtype(pa.string())),
    "large": pd.Series(["b", "a", "b"], dtype=pd.ArrowDtype(pa.large_string())),
    "category": pd.Series(pd.Categorical(["b", "a", "b"], categories=["z", "b", "a"])),
    "polars": pl.Series(["b", "a", "b"]),
    "polars category": pl.Series(["b", "a", "b"], dtype=pl.Categorical),
}


@pytest.mark.parametrize("kind", IDS)
def test_text_ids_of_every_dtype_are_equal(kind):
    table = IDS[kind].to_frame("id") if kind.startswith("polars") else pd.DataFrame({"id": IDS[kind]})
    codes, ids = id_values(read_columns(table, ["id"])["id"], "id")
    assert codes.tolist() == [1, 0, 1]
    assert ids.equals(pa.array(["a", "b"]))


def test_string_view_ids():
    if not hasattr(pa, "string_view"):
        pytest.skip("this Arrow has no string views")
    codes, ids = id_values(pa.array(["b", "a"]).cast(pa.string_view()), "id")
    assert codes.tolist() == [1, 0]
    assert ids.equals(pa.array(["a", "b"]))


@pytest.mark.parametrize("values", [[2**53 + 1, 2**24 + 1, 10, 9], [True, False, True, False]])
def test_ids_keep_their_value_and_sort_as_what_they_are(values):
    codes, ids = id_values(pa.array(values), "id")
    assert ids.to_pylist() == sorted(set(values))
    assert [ids[int(code)].as_py() for code in codes] == values


def test_numeric_categories_sort_as_numbers():
    ids = pd.DataFrame({"id": pd.Categorical([10, 9, 10], categories=[10, 9, 100])})
    codes, labels = id_values(read_columns(ids, ["id"])["id"], "id")
    assert (codes.tolist(), labels.to_pylist()) == ([1, 0, 1], [9, 10])


@pytest.mark.parametrize("index", [pa.int8(), pa.uint32(), pa.int64()])
def test_odd_dictionaries(index):
    repeated = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], index), pa.array(["a", "a", "b"]))
    assert id_values(repeated, "id")[0].tolist() == [0, 0, 1]
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], index), pa.array(["a", None]))
    codes, labels = category_values(hidden)
    assert (codes.tolist(), labels) == ([0, -1, 0], ["a"])
    with pytest.raises(DataError, match=r"id column 'id' is missing in 1 of 3 rows \(row 1\)"):
        id_values(hidden, "id")


def test_chunks_with_different_dictionaries():
    chunks = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "c"]).dictionary_encode()])
    codes, ids = id_values(read_columns(pa.table({"id": chunks}), ["id"])["id"], "id")
    assert (codes.tolist(), ids.to_pylist()) == ([0, 1, 1, 2], ["a", "b", "c"])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([1, None, 3], dtype="Int64"), [1, np.nan, 3]),
        (pd.Series([1.5, None, 3], dtype="Float64"), [1.5, np.nan, 3]),
        (pd.Series([True, None, False], dtype="boolean"), [1, np.nan, 0]),
        (pd.Series([1, 2, 3], dtype="uint8"), [1, 2, 3]),
        (pd.Series([1.5, np.nan, 3], dtype="float16"), [1.5, np.nan, 3]),
        (pd.Series([1.5, np.nan, 3], dtype="float32"), [1.5, np.nan, 3]),
        (pd.Series([decimal.Decimal("1.5"), None, decimal.Decimal(3)]), [1.5, np.nan, 3]),
        (pd.Series([None, None, None], dtype=object), [np.nan] * 3),
    ],
)
def test_numbers_of_every_dtype(column, expected):
    array = read_columns(pd.DataFrame({"y": column}), ["y"])["y"]
    values = number_values(array, "y", "target")
    assert values.dtype.kind == "f"
    np.testing.assert_array_equal(values.astype(float), expected)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            ["1", "x", "3"],
            r"target column 'y' must be numeric, found text: 1 of 3 values .*first 'x' at row 1.*to_numeric",
        ),
        (["1", "2", "3"], "numbers written as text.*to_numeric"),
        (pd.Categorical([1, 2, 2]), r"found categories of int64.*astype\(float\)"),
        (pd.to_datetime(["2024-01-01"] * 3), "found timestamp"),
    ],
)
def test_a_target_that_is_not_numeric(column, message):
    with pytest.raises(DataError, match=message):
        number_values(read_columns(pd.DataFrame({"y": column}), ["y"])["y"], "y", "target")


def test_categories_are_equal_text():
    assert category_values(pa.array(["b", None, "a"]))[1] == ["a", "b"]
    assert category_values(pa.array([True, None, False]))[1] == ["False", "True"]
    whole = pd.DataFrame({"k": pd.Categorical([2.0, None, 1.0])})
    codes, labels = category_values(read_columns(whole, ["k"])["k"])
    assert (codes.tolist(), labels) == ([1, -1, 0], ["1", "2"])


DAY = 1704067200  # 2024-01-01


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("tz", [None, "Europe/Berlin", "+02:00"])
def test_stamps_of_every_unit_and_zone(unit, tz):
    stamps = pd.date_range("2024-01-01", periods=2, tz="UTC").as_unit(unit)
    stamps = stamps.tz_localize(None) if tz is None else stamps.tz_convert(tz)
    values, zone, found = time_values(read_columns(pd.DataFrame({"ds": stamps}), ["ds"])["ds"], "ds")
    assert (values // 10**9).tolist() == [DAY, DAY + 86400]
    assert (zone, found) == (tz, unit)


@pytest.mark.parametrize(
    ("column", "tz"),
    [
        (pa.array([dt.date(2024, 1, 1)]), None),
        (pa.array([dt.date(2024, 1, 1)]).cast(pa.date64()), None),
        (pa.array(["2024-01-01"]), None),
        (pa.array(["20240101"]), None),
        (pa.array(["2024-01-01"]).dictionary_encode(), None),
        (pa.array(["2024-01-01T00:00:00Z"]), "UTC"),
        (pa.array(["2024-01-01 00:00:00 UTC"]), "UTC"),
        (pa.array(["2024-01-01T02:00:00+02:00"]), "+02:00"),
        (pa.array(["2024-01-01T02:00+0200"]), "+02:00"),
        (pa.array(["1 January 2024"]), None),
        (pa.array(["2024-01-01T00:00:00z"]), "UTC"),
        (pa.array(["2024-01-01t02:00:00+02:00"]), "+02:00"),
        (pa.array(["2024-01-01 00:00 z"]), "UTC"),
        (pa.array(["2024Q1"]), None),
        (pa.array(["2024-q1"]), None),
        (pa.array(["Q1 2024"]), None),
    ],
)
def test_dates_and_text(column, tz):
    values, zone, _ = time_values(column, "ds")
    assert (values.tolist(), zone) == ([DAY * 10**9], tz)


def test_spellings_of_one_thing_in_one_column():
    zulu = pa.array(["2024-01-01T00:00Z", "2024-01-02T00:00z"])
    assert (time_values(zulu, "ds")[0] // 10**9).tolist() == [DAY, DAY + 86400]
    quarters = time_values(pa.array(["2023Q4", "2024-Q1", "Q2-2024", "2024q3"]), "ds")[0]
    assert quarters.astype("datetime64[ns]").astype("datetime64[D]").astype(str).tolist() == [
        "2023-10-01",
        "2024-01-01",
        "2024-04-01",
        "2024-07-01",
    ]
    with pytest.raises(DataError, match=r"1 of 2 values that are no time .*'2024Q5'"):
        time_values(pa.array(["2024Q1", "2024Q5"]), "ds")


def test_integers_stay_integers():
    for column in (pa.array([7, 8], pa.uint8()), pa.array([7.0, 8.0])):
        values, zone, unit = time_values(column, "ds")
        assert (values.tolist(), zone, unit) == ([7, 8], None, "integer")


@pytest.mark.parametrize(
    "steps",
    [
        [202301, 202302],  # within one year there is nothing that tells
        [202298, 202301],  # no month 98
        [202303, 202403, 202503],  # hundreds
        [20240132, 20240201],
        [1704067200, 1704070800],  # seconds since 1970
        [202312],
        [-202312, 202401],
        list(range(200_001, 200_030)),
    ],
)
def test_integers_that_are_no_dates_are_steps(steps):
    assert time_values(pa.array(steps), "ds")[0].tolist() == steps


def test_day_first_is_read_from_all_values_and_said_when_unsure():
    values, *_ = time_values(pa.array(["01/02/2024", "13/02/2024"]), "ds")
    assert (values // 10**9).tolist() == [DAY + 31 * 86400, DAY + 43 * 86400]
    values, *_ = time_values(pa.array(["02/01/2024", "02/13/2024"]), "ds")
    assert values[0] // 10**9 == DAY + 31 * 86400
    with pytest.warns(TsattnWarning, match=r"'ds' was read as month/day/year \('01/02/2024' is 2024-01-02.*dayfirst"):
        time_values(pa.array(["01/02/2024", "02/02/2024"]), "ds")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["2024-01-01", "soon", "soon"]), r"'ds' has 2 of 3 values that are no time .*'soon'; rows 1, 2"),
        (
            pa.array(["2024-01-01T00:00+01:00", "2024-01-02T00:00Z", "2024-01-03T00:00Z"]),
            r"mixes zones: \+01:00 \(1 rows, first '2024-01-01T00:00\+01:00' at row 0\), UTC \(2 rows.*tz_convert",
        ),
        (pa.array(["2024-01-01T00:00Z", "2024-01-01T00:00"]), "mixes zones: UTC .*, none"),
        (pa.array([1.0, 2.5]), r"1 of 2 numbers that are not whole \(first 2.5 at row 1\)"),
        (pa.array([2**64 - 1], pa.uint64()), "integers above"),
        (pa.array([20240131, 20240201]), r"dates written as integers \(first 20240131\).*'%Y%m%d'\)"),
        (pa.array([20240131.0, 20240201.0]), r"dates written as integers \(first 20240131\).*'%Y%m%d'\)"),
        (pa.array([202312, 202401]), r"dates written as integers \(first 202312\).*to_datetime.*'%Y%m'\)"),
        (pa.array([202410, 202404, 202310]), r"dates written as integers \(first 202410\).*'%Y%m'\)"),
        (pa.array([202312.0, 202401.0]), r"dates written as integers \(first 202312\).*'%Y%m'\)"),
        (pa.array([2024013123, 2024020100]), r"dates written as integers .*'%Y%m%d%H'\)"),
        (pa.array([True, False]), "must hold stamps or integers, found bool.*time="),
        (pa.array([dt.time(1)]), "must hold stamps or integers, found time64"),
        (pa.array([32503680000], pa.timestamp("s")), "1 of 1 stamps outside the years 1678 to 2261"),
        (pa.array([1, None, None]), r"'ds' is missing in 2 of 3 rows \(rows 1, 2\).*dropna"),
    ],
)
def test_times_that_cannot_be_used(column, message):
    with pytest.raises(DataError, match=message):
        time_values(column, "ds")


def test_text_beyond_nanoseconds_is_refused():
    with pytest.raises(DataError, match=r"'ds' (holds 1 of 2 stamps outside|has 1 of 2 values that are no time)"):
        time_values(pa.array(["2024-01-01", "3000-01-01"]), "ds")


def test_python_stamps_of_two_zones_are_refused():
    zones = [dt.timezone(dt.timedelta(hours=hours)) for hours in (1, 2)]
    table = pd.DataFrame({"ds": pd.Series([dt.datetime(2024, 1, 1, tzinfo=zone) for zone in zones], dtype=object)})
    with pytest.raises(DataError, match=r"mixes zones: UTC\+01:00 \(first at row 0\), UTC\+02:00 \(first at row 1\)"):
        read_columns(table, ["ds"])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (frame().drop(columns="y"), "Column 'y' not in the table. It has: unique_id, ds, kind, flag"),
        (frame().rename(columns={"y": "Y", "ds": "dz"}), r"Columns 'ds', 'y' not in the table. Did you mean 'dz'\?"),
        (frame().set_index("ds"), r"'ds' is the index of the table: call reset_index\(\)"),
        (frame().iloc[:0], "no rows"),
        (frame().assign(ds=frame().ds.dt.to_period("D")), "'ds' holds pandas periods.*to_timestamp"),
        (frame().assign(y=[1, "a", 2, 3]), r"'y' mixes kinds of values \(int, str\)"),
        (frame().set_axis([*NAMES[:4], "y"], axis=1), "more than one column named 'y'"),
        (frame()["y"], "Cannot read a table from Series"),
        (3, "Cannot read a table from int. Pass a pandas, polars or Arrow table"),
        ({"unique_id": [1], "ds": [1, 2], "y": [1.0]}, "Cannot make a table of this dict"),
        ("nowhere.csv", "No such file or folder: nowhere.csv"),
    ],
)
def test_tables_that_cannot_be_read(table, message):
    with pytest.raises(DataError, match=message):
        read_columns(table, ["unique_id", "ds", "y"])


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.parquet").write_text("no parquet")
    (tmp_path / "semicolon.csv").write_text("unique_id;ds;y\na;1;2\n")
    (tmp_path / "nothing.csv").write_text("")
    for name, message in [
        ("empty", "expected Parquet files"),
        ("a.parquet", "Cannot read .*a.parquet"),
        ("semicolon.csv", "not in the table. Its fields seem to be separated by something else"),
        ("nothing.csv", "Cannot read"),
    ]:
        with pytest.raises(DataError, match=message):
            read_columns(tmp_path / name, ["ds", "y"])


def test_csv_text_is_missing_only_where_empty(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("unique_id,ds,y\nNA,2024-01-01,1\nDE,2024-01-02,NA\n,2024-01-03,\n")
    columns = read_columns(path, ["unique_id", "ds", "y"])
    assert columns["unique_id"].to_pylist() == ["NA", "DE", None]
    assert columns["y"].to_pylist() == [1, None, None]


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_from_wide(library):
    wide = pd.DataFrame({"ds": [1, 2], "a": [1.0, 2.0], "b": [3.0, np.nan]})
    table = {"pandas": wide, "polars": pl.from_pandas(wide), "arrow": pa.Table.from_pandas(wide)}[library]
    long = from_wide(table, id="shop", target="sales")
    assert type(long) is type(table)
    columns = read_columns(long, ["shop", "ds", "sales"])
    assert columns["shop"].to_pylist() == ["a", "a", "b", "b"]
    assert columns["ds"].to_pylist() == [1, 2, 1, 2]
    assert columns["sales"].to_pylist()[:3] == [1, 2, 3]
    assert from_wide(table, columns=["b"]).shape[0] == 2


def test_from_wide_of_a_file_and_of_numbered_columns(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("ds,a\n2024-01-01,1\n")
    assert from_wide(path).column_names == ["ds", "unique_id", "y"]
    assert from_wide(pd.DataFrame({"ds": [1], 0: [2.0], 1: [3.0]}))["unique_id"].tolist() == [0, 1]
    with pytest.raises(DataError, match="'c' not in the table"):
        from_wide(path, columns=["a", "c"])
    with pytest.raises(DataError, match="no column but 'ds'"):
        from_wide(pd.DataFrame({"ds": [1]}))
