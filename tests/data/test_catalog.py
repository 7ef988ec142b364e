"""The data cards, the shipped files, and finding, fetching and checking a file."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

from tsattn.data import catalog
from tsattn.data.catalog import dataset_card, list_datasets, load_dataset
from tsattn.errors import ConfigError, DatasetError, TsattnError, TsattnWarning
from tsattn.resources import cache_dir, resource_path

REAL_DATA = os.environ.get("TSATTN_DATA")
SHIPPED = ["air_passengers", "nyc_weather"]
ON_REQUEST = ["electricity", "ETTh1", "ETTh2", "ETTm1", "ETTm2", "exchange", "illness", "m4_hourly", "m4_weekly"]
ON_REQUEST += ["traffic", "weather"]
PLACE = "Put toy.csv into a folder and name that folder with --data-dir (data_dir) or TSATTN_DATA."
TOY = b"when,a,b\n2020-01-01,1,2\n2020-01-02,3,\n"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folder, no cache and no proxy of the machine that runs the tests."""
    monkeypatch.delenv("TSATTN_DATA", raising=False)
    monkeypatch.setenv("TSATTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- the cards ---


def test_every_expected_set_is_listed_shipped_first() -> None:
    assert [card.name for card in list_datasets()] == SHIPPED + sorted(ON_REQUEST, key=str.lower)


@pytest.mark.parametrize("name", SHIPPED + ON_REQUEST)
def test_card_is_complete(name: str) -> None:
    card = dataset_card(name)
    assert card.name == name
    assert (resource_path("datasets") / f"{name}.yaml").is_file()
    for field in ("title", "description", "source", "licence", "frequency"):
        assert getattr(card, field).strip()
    assert card.format in ("long", "wide", "m4")
    assert card.time_type == ("integer" if card.format == "m4" else "datetime")
    assert (card.time_format is None) == (card.time_type == "integer")
    pd.tseries.frequencies.to_offset(card.frequency)
    assert card.season >= 1
    assert card.rows or name == "m4_weekly"
    assert card.columns.target
    assert len(set(card.columns.names)) == len(card.columns.names)
    assert set(card.units) <= set(card.columns.names)
    assert len(card.files) == (2 if card.format == "m4" else 1)
    for item in card.files:
        assert (item.url is None) == card.shipped
        assert item.url is None or item.url.startswith("https://")
        assert item.sha256 or name == "m4_weekly"
        assert all(len(digest) == 64 and int(digest, 16) for digest in item.sha256)


def test_column_ranges_are_spelled_out() -> None:
    assert dataset_card("exchange").columns.target == ("0", "1", "2", "3", "4", "5", "6", "OT")
    assert len(dataset_card("electricity").columns.target) == 321
    assert len(dataset_card("traffic").columns.target) == 862
    assert len(dataset_card("weather").columns.target) == 21


def test_card_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset_card("ETTh1").rows = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("etth1", "ETTh1"),
        ("M4 Hourly", "m4_hourly"),
        ("m4-hourly", "m4_hourly"),
        ("NYC_Weather", "nyc_weather"),
        ("AirPassengers", "air_passengers"),
        ("ili", "illness"),
        ("exchange_rate", "exchange"),
        ("ECL", "electricity"),
    ],
)
def test_names_are_forgiving(spelling: str, name: str) -> None:
    assert dataset_card(spelling).name == name


def test_no_two_sets_answer_to_one_name() -> None:
    keys = [catalog._key(name) for card in list_datasets() for name in {card.name, *card.aliases}]
    assert len(keys) == len(set(keys))


def test_unknown_name_names_the_nearest() -> None:
    with pytest.raises(DatasetError, match=r"^Unknown data set 'nyc_wether'\. Did you mean 'nyc_weather'\?") as info:
        load_dataset("nyc_wether")
    assert info.value.__cause__ is None
    with pytest.raises(DatasetError, match="Unknown data set ''"):
        dataset_card("")


def test_broken_card_names_the_file_and_the_field(tmp_path: Path) -> None:
    card = tmp_path / "bad.yaml"
    card.write_text("name: bad\ncolour: red\ncolumns: {id: null, time: t, target: [y]}\nfiles: []\n")
    with pytest.raises(DatasetError, match=r"bad\.yaml is not valid: .*colour"):
        catalog._read_card(card)
    card.write_text("name: bad\n")
    with pytest.raises(DatasetError, match=r"bad\.yaml is not valid: 'columns'"):
        catalog._read_card(card)
    card.write_text("")
    with pytest.raises(DatasetError, match=r"bad\.yaml is not valid"):
        catalog._read_card(card)


def test_import_is_light() -> None:
    code = "import sys, tsattn.data.catalog as c; c.list_datasets(); print({'pandas', 'torch'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_resource_path() -> None:
    assert (resource_path("datasets") / "nyc_weather.yaml").is_file()
    assert not (resource_path("datasets") / "__init__.py").exists()
    with pytest.raises(ConfigError, match=r"Unknown resource kind 'dataset'\. Did you mean 'datasets'\?"):
        resource_path("dataset")


def test_resource_path_prefers_the_package_and_ignores_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "tsattn"
    package.mkdir(parents=True)
    monkeypatch.setattr("tsattn.resources.__file__", str(package / "resources.py"))
    (tmp_path / "site-packages" / "datasets").mkdir()  # somebody else's package
    with pytest.raises(TsattnError, match="The datasets folder of tsattn is missing"):
        resource_path("datasets")
    packaged = package / "_resources" / "datasets"
    packaged.mkdir(parents=True)
    assert resource_path("datasets") == packaged


# --- the shipped files ---


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_file_is_the_one_on_the_card(name: str) -> None:
    card = dataset_card(name)
    (item,) = card.files
    data = (resource_path("datasets") / item.file).read_bytes()
    assert sha256(data) in item.sha256
    assert len(data) == item.size_bytes
    assert len(data) < 400_000
    assert data[:2] == b"\x1f\x8b"
    assert data[3:8] == b"\0\0\0\0\0"  # no file name and no time in the gzip header: the bytes can be made again
    frame = load_dataset(name)
    assert len(frame) == card.rows
    assert tuple(frame.columns) == card.columns.names
    assert card.columns.id is None or frame[card.columns.id].nunique() == card.series


def test_nyc_weather_facts() -> None:
    frame = load_dataset("nyc_weather")
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert frame["station"].unique().tolist() == ["EWR", "JFK", "LGA"]
    assert frame["station"].value_counts().to_dict() == {"EWR": 8703, "JFK": 8706, "LGA": 8706}
    assert not frame.duplicated(["station", "time"]).any()
    assert frame.equals(frame.sort_values(["station", "time"]))
    first = frame.groupby("station")["time"].min()
    assert (first == pd.Timestamp("2013-01-01 01:00", tz="America/New_York")).all()
    assert (frame.groupby("station")["time"].max() == pd.Timestamp("2013-12-30 23:00", tz="UTC")).all()
    missing = {"temp": 1, "dewp": 1, "humid": 1, "wind_speed": 5, "pressure": 2729, "precip": 0, "visib": 0}
    assert frame[list(missing)].isna().sum().to_dict() == missing
    assert frame["wind_speed"].max() < 60
    # The gaps are real: rows absent from the hourly grid.
    steps = int((frame["time"].max() - frame["time"].min()) / pd.Timedelta("1h")) + 1
    assert 3 * steps - len(frame) == 75


def test_nyc_weather_is_in_utc() -> None:
    """The day is warmest in the early afternoon of New York, and both clock changes leave one row per hour."""
    frame = load_dataset("nyc_weather")
    local = frame["time"].dt.tz_convert("America/New_York")
    july = frame[local.dt.month == 7].groupby(local.dt.hour)["temp"].mean()
    assert july.idxmax() in (14, 15)
    assert july.idxmin() == 5
    jfk = frame[frame["station"] == "JFK"]
    hours = local[jfk.index]
    assert (hours.dt.strftime("%m-%d %H") == "03-10 02").sum() == 0
    assert (hours.dt.strftime("%m-%d %H") == "11-03 01").sum() == 2


def test_air_passengers_facts() -> None:
    frame = load_dataset("Air Passengers")
    assert frame["passengers"].sum() == 40363
    assert frame["passengers"].mean() == pytest.approx(280.2986, abs=1e-4)
    expected = pd.date_range("1949-01-01", "1960-12-01", freq="MS", name="month")
    assert frame["month"].tolist() == expected.tolist()
    assert frame["passengers"].iloc[[0, -1]].tolist() == [112, 432]


def test_damaged_shipped_file_says_install_again(toy: Toy) -> None:
    toy.write_card(shipped=True)
    (toy.cards / "toy.csv").write_bytes(b"junk")
    with pytest.raises(DatasetError, match=r"expected sha256 .* found .*\. Install tsattn again\.$"):
        load_dataset("toy")


# --- finding a file ---


class Toy:
    """A folder with one card, for a two-column data set whose address and checksum a test chooses."""

    def __init__(self, cards: Path) -> None:
        self.cards = cards
        self.expected = sha256(TOY)

    def write_card(
        self, url: str | None = None, *, checksum: bool = True, shipped: bool = False, extra: str = ""
    ) -> None:
        sha = f'["{self.expected}"]' if checksum else "null"
        self.cards.joinpath("toy.yaml").write_text(
            "name: toy\ntitle: t\ndescription: d\nsource: s\nlicence: l\nformat: wide\nfrequency: D\nseason: 7\n"
            f"rows: 2\nseries: 1\nshipped: {str(shipped).lower()}\ntime_format: '%Y-%m-%d'\nunits: {{}}\n{extra}"
            f"files: [{{file: toy.csv, url: {url or 'null'}, sha256: {sha}, also: [sub/toy.csv]}}]\n"
            "columns: {id: null, time: when, target: [a, b]}\n"
        )
        catalog._cards.cache_clear()


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    cards = tmp_path / "cards"
    cards.mkdir()
    monkeypatch.setattr(catalog, "resource_path", lambda kind: cards)
    made = Toy(cards)
    made.write_card()
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


def check_toy(frame: pd.DataFrame) -> None:
    assert frame.columns.tolist() == ["when", "a", "b"]
    assert str(frame["when"].dtype) == "datetime64[ns]"
    assert frame["when"].tolist() == [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02")]
    assert frame["a"].tolist() == [1, 3]
    assert frame["b"].isna().tolist() == [False, True]


def test_reads_from_data_dir(toy: Toy, folder: Path) -> None:
    (folder / "toy.csv").write_bytes(TOY)
    check_toy(load_dataset("toy", data_dir=folder))
    check_toy(load_dataset("toy", data_dir=str(folder)))


def test_reads_from_the_environment_folder(toy: Toy, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "toy.csv").write_bytes(TOY)
    monkeypatch.setenv("TSATTN_DATA", str(folder))
    check_toy(load_dataset("toy"))


def test_reads_the_other_usual_place(toy: Toy, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "toy.csv").write_bytes(TOY)
    check_toy(load_dataset("toy", data_dir=folder))


def test_data_dir_comes_before_the_environment(
    toy: Toy, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "toy.csv").write_bytes(TOY)
    other = tmp_path / "other"
    other.mkdir()
    (other / "toy.csv").write_bytes(b"wrong")
    monkeypatch.setenv("TSATTN_DATA", str(other))
    check_toy(load_dataset("toy", data_dir=folder))


def test_absent_folder_is_named(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(DatasetError) as info:
        load_dataset("toy", data_dir=absent)
    assert str(info.value) == f"data_dir names {str(absent)!r}, which is not a folder on this machine."
    monkeypatch.setenv("TSATTN_DATA", str(absent))
    with pytest.raises(DatasetError, match=r"^TSATTN_DATA names "):
        load_dataset("toy")


def test_wrong_checksum_in_a_folder(toy: Toy, folder: Path) -> None:
    toy.write_card("http://127.0.0.1:1/toy.csv")
    path = folder / "toy.csv"
    path.write_bytes(b"wrong")
    with pytest.raises(DatasetError) as info:
        load_dataset("toy", data_dir=folder)
    assert str(info.value) == (
        f"{path} is not the toy.csv of data set 'toy': expected sha256 {toy.expected}, found {sha256(b'wrong')}. "
        "Delete it, or replace it with http://127.0.0.1:1/toy.csv."
    )
    assert path.read_bytes() == b"wrong"  # a file of the user's is never removed


def test_no_checksum_warns_at_the_caller(toy: Toy, folder: Path) -> None:
    toy.write_card(checksum=False)
    (folder / "toy.csv").write_bytes(TOY)
    with pytest.warns(TsattnWarning, match=r"could not be verified: no checksum of toy\.csv is known") as caught:
        check_toy(load_dataset("toy", data_dir=folder))
    assert caught[0].filename == __file__


def test_missing_column_and_unreadable_time(toy: Toy, folder: Path) -> None:
    toy.write_card(checksum=False)
    (folder / "toy.csv").write_bytes(b"when,a,c\n2020-01-01,1,2\n")
    with pytest.warns(TsattnWarning), pytest.raises(DatasetError, match=r"column b is missing; it has when, a, c"):
        load_dataset("toy", data_dir=folder)
    (folder / "toy.csv").write_bytes(b"when,a,b\nyesterday,1,2\n")
    with (
        pytest.warns(TsattnWarning),
        pytest.raises(DatasetError, match="column 'when' holds a time that cannot be read"),
    ):
        load_dataset("toy", data_dir=folder)


def test_card_names_replace_a_damaged_header(toy: Toy, folder: Path) -> None:
    toy.write_card(checksum=False, extra="rename_columns: true\n")
    (folder / "toy.csv").write_bytes(TOY.replace(b"a,b", b"a,\xb5b"))
    with pytest.warns(TsattnWarning):
        check_toy(load_dataset("toy", data_dir=folder))


# --- fetching a file ---


@pytest.fixture
def server() -> Iterator[dict[str, object]]:
    """A server on this machine: ``body`` is what it sends, ``length`` what it claims, ``hits`` what it was asked."""
    state: dict[str, object] = {"body": TOY, "status": 200, "length": None, "hits": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state["hits"].append(self.path)  # type: ignore[attr-defined]
            self.send_response(state["status"])  # type: ignore[arg-type]
            self.send_header("Content-Length", str(state["length"] or len(state["body"])))  # type: ignore[arg-type]
            self.end_headers()
            self.wfile.write(state["body"])  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state["url"] = f"http://127.0.0.1:{httpd.server_address[1]}/toy.csv"
        yield state
        httpd.shutdown()
        thread.join()


def cached(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "cache").glob("*")) if (tmp_path / "cache").exists() else []


def test_download_once_then_cache(
    toy: Toy, server: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.write_card(str(server["url"]))
    check_toy(load_dataset("toy"))
    check_toy(load_dataset("toy"))
    assert server["hits"] == ["/toy.csv"]
    assert cached(tmp_path) == ["toy.csv"]
    assert capsys.readouterr().err == ""  # no terminal, no progress


def test_progress_on_a_terminal(
    toy: Toy, server: dict[str, object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy.write_card(str(server["url"]))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    load_dataset("toy")
    assert capsys.readouterr().err == "\rFetching toy.csv: 0.0 MB of 0.0 MB\n"


def test_download_with_wrong_checksum_leaves_nothing(toy: Toy, server: dict[str, object], tmp_path: Path) -> None:
    toy.write_card(str(server["url"]))
    server["body"] = b"not the file"
    with pytest.raises(DatasetError) as info:
        load_dataset("toy")
    assert str(info.value) == (
        f"{server['url']} is not the toy.csv of data set 'toy': expected sha256 {toy.expected}, "
        f"found {sha256(b'not the file')}. Nothing was kept. {PLACE}"
    )
    assert cached(tmp_path) == []


def test_download_cut_short_leaves_nothing(toy: Toy, server: dict[str, object], tmp_path: Path) -> None:
    toy.write_card(str(server["url"]), checksum=False)
    server["length"] = len(TOY) + 100
    with pytest.raises(DatasetError, match="could not be fetched") as info:
        load_dataset("toy")
    assert PLACE in str(info.value)
    assert cached(tmp_path) == []


def test_server_without_the_file(toy: Toy, server: dict[str, object], tmp_path: Path) -> None:
    toy.write_card(str(server["url"]))
    server["status"] = 404
    with pytest.raises(DatasetError) as info:
        load_dataset("toy")
    assert str(info.value) == (
        f"Data set 'toy' is not on this machine and {server['url']} could not be fetched "
        f"(the server answered 404 Not Found). {PLACE}"
    )
    assert cached(tmp_path) == []


def test_offline_is_one_clear_message(toy: Toy, tmp_path: Path) -> None:
    with socket.socket() as free:  # a port that nobody listens on
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/toy.csv"
        toy.write_card(url)
        with pytest.raises(DatasetError) as info:
            load_dataset("toy")
    assert str(info.value).startswith(f"Data set 'toy' is not on this machine and {url} could not be fetched (")
    assert str(info.value).endswith(f"). {PLACE}")
    assert info.value.__cause__ is None
    assert info.value.__suppress_context__
    assert cached(tmp_path) == []


def test_set_without_an_address_says_where_to_get_it(toy: Toy) -> None:
    toy.write_card(extra="how: Ask the station for it.\n")
    with pytest.raises(DatasetError) as info:
        load_dataset("toy")
    assert str(info.value) == (
        "Data set 'toy' is not on this machine and has no address to fetch it from. Ask the station for it. " + PLACE
    )


def test_downloaded_file_without_checksum_warns_at_the_caller(toy: Toy, server: dict[str, object]) -> None:
    toy.write_card(str(server["url"]), checksum=False)
    with pytest.warns(TsattnWarning, match="could not be verified") as caught:
        check_toy(load_dataset("toy"))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [("linux", "XDG_CACHE_HOME", "tsattn"), ("win32", "LOCALAPPDATA", "tsattn")],
)
def test_default_cache_folder(
    platform: str, variable: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TSATTN_CACHE")
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert cache_dir() == tmp_path / expected


# --- the M4 layout ---

M4_TRAIN = b'"V1","V2","V3","V4"\n"H1","1","2","3"\n"H2","4","5",""\n'
M4_TEST = b'"V1","V2","V3"\n"H2","50","60"\n"H1","30","40"\n'


def read_m4(folder: Path, train: bytes = M4_TRAIN, test: bytes = M4_TEST) -> pd.DataFrame:
    paths = [folder / "train.csv", folder / "test.csv"]
    for path, data in zip(paths, (train, test), strict=True):
        path.write_bytes(data)
    return catalog._read_m4(dataset_card("m4_hourly"), paths)


def test_m4_becomes_one_long_table(tmp_path: Path) -> None:
    frame = read_m4(tmp_path)
    assert frame.columns.tolist() == ["unique_id", "ds", "y", "split"]
    assert frame["ds"].dtype == "int64"
    assert frame["y"].dtype == "float64"
    assert frame.to_numpy().tolist() == [
        ["H1", 1, 1.0, "train"],
        ["H1", 2, 2.0, "train"],
        ["H1", 3, 3.0, "train"],
        ["H1", 4, 30.0, "test"],
        ["H1", 5, 40.0, "test"],
        ["H2", 1, 4.0, "train"],
        ["H2", 2, 5.0, "train"],
        ["H2", 3, 50.0, "test"],
        ["H2", 4, 60.0, "test"],
    ]


def test_m4_files_that_do_not_belong_together(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="do not hold the same series"):
        read_m4(tmp_path, test=M4_TEST.replace(b"H2", b"H3"))


# --- the real files, where the machine has them ---


@pytest.mark.parametrize("name", ["ETTh1", "ETTh2", "ETTm1", "ETTm2", "exchange", "illness", "weather", "m4_hourly"])
def test_real_file(name: str) -> None:
    if not REAL_DATA:
        pytest.skip("TSATTN_DATA does not name a folder with the benchmark files")
    card = dataset_card(name)
    present = [any((Path(REAL_DATA) / name).is_file() for name in (item.file, *item.also)) for item in card.files]
    if not all(present):
        pytest.skip(f"TSATTN_DATA has no {card.files[0].file}")
    frame = load_dataset(name, data_dir=REAL_DATA)
    assert len(frame) == card.rows
    roles = card.columns
    assert set(roles.names) <= set(frame.columns)
    if roles.id is None:
        assert frame[roles.time].is_monotonic_increasing
        assert not frame[list(roles.target)].isna().any().any()
    else:
        assert frame[roles.id].nunique() == card.series
        assert (frame["split"] == "test").sum() == 48 * 414
        assert not frame.duplicated([roles.id, roles.time]).any()
