"""Any table -> Arrow columns. Nothing else in tsattn reads a dataframe.

``read_columns`` takes a pandas, polars or Arrow table (anything narwhals reads), or the path of a CSV file, a Parquet
file or a folder of Parquet files (read by ``data/files.py``), and returns the wanted columns as Arrow arrays.
``data/columns.py`` and ``data/stamps.py`` turn one such column into numpy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import narwhals.stable.v1 as nw
import pyarrow as pa

from tsattn.data.files import UNREADABLE, file_columns, read_file
from tsattn.data.schema import require_no_duplicates
from tsattn.errors import DataError, listed, unknown_name

Columns = dict[str, pa.Array]


def read_columns(
    table: Any, names: Iterable[str], *, id: str | None = None, covariates: Collection[str] = ()
) -> Columns:
    """The columns ``names`` of ``table`` as Arrow arrays of equal length.

    ``id`` and ``covariates`` say which columns of a file may hold names that look like numbers ("007"). Raises
    DataError when the table cannot be read, is empty, or lacks a column; the message lists what it has.
    """
    wanted = list(dict.fromkeys(names))
    have = check_columns(table, wanted)
    frame = _open(table, wanted, id, covariates)
    if len(frame) == 0:
        raise DataError(f"The table has no rows (columns: {listed(have, 12)}). Pass a table with at least one row.")
    return {name: _to_arrow(frame, name) for name in wanted}


def check_columns(table: Any, wanted: Sequence[str]) -> list[str]:
    """The column names of ``table``; raises DataError unless those in ``wanted`` are among them."""
    have = column_names(table)
    missing = [name for name in wanted if name not in have]
    if missing:
        raise DataError(_missing_columns(missing, have, table))
    return have


def column_names(table: Any) -> list[str]:
    """The column names of ``table``, without reading its rows where that is possible.

    Raises DataError when the table cannot be read, or has two columns of one name.
    """
    if isinstance(table, (str, Path)):
        names = file_columns(Path(table))
    elif isinstance(table, dict):
        names = list(table)
    else:
        names = _native_names(table)
        require_no_duplicates(names)  # before narwhals, which has no words of ours for it
        frame = _narwhals(table)
        return list(frame.collect_schema().names() if isinstance(frame, nw.LazyFrame) else frame.columns)
    require_no_duplicates(names)
    return names


def from_wide(
    table: Any,
    *,
    time: str = "ds",
    id: str = "unique_id",
    target: str = "y",
    columns: Sequence[str] | None = None,
) -> Any:
    """A wide table (one column per series) as a long one, in the dataframe library it came in.

    ``columns`` are the series (default: every column but ``time``). Returns columns ``id``, ``time``, ``target``;
    paths come back as an Arrow table. Raises DataError when ``time`` or a column is not there, or no series is left.
    """
    names = column_names(table)
    series = [name for name in names if name != time] if columns is None else list(columns)
    missing = [name for name in (time, *series) if name not in names]
    if missing:
        raise DataError(_missing_columns(missing, names, table))
    if not series:
        raise DataError(f"No series in the table: it has no column but {time!r}. Pass one column per series.")
    if len({time, id, target}) < 3:
        raise DataError(f"time, id and target must differ; found {time!r}, {id!r} and {target!r}.")
    # Named apart first: a series may itself be called like the new columns.
    frame = _open(table, [time, *series]).unpivot(on=series, index=[time], variable_name="\0id", value_name="\0y")
    return frame.rename({"\0id": id, "\0y": target}).to_native()


def _open(table: Any, wanted: list[str], id: str | None = None, covariates: Collection[str] = ()) -> nw.DataFrame[Any]:
    """The table with (at least) the wanted columns, all of which it has."""
    if isinstance(table, (str, Path)):
        table = read_file(Path(table), wanted, id=id, covariates=covariates)
    if isinstance(table, dict):
        try:
            table = pa.table(table)
        except (*UNREADABLE, ValueError) as error:
            raise DataError(
                f"Cannot make a table of this dict: {error}. Its values must be lists of equal length."
            ) from None
    frame = _narwhals(table)
    return frame.select(wanted).collect() if isinstance(frame, nw.LazyFrame) else frame


def _narwhals(table: Any) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    unknown = DataError(
        f"Cannot read a table from {type(table).__name__}. Pass a pandas, polars or Arrow table, or the path of "
        f"a CSV file, a Parquet file or a folder of Parquet files."
    )
    try:
        frame = nw.from_native(table)
    except TypeError:
        raise unknown from None
    if isinstance(frame, nw.DataFrame) and nw.get_level(frame) == "interchange":  # it has column names, and little else
        raise unknown
    if not isinstance(frame, (nw.DataFrame, nw.LazyFrame)):
        raise DataError(f"Expected a table with columns, found a single {type(table).__name__}.")
    return frame


def _native_names(table: Any) -> list[str]:
    """Names of a pandas or Arrow table as they are; polars has no duplicates."""
    if isinstance(table, (pa.Table, pa.RecordBatch)):
        return list(table.schema.names)
    return list(table.columns) if hasattr(table, "iloc") and hasattr(table, "columns") else []


def _missing_columns(missing: list[str], have: list[str], table: Any) -> str:
    hint = ""
    index = [name for name in getattr(getattr(table, "index", None), "names", []) if name in missing]
    if index:
        hint = f" {listed(map(repr, index))} is the index of the table: call reset_index() first."
    elif len(have) == 1 and any(mark in str(have[0]) for mark in ";\t|"):
        hint = " Its fields seem to be separated by something else than a comma: use pandas.read_csv(path, sep=...)."
    else:
        near = str(unknown_name("column", missing[0], map(str, have))).partition(" Known: ")[0]
        hint = near[near.find(" Did you mean") :] if "Did you mean" in near else ""
    plural = "s" if len(missing) > 1 else ""
    return f"Column{plural} {listed(map(repr, missing))} not in the table.{hint} It has: {listed(have, 20)}."


def _to_arrow(frame: nw.DataFrame[Any], name: str) -> pa.Array:
    column = frame.get_column(name)
    native = column.to_native()
    if str(getattr(native, "dtype", "")).startswith("period"):
        raise DataError(f"Column {name!r} holds pandas periods. Use df[{name!r}].dt.to_timestamp().")
    try:
        array = column.to_arrow() if not isinstance(native, (pa.Array, pa.ChunkedArray)) else native
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        pa.ArrowNotImplementedError,
        TypeError,
        ValueError,
        OverflowError,
    ) as error:
        kinds = sorted({type(value).__name__ for value in native[:100_000] if value is not None})
        raise DataError(
            f"Column {name!r} mixes kinds of values ({listed(kinds)}): {error}. Make them one kind, for example with "
            f"df[{name!r}].astype(str)."
        ) from None
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ChunkedArray):  # combine_chunks keeps a ChunkedArray in some Arrow versions
        array = pa.concat_arrays(array.chunks)
    if str(getattr(native, "dtype", "")) == "object" and pa.types.is_timestamp(array.type):
        _refuse_zone_mix(native, name)
    return array


def _refuse_zone_mix(native: Any, name: str) -> None:
    """Arrow would put Python stamps of several zones into the zone of the first, without a word."""
    zones: dict[str, int] = {}
    for row, value in enumerate(native):
        if hasattr(value, "tzinfo"):
            zones.setdefault(str(value.tzinfo), row)
    if len(zones) > 1:
        found = [f"{zone} (first at row {row})" for zone, row in zones.items()]
        raise DataError(
            f"The time column {name!r} mixes zones: {listed(found)}. Put all stamps in one zone, for example "
            f"pandas.to_datetime(df[{name!r}], utc=True).dt.tz_convert('Europe/Berlin')."
        )
