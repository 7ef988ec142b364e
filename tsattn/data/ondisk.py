"""A panel in files: what to read through memory-mapped arrays, and the files it is kept in.

A folder holds the arrays as raw little-endian numbers, one file each, the ids as an Arrow file, and ``panel.json``,
which is written last: a folder without it is no panel. ``tsattn/data/stream.py`` fills such folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from tsattn.data.files import UNREADABLE, is_parquet, unreadable
from tsattn.data.panel import Panel
from tsattn.data.schema import Roles, Schema
from tsattn.errors import DataError
from tsattn.resources import cache_dir
from tsattn.writing import write_whole

LAYOUT = 1  # of the files; another one is not read
_BYTES_PER_ROW, _BYTES_PER_NUMBER = 40, 24  # at the peak of building in memory: rows and their order, columns
_MAPPED = {"values": "<f4", "codes": "<i4"}
_SMALL = {"lengths": "<i8", "start": "<i8", "static_values": "<f4", "static_codes": "<i4"}
ARRAYS = {**_MAPPED, **_SMALL}  # name -> type of its numbers


@dataclass(frozen=True)
class OnDisk:
    """A Parquet file or folder whose panel stays on disk, for data that the memory does not hold.

    Pass it where a table is asked for: ``fit(OnDisk("sales"))``. The rows are streamed once into arrays that windows
    are read from as they are needed; the same data (by content) and columns are streamed only once. Memory is needed
    for a few million rows at a time, and for the longest series. A path whose table would take more than half of the
    machine's memory is treated like this by itself.

    Args:
        path: Parquet file, or folder of Parquet files (partitioned or not, rows in any order).
        cache: Folder for the arrays, about four bytes per number; default: ``panels`` in ``TSATTN_CACHE`` or the
            platform's cache folder. What is in it may be deleted at any time between two runs.
    """

    path: str | Path
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        """Raise DataError for what is no path: a table that is in memory already, for one."""
        for name, value in (("path", self.path), ("cache", "" if self.cache is None else self.cache)):
            if not isinstance(value, (str, Path)):
                raise DataError(f"OnDisk({name}=) takes the path of a file or folder, found {type(value).__name__}.")

    @property
    def folder(self) -> Path:
        """Where the arrays of this and other tables are kept."""
        return cache_dir() / "panels" if self.cache is None else Path(self.cache)


def on_disk(table: Any, columns: int) -> OnDisk | None:
    """How to read ``table`` through files; None when it is to be read into memory.

    Raises DataError for an ``OnDisk`` that is no Parquet file or folder.
    """
    if isinstance(table, OnDisk):
        path = Path(table.path)
        if not path.exists():
            raise DataError(f"No such file or folder: {path}.")
        if not is_parquet(path):
            raise DataError(f"Only Parquet can be read piece by piece, found {path}. Write the table as Parquet first.")
        if path.resolve() in (table.folder.resolve(), *table.folder.resolve().parents):
            raise DataError(
                f"The cache {table.folder} lies in the table's own folder {path}, whose files would be read as Parquet "
                f"with the others. Name a folder outside: OnDisk(path, cache=FOLDER)."
            )
        return OnDisk(path, table.cache)
    if not isinstance(table, (str, Path)) or not is_parquet(Path(table)) or not os.path.exists(table):
        return None
    needed = _rows(Path(table)) * (_BYTES_PER_ROW + _BYTES_PER_NUMBER * columns)
    return OnDisk(Path(table)) if needed > _memory() / 2 else None


def _rows(path: Path) -> int:
    from pyarrow.dataset import dataset

    try:
        return int(dataset(path, format="parquet").count_rows())  # from the footers of the files
    except UNREADABLE as error:
        raise unreadable(path, error) from None


def _memory() -> float:
    """Bytes of memory of this machine; without a limit where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def content_key(source: OnDisk, roles: Roles, freq: Any, schema: Schema | None) -> str:
    """A name for the panel of these files read with these roles: it changes with any byte of them."""
    read = None if schema is None else schema.to_dict()
    about = {"layout": LAYOUT, "roles": repr(roles), "freq": f"{type(freq).__name__} {freq!r}", "schema": read}
    digest = hashlib.sha256(json.dumps(about).encode())
    for name, path in _parquet_files(Path(source.path)):
        digest.update(json.dumps([name, path.stat().st_size]).encode())
        with path.open("rb") as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:32]


def _parquet_files(path: Path) -> Iterator[tuple[str, Path]]:
    """The files Arrow reads, with their names inside the folder (which may say values of columns)."""
    from pyarrow.dataset import dataset

    try:
        files = dataset(path, format="parquet").files
    except UNREADABLE as error:
        raise unreadable(path, error) from None
    for file in sorted(files):
        yield os.path.relpath(file, path), Path(file)


def write_description(folder: Path, schema: Schema, ids: pa.Array) -> None:
    """The last step of a panel on disk: its ids and its description."""
    with ipc.new_file(str(folder / "ids.arrow"), pa.schema([("id", ids.type)])) as file:
        file.write_table(pa.table({"id": ids}))
    sizes = {name: (folder / name).stat().st_size for name in ARRAYS}
    checks = {name: zlib.crc32((folder / name).read_bytes()) for name in (*_SMALL, "ids.arrow")}
    data = {"layout": LAYOUT, "schema": schema.to_dict(), "bytes": sizes, "checks": checks}
    write_whole(folder / "panel.json", json.dumps(data).encode())


def open_panel(folder: Path) -> Panel | None:
    """The panel in a folder; None when there is none, or it is not whole.

    What says where rows are is checked byte by byte; of the rows themselves, only that they are all there.
    """
    try:
        data = json.loads((folder / "panel.json").read_text(encoding="utf-8"))
        if data["layout"] != LAYOUT:
            return None
        if any((folder / name).stat().st_size != data["bytes"][name] for name in ARRAYS):
            return None
        if any(zlib.crc32((folder / name).read_bytes()) != data["checks"][name] for name in (*_SMALL, "ids.arrow")):
            return None
        with ipc.open_file(str(folder / "ids.arrow")) as file:
            ids = file.read_all()["id"].combine_chunks()
        return _panel(folder, Schema.from_dict(data["schema"]), ids)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, pa.ArrowInvalid):
        return None


def _panel(folder: Path, schema: Schema, ids: pa.Array) -> Panel:
    small = {name: np.fromfile(folder / name, dtype=kind) for name, kind in _SMALL.items()}
    if isinstance(ids, pa.ChunkedArray):  # combine_chunks keeps a ChunkedArray in some Arrow versions
        ids = pa.concat_arrays(ids.chunks)
    series = len(ids)
    indptr = np.concatenate([[0], np.cumsum(small["lengths"])])
    if len(small["start"]) != series or len(indptr) != series + 1:
        raise ValueError("the files do not belong together")
    return Panel(
        values=_mapped(folder / "values", "<f4", int(indptr[-1])),
        codes=_mapped(folder / "codes", "<i4", int(indptr[-1])),
        static_values=small["static_values"].reshape(series, -1),
        static_codes=small["static_codes"].reshape(series, -1),
        indptr=indptr,
        start=small["start"],
        ids=ids,
        schema=schema,
    )


def _mapped(path: Path, kind: str, rows: int) -> np.ndarray:
    """``[rows, K]`` in a file, private to this process: torch refuses arrays that cannot be written to."""
    width, rest = divmod(path.stat().st_size // np.dtype(kind).itemsize, max(rows, 1))
    if rest:
        raise ValueError(f"{path} has another number of rows")
    if not width or not rows:
        return np.zeros((rows, width), dtype=kind)
    return np.memmap(path, dtype=kind, mode="c", shape=(rows, width))
