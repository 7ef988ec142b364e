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
    values = as_float32(column, name, role, rows)
    if column.dtype == np.float64 and len(column) and not np.isnan(column).all():
        mention_rounding(float(np.nanmin(column)), float(np.nanmax(column)), name, role)
    return values


def as_float32(column: np.ndarray, name: str, role: str, rows: Rows | None = None) -> np.ndarray:
    """Numbers ``[n]`` as float32; raises DataError for infinity and what float32 cannot hold."""
    with np.errstate(over="ignore"):
        values = column.astype(np.float32, copy=False)
    wrong = np.isinf(values)
    if not wrong.any():
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


def mention_rounding(low: float, high: float, name: str, role: str) -> None:
    """Warn when float32, seven digits, cannot tell values between ``low`` and ``high`` apart."""
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
    found, labels = as_category(array, name)
    lookup = label_codes(labels, schema.categories[name])
    mention_unseen(name, labels, lookup, np.bincount(found + 1, minlength=len(labels) + 1)[1:], len(found))
    return np.append(lookup, np.int32(0))[found]


def label_codes(labels: list[str], known: tuple[str, ...]) -> np.ndarray:
    """The code of each label int32 ``[n]``: its place in ``known``, counted from 1; 0 for those not in it."""
    position = {label: code for code, label in enumerate(known, start=1)}
    return np.array([position.get(label, 0) for label in labels], dtype=np.int32)


def mention_unseen(name: str, labels: list[str], codes: np.ndarray, counts: np.ndarray, rows: int) -> None:
    """Warn of labels without a code; ``counts [n]`` of each label among ``rows`` rows."""
    unseen = np.flatnonzero(codes == 0)
    if len(unseen):
        warn(
            f"Column {name!r} has {len(unseen)} categories that training did not see "
            f"({listed(repr(labels[i]) for i in unseen)}; {int(counts[unseen].sum())} of {rows} rows). They are "
            f"treated as unknown."
        )


def as_category(array: pa.Array, name: str) -> Coded:
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
        values[:, position] = one_each(column, np.isnan(column), name, rows)
    return values


def static_codes(coded: dict[str, np.ndarray], schema: Schema, rows: Rows) -> np.ndarray:
    """``[S, Ksc]`` int32, 0 where a series has no value."""
    names = schema.categorical("static")
    codes = np.zeros((len(rows.first), len(names)), dtype=np.int32)
    for position, name in enumerate(names):
        column = rows.sort(coded[name])
        codes[:, position] = one_each(column, column == 0, name, rows)
    return codes


def one_each(column: np.ndarray, missing: np.ndarray, name: str, rows: Rows) -> np.ndarray:
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
