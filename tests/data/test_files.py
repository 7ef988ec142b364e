"""CSV and Parquet: what a file says is what is read, and files that cannot be read say what to do."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tsattn
from tests.conftest import QUICK
from tsattn.data.build import build_panel
from tsattn.data.schema import Roles
from tsattn.data.table import read_columns
from tsattn.errors import DataError


def written(folder, ids, **columns):
    """A CSV file of four days for every id, spelled as given."""
    names = ["unique_id", "ds", "y", *columns]
    lines = [
        ",".join([name, f"2024-01-0{day}", "1", *(values[row] for values in columns.values())])
        for row, name in enumerate(ids)
        for day in range(1, 5)
    ]
    path = folder / "table.csv"
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["001", "1"], ["001", "1"]),
        (["10", "9", "-3", "0"], [-3, 0, 9, 10]),
        (["1", "1.0"], ["1", "1.0"]),
        (["1e3", "1000"], ["1000", "1e3"]),
        (["0x10", "16"], ["0x10", "16"]),
        (["-0", "0"], ["-0", "0"]),
        (["true", "True"], ["True", "true"]),
        (["nan", "NA"], ["NA", "nan"]),
        (["2024-01-01", "2024-01-02"], ["2024-01-01", "2024-01-02"]),
        (["9223372036854775807"], [2**63 - 1]),
        (["9223372036854775808", "1"], ["1", "9223372036854775808"]),
    ],
)
def test_ids_of_a_csv_are_what_is_written_there(tmp_path, ids, expected):
    model = tsattn.Forecaster("naive", horizon=1, context=2).fit(written(tmp_path, ids))
    assert model.predict().panel.ids.to_pylist() == expected


def test_ids_in_the_names_of_folders_are_what_is_written_there(tmp_path):
    for number, name in enumerate(["001", "1", "2"]):
        folder = tmp_path / f"shop={name}" / f"zone={number}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"y": [float(number)]}), folder / "part.parquet")
    columns = read_columns(tmp_path, ["shop", "zone", "y"], id="shop")
    assert columns["shop"].to_pylist() == ["001", "1", "2"]
    assert columns["zone"].to_pylist() == [0, 1, 2]
    assert columns["y"].to_pylist() == [0, 1, 2]


def test_a_missing_id_is_missing_and_the_others_stay_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("unique_id,ds\n7,1\n,2\n")
    assert read_columns(path, ["unique_id"], id="unique_id")["unique_id"].to_pylist() == [7, None]


def test_codes_with_leading_zeros_are_categories_and_other_integers_numbers(tmp_path):
    path = written(tmp_path, ["a", "b"], area=["07", "7"], size=["10", "20"], note=["", "x"])
    schema = build_panel(path, Roles(static=("area", "size", "note"))).schema
    assert schema.categories == {"area": ("07", "7"), "note": ("x",)}
    assert schema.numeric("static") == ["size"]


def test_a_target_and_a_time_with_leading_zeros_are_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("ds,y\n08,007\n09,008\n10,012\n")
    forecast = tsattn.Forecaster("naive", horizon=1, context=2).fit(path).predict().to_frame()
    assert (forecast["ds"].tolist(), forecast["forecast"].tolist()) == ([11], [12.0])


@pytest.mark.parametrize("place", ["id", "static", "header", "everywhere"])
def test_a_csv_in_another_encoding_says_how_to_read_it(tmp_path, place):
    town, header = ("münchen" if place in ("id", "static") else "m"), ("größe" if place == "header" else "y2")
    text = f"unique_id,town,{header},ds,y\n" + "".join(f"a,{town},1,2024-01-0{day},{day}\n" for day in range(1, 5))
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode("utf-16" if place == "everywhere" else "latin-1"))
    names = ["unique_id", "town", "ds", "y"]
    with pytest.raises(DataError, match=r"a.csv is not UTF-8 text \(.*\)\. Save it as UTF-8, .*encoding='latin-1'"):
        read_columns(path, names, id="town" if place == "id" else "unique_id")
    if place == "static":
        with pytest.raises(DataError, match=r"column 'town' holds b'm\\xfcnchen'"):
            read_columns(path, names)
        assert read_columns(path, ["y"])["y"].to_pylist() == [1, 2, 3, 4]  # what is not read may be in any encoding


def test_known_rows_of_another_spelling_are_not_matched(tmp_path):
    table = pd.DataFrame({"unique_id": [1] * 4 + [2] * 4, "ds": [0, 1, 2, 3] * 2, "y": 1.0, "price": 2.0})
    model = tsattn.Forecaster("lucid", horizon=1, context=2, known=["price"], training=QUICK).fit(table, val_size=0)
    known = tmp_path / "known.csv"
    known.write_text("unique_id,ds,price\n001,4,1\n2,4,1\n")
    with pytest.raises(DataError, match=r"id column 'unique_id' of known= holds string \(for example '001'\)"):
        model.predict(known=known)
    known.write_text("unique_id,ds,price\n1,4,1\n2,4,1\n")
    assert len(model.predict(known=known)) == 2


def stamps(*, unit="us", tz=None) -> pa.Array:
    return pa.array([1_700_000_000 * {"s": 1, "us": 10**6, "ns": 10**9}[unit]], pa.timestamp(unit, tz))


def folder_of(tmp_path, *tables: dict):
    for number, table in enumerate(tables):
        pq.write_table(pa.table(table), tmp_path / f"part-{number}.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (stamps(tz="UTC"), stamps(tz="Europe/Berlin"), r"timestamp\[us, tz=UTC\].*timestamp\[us, tz=Europe/Berlin\]"),
        (stamps(tz="UTC"), stamps(), r"timestamp\[us, tz=UTC\].*timestamp\[us\]"),
        (pa.array([1.0]), pa.array(["1"]), "double.*string"),
        (pa.array(["1"]), pa.array([1]), "string.*int64"),
        (pa.array([True]), pa.array([1]), "bool.*int64"),
        (stamps(), pa.array([1]), r"timestamp\[us\].*int64"),
    ],
)
def test_files_of_a_folder_that_disagree_are_named(tmp_path, first, second, message):
    folder_of(tmp_path, {"c": first, "y": [1.0]}, {"c": first, "y": [1.0]}, {"c": second, "y": [1.0]})
    wording = rf"The 3 files of .* do not agree on column 'c': {message} in 1 of them \(part-2\.parquet\)\. Write"
    with pytest.raises(DataError, match=wording):
        read_columns(tmp_path, ["c", "y"])
    assert read_columns(tmp_path, ["y"])["y"].to_pylist() == [1.0] * 3  # what is not read need not agree


@pytest.mark.parametrize("order", [1, -1])
def test_a_column_that_a_file_of_the_folder_lacks_is_named(tmp_path, order):
    folder_of(tmp_path, *[{"ds": [1], "y": [1.0]}, {"ds": [2]}][::order])
    lacking = "part-1" if order == 1 else "part-0"
    with pytest.raises(DataError, match=rf"Column 'y' is missing in 1 of the 2 files of .* \(first {lacking}\.parquet"):
        read_columns(tmp_path, ["ds", "y"])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (pa.array([1], pa.int32()), pa.array([2**40]), [1, 2**40]),
        (pa.array([1.5], pa.float32()), pa.array([0.1]), [1.5, 0.1]),
        (pa.array([1]), pa.array([2.5]), [1, 2.5]),
        (pa.array(["a"]), pa.array(["b"]).dictionary_encode(), ["a", "b"]),
        (pa.array(["a"], pa.large_string()), pa.array(["b"]), ["a", "b"]),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode(), ["a", "b"]),
        (pa.nulls(1), pa.array([2.5]), [None, 2.5]),
        (pa.array(["a"]), pa.nulls(1), ["a", None]),
        (pa.nulls(1), pa.nulls(1), [None, None]),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_kinds_of_one_thing_agree(tmp_path, first, second, expected, order):
    folder_of(tmp_path, *[{"c": first}, {"c": second}][::order])
    assert read_columns(tmp_path, ["c"])["c"].to_pylist() == expected[::order]


def test_stamps_of_two_units_agree(tmp_path):
    folder_of(tmp_path, {"ds": stamps(unit="us", tz="UTC")}, {"ds": stamps(unit="ns", tz="UTC")})
    first, second = read_columns(tmp_path, ["ds"])["ds"].to_pylist()
    assert first == second
