"""A panel streamed into files is the panel in memory, however it is cut, stopped or damaged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tsattn
from tsattn.data import ondisk, stream
from tsattn.data.build import build_panel
from tsattn.data.panel import Panel
from tsattn.data.schema import Roles
from tsattn.errors import DataError, TsattnWarning

ARRAYS = ("values", "codes", "static_values", "static_codes", "indptr", "start")
ROLES = Roles.of("unique_id", "ds", "y", ["temp", "calendar.hour"], ["kind"], ["region", "size"])


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many buckets and batches, and a note after each piece."""
    monkeypatch.setattr(stream, "_BUCKET", 60)
    monkeypatch.setattr(stream, "_BATCH", 16)
    monkeypatch.setattr(stream, "_STATE_SECONDS", 0.0)


def table(series: int = 20, seed: int = 0) -> pd.DataFrame:
    """Series of unequal lengths with a gap each, all kinds of covariates, rows in no order."""
    rng = np.random.default_rng(seed)
    parts = []
    for number in range(series):
        n = int(rng.integers(5, 40))
        part = pd.DataFrame(
            {
                "unique_id": f"s{number}",
                "ds": pd.date_range("2024-01-01", periods=n, freq="h") + pd.Timedelta(hours=number),
                "y": rng.normal(size=n),
                "temp": rng.normal(size=n),
                "kind": rng.choice(["a", "b", None], n),
                "region": f"r{number % 3}",
                "size": float(number),
            }
        )
        parts.append(part.drop(index=[2]))
    return pd.concat(parts).sample(frac=1, random_state=seed)


def folder(frame: pd.DataFrame, path: Path, files: int = 3, **options: object) -> Path:
    """The rows dealt out to some files, whatever their series."""
    path.mkdir()
    for number in range(files):
        frame.iloc[number::files].to_parquet(path / f"part-{number}.parquet", row_group_size=25, index=False, **options)
    return path


def same(first: Panel, second: Panel) -> None:
    """Equal to the last bit."""
    for name in ARRAYS:
        one, two = getattr(first, name), getattr(second, name)
        np.testing.assert_array_equal(one, two, err_msg=name)
        assert one.dtype == two.dtype
    assert first.schema == second.schema
    assert first.ids.equals(second.ids)


@pytest.mark.parametrize("seed", range(4))
def test_streamed_is_in_memory(seed, tmp_path):
    path = folder(table(seed=seed), tmp_path / "data")
    whole, streamed = build_panel(path, ROLES), build_panel(tsattn.OnDisk(path, tmp_path / "cache"), ROLES)
    assert streamed.on_disk
    assert not whole.on_disk
    same(whole, streamed)


@pytest.mark.parametrize("kind", ["id folders", "integer id folders", "one file", "zones", "integers", "dates", "text"])
def test_kinds_of_tables(kind, tmp_path):
    frame, roles = table(8), ROLES
    if kind == "integer id folders":
        frame["unique_id"] = frame["unique_id"].str[1:].astype(int)
    if kind == "zones":
        frame["ds"] = frame["ds"].dt.tz_localize("Europe/Berlin")
    if kind == "dates":
        frame["ds"] = (
            frame.groupby("unique_id")["ds"].transform(lambda ds: ds.min() + (ds - ds.min()) * 24).dt.normalize()
        )
        frame["ds"] = frame["ds"].dt.date
        roles = Roles.of("unique_id", "ds", "y")
    if kind == "text":
        frame["ds"] = frame["ds"].dt.strftime("%Y-%m-%d %H:%M")
    if kind == "integers":
        frame["ds"] = (frame["ds"] - frame["ds"].min()) // pd.Timedelta(hours=1)
        roles = Roles.of("unique_id", "ds", ["y", "temp"], [], ["kind"], ["region", "size"])
    if "folders" in kind:
        frame.to_parquet(tmp_path / "data", partition_cols=["unique_id"], index=False)
        path = tmp_path / "data"
    elif kind == "one file":
        path = tmp_path / "data.parquet"
        frame.to_parquet(path, row_group_size=30, index=False)
    else:
        path = folder(frame, tmp_path / "data")
    whole, streamed = build_panel(path, roles), build_panel(tsattn.OnDisk(path, tmp_path / "cache"), roles)
    same(whole, streamed)


def test_one_series_without_ids(tmp_path):
    frame = table(1).drop(columns="unique_id")
    path = folder(frame, tmp_path / "data")
    roles = Roles.of("unique_id", "ds", "y")
    streamed = build_panel(tsattn.OnDisk(path, tmp_path / "cache"), roles)
    same(build_panel(path, roles), streamed)
    assert streamed.schema.roles.id is None


def test_a_panel_is_made_once_and_found_by_content(tmp_path, monkeypatch):
    frame = table()
    path, cache = folder(frame, tmp_path / "data"), tmp_path / "cache"
    first = build_panel(tsattn.OnDisk(path, cache), ROLES)
    made = monkeypatch.setattr(stream._Build, "run", lambda self: pytest.fail("made again"))
    assert made is None
    same(first, build_panel(tsattn.OnDisk(path, cache), ROLES))
    moved = shutil.copytree(path, tmp_path / "elsewhere")
    same(first, build_panel(tsattn.OnDisk(moved, cache), ROLES))
    monkeypatch.undo()
    frame.loc[frame["unique_id"] == "s3", "y"] += 1
    changed = build_panel(tsattn.OnDisk(folder(frame, tmp_path / "changed"), cache), ROLES)
    assert changed.checksum() != first.checksum()
    assert len(list(cache.glob("*/panel.json"))) == 2


class Stopped(Exception):
    """What a test stops a build with."""


@pytest.mark.parametrize("place", ["_append", "_write", "_note", "_finish"])
@pytest.mark.parametrize("calls", [1, 2, 7])
def test_a_stopped_build_goes_on(place, calls, tmp_path, monkeypatch):
    """Stopped in the middle of each step, half-written files and all."""
    path, cache = folder(table(), tmp_path / "data"), tmp_path / "cache"
    whole = build_panel(path, ROLES)
    real, left = getattr(stream._Build, place), [calls]

    def stops(self, *args):
        left[0] -= 1
        if left[0] == 0 or place == "_finish":
            for file in self.part.glob("bucket-*"):
                with file.open("ab") as half:
                    half.write(b"half a record")
            raise Stopped
        return real(self, *args)

    monkeypatch.setattr(stream._Build, place, stops)
    with pytest.raises(Stopped):
        build_panel(tsattn.OnDisk(path, cache), ROLES)
    monkeypatch.setattr(stream._Build, place, real)
    read = []
    batches = stream._batches
    monkeypatch.setattr(stream, "_batches", lambda *a: (read.append(1), batches(*a))[1])
    same(whole, build_panel(tsattn.OnDisk(path, cache), ROLES))
    groups = sum(1 for _ in range(len(read)))
    if place in ("_write", "_finish"):
        assert groups == 0  # the rows were not read again
    assert not list(cache.glob("*.part"))


def building(path: Path, cache: Path) -> str:
    """A program that builds the panel."""
    return textwrap.dedent(
        f"""
        import tsattn, sys
        from tsattn.data import stream
        from tsattn.data.build import build_panel
        from tsattn.data.schema import Roles
        stream._BUCKET, stream._BATCH, stream._STATE_SECONDS = 60, 16, 0.0
        roles = Roles.of("unique_id", "ds", "y", ["temp", "calendar.hour"], ["kind"], ["region", "size"])
        print("begin", flush=True)
        print(build_panel(tsattn.OnDisk({str(path)!r}, {str(cache)!r}), roles).checksum())
        """
    )


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path):
    """``kill -9`` at twelve moments of a build, then once to the end."""
    path, cache = folder(table(200), tmp_path / "data", files=8), tmp_path / "cache"
    code, killed = building(path, cache), 0
    for moment in np.linspace(0.02, 0.6, 12):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                process.wait(timeout=float(moment))
            except subprocess.TimeoutExpired:
                process.kill()
                killed += 1
    assert killed
    same(build_panel(path, ROLES), build_panel(tsattn.OnDisk(path, cache), ROLES))


@pytest.mark.slow
def test_three_processes_build_one_panel(tmp_path):
    path, cache = folder(table(100), tmp_path / "data"), tmp_path / "cache"
    command = [sys.executable, "-c", building(path, cache)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = {process.communicate(timeout=100)[0] for process in processes}
    assert said == {f"begin\n{build_panel(path, ROLES).checksum()}\n"}
    assert len(list(cache.glob("*/panel.json"))) == 1


@pytest.mark.parametrize("damage", ["short", "gone", "description", "ids", "flipped", "state"])
def test_damaged_files_are_made_again(damage, tmp_path):
    path, cache = folder(table(), tmp_path / "data"), tmp_path / "cache"
    first = build_panel(tsattn.OnDisk(path, cache), ROLES)
    made = next(cache.glob("*/panel.json")).parent
    if damage == "short":
        os.truncate(made / "values", 100)
    elif damage == "gone":
        (made / "start").unlink()
    elif damage == "description":
        (made / "panel.json").write_text("{")
    elif damage == "flipped":
        lengths = bytearray((made / "lengths").read_bytes())
        lengths[7] ^= 0x80  # a length below zero
        (made / "lengths").write_bytes(lengths)
    elif damage == "ids":
        (made / "ids.arrow").write_bytes(b"ARROW1 and then nothing")
    else:
        os.replace(made, made.with_suffix(".part"))
        (made.with_suffix(".part") / "state.json").write_text('{"pieces": 3}')
    # A new path: what is mapped by ``first`` must not be pulled from under it.
    same(build_panel(path, ROLES), build_panel(tsattn.OnDisk(path, cache), ROLES))
    assert len(first) == 20


def broken(frame: pd.DataFrame, how: str) -> pd.DataFrame:
    """The table with one fault."""
    frame = frame.reset_index(drop=True)
    if how == "duplicate":
        return pd.concat([frame, frame.iloc[:1]])
    if how == "infinite":
        frame.loc[40, "y"] = np.inf
    elif how == "missing id":
        frame.loc[3, "unique_id"] = None
    elif how == "missing time":
        frame.loc[3, "ds"] = None
    elif how == "off the grid":
        frame.loc[50, "ds"] += pd.Timedelta(minutes=7)
    elif how == "static":
        frame.loc[7, "size"] = -1.0
    elif how == "text":
        frame["y"] = frame["y"].astype(str)
    elif how == "empty":
        return frame.iloc[:0]
    return frame


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("duplicate", "duplicate rows in columns 'unique_id', 'ds'"),
        ("infinite", r"The target column 'y' holds 1 infinite of 16 values .*The rows are counted from row \d+ of"),
        ("missing id", "The id column 'unique_id' is missing in 1 of"),
        ("missing time", "The time column 'ds' is missing in 1 of"),
        ("off the grid", r"Cannot infer the frequency: series 's\d+' goes from .* \(1 h 7 min\)"),
        ("static", "The static column 'size' changes within 1 of"),
        ("text", "The target column 'y' must be numeric"),
        ("empty", "has no rows"),
    ],
)
def test_faults_are_one_message_and_leave_nothing(how, words, tmp_path):
    path, cache = folder(broken(table(), how), tmp_path / "data"), tmp_path / "cache"
    with pytest.raises(DataError, match=words):
        build_panel(tsattn.OnDisk(path, cache), ROLES)
    assert not [file for file in cache.glob("*") if file.is_dir()]


def test_a_file_without_rows_between_others(tmp_path):
    path = folder(table(), tmp_path / "data")
    table().iloc[:0].to_parquet(path / "part-00.parquet", index=False)
    same(build_panel(path, ROLES), build_panel(tsattn.OnDisk(path, tmp_path / "cache"), ROLES))


def test_integer_times_with_a_frequency_of_stamps(tmp_path):
    frame = table().drop(columns="ds").assign(ds=np.arange(len(table())))
    path, cache = folder(frame, tmp_path / "data"), tmp_path / "cache"
    for source in (path, tsattn.OnDisk(path, cache)):
        with pytest.raises(DataError, match="'ds' holds integers, but the frequency 'h' needs stamps"):
            build_panel(source, Roles(), freq="h")
    assert not [file for file in cache.glob("*") if file.is_dir()]


def test_a_fault_of_some_series_says_how_many_rows_were_looked_at(tmp_path):
    frame = table()
    path = folder(pd.concat([frame, frame.iloc[[0, 200, 300]]]), tmp_path / "data")
    with pytest.raises(DataError, match=r"\(Counted in \d+ of the 545 rows: series 5 to 6 of 20 in order\."):
        build_panel(tsattn.OnDisk(path, tmp_path / "cache"), ROLES)


def test_frequencies_that_differ(tmp_path):
    hours = [
        pd.DataFrame({"unique_id": f"a{i}", "ds": pd.date_range("2024", periods=40, freq="h"), "y": 1.0})
        for i in range(3)
    ]
    days = [
        pd.DataFrame({"unique_id": f"b{i}", "ds": pd.date_range("2024", periods=40, freq="2h"), "y": 1.0})
        for i in range(3)
    ]
    path = folder(pd.concat(hours + days), tmp_path / "data")
    source, roles = tsattn.OnDisk(path, tmp_path / "cache"), Roles()
    with pytest.raises(DataError, match=r"it is 'h' in the first series, and '2h' from series 'b0'.* Pass freq="):
        build_panel(source, roles)
    same(build_panel(path, roles, freq="h"), build_panel(source, roles, freq="h"))


def test_warnings_are_those_of_the_memory(tmp_path):
    days = ["2024-01-01", "2024-01-02", "2024-01-03", "2024-03-01", "2024-01-01", "2024-01-01"]
    frame = pd.DataFrame({"unique_id": ["a"] * 4 + ["b", "c"], "ds": pd.to_datetime(days)})
    frame["y"] = 1e9 + np.arange(6) / 100
    path = folder(frame, tmp_path / "data")
    with pytest.warns(TsattnWarning) as in_memory:
        build_panel(path, Roles())
    with pytest.warns(TsattnWarning) as streamed:
        build_panel(tsattn.OnDisk(path, tmp_path / "cache"), Roles())
    assert len(in_memory) == 3
    assert sorted(str(w.message) for w in in_memory) == sorted(str(w.message) for w in streamed)


def test_a_table_for_prediction(tmp_path):
    schema = build_panel(table(), ROLES).schema
    new = table(6, seed=3)
    new.loc[new["kind"] == "a", "kind"] = "never seen"
    path = folder(new, tmp_path / "data")
    with pytest.warns(TsattnWarning, match="never seen") as in_memory:
        whole = build_panel(path, schema.roles, schema=schema)
    with pytest.warns(TsattnWarning, match="never seen") as streamed:
        same(whole, build_panel(tsattn.OnDisk(path, tmp_path / "cache"), schema.roles, schema=schema))
    assert [str(w.message) for w in in_memory] == [str(w.message) for w in streamed]
    coarse = table(6, seed=3)
    coarse = coarse[coarse["ds"].dt.hour % 2 == 0]
    with pytest.raises(DataError, match="no two rows of this table"):
        build_panel(tsattn.OnDisk(folder(coarse, tmp_path / "coarse"), tmp_path / "cache"), schema.roles, schema=schema)


@pytest.mark.parametrize("path", ["absent", "table.csv"])
def test_only_parquet(path, tmp_path):
    table().to_csv(tmp_path / "table.csv", index=False)
    words = "No such file" if path == "absent" else "Only Parquet can be read piece by piece"
    with pytest.raises(DataError, match=words):
        build_panel(tsattn.OnDisk(tmp_path / path), ROLES)


@pytest.mark.parametrize("inside", ["", "cache", "a/b"])
def test_a_cache_in_the_table_is_refused_before_it_is_made(inside, tmp_path):
    path = folder(table(), tmp_path / "data")
    with pytest.raises(DataError, match="lies in the table's own folder"):
        build_panel(tsattn.OnDisk(path, path / inside), ROLES)
    assert len(list(path.iterdir())) == 3


def test_only_paths():
    with pytest.raises(DataError, match=r"OnDisk\(path=\) takes the path of a file or folder, found DataFrame"):
        tsattn.OnDisk(table())
    with pytest.raises(DataError, match=r"OnDisk\(cache=\) .* found int"):
        tsattn.OnDisk("table", 3)


def test_a_folder_that_cannot_be_written(tmp_path):
    path = folder(table(), tmp_path / "data")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"Cannot keep the arrays of .* OnDisk\(path, cache=FOLDER\)"):
        build_panel(tsattn.OnDisk(path, tmp_path / "file"), ROLES)


def test_large_paths_are_streamed_by_themselves(tmp_path, monkeypatch):
    path = folder(table(), tmp_path / "data")
    monkeypatch.setenv("TSATTN_CACHE", str(tmp_path / "cache"))
    assert not build_panel(path, ROLES).on_disk
    monkeypatch.setattr(ondisk, "_memory", lambda: 1000.0)
    assert build_panel(path, ROLES).on_disk
    assert build_panel(str(path), ROLES).on_disk
    assert list((tmp_path / "cache" / "panels").glob("*/panel.json"))


def model(**options: object) -> tsattn.Forecaster:
    return tsattn.Forecaster(
        "lucid",
        horizon=3,
        context=9,
        known=["temp", "calendar.hour"],
        past=["kind"],
        static=["region", "size"],
        options={"patch": 3},
        training={"epochs": 2, "verbose": False, "accelerator": "cpu"},
        **options,
    )


def test_fit_backtest_and_predict_are_those_of_the_memory(tmp_path):
    path = folder(table(), tmp_path / "data")
    source = tsattn.OnDisk(path, tmp_path / "cache")
    whole, streamed = model().fit(path), model().fit(source)
    for name, weight in whole.network_.state_dict().items():
        assert weight.equal(streamed.network_.state_dict()[name]), name
    one = whole.backtest(path, windows=3, step=1, attention=True)
    two = streamed.backtest(source, windows=3, step=1, attention=True)
    assert two.panel.on_disk
    pd.testing.assert_frame_equal(one.to_frame(), two.to_frame())
    pd.testing.assert_frame_equal(one.metrics(by="series"), two.metrics(by="series"))
    pd.testing.assert_frame_equal(one.attention.to_frame(), two.attention.to_frame())
    known = table().sort_values("ds").groupby("unique_id").tail(1)[["unique_id", "ds", "temp"]]
    steps = [known.assign(ds=known["ds"] + pd.Timedelta(hours=ahead)) for ahead in (1, 2, 3)]
    first = whole.predict(path, known=pd.concat(steps), attention=True)
    second = streamed.predict(source, known=pd.concat(steps), attention=True)
    pd.testing.assert_frame_equal(first.to_frame(), second.to_frame())
    pd.testing.assert_frame_equal(first.attention.to_frame(), second.attention.to_frame())
    pd.testing.assert_frame_equal(first.to_frame(), streamed.predict(known=pd.concat(steps)).to_frame())


def test_a_refit_reads_nothing_after_its_origin(tmp_path):
    frame = table(6)
    late = frame.copy()
    last = late.groupby("unique_id")["ds"].transform("max")
    late.loc[late["ds"] > last - pd.Timedelta(hours=3), "y"] = 1e6
    sources = [tsattn.OnDisk(folder(f, tmp_path / str(i)), tmp_path / "cache") for i, f in enumerate((frame, late))]
    first, second = (model().backtest(source, windows=1) for source in sources)
    assert first.trained_until == second.trained_until
    np.testing.assert_array_equal(first.windows.point, second.windows.point)
