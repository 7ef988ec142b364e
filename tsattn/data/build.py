"""Table -> Panel, vectorised. Every complaint about a user's data that needs more than one column is raised here."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from tsattn.data.calendar import Frequency, calendar_features, format_time, infer_frequency
from tsattn.data.panel import Panel
from tsattn.data.schema import Roles, Schema, require_no_duplicates
from tsattn.data.table import (
    Columns,
    category_values,
    column_names,
    id_values,
    is_category,
    number_values,
    read_columns,
    time_values,
)
from tsattn.errors import DataError, TsattnWarning, listed

DEFAULT_ID = "unique_id"
_MAX_GRID_GROWTH = 50  # a stray stamp can stretch the grid by years: refuse rather than fill the memory


def build_panel(table: Any, roles: Roles, *, freq: Any = None, schema: Schema | None = None) -> Panel:
    """The panel of ``table``.

    ``freq`` is a pandas alias (old or new), an offset, a timedelta or an integer step; None infers it. With ``schema``
    (of the training table) the frequency and the categories are taken from there, and an unseen category becomes
    "unknown" with one warning. Missing steps of the grid become unobserved rows; the table itself is not changed.

    Raises DataError naming column, what was found, where, how many, and the fix.
    """
    names = column_names(table)
    require_no_duplicates(names)
    if roles.id == DEFAULT_ID and DEFAULT_ID not in names:
        roles = replace(roles, id=None)  # a single series needs no id column
    columns = read_columns(table, roles.columns())
    codes, ids = _ids(columns, roles)
    times, tz, unit = time_values(columns[roles.time], roles.time)
    order = _sort_order(codes, times)
    if order is not None:
        codes, times = codes[order], times[order]
    _refuse_duplicates(codes, times, ids, roles, tz, unit)
    schema = _schema(columns, roles, codes, times, ids, freq, tz, unit) if schema is None else schema
    _check_time_kind(schema, tz, unit, roles)
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    steps = _steps(codes, times, times[first], schema, ids)
    last = np.append(first[1:], len(codes)) - 1
    indptr = np.concatenate([[0], np.cumsum(steps[last] + 1)])
    _check_grid(indptr, len(codes), steps, codes, ids)
    regular = indptr[-1] == len(codes)
    row = None if regular else indptr[codes] + steps
    panel = Panel(
        values=_numeric(columns, schema, order, row, int(indptr[-1])),
        codes=_categorical(columns, schema, order, row, int(indptr[-1])),
        static_values=_static_numbers(columns, schema, order, first, codes, ids),
        static_codes=_static_categories(columns, schema, order, first, codes, ids),
        indptr=indptr,
        start=times[first],
        ids=ids,
        schema=schema,
    )
    return _with_calendar(panel)


def _ids(columns: Columns, roles: Roles) -> tuple[np.ndarray, pa.Array]:
    if roles.id is None:
        rows = len(columns[roles.time])
        return np.zeros(rows, dtype=np.int64), pa.nulls(1)
    codes, ids = id_values(columns[roles.id], roles.id)
    rows_per_id = np.bincount(codes)
    if len(ids) > 1 and np.median(rows_per_id) < 2:
        warnings.warn(
            f"Half of the {len(ids)} series named by {roles.id!r} have a single row. Is {roles.id!r} the column that "
            f"names the series?",
            TsattnWarning,
            stacklevel=4,
        )
    return codes, ids


def _sort_order(codes: np.ndarray, times: np.ndarray) -> np.ndarray | None:
    """Row order by series and time; None when the rows are in that order already."""
    same = codes[1:] == codes[:-1]
    if np.all((codes[1:] > codes[:-1]) | (same & (times[1:] >= times[:-1]))):
        return None
    order = np.argsort(codes, kind="stable")
    by_code, by_time = codes[order], times[order]
    if np.all((by_code[1:] > by_code[:-1]) | (by_time[1:] >= by_time[:-1])):
        return order
    return np.lexsort((times, codes))


def _refuse_duplicates(
    codes: np.ndarray, times: np.ndarray, ids: pa.Array, roles: Roles, tz: str | None, unit: str
) -> None:
    twice = np.flatnonzero((codes[1:] == codes[:-1]) & (times[1:] == times[:-1]))
    if not len(twice):
        return
    where = [
        f"{_id(ids, codes[i])} at {format_time(int(times[i]), tz, integer=unit == 'integer')}" for i in twice[:5]
    ]
    more = f" and {len(twice) - 5} more" if len(twice) > 5 else ""
    hint = ""
    if roles.id is None and len(np.unique(times)) * 2 <= len(times):
        hint = " Every time occurs more than once: did you forget the id column (id=...)?"
    elif roles.id is not None:
        hint = f" {len(np.unique(codes[twice]))} of {len(ids)} series are affected."
    raise DataError(
        f"{len(twice)} duplicate rows: more than one row for the same series and time ({', '.join(where)}{more}).{hint} "
        f"Keep one row each, for example df.drop_duplicates({[roles.id, roles.time] if roles.id else [roles.time]}), or "
        f"aggregate them with groupby."
    )


def _schema(
    columns: Columns,
    roles: Roles,
    codes: np.ndarray,
    times: np.ndarray,
    ids: pa.Array,
    freq: Any,
    tz: str | None,
    unit: str,
) -> Schema:
    integer = unit == "integer"
    if freq is None:
        frequency = infer_frequency(times, codes, tz=tz, integer=integer, name_of=lambda code: _id(ids, code))
    else:
        frequency = Frequency.parse(freq, tz=tz)
    categories = {
        name: tuple(category_values(columns[name])[1])
        for name in (*roles.known_columns, *roles.past, *roles.static)
        if is_category(columns[name])
    }
    if roles.calendar and integer:
        raise DataError(f"Calendar features need stamps, but the time column {roles.time!r} holds integers.")
    return Schema(roles, frequency, unit, categories)


def _check_time_kind(schema: Schema, tz: str | None, unit: str, roles: Roles) -> None:
    integer = unit == "integer"
    wants_integer = schema.freq.kind == "integer"
    if integer != wants_integer:
        found, wanted = ("integers", "stamps") if integer else ("stamps", "integers")
        raise DataError(f"The time column {roles.time!r} holds {found}, but the frequency {schema.freq.alias!r} needs {wanted}.")
    if (tz is None) != (schema.tz is None):
        raise DataError(
            f"The time column {roles.time!r} {'has no zone' if tz is None else 'is in ' + tz}, the training table "
            f"{'had none' if schema.tz is None else 'was in ' + schema.tz}. Use tz_localize, or tz_convert."
        )


def _steps(codes: np.ndarray, times: np.ndarray, start: np.ndarray, schema: Schema, ids: pa.Array) -> np.ndarray:
    """Step of each row within its series; refuses rows that are not on the grid."""
    steps, exact = schema.freq.index(start[codes], times)
    bad = np.flatnonzero(~exact)
    if not len(bad):
        again = np.flatnonzero((codes[1:] == codes[:-1]) & (steps[1:] == steps[:-1]))
        if not len(again):
            return steps
        bad = again + 1
    row = int(bad[0])
    series = len(np.unique(codes[bad]))
    stamp = [format_time(int(times[i]), schema.tz, integer=schema.integer_time) for i in (max(row - 1, 0), row)]
    raise DataError(
        f"{len(bad)} of {len(times)} rows, in {series} of {len(ids)} series, are not on the grid of frequency "
        f"{schema.freq.alias!r}. First: series {_id(ids, codes[row])}, {stamp[0]} is followed by {stamp[1]}. "
        f"Pass the right freq=, round the stamps (for example df[{schema.roles.time!r}].dt.round('1h')), or resample."
    )


def _check_grid(indptr: np.ndarray, rows: int, steps: np.ndarray, codes: np.ndarray, ids: pa.Array) -> None:
    grid = int(indptr[-1])
    if grid > 1_000_000 and grid > _MAX_GRID_GROWTH * rows:
        jump = np.where(codes[1:] == codes[:-1], np.diff(steps), 0)
        worst = int(jump.argmax())
        raise DataError(
            f"The regular grid would have {grid} steps for {rows} rows. The largest gap, {int(jump[worst])} steps, is in "
            f"series {_id(ids, codes[worst])}. Correct the stamps there, or pass a coarser freq=."
        )


def _numeric(
    columns: Columns, schema: Schema, order: np.ndarray | None, row: np.ndarray | None, rows: int
) -> np.ndarray:
    """``values`` of the panel; the calendar columns at the end stay NaN for now."""
    plain = [(name, "target") for name in schema.roles.target]
    plain += [(name, "past") for name in schema.numeric("past")]
    plain += [(name, "known") for name in schema.roles.known_columns if name not in schema.categories]
    width = len(plain) + 2 * len(schema.roles.calendar)
    values = np.empty((rows, width), dtype=np.float32) if row is None else np.full((rows, width), np.nan, np.float32)
    for position, (name, role) in enumerate(plain):
        column = finite(number_values(columns[name], name, role), name)
        column = column if order is None else column[order]
        if row is None:
            values[:, position] = column
        else:
            values[row, position] = column
    return values


def finite(column: np.ndarray, name: str) -> np.ndarray:
    """Refuse infinity, and numbers that float32 cannot hold."""
    limit = np.finfo(np.float32).max
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(np.abs(column) > limit)
    if len(bad):
        raise DataError(
            f"Column {name!r} holds {len(bad)} infinite or too large values of {len(column)} (first {column[bad[0]]} at "
            f"row {bad[0]}; the limit is {limit:.3g}). Replace them, for example with NaN for 'not observed'."
        )
    return column.astype(np.float32, copy=False)


def codes_of(array: pa.Array, name: str, schema: Schema) -> np.ndarray:
    """Codes 1.. by the labels of the schema; 0 for missing and unseen labels (one warning)."""
    found, labels = category_values(_require_category(array, name))
    position = {label: code for code, label in enumerate(schema.categories[name], start=1)}
    lookup = np.array([position.get(label, 0) for label in labels] + [0], dtype=np.int32)
    unseen = [label for label in labels if label not in position]
    if unseen:
        rows = int(np.isin(found, [labels.index(label) for label in unseen]).sum())
        warnings.warn(
            f"Column {name!r} has {len(unseen)} categories that training did not see ({listed(map(repr, unseen))}; {rows} "
            f"rows). They are treated as unknown.",
            TsattnWarning,
            stacklevel=5,
        )
    return lookup[found]


def _categorical(
    columns: Columns, schema: Schema, order: np.ndarray | None, row: np.ndarray | None, rows: int
) -> np.ndarray:
    names = [*schema.categorical("past"), *schema.categorical("known")]
    codes = np.zeros((rows, len(names)), dtype=np.int32)
    for position, name in enumerate(names):
        column = codes_of(columns[name], name, schema)
        column = column if order is None else column[order]
        codes[slice(None) if row is None else row, position] = column
    return codes


def _require_category(array: pa.Array, name: str) -> pa.Array:
    if is_category(array) or pa.types.is_null(array.type):
        return array if is_category(array) else array.cast(pa.string())
    raise DataError(
        f"Column {name!r} was a category in training and is {array.type} here. Convert it with astype(str) or "
        f"astype('category')."
    )


def _static_numbers(
    columns: Columns, schema: Schema, order: np.ndarray | None, first: np.ndarray, codes: np.ndarray, ids: pa.Array
) -> np.ndarray:
    names = schema.numeric("static")
    values = np.full((len(first), len(names)), np.nan, dtype=np.float32)
    for position, name in enumerate(names):
        column = finite(number_values(columns[name], name, "static"), name)
        column = column if order is None else column[order]
        values[:, position] = _constant(column, np.isnan(column), name, first, codes, ids)
    return values


def _static_categories(
    columns: Columns, schema: Schema, order: np.ndarray | None, first: np.ndarray, codes: np.ndarray, ids: pa.Array
) -> np.ndarray:
    names = schema.categorical("static")
    values = np.zeros((len(first), len(names)), dtype=np.int32)
    for position, name in enumerate(names):
        column = codes_of(columns[name], name, schema)
        column = column if order is None else column[order]
        values[:, position] = _constant(column, column == 0, name, first, codes, ids)
    return values


def _constant(
    column: np.ndarray, missing: np.ndarray, name: str, first: np.ndarray, codes: np.ndarray, ids: pa.Array
) -> np.ndarray:
    """The one value per series of a static column, missing entries aside; refuses a series with two values."""
    low = np.minimum.reduceat(np.where(missing, np.inf, column), first)
    high = np.maximum.reduceat(np.where(missing, -np.inf, column), first)
    bad = np.flatnonzero(low < high)
    if len(bad):
        raise DataError(
            f"The static column {name!r} changes within {len(bad)} of {len(ids)} series (first: series "
            f"{_id(ids, bad[0])}). Give it the role known or past, or keep one value per series."
        )
    empty = np.nan if column.dtype.kind == "f" else 0
    return np.where(np.isinf(low), empty, low)


def _with_calendar(panel: Panel) -> Panel:
    names = panel.schema.roles.calendar
    if names:
        series = np.repeat(np.arange(len(panel)), panel.lengths)
        steps = np.arange(len(series)) - panel.indptr[series]
        times = panel.times(series, steps)
        panel.values[:, -2 * len(names) :] = calendar_features(names, times, panel.schema.tz)
    return panel


def _id(ids: pa.Array, code: int) -> str:
    value = ids[int(code)].as_py()
    return "(no id)" if value is None else repr(value)
