"""Any table -> Arrow columns. Nothing else in tsattn knows a dataframe library.

``read_columns`` takes a pandas, polars or Arrow table (anything narwhals reads), or the path of a CSV file, a Parquet
file or a folder of Parquet files, and returns the wanted columns as Arrow arrays. The ``*_values`` functions turn one
such column into numpy arrays; every complaint about the content of a single column is raised here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsattn.errors import DataError, TsattnWarning, listed

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, pa.Array]
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_OFFSET = re.compile(r"(?:[T ]\d\d.*?)(Z|[+-]\d\d:?\d\d)$")


def read_columns(table: Any, names: Iterable[str]) -> Columns:
    """The columns ``names`` of ``table`` as Arrow arrays of equal length.

    Raises DataError when the table cannot be read, is empty, or lacks a column; the message lists what it has.
    """
    wanted = list(dict.fromkeys(names))
    frame = _open(table, wanted)
    have = list(frame.columns)
    missing = [name for name in wanted if name not in have]
    if missing:
        raise DataError(_missing_columns(missing, have, table))
    if len(frame) == 0:
        raise DataError(f"The table has no rows (columns: {listed(have, 12)}).")
    return {name: _to_arrow(frame, name) for name in wanted}


def column_names(table: Any) -> list[str]:
    """The column names of ``table``, without reading its rows where that is possible."""
    return list(_open(table, None).columns)


def from_wide(
    table: Any,
    *,
    time: str = "ds",
    id: str = "unique_id",
    target: str = "y",
    columns: Sequence[str] | None = None,
) -> Any:
    """A wide table (one column per series) as a long one, in the dataframe library it came in.

    ``columns`` are the series (default: every column but ``time``). Returns columns ``id``, ``time``, ``target``; paths
    come back as an Arrow table. Raises DataError when ``time`` or a column is not there.
    """
    frame = _open(table, None)
    series = [name for name in frame.columns if name != time] if columns is None else list(columns)
    missing = [name for name in (time, *series) if name not in frame.columns]
    if missing:
        raise DataError(_missing_columns(missing, list(frame.columns), table))
    return frame.unpivot(on=series, index=[time], variable_name=id, value_name=target).to_native()


def _open(table: Any, wanted: list[str] | None) -> nw.DataFrame[Any]:
    if isinstance(table, (str, Path)):
        table = _read_path(Path(table), wanted)
    if isinstance(table, dict):
        table = pa.table(table)
    try:
        frame = nw.from_native(table)
    except TypeError:
        raise DataError(
            f"Cannot read a table from {type(table).__name__}. Pass a pandas, polars or Arrow table, or the path of a "
            f"CSV file, a Parquet file or a folder of Parquet files."
        ) from None
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if not isinstance(frame, nw.DataFrame):
        raise DataError(f"Expected a table with columns, found a single {type(table).__name__}.")
    return frame


def _read_path(path: Path, wanted: list[str] | None) -> pa.Table:
    """CSV, Parquet file or Parquet folder -> Arrow, reading only the wanted columns where the format allows it."""
    import pyarrow.dataset as ds
    from pyarrow import csv

    if not path.exists():
        raise DataError(f"No such file or folder: {path}.")
    try:
        if path.is_dir() or path.suffix.lower() in {".parquet", ".pq"}:
            data = ds.dataset(path, format="parquet", partitioning="hive")
            have = [name for name in wanted if name in data.schema.names] if wanted is not None else None
            return data.to_table(columns=have) if have != [] else data.head(0)
        # Stamps stay text here, so that zones are treated as in any other table (Arrow would fold them into UTC).
        options = csv.ConvertOptions(strings_can_be_null=True, timestamp_parsers=["never"])
        return csv.read_csv(path, convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        raise DataError(f"Cannot read {path}: {error}. Expected CSV text or Parquet.") from None


def _missing_columns(missing: list[str], have: list[str], table: Any) -> str:
    index = [name for name in getattr(getattr(table, "index", None), "names", []) if name in missing]
    hint = f" {listed(index)} is the index of the table: call reset_index() first." if index else ""
    return f"Column{'s' if len(missing) > 1 else ''} {listed(missing)} not in the table.{hint} It has: {listed(have, 20)}."


def _to_arrow(frame: nw.DataFrame[Any], name: str) -> pa.Array:
    column = frame.get_column(name)
    native = column.to_native()
    if str(getattr(native, "dtype", "")).startswith("period"):
        raise DataError(f"Column {name!r} holds pandas periods. Use df[{name!r}].dt.to_timestamp().")
    try:
        array = column.to_arrow() if not isinstance(native, (pa.Array, pa.ChunkedArray)) else native
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        kinds = sorted({type(value).__name__ for value in native[:10_000] if value is not None})
        raise DataError(f"Column {name!r} mixes kinds of values ({listed(kinds)}): {error}.") from None
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ChunkedArray):  # combine_chunks keeps a ChunkedArray in some Arrow versions
        array = pa.concat_arrays(array.chunks)
    return array


def is_category(array: pa.Array) -> bool:
    """Text, boolean and dictionary (pandas Categorical) columns are categories; everything else is a number."""
    kind = array.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return text or pa.types.is_boolean(kind) or pa.types.is_dictionary(kind)


def number_values(array: pa.Array, name: str, role: str) -> np.ndarray:
    """Column -> float array with NaN where the value is missing. Raises DataError when it is not numeric."""
    kind = array.type
    if pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        array = array.cast(pa.float64())
    elif pa.types.is_null(kind):
        return np.full(len(array), np.nan, dtype=np.float32)
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        example = next((value.as_py() for value in array if value.is_valid), None)
        raise DataError(
            f"The {role} column {name!r} must be numeric, found {kind} (for example {example!r}). "
            f"Convert it, for example with pandas.to_numeric(df[{name!r}], errors='coerce')."
        )
    values = array.to_numpy(zero_copy_only=False)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def category_values(array: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Column -> (codes int64 with -1 for missing, labels as text sorted). Equal text means equal category."""
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.string())
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    labels = ["" if value is None else str(value) for value in array.dictionary.to_pylist()]
    codes = _codes(array)
    ordered = sorted(set(labels[code] for code in np.unique(codes[codes >= 0])))
    rank = {label: position for position, label in enumerate(ordered)}
    lookup = np.array([rank.get(label, -1) for label in labels] + [-1], dtype=np.int64)
    return lookup[codes], ordered


def id_values(array: pa.Array, name: str) -> tuple[np.ndarray, pa.Array]:
    """Id column -> (codes int64, labels): labels are sorted and keep the type of the column.

    Raises DataError when an id is missing. Sorting makes everything behind independent of the order of the rows.
    """
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes, labels = _codes(encoded), encoded.dictionary
    missing = int((codes < 0).sum())
    if missing:
        row = int(np.flatnonzero(codes < 0)[0])
        raise DataError(
            f"The id column {name!r} is missing in {missing} of {len(codes)} rows (first at row {row}). "
            f"Drop these rows, or fill in the id."
        )
    order = pc.sort_indices(labels).to_numpy()
    used = np.zeros(len(labels), dtype=bool)
    used[codes] = True  # a pandas Categorical may carry labels that no row has
    order = order[used[order]]
    rank = np.full(len(labels), -1, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], labels.take(pa.array(order))


def _codes(array: pa.DictionaryArray) -> np.ndarray:
    indices = array.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int64()), -1)
    codes = indices.to_numpy(zero_copy_only=False)
    null_label = array.dictionary.null_count  # a missing value may also hide inside the dictionary
    if null_label:
        hidden = int(np.flatnonzero(array.dictionary.is_null().to_numpy(zero_copy_only=False))[0])
        codes = np.where(codes == hidden, -1, codes)
    return codes


def time_values(array: pa.Array, name: str) -> tuple[np.ndarray, str | None, str]:
    """Time column -> (int64 values, zone, unit).

    Stamps become nanoseconds since 1970 in UTC (without a zone: wall time), ``unit`` is their resolution in the table.
    Integers stay as they are with unit "integer". Raises DataError for missing, unparsable or mixed-zone times.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    missing = array.null_count
    if missing:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(
            f"The time column {name!r} is missing in {missing} of {len(array)} rows (first at row {row}). Drop them."
        )
    kind = array.type
    if pa.types.is_integer(kind):
        return array.cast(pa.int64()).to_numpy(zero_copy_only=False), None, "integer"
    if pa.types.is_floating(kind):
        return _whole_floats(array, name), None, "integer"
    if pa.types.is_date(kind):
        array = array.cast(pa.timestamp("ms" if pa.types.is_date64(kind) else "s"))
    elif not pa.types.is_timestamp(kind):
        if not is_category(array) or pa.types.is_boolean(kind):
            raise DataError(f"The time column {name!r} must hold stamps or integers, found {kind}.")
        return _parse_text(array, name)
    return _nanoseconds(array, name), array.type.tz, array.type.unit


def _nanoseconds(array: pa.Array, name: str) -> np.ndarray:
    factor = _NANOSECONDS[array.type.unit]
    raw = array.view(pa.int64()).to_numpy(zero_copy_only=False)
    if factor == 1:
        return raw
    limit = np.iinfo(np.int64).max // factor
    if len(raw) and max(abs(int(raw.min())), abs(int(raw.max()))) > limit:
        raise DataError(f"The time column {name!r} holds stamps outside the years 1678 to 2261. Correct or drop them.")
    return raw * factor


def _whole_floats(array: pa.Array, name: str) -> np.ndarray:
    values = array.to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values))))
    if len(bad):
        raise DataError(
            f"The time column {name!r} holds {len(bad)} numbers that are not whole (first {values[bad[0]]!r} at row "
            f"{bad[0]}). Use integers or stamps."
        )
    return values.astype(np.int64)


def _parse_text(array: pa.Array, name: str) -> tuple[np.ndarray, str | None, str]:
    """Parse each distinct text once; a zone must be the same everywhere."""
    import pandas as pd

    encoded = array.dictionary_encode()
    text = pd.Series(encoded.dictionary.to_pylist(), dtype=object)
    zones = text.str.extract(_OFFSET, expand=False).fillna("none").replace("Z", "+00:00")
    if zones.nunique() > 1:
        counts = ", ".join(f"{zone} ({count})" for zone, count in zones.value_counts().items())
        raise DataError(
            f"The time column {name!r} mixes zones: {counts}. Put all stamps in one zone, for example "
            f"pandas.to_datetime(df[{name!r}], utc=True).dt.tz_convert('Europe/Berlin')."
        )
    stamps = _parse_stamps(text, name)
    bad = text[stamps.isna()]
    if len(bad):
        rows = np.isin(_codes(encoded), np.asarray(bad.index))
        raise DataError(
            f"The time column {name!r} has {int(rows.sum())} of {len(array)} values that are no time (for example "
            f"{listed([repr(value) for value in bad[:3]])}, first at row {int(np.flatnonzero(rows)[0])}). "
            f"Correct them, or parse the column with pandas.to_datetime first."
        )
    tz = None if stamps.dt.tz is None else _offset_name(zones.iloc[0])
    naive = stamps.dt.tz_convert("UTC").dt.tz_localize(None) if stamps.dt.tz is not None else stamps
    values = naive.to_numpy().astype("datetime64[ns]").astype(np.int64)
    return values[_codes(encoded)], tz, "us"


def _parse_stamps(text: pd.Series, name: str) -> pd.Series:
    import pandas as pd

    try:
        stamps = pd.to_datetime(text, format="ISO8601", errors="coerce")
    except ValueError:  # a form that no calendar has, such as a thirteenth month with a zone
        stamps = pd.Series(pd.NaT, index=text.index)
    if stamps.isna().mean() > 0.5:  # not ISO: let pandas take the form of the first value for all of them
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            stamps = pd.to_datetime(text, errors="coerce")
        if text.str.match(r"\s*\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}").any():
            warnings.warn(
                f"The time column {name!r} was read as month/day/year ({text.iloc[0]!r} is {stamps.iloc[0]}). "
                f"If that is wrong, parse it with pandas.to_datetime(..., dayfirst=True) first.",
                TsattnWarning,
                stacklevel=2,
            )
    return stamps


def _offset_name(zone: str) -> str:
    if zone == "+00:00":
        return "UTC"
    return zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
