"""Files -> Arrow tables: CSV text, Parquet files, and folders of Parquet files (``id=7/part.parquet`` included)."""

from __future__ import annotations

import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tsattn.data.columns import is_text
from tsattn.errors import DataError, listed

if TYPE_CHECKING:
    import pyarrow.dataset

UNREADABLE = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError)
_WHOLE = r"^(0|-?[1-9][0-9]{0,18})$"  # text that an integer gives back as it was
_LEADING_ZERO = r"^\s*-?0[0-9]"


def file_columns(path: Path) -> list[str]:
    """Column names of a file or folder, from its header alone."""
    from pyarrow import csv

    if not os.path.exists(path):
        raise DataError(f"No such file or folder: {path}.")
    try:
        if is_parquet(path):
            names = _all_names(_parquet(path))
        else:
            with csv.open_csv(path) as reader:
                names = reader.schema.names
    except UNREADABLE as error:
        raise unreadable(path, error) from None
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
        columns = _read_parquet(path, wanted) if is_parquet(path) else _read_csv(path, wanted, id, covariates)
    except UNREADABLE as error:
        raise unreadable(path, error) from None
    return pa.table(columns)


def _read_csv(path: Path, wanted: list[str], id: str | None, covariates: Collection[str]) -> dict[str, pa.ChunkedArray]:
    columns = _csv_columns(path, wanted, text=[name for name in wanted if name == id])
    codes = [name for name in wanted if name in covariates and pa.types.is_integer(columns[name].type)]
    if codes:  # Arrow does not say which zeros it dropped: look again
        spelled = _csv_columns(path, codes, text=codes)
        columns |= {name: text for name, text in spelled.items() if _has_leading_zero(text)}
    for name, column in columns.items():
        if pa.types.is_binary(column.type):
            raise _not_utf8(path, f"column {name!r} holds {_not_text(column)!r}")
        if is_text(column.type):
            # Only an empty field is missing: "NA" is a name here (Namibia), not a gap.
            column = pc.if_else(pc.equal(column, ""), None, column)
            columns[name] = whole_numbers(column) if name == id else column
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
    dataset, folders = parquet_dataset(path, wanted)
    table = dataset.to_table(columns=wanted)
    return {name: whole_numbers(table[name]) if name in folders else table[name] for name in wanted}


def parquet_dataset(path: Path, wanted: list[str]) -> tuple[pyarrow.dataset.Dataset, list[str]]:
    """The columns ``wanted`` of a file or folder, one type each; and those that are names of folders, as text.

    Raises DataError when a file lacks a column, or when the files do not agree on one.
    """
    dataset = _parquet(path)
    folders = _folder_names(dataset)
    kinds = [(name, pa.string() if name in folders else _one_type(path, dataset, name)) for name in wanted]
    return _parquet(path, pa.schema(kinds)), [name for name in wanted if name in folders]


def parquet_pieces(path: Path, wanted: list[str]) -> tuple[list[pyarrow.dataset.Fragment], pa.Schema]:
    """The row groups of a Parquet file or folder, to be read one by one, and the schema of what they hold together.

    A piece is read by ``read_piece``, anywhere: all pieces together are the table that ``read_file`` gives. Raises
    DataError as ``read_file`` does.
    """
    try:
        dataset, folders = parquet_dataset(path, wanted)
        pieces = [piece for file in dataset.get_fragments() for piece in file.split_by_row_group()]
    except UNREADABLE as error:
        raise unreadable(path, error) from None
    schema = dataset.schema
    for name in folders:
        schema = schema.set(schema.get_field_index(name), pa.field(name, folder_kind(pieces, name)))
    for place, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):  # each piece would have a dictionary of its own
            schema = schema.set(place, field.with_type(field.type.value_type))
    return pieces, pa.schema([schema.field(name) for name in wanted])


def read_piece(piece: pyarrow.dataset.Fragment, schema: pa.Schema) -> pa.Table:
    """One of the pieces of ``parquet_pieces`` in the schema that goes with them."""
    from pyarrow.dataset import get_partition_keys

    folders = get_partition_keys(piece.partition_expression)
    kinds = [pa.field(f.name, pa.string()) if f.name in folders else f for f in schema]
    try:
        return piece.to_table(schema=pa.schema(kinds), columns=schema.names).cast(schema)
    except UNREADABLE as error:
        raise unreadable(Path(piece.path), error) from None


def folder_kind(pieces: Iterable[pyarrow.dataset.Fragment], name: str) -> pa.DataType:
    """The type of a column that is written as folders: integers where every folder is one as it stands, else text.

    What one file alone says would not do: "7" is a number only if no other folder is called "007".
    """
    from pyarrow.dataset import get_partition_keys

    said = [get_partition_keys(piece.partition_expression).get(name) for piece in pieces]
    return whole_numbers(pa.chunked_array([said], type=pa.string())).type


def _all_names(dataset: pyarrow.dataset.Dataset) -> list[str]:
    """The columns that any of the files has (Arrow itself looks into the first file only)."""
    names = list(dataset.schema.names)
    for fragment in dataset.get_fragments():
        names += [name for name in fragment.physical_schema.names if name not in names]
    return names


def _one_type(path: Path, dataset: pyarrow.dataset.Dataset, name: str) -> pa.DataType:
    """The type of a column that holds what each file says of it; Arrow would cast to the type of the first file.

    Raises DataError when a file lacks the column, or when the files hold different kinds of things.
    """
    found: dict[str, pa.DataType | None] = {}
    for fragment in dataset.get_fragments():
        schema = fragment.physical_schema
        twice = schema.get_all_field_indices(name)
        found[os.path.relpath(fragment.path, path)] = schema.field(twice[0]).type if twice else None
    lacking = [file for file, kind in found.items() if kind is None]
    if lacking:
        raise DataError(
            f"Column {name!r} is missing in {len(lacking)} of the {len(found)} files of {path} (first {lacking[0]}). "
            f"Add it there, with empty values where nothing was observed, or keep these files in another folder."
        )
    kinds = [kind for kind in dict.fromkeys(found.values()) if kind is not None and not pa.types.is_null(kind)]
    if len(kinds) > 1 and len({_family(kind) for kind in kinds}) > 1:
        raise _disagreement(path, name, kinds[0], found)
    return _widest(kinds)


def _disagreement(path: Path, name: str, usual: pa.DataType, found: dict[str, pa.DataType | None]) -> DataError:
    other = [file for file, kind in found.items() if kind is not None and _family(kind) not in ("", _family(usual))]
    return DataError(
        f"The {len(found)} files of {path} do not agree on column {name!r}: {usual} in the first, {found[other[0]]} in "
        f"{len(other)} of them ({listed(other, 1)}). Write it with one type (and one zone) in all files."
    )


def _family(kind: pa.DataType) -> str:
    """Types of one family hold the same thing; "" fits every family."""
    if pa.types.is_dictionary(kind):
        return _family(kind.value_type)
    if pa.types.is_null(kind):
        return ""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"  # integers become floats where a file has missing values
    if is_text(kind):
        return "text"
    return f"stamps in {kind.tz}" if pa.types.is_timestamp(kind) else str(kind)


def _widest(kinds: list[pa.DataType]) -> pa.DataType:
    """A type for all types of one family: no integer, number or stamp of any of them is changed."""
    if len(kinds) < 2:
        return kinds[0] if kinds else pa.null()
    plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    if is_text(plain[0]):
        return pa.large_string()
    if pa.types.is_timestamp(plain[0]):
        units = ("s", "ms", "us", "ns")
        return pa.timestamp(max((kind.unit for kind in plain), key=units.index), plain[0].tz)
    if all(pa.types.is_integer(kind) for kind in plain):
        return pa.int64()
    return pa.float64() if _family(plain[0]) == "number" else plain[0]


def _parquet(path: Path, schema: pa.Schema | None = None) -> pyarrow.dataset.Dataset:
    """A file or folder; what the names of its folders say (``id=7``) stays text, which Arrow would read as numbers."""
    from pyarrow.dataset import dataset, partitioning

    found = dataset(path, format="parquet", partitioning="hive")
    folders = _folder_names(found)
    if not folders and schema is None:
        return found
    text = partitioning(pa.schema([(name, pa.string()) for name in folders]), flavor="hive") if folders else None
    return dataset(path, schema=schema, format="parquet", partitioning=text)


def _folder_names(found: pyarrow.dataset.Dataset) -> list[str]:
    """Columns that are written as folders: ``id`` for ``id=7/part.parquet``."""
    from pyarrow.dataset import get_partition_keys

    first = next(iter(found.get_fragments()), None)
    return [] if first is None else list(get_partition_keys(first.partition_expression))


def is_parquet(path: Path) -> bool:
    """Whether a path is read as Parquet: a folder, or a file with that ending."""
    return path.is_dir() or path.suffix.lower() in {".parquet", ".pq"}


def _has_leading_zero(text: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring_regex(text, _LEADING_ZERO)).as_py())


def whole_numbers(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Integers where every value is one as it stands (``str(int(v)) == v``), the text itself otherwise."""
    if text.null_count < len(text) and pc.all(pc.match_substring_regex(text, _WHOLE)).as_py():
        try:
            return text.cast(pa.int64())
        except pa.ArrowInvalid:  # more than 64 bits
            return text
    return text


def _not_text(column: pa.ChunkedArray) -> bytes:
    """The first value that is not UTF-8."""
    for value in column.unique().to_pylist():
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return value
    return b""


def _not_utf8(path: Path, found: str) -> DataError:
    return DataError(
        f"{path} is not UTF-8 text ({found}). Save it as UTF-8, or read it with its encoding and pass the table, for "
        f"example pandas.read_csv(path, encoding='latin-1')."
    )


def _begins_like_utf16(path: Path) -> bool:
    if path.is_dir():
        return False
    with path.open("rb") as stream:
        return stream.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE)


def unreadable(path: Path, error: Exception) -> DataError:
    """What to say of a file that Arrow cannot read."""
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
        return _not_utf8(path, str(error))
    if isinstance(error, pa.ArrowInvalid) and _begins_like_utf16(path):
        return _not_utf8(path, "it begins like UTF-16")
    return DataError(f"Cannot read {path}: {error}. Expected CSV text or Parquet.")
