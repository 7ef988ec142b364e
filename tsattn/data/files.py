"""Files -> Arrow tables: CSV text, Parquet files, and folders of Parquet files (``id=7/part.parquet`` included)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tsattn.data.columns import is_text
from tsattn.errors import DataError

if TYPE_CHECKING:
    import pyarrow.dataset

UNREADABLE = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError)
_WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"  # text that an integer gives back as it was
_LEADING_ZERO = r"^\s*-?0[0-9]"


def file_columns(path: Path) -> list[str]:
    """Column names of a file or folder, from its header alone."""
    from pyarrow import csv

    if not path.exists():
        raise DataError(f"No such file or folder: {path}.")
    try:
        if _is_parquet(path):
            names = _parquet(path).schema.names
        else:
            with csv.open_csv(path) as reader:
                names = reader.schema.names
    except UNREADABLE as error:
        raise _unreadable(path, error) from None
    if not names:
        raise DataError(f"Nothing to read in {path}: expected Parquet files in this folder.")
    return list(names)


def read_file(path: Path, wanted: list[str], *, id: str | None = None, covariates: Collection[str] = ()) -> pa.Table:
    """The columns ``wanted`` of a file or folder.

    Text has no types: the column ``id`` of a CSV file, and what the names of folders say, become integers only where
    every value is one as it stands, so that "001" and "1" stay two ids. A column of ``covariates`` stays text where a
    value has a leading zero.
    """
    try:
        columns = _read_parquet(path, wanted) if _is_parquet(path) else _read_csv(path, wanted, id, covariates)
    except UNREADABLE as error:
        raise _unreadable(path, error) from None
    return pa.table(columns)


def _read_csv(path: Path, wanted: list[str], id: str | None, covariates: Collection[str]) -> dict[str, pa.ChunkedArray]:
    columns = _csv_columns(path, wanted, text=[name for name in wanted if name == id])
    codes = [name for name in wanted if name in covariates and pa.types.is_integer(columns[name].type)]
    if codes:  # Arrow does not say which zeros it dropped: look again
        spelled = _csv_columns(path, codes, text=codes)
        columns |= {name: text for name, text in spelled.items() if _has_leading_zero(text)}
    for name, column in columns.items():
        if is_text(column.type):
            # Only an empty field is missing: "NA" is a name here (Namibia), not a gap.
            column = pc.if_else(pc.equal(column, ""), None, column)
            columns[name] = _whole_numbers(column) if name == id else column
    return columns


def _csv_columns(path: Path, names: list[str], text: list[str]) -> dict[str, pa.ChunkedArray]:
    """Columns of a CSV file, those in ``text`` as they are spelled."""
    from pyarrow import csv

    # Stamps stay text, so that zones are treated as in any other table (Arrow would fold them into UTC).
    options = csv.ConvertOptions(
        include_columns=names, column_types=dict.fromkeys(text, pa.string()), timestamp_parsers=["never"]
    )
    table = csv.read_csv(path, convert_options=options)
    return {name: table[name] for name in names}


def _read_parquet(path: Path, wanted: list[str]) -> dict[str, pa.ChunkedArray]:
    dataset = _parquet(path)
    table, folders = dataset.to_table(columns=wanted), _folder_names(dataset)
    return {name: _whole_numbers(table[name]) if name in folders else table[name] for name in wanted}


def _parquet(path: Path) -> pyarrow.dataset.Dataset:
    """A file or folder; what the names of its folders say (``id=7``) stays text, which Arrow would read as numbers."""
    from pyarrow.dataset import dataset, partitioning

    found = dataset(path, format="parquet", partitioning="hive")
    folders = _folder_names(found)
    if not folders:
        return found
    text = partitioning(pa.schema([(name, pa.string()) for name in folders]), flavor="hive")
    return dataset(path, format="parquet", partitioning=text)


def _folder_names(found: pyarrow.dataset.Dataset) -> list[str]:
    """Columns that are written as folders: ``id`` for ``id=7/part.parquet``."""
    from pyarrow.dataset import get_partition_keys

    first = next(iter(found.get_fragments()), None)
    return [] if first is None else list(get_partition_keys(first.partition_expression))


def _is_parquet(path: Path) -> bool:
    return path.is_dir() or path.suffix.lower() in {".parquet", ".pq"}


def _has_leading_zero(text: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring_regex(text, _LEADING_ZERO)).as_py())


def _whole_numbers(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers where every value is one as it stands (``str(int(v)) == v``), the text itself otherwise."""
    if text.null_count < len(text) and pc.all(pc.match_substring_regex(text, _WHOLE)).as_py():
        try:
            return text.cast(pa.int64())
        except pa.ArrowInvalid:  # more than 64 bits
            return text
    return text


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"Cannot read {path}: {error}. Expected CSV text or Parquet.")
