"""Saved models: equal forecasts in a fresh process from a moved folder, and clear refusals."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tsattn
from tests.conftest import QUICK, make_waves
from tsattn.artifact import _checksum
from tsattn.errors import ArtifactError, DataError
from tsattn.models import MODELS


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = tsattn.Forecaster("nlinear", horizon=6, context=48, training=QUICK).fit(make_waves())
    return model, model.save(tmp_path_factory.mktemp("model") / "a")


@pytest.mark.slow
def test_fresh_process_and_moved_folder(tmp_path):
    """Every model: saved, moved, loaded where nothing else is left, and the same forecast."""
    expected = {}
    for model in MODELS:
        fitted = tsattn.Forecaster(model, horizon=6, context=48, training=QUICK).fit(make_waves())
        shutil.move(fitted.save(tmp_path / "first"), tmp_path / "second" / model)
        expected[model] = fitted.predict().to_frame()
    code = (
        "import pathlib, tsattn\n"
        "for run in sorted(pathlib.Path('second').iterdir()):\n"
        "    tsattn.Forecaster.load(run).predict().to_frame().to_parquet(f'{run.name}.parquet')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    for model, frame in expected.items():
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / f"{model}.parquet"), frame)


def test_everything_comes_back(saved):
    model, folder = saved
    loaded = tsattn.Forecaster.load(folder)
    assert loaded.summary_ == model.summary_
    assert loaded.schema_ == model.schema_
    assert loaded.trained_until_ == model.trained_until_
    table = make_waves(seed=3)
    np.testing.assert_array_equal(loaded.predict(table).windows.point, model.predict(table).windows.point)


def test_every_covariate_role_and_zone(tmp_path):
    table = make_waves()
    table["ds"] = table["ds"].dt.tz_localize("Europe/Berlin")
    model = tsattn.Forecaster(
        "lucid", horizon=6, context=48, known=["calendar.hour"], past=["load"], static=["kind"], training=QUICK
    ).fit(table)
    loaded = tsattn.Forecaster.load(model.save(tmp_path / "m"))
    pd.testing.assert_frame_equal(loaded.predict().to_frame(), model.predict().to_frame())
    assert str(loaded.predict().to_frame()["ds"].dtype) == str(table["ds"].dtype)


def test_without_history_asks_for_data(saved, tmp_path):
    model, _ = saved
    loaded = tsattn.Forecaster.load(model.save(tmp_path / "bare", history=False))
    assert not (tmp_path / "bare" / "history.safetensors").exists()
    with pytest.raises(DataError, match="without its history"):
        loaded.predict()
    assert len(loaded.predict(make_waves())) == 3


def test_saving_again_without_history_leaves_no_old_history(saved, tmp_path):
    model, _ = saved
    model.save(tmp_path / "again")
    model.save(tmp_path / "again", history=False)
    assert not (tmp_path / "again" / "history.safetensors").exists()


def damage(folder, tmp_path, name, change):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    file = copy / name
    file.write_bytes(change(file.read_bytes()))
    return copy


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("weights.safetensors", lambda b: b[:-3], "checksum"),
        ("weights.safetensors", lambda b: b"", "checksum"),
        ("history.safetensors", lambda b: b[:50] + b"x" + b[51:], "checksum"),
        ("model.json", lambda b: b[:100], "damaged"),
        ("model.json", lambda b: b"[" * 100_000, "damaged"),
        ("model.json", lambda b: b"{}", "damaged"),
        ("model.json", lambda b: b"[1]", "damaged"),
        ("model.json", lambda b: b.replace(b'"format": 2', b'"format": 99'), "format 99.*Upgrade tsattn"),
        ("model.json", lambda b: b.replace(b'"format": 2', b'"format": 1'), "damaged or was edited.*set_params"),
        ("model.json", lambda b: b.replace(b'"horizon": 6', b'"horizon": 7'), "damaged or was edited"),
        ("model.json", lambda b: b.replace(b'"checksum"', b'"checksums"'), "damaged or was edited"),
        ("model.json", lambda b: b.replace(b'"seconds": ', b'"seconds": 1'), "damaged or was edited"),
    ],
)
def test_damaged_or_newer_is_refused(saved, tmp_path, name, change, message):
    _, folder = saved
    with pytest.raises(tsattn.TsattnError, match=message):
        tsattn.Forecaster.load(damage(folder, tmp_path, name, change))


def edited(folder, tmp_path, change):
    """A copy whose description was changed before it was sealed, as a faulty writer would."""

    def rewrite(data: bytes) -> bytes:
        content = json.loads(data)
        del content["checksum"]
        change(content)
        return json.dumps({**content, "checksum": _checksum(content)}).encode()

    return damage(folder, tmp_path, "model.json", rewrite)


def put(*path, value):
    """A change: ``content[path[0]][path[1]]... = value``."""

    def change(content):
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("model", value="newer"), "'newer' is not known to tsattn"),
        (put("parameters", "horizon", value="six"), "horizon must be a whole number"),
        (put("parameters", "training", "epochs", value="3"), "training.epochs must be a whole number"),
        (put("parameters", "training", "rate", value=1), "Unknown training field 'rate'"),
        (put("parameters", "shape", value=1), "shape"),
        (put("parameters", "output", value={"a": 1}), "model.json cannot be used"),
        (put("spec", "horizon", value="6"), "spec.horizon must be int, found '6'"),
        (put("spec", "context", value=None), "spec.context must be int, found None"),
        (put("spec", "past", value=2), "the columns of the schema make"),
        (put("spec", "quantiles", value="abc"), "spec.quantiles must be tuple"),
        (put("schema", "time_unit", value="weeks"), "schema.time_unit must be .*found 'weeks'"),
        (put("schema", "freq", "n", value=3.6e12), "schema.freq.n must be int"),
        (put("schema", "freq", "n", value=7), "the frequency 'h' is not"),
        (put("schema", "freq", "kind", value="hour"), "schema.freq.kind must be"),
        (put("schema", "freq", "tz", value="Europe/Nowhere"), "Europe/Nowhere"),
        (put("schema", "roles", "target", value=[1]), r"schema.roles.target\[0\] must be str, found 1"),
        (put("schema", "roles", "time", value="y"), "'y' is both"),
        (put("schema", "categories", value={"kind": 3}), "schema.categories.kind must be tuple"),
        (put("scaling", "mean", value=["a"]), r"scaling.mean\[0\] must be float, found 'a'"),
        (put("scaling", "mean", value=[1.0]), r"scaling must hold \(0, 0, 0, 0\) numbers, found \(1, 0, 0, 0\)"),
        (put("summary", "epochs", value="1"), "summary.epochs must be int"),
        (put("summary", "interrupted", value=0), "summary.interrupted must be bool"),
        (put("trained_until", value="now"), "trained_until must be int"),
        (put("trained_until", value=True), "trained_until must be int"),
        (put("ids", value={"type": "string", "values": ["a"]}), "1 ids for 3 series"),
        (put("ids", value={"type": "words", "values": ["a"]}), "words"),
        (put("ids", value=[1]), "model.json cannot be used"),
        (put("files", value=[]), "model.json cannot be used"),
    ],
)
def test_wrong_types_are_found_when_loading(saved, tmp_path, change, message):
    with pytest.raises(ArtifactError, match=message):
        tsattn.Forecaster.load(edited(saved[1], tmp_path, change))


def test_the_layout_of_the_json_does_not_matter(saved, tmp_path):
    copy = damage(saved[1], tmp_path, "model.json", lambda data: json.dumps(json.loads(data), sort_keys=True).encode())
    assert len(tsattn.Forecaster.load(copy).predict()) == 3


IDS = {
    "text": pa.array(["a", "b"]),
    "int8": pa.array([1, 2], pa.int8()),
    "uint64": pa.array([1, 2**63], pa.uint64()),
    "float": pa.array([0.1, 2.5], pa.float32()),
    "bool": pa.array([False, True]),
    "date": pa.array([dt.date(2024, 1, 1), dt.date(2024, 2, 1)]),
    "date64": pa.array([dt.date(2024, 1, 1), dt.date(2024, 2, 1)], pa.date64()),
    "stamp": pa.array([0, 1], pa.timestamp("us")),
    "stamp in a zone": pa.array([0, 1], pa.timestamp("ns", "Europe/Berlin")),
    "time": pa.array([dt.time(1), dt.time(2)]),
    "duration": pa.array([1, 2], pa.duration("s")),
    "decimal": pa.array([Decimal("1.50"), Decimal("2")], pa.decimal128(10, 2)),
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_keep_their_type(tmp_path, kind):
    ids = IDS[kind]
    columns = {"unique_id": ids.take(pa.array([0] * 4 + [1] * 4)), "ds": [1, 2, 3, 4] * 2, "y": [1.0] * 8}
    model = tsattn.Forecaster("naive", horizon=1, context=2).fit(pa.table(columns))
    loaded = tsattn.Forecaster.load(model.save(tmp_path / "m"))
    assert loaded.history_.ids.equals(model.history_.ids)
    assert loaded.history_.ids.equals(ids)
    pd.testing.assert_frame_equal(loaded.predict().to_frame(), model.predict().to_frame())


@pytest.mark.parametrize("ids", [pa.array([b"a", b"b"]), pa.array([1.0, float("nan")])])
def test_ids_that_cannot_be_kept_are_refused_before_training(ids):
    table = pa.table({"unique_id": ids, "ds": [1, 1], "y": [1.0, 2.0]})
    with pytest.raises(DataError, match=r"'unique_id' holds (binary, which names nothing|NaN or infinity)"):
        tsattn.Forecaster("naive", horizon=1, context=2).fit(table)


@pytest.mark.parametrize(
    "freq", ["H", pd.offsets.Hour(), pd.Timedelta("1h"), np.timedelta64(1, "h"), dt.timedelta(hours=1)]
)
def test_every_form_of_a_frequency_is_saved(tmp_path, freq):
    model = tsattn.Forecaster("naive", horizon=6, context=48, freq=freq).fit(make_waves())
    loaded = tsattn.Forecaster.load(model.save(tmp_path / "m"))
    assert loaded.freq == "h"
    pd.testing.assert_frame_equal(loaded.predict().to_frame(), model.predict().to_frame())


def test_missing_folder_and_missing_file(saved, tmp_path):
    with pytest.raises(ArtifactError, match=r"no model\.json"):
        tsattn.Forecaster.load(tmp_path / "nothing")
    copy = shutil.copytree(saved[1], tmp_path / "half")
    (copy / "weights.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"weights\.safetensors is missing"):
        tsattn.Forecaster.load(copy)


def test_json_is_plain_and_names_versions(saved):
    content = json.loads((saved[1] / "model.json").read_text())
    assert (content["format"], content["tsattn"], content["model"]) == (2, tsattn.__version__, "nlinear")
    assert str(saved[1]) not in json.dumps(content)
