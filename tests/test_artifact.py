"""Saved models: equal forecasts in a fresh process from a moved folder, and clear refusals."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.conftest import QUICK, make_waves
from tsattn.errors import ArtifactError, DataError
from tsattn.models import MODELS


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = tsattn.Forecaster("nlinear", horizon=6, context=48, training=QUICK).fit(make_waves())
    return model, model.save(tmp_path_factory.mktemp("model") / "a")


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
        ("model.json", lambda b: b.replace(b'"horizon": 6', b'"horizon": "six"'), "damaged|whole number"),
        ("model.json", lambda b: b.replace(b'"format": 1', b'"format": 99'), "format 99.*Upgrade tsattn"),
        ("model.json", lambda b: b.replace(b'"model": "nlinear"', b'"model": "newer"'), "'newer' is not known"),
        ("model.json", lambda b: b.replace(b'"context": 48', b'"context": 49'), "do not fit|damaged"),
    ],
)
def test_damaged_or_newer_is_refused(saved, tmp_path, name, change, message):
    _, folder = saved
    with pytest.raises(tsattn.TsattnError, match=message):
        tsattn.Forecaster.load(damage(folder, tmp_path, name, change))


def test_missing_folder_and_missing_file(saved, tmp_path):
    with pytest.raises(ArtifactError, match=r"no model\.json"):
        tsattn.Forecaster.load(tmp_path / "nothing")
    copy = shutil.copytree(saved[1], tmp_path / "half")
    (copy / "weights.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"weights\.safetensors is missing"):
        tsattn.Forecaster.load(copy)


def test_json_is_plain_and_names_versions(saved):
    content = json.loads((saved[1] / "model.json").read_text())
    assert (content["format"], content["tsattn"], content["model"]) == (1, tsattn.__version__, "nlinear")
    assert str(saved[1]) not in json.dumps(content)
