"""A saved map that was cut short, changed or made by someone else gives a map or one clear error."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

from tsattn.errors import ArtifactError, ConfigError
from tsattn.inspection.maps import AttentionMap

from .test_views import KEYS, random_map


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> bytes:
    path = random_map(KEYS["patches"]).save(tmp_path_factory.mktemp("map") / "map.npz")
    return path.read_bytes()


def load(data: bytes, tmp_path) -> AttentionMap:
    path = tmp_path / "map.npz"
    path.write_bytes(data)
    return AttentionMap.load(path)


def changed(saved: bytes, **arrays: object) -> bytes:
    """The same file with some arrays replaced, or left out (None)."""
    with np.load(io.BytesIO(saved)) as file:
        content = {name: file[name] for name in file.files}
    content.update(arrays)
    out = io.BytesIO()
    np.savez(out, **{name: value for name, value in content.items() if value is not None})
    return out.getvalue()


def header(saved: bytes, **changes: object) -> np.ndarray:
    with np.load(io.BytesIO(saved)) as file:
        content = json.loads(file["header"].tobytes())
    return np.frombuffer(json.dumps({**content, **changes}).encode(), dtype=np.uint8)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short(saved, tmp_path, share):
    with pytest.raises(ArtifactError, match="damaged, or no attention map"):
        load(saved[: int(share * len(saved))], tmp_path)


def test_flipped_bits_give_a_map_or_the_error(saved, tmp_path):
    rng = np.random.default_rng(0)
    for _ in range(60):
        data = bytearray(saved)
        for place in rng.integers(0, len(data), 3):
            data[place] ^= 1 << int(rng.integers(8))
        try:
            found = load(bytes(data), tmp_path)
        except ArtifactError:
            continue
        assert found.to_numpy().shape[0] == len(found)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"weights_0": None}, "weights_0"),
        ({"weights_0": np.zeros((4, 1, 2, 3, 9), dtype=np.float32)}, "3 x 3 tokens"),
        ({"weights_0": np.zeros((4, 3, 2, 3, 3), dtype=np.float32)}, "3 targets, there are 1"),
        ({"windows_series": np.array([0, 0, 5, 1])}, "a series that is not there"),
        ({"windows_point": np.zeros((4, 3), dtype=np.float32)}, "forecasts"),
        ({"panel_indptr": np.array([0, 10, 5])}, "share the rows"),
        ({"windows_origin": np.array([-5, 3, 3, 3])}, "origin"),
        ({"windows_origin": np.array([3.5, 3, 3, 3])}, "origin"),
        ({"header": np.zeros(3, dtype=np.uint8)}, "JSON"),
    ],
)
def test_parts_that_do_not_belong_together(saved, tmp_path, arrays, message):
    with pytest.raises(ArtifactError, match=message):
        load(changed(saved, **arrays), tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 3}, {"ids": None}, {"records": "x"}, {"kept": [99]}, {"kept": ["a"]}, {"signed": "yes"},
        {"levels": [[1]]}, {"records": [{"query": {}, "key": {}, "layer": "a"}]}, {"notes": 5},
    ],
)  # fmt: skip
def test_a_header_of_another_shape(saved, tmp_path, changes):
    with pytest.raises(ArtifactError, match="damaged, or no attention map"):
        load(changed(saved, header=header(saved, **changes)), tmp_path)


def test_a_newer_format_says_to_upgrade(saved, tmp_path):
    with pytest.raises(ArtifactError, match=r"format 99.*Upgrade"):
        load(changed(saved, header=header(saved, tsattn_attention_map=99)), tmp_path)


def test_nothing_in_the_file_is_executed(saved, tmp_path):
    """An object array is a pickle: numpy would run it, and is told not to."""
    evil = np.array([print], dtype=object)
    with pytest.raises(ArtifactError):
        load(changed(saved, weights_0=evil), tmp_path)


def test_a_bomb_is_not_unpacked(tmp_path):
    """A small file that claims to hold terabytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)})
        file.writestr("header.npy", head.getvalue() + b"\0" * 1000)
    with pytest.raises(ArtifactError):
        load(out.getvalue(), tmp_path)


def test_missing_files_and_tables_say_so(tmp_path):
    with pytest.raises(ArtifactError, match="No attention map at"):
        AttentionMap.load(tmp_path / "none.npz")
    table = tmp_path / "table.parquet"
    random_map(KEYS["steps"]).to_frame().to_parquet(table)
    with pytest.raises(ArtifactError, match=r"a table and no attention map.*pandas\.read_parquet"):
        AttentionMap.load(table)


def test_a_damaged_parquet_file_gives_a_map_or_the_error(tmp_path):
    whole = random_map(KEYS["patches"]).save(tmp_path / "map.parquet").read_bytes()
    path = tmp_path / "changed.parquet"
    rng = np.random.default_rng(0)
    for round in range(60):
        data = bytearray(whole[: int(rng.uniform() * len(whole))] if round % 6 == 0 else whole)
        for place in rng.integers(0, len(data), 3) if data else ():
            data[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            found = AttentionMap.load(path)
        except ArtifactError:
            continue
        assert found.to_numpy().shape[0] == len(found)


def test_a_map_too_large_for_parquet_says_so_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tsattn.inspection.storage._LARGEST", 100)
    with pytest.raises(ConfigError, match=r"Save it as \.npz"):
        random_map(KEYS["patches"]).save(tmp_path / "map.parquet")
    assert not list(tmp_path.iterdir())
