"""An attention map on disk: ``.npz`` with plain arrays and a JSON header, or Parquet, where the tidy table lies open to
any tool and the same ``.npz`` stands in the metadata of the file, so that either comes back whole.

Nothing in the file is ever executed. What is kept of the table is the rows that the windows cover.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import os
import zipfile
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tsattn.artifact import ids_from_json, ids_to_json
from tsattn.data.panel import Panel
from tsattn.data.schema import Schema
from tsattn.errors import ArtifactError, ConfigError
from tsattn.inference import Record, TokenRecord, WindowForecasts
from tsattn.inspection.maps import AttentionMap
from tsattn.models.base import Axis
from tsattn.typed import typed
from tsattn.writing import write_whole

FORMAT = 1
_PANEL = ("values", "codes", "static_values", "static_codes", "indptr", "start")
_WINDOWS = ("series", "origin", "point", "actual")
_KEY = b"tsattn:attention_map"
_LARGEST = 32 << 20  # bytes in the metadata of a Parquet file, which every reader of the file takes in first


def save(attention: AttentionMap, path: Path) -> Path:
    """See ``AttentionMap.save``."""
    if path.suffix not in (".npz", ".parquet"):
        raise ConfigError(
            f"Cannot write {str(path)!r}: the ending is .npz, or .parquet (with the tidy table for other tools)."
        )
    data = _packed(attention)
    if path.suffix == ".parquet":
        data = _with_table(attention, data, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)
    return path


def _with_table(attention: AttentionMap, packed: bytes, path: Path) -> bytes:
    """A Parquet file of the tidy table that carries the whole map."""
    if len(packed) > _LARGEST:
        raise ConfigError(
            f"Cannot write {str(path)!r}: the map takes {len(packed) >> 20} MB, a Parquet file carries up to "
            f"{_LARGEST >> 20}. Save it as .npz, or choose windows with sel() first."
        )
    table = pa.Table.from_pandas(attention.to_frame(), preserve_index=False)
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, _KEY: base64.b64encode(packed)}), out)
    return out.getvalue()


def _packed(attention: AttentionMap) -> bytes:
    """The whole map as the bytes of an ``.npz``."""
    panel, windows = _trimmed(attention)
    header = {
        "tsattn_attention_map": FORMAT,
        "schema": panel.schema.to_dict(),
        "ids": ids_to_json(panel.ids),
        "levels": attention.levels,
        "model": attention.model,
        "method": attention.method,
        "signed": attention.signed,
        "unit": attention.unit,
        "notes": attention.notes,
        "kept": attention.kept,
        "records": [{"query": asdict(r.query), "key": asdict(r.key), "layer": r.layer} for r in windows.attention],
        "tokens": None if windows.tokens is None else asdict(windows.tokens.key),
        "contributions": sorted(windows.contributions or ()),
    }
    arrays = {f"panel_{name}": getattr(panel, name) for name in _PANEL}
    arrays |= {f"windows_{name}": getattr(windows, name) for name in _WINDOWS}
    arrays |= {f"weights_{i}": record.weights for i, record in enumerate(windows.attention)}
    arrays |= {f"contributions_{name}": part for name, part in (windows.contributions or {}).items()}
    if windows.quantiles is not None:
        arrays["windows_quantiles"] = windows.quantiles
    if windows.tokens is not None:
        arrays |= {"tokens_tokens": windows.tokens.tokens, "tokens_rest": windows.tokens.rest}
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    out = io.BytesIO()
    np.savez_compressed(out, header=text, **arrays)
    return out.getvalue()


def _trimmed(attention: AttentionMap) -> tuple[Panel, WindowForecasts]:
    """The rows that the windows cover, and the windows counted in them."""
    windows = attention.windows
    used, place = np.unique(windows.series, return_inverse=True)
    first = np.full(len(used), np.iinfo(np.int64).max)
    stop = np.zeros(len(used), dtype=np.int64)
    np.minimum.at(first, place, np.maximum(windows.origin - attention.length, 0))
    np.maximum.at(stop, place, windows.origin + attention.horizon)
    panel = attention.panel.select(used).span(first, stop)
    return panel, replace(windows, series=place.astype(np.int64), origin=windows.origin - first[place])


def load(path: Path) -> AttentionMap:
    """See ``AttentionMap.load``."""
    if not os.path.isfile(path):
        raise ArtifactError(f"No attention map at {path}.")
    try:
        data = _carried(path) if path.suffix == ".parquet" else path.read_bytes()
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        version = typed(int, header["tsattn_attention_map"], "format")
        if version > FORMAT:
            raise ArtifactError(f"{path} has format {version}; this tsattn reads up to {FORMAT}. Upgrade tsattn.")
        return _map_of(header, arrays)
    except ArtifactError:
        raise
    except (
        KeyError, TypeError, ValueError, IndexError, AttributeError, OSError, EOFError, RecursionError,
        MemoryError, zipfile.BadZipFile, zlib.error, pa.ArrowException, NotImplementedError, binascii.Error,
    ) as error:  # fmt: skip
        raise ArtifactError(
            f"{path} is damaged, or no attention map of tsattn ({type(error).__name__}: {error}). Save it again."
        ) from None


def _carried(path: Path) -> bytes:
    """The map in the metadata of a Parquet file."""
    metadata = pq.read_schema(path).metadata or {}
    if _KEY not in metadata:
        raise ArtifactError(f"{path} holds a table and no attention map: read it with pandas.read_parquet.")
    return base64.b64decode(metadata[_KEY], validate=True)


def _map_of(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> AttentionMap:
    panel = Panel(
        **{name: arrays[f"panel_{name}"] for name in _PANEL},
        ids=ids_from_json(header["ids"]),
        schema=Schema.from_dict(header["schema"]),
    )
    records = tuple(
        Record(
            arrays[f"weights_{i}"],
            typed(Axis, part["query"], "query"),
            typed(Axis, part["key"], "key"),
            typed(str, part["layer"], "layer"),
        )
        for i, part in enumerate(header["records"])
    )
    tokens = None
    if header["tokens"] is not None:
        tokens = TokenRecord(arrays["tokens_tokens"], arrays["tokens_rest"], typed(Axis, header["tokens"], "tokens"))
    windows = WindowForecasts(
        **{name: arrays[f"windows_{name}"] for name in _WINDOWS},
        quantiles=arrays.get("windows_quantiles"),
        attention=records,
        contributions={name: arrays[f"contributions_{name}"] for name in header["contributions"]} or None,
        tokens=tokens,
    )
    kept = None if header["kept"] is None else typed(tuple[int, ...], header["kept"], "kept")
    _check(panel, windows, kept)
    return AttentionMap(
        panel,
        windows,
        typed(tuple[float, ...], header["levels"], "levels"),
        None if header["model"] is None else typed(str, header["model"], "model"),
        typed(str, header["method"], "method"),
        typed(bool, header["signed"], "signed"),
        typed(str, header["unit"], "unit"),
        typed(tuple[str, ...], header["notes"], "notes"),
        kept,
    )


def _check(panel: Panel, windows: WindowForecasts, kept: tuple[int, ...] | None) -> None:
    """Raises ValueError where the parts of a file do not belong together."""
    count, targets = len(windows.series), len(panel.schema.roles.target)
    if len(panel.ids) != len(panel.start) or len(panel.indptr) != len(panel.start) + 1:
        raise ValueError(f"{len(panel.ids)} ids for {len(panel.start)} series")
    if panel.indptr[0] != 0 or (panel.lengths < 0).any() or panel.indptr[-1] != len(panel.values):
        raise ValueError("the series do not share the rows out among them")
    if windows.point.ndim != 3 or windows.point.shape[0] != count or windows.point.shape[2] != targets:
        raise ValueError(f"forecasts {windows.point.shape} for {count} windows and {targets} targets")
    if count and not (windows.series.min() >= 0 and windows.series.max() < len(panel)):
        raise ValueError("a window of a series that is not there")
    if windows.origin.shape != (count,) or windows.origin.dtype.kind != "i" or (windows.origin < 0).any():
        raise ValueError("the origin of each window is a step of its series, from 0")
    if kept is not None and not all(0 <= step < windows.point.shape[1] for step in kept):
        raise ValueError(f"the kept forecast steps {kept} of {windows.point.shape[1]}")
    for record in windows.attention:
        shape = record.weights.shape
        if len(shape) != 5 or shape[0] != count or shape[3:] != (len(record.query), len(record.key)):
            raise ValueError(f"weights {shape} for {count} windows, {len(record.query)} x {len(record.key)} tokens")
        if shape[1] not in (1, targets):
            raise ValueError(f"weights of {shape[1]} targets, there are {targets}")
