"""Columns -> the arrays of a panel: targets, covariates, statics, and the codes of categories."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tsattn.data.columns import category_values, is_category, label_text, number_values
from tsattn.data.rows import Rows
from tsattn.data.schema import Schema
from tsattn.data.table import Columns
from tsattn.errors import DataError, listed, warn

Coded = tuple[np.ndarray, list[str]]  # codes int32 [n] (-1 missing) into sorted labels


def float32_values(array: pa.Array, name: str, role: str, rows: Rows | None = None) -> np.ndarray:
    """Column -> float32 ``[n]`` in the order of the table, NaN where missing.

    Raises DataError when it is not numeric, and for infinity and numbers that float32 cannot hold; ``rows`` (of the
    whole table) lets the message say which series and times.
    """
    column = number_values(array, name, role)
    with np.errstate(over="ignore"):
        values = column.astype(np.float32, copy=False)
    wrong = np.isinf(values)
    if not wrong.any():
        _mention_rounding(column, name, role)
        return values
    bad = np.flatnonzero(wrong)
    infinite = int(np.isinf(column[bad]).sum())
    kinds = [f"{infinite} infinite"] * (infinite > 0)
    kinds += [f"{len(bad) - infinite} too large"] * (infinite < len(bad))
    where = f"row {bad[0]}" if rows is None else rows.table_places(bad)
    raise DataError(
        f"The {role} column {name!r} holds {' and '.join(kinds)} of {len(column)} values (first "
        f"{float(column[bad[0]])!r}: {where}). Numbers must stay within +-{np.finfo(np.float32).max:.3g}: replace "
        f"them, for example by NaN for 'not observed', or change the unit."
    )


def _mention_rounding(column: np.ndarray, name: str, role: str) -> None:
    """Warn when float32, seven digits, cannot tell the values of a column apart."""
    if column.dtype != np.float64 or not len(column) or np.isnan(column).all():
        return
    low, high = float(np.nanmin(column)), float(np.nanmax(column))
    step = max(abs(low), abs(high)) * float(np.finfo(np.float32).eps)
    if low < high and step > 0.01 * (high - low):
        warn(
            f"The {role} column {name!r} lies between {low:.9g} and {high:.9g}: in float32 its values keep steps of "
            f"{step:.2g}. Subtract a constant from the column, or take differences."
        )


def coded_columns(columns: Columns, schema: Schema, known: dict[str, Coded] | None) -> dict[str, np.ndarray]:
    """Codes int32 ``[n]`` of every categorical column; ``known`` are the ones already read for the schema itself."""
    if known is not None:
        return {name: codes + 1 for name, (codes, _) in known.items()}
    return {name: codes_of(columns[name], name, schema) for name in schema.categories}


def codes_of(array: pa.Array, name: str, schema: Schema) -> np.ndarray:
    """Codes int32 from 1 by the labels of the schema; 0 for missing and for unseen labels (one warning)."""
    found, labels = _as_category(array, name)
    position = {label: code for code, label in enumerate(schema.categories[name], start=1)}
    lookup = np.array([position.get(label, 0) for label in labels] + [0], dtype=np.int32)
    codes = lookup[found]
    unseen = [label for label in labels if label not in position]
    if unseen:
        count = int(((codes == 0) & (found >= 0)).sum())
        warn(
            f"Column {name!r} has {len(unseen)} categories that training did not see ({listed(map(repr, unseen))}; "
            f"{count} of {len(codes)} rows). They are treated as unknown."
        )
    return codes


def _as_category(array: pa.Array, name: str) -> Coded:
    """A column that was a category in training; a file may have turned its labels into numbers."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), -1, dtype=np.int32), []
    if is_category(array):
        return category_values(array)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        labels = [None if value is None or value != value else label_text(value) for value in array.to_pylist()]
        return category_values(pa.array(labels, type=pa.string()))
    raise DataError(
        f"Column {name!r} was a category in training and is {kind} here. Convert it with df[{name!r}].astype(str)."
    )


def panel_values(columns: Columns, schema: Schema, rows: Rows, place: np.ndarray | None, size: int) -> np.ndarray:
    """``values [size, C + Kp + Kk]`` of the panel; the calendar columns at the end stay NaN for now."""
    plain = [(name, "target") for name in schema.roles.target]
    plain += [(name, "past") for name in schema.numeric("past")]
    plain += [(name, "known") for name in schema.roles.known_columns if name not in schema.categories]
    width = len(plain) + 2 * len(schema.roles.calendar)
    values = np.empty((size, width), np.float32) if place is None else np.full((size, width), np.nan, np.float32)
    for position, (name, role) in enumerate(plain):
        column = rows.sort(float32_values(columns[name], name, role, rows))
        values[slice(None) if place is None else place, position] = column
    return values


def panel_codes(
    coded: dict[str, np.ndarray], schema: Schema, rows: Rows, place: np.ndarray | None, size: int
) -> np.ndarray:
    """``codes [size, Kpc + Kkc]`` of the panel; 0 on the steps that the table lacks."""
    names = [*schema.categorical("past"), *schema.categorical("known")]
    codes = np.zeros((size, len(names)), dtype=np.int32)
    for position, name in enumerate(names):
        codes[slice(None) if place is None else place, position] = rows.sort(coded[name])
    return codes


def static_values(columns: Columns, schema: Schema, rows: Rows) -> np.ndarray:
    """``[S, Ks]`` float32, NaN where a series has no value."""
    names = schema.numeric("static")
    values = np.full((len(rows.first), len(names)), np.nan, dtype=np.float32)
    for position, name in enumerate(names):
        column = rows.sort(float32_values(columns[name], name, "static", rows))
        values[:, position] = _one_each(column, np.isnan(column), name, rows)
    return values


def static_codes(coded: dict[str, np.ndarray], schema: Schema, rows: Rows) -> np.ndarray:
    """``[S, Ksc]`` int32, 0 where a series has no value."""
    names = schema.categorical("static")
    codes = np.zeros((len(rows.first), len(names)), dtype=np.int32)
    for position, name in enumerate(names):
        column = rows.sort(coded[name])
        codes[:, position] = _one_each(column, column == 0, name, rows)
    return codes


def _one_each(column: np.ndarray, missing: np.ndarray, name: str, rows: Rows) -> np.ndarray:
    """The one value per series of a static column ``[n]``, missing entries aside; refuses a series with two
    values."""
    there = np.flatnonzero(~missing)
    empty = np.full(len(rows.first), np.nan if column.dtype.kind == "f" else 0, dtype=column.dtype)
    if not len(there):
        return empty
    owner = rows.codes[there]
    first = np.flatnonzero(np.diff(owner, prepend=np.int32(-1)))  # the rows are in the order of the series
    empty[owner[first]] = column[there[first]]
    bad = there[column[there] != empty[owner]]
    if len(bad):
        changed = len(np.unique(rows.codes[bad]))
        raise DataError(
            f"The static column {name!r} changes within {changed} of {len(rows.ids)} series (first: "
            f"{rows.places(bad[:1])}). Give it the role known or past, or keep one value per series."
        )
    return empty
