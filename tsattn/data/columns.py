"""One Arrow column -> numpy: numbers, categories and ids. Complaints about the content of such a column start here.

Times have a file of their own, ``data/stamps.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsattn.errors import DataError, listed


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of the text types."""
    view = getattr(pa.types, "is_string_view", None)  # newer than the oldest Arrow supported
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or (view is not None and view(kind))


def is_category(array: pa.Array) -> bool:
    """Text, boolean and dictionary (pandas Categorical) columns are categories; everything else is a number."""
    return is_text(array.type) or pa.types.is_boolean(array.type) or pa.types.is_dictionary(array.type)


def number_values(array: pa.Array, name: str, role: str) -> np.ndarray:
    """Column -> float16, float32 or float64 array ``[n]`` with NaN where the value is missing.

    Raises DataError when it is not numeric: how many values, the first of them and its row, and how to convert it.
    """
    kind = array.type
    if pa.types.is_float16(kind):
        return _half(array)
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan, dtype=np.float32)
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise _not_numeric(array, name, role)
    values = array.to_numpy(zero_copy_only=False)
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def category_values(array: pa.Array) -> tuple[np.ndarray, list[str]]:
    """Column -> (codes int32 ``[n]``, -1 for missing; labels as sorted text). Equal text means equal category."""
    if pa.types.is_boolean(array.type):
        array = pc.if_else(array, "True", "False")  # as pandas and CSV files spell them
    encoded = encode(array, "")
    labels = [label_text(value) for value in encoded.dictionary.to_pylist()]
    codes = dictionary_codes(encoded)
    used = np.bincount(codes + 1, minlength=len(labels) + 1)[1:] > 0
    ordered = sorted({label for label, there in zip(labels, used, strict=True) if there})
    rank = {label: position for position, label in enumerate(ordered)}
    lookup = np.array([rank.get(label, -1) for label in labels] + [-1], dtype=np.int32)
    return lookup[codes], ordered


def label_text(value: Any) -> str:
    """The text of a category: whole floats as integers, so that a missing value elsewhere renames no category."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def id_values(array: pa.Array, name: str) -> tuple[np.ndarray, pa.Array]:
    """Id column -> (codes int32 ``[n]``, labels ``[S]``): labels are sorted and keep the type of the column.

    Raises DataError when an id is missing or names nothing. Sorting makes everything behind independent of the order
    of the rows.
    """
    encoded = encode(array, name)
    _refuse_nameless(encoded.dictionary, name)
    codes, labels = dictionary_codes(encoded), encoded.dictionary
    missing = np.flatnonzero(codes < 0)
    if len(missing):
        raise DataError(
            f"The id column {name!r} is missing in {len(missing)} of {len(codes)} rows ({row_list(missing)}). "
            f"Drop these rows, or fill in the id."
        )
    if is_text(labels.type):
        labels = labels.cast(pa.string())  # every library has its own text type; ids compare equal across them
    order = pc.sort_indices(labels).to_numpy()
    used = np.zeros(len(labels), dtype=bool)
    used[codes] = True  # a pandas Categorical may carry labels that no row has
    order = order[used[order]]
    if len(order) == len(labels) and (order == np.arange(len(order))).all():
        return codes, labels
    rank = np.full(len(labels), -1, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank[codes], labels.take(pa.array(order))


def _refuse_nameless(labels: pa.Array, name: str) -> None:
    kind, types = labels.type, pa.types
    if types.is_floating(kind) and not np.isfinite(labels.drop_null().to_numpy(zero_copy_only=False)).all():
        raise DataError(f"The id column {name!r} holds NaN or infinity. Drop these rows, or use text or integers.")
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if not (is_text(kind) or number or types.is_boolean(kind) or types.is_temporal(kind) or types.is_null(kind)):
        raise DataError(f"Column {name!r} holds {kind}, which names nothing. Use text or integers.")


def encode(array: pa.Array, name: str) -> pa.DictionaryArray:
    """Column -> dictionary array whose labels are distinct. Raises DataError for lists and other nested values."""
    view = getattr(pa.types, "is_string_view", None)
    if not pa.types.is_dictionary(array.type):
        if view is not None and view(array.type):
            array = array.cast(pa.large_string())
        try:
            return array.dictionary_encode()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            raise DataError(f"Column {name!r} holds {array.type}, which names nothing. Use text or integers.") from None
    labels = array.dictionary
    if view is not None and view(labels.type):
        labels = labels.cast(pa.large_string())
        array = pa.DictionaryArray.from_arrays(array.indices, labels)
    if len(labels.unique()) < len(labels):
        return array.dictionary_decode().dictionary_encode()
    return array


def dictionary_codes(array: pa.DictionaryArray) -> np.ndarray:
    """Positions in the dictionary, int32 ``[n]``, -1 for missing."""
    indices = array.indices
    if not pa.types.is_int32(indices.type):
        indices = indices.cast(pa.int32())
    if indices.null_count:
        indices = pc.fill_null(indices, -1)
    codes = indices.to_numpy(zero_copy_only=False)
    if array.dictionary.null_count:  # a missing value may also hide inside the dictionary
        hidden = array.dictionary.is_null().to_numpy(zero_copy_only=False)
        codes = np.where(np.append(hidden, False)[codes], np.int32(-1), codes)
    return codes


def row_list(rows: np.ndarray) -> str:
    """``row 3``, ``rows 3, 7, 9 and 5 more``: positions in the table, counted from 0, for messages."""
    return f"row{'s' if len(rows) > 1 else ''} {listed(rows.tolist(), 3)}"


def _half(array: pa.Array) -> np.ndarray:
    """float16 by hand: older Arrow versions have no casts for it."""
    raw = np.frombuffer(array.buffers()[1], dtype=np.float16)[array.offset : array.offset + len(array)]
    if not array.null_count:
        return raw
    return np.where(array.is_null().to_numpy(zero_copy_only=False), np.float16(np.nan), raw)


def _not_numeric(array: pa.Array, name: str, role: str) -> DataError:
    import pandas as pd

    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    found, fix = str(array.type), f"df[{name!r}].astype(float)"
    if is_text(array.type):
        text = pd.Series(array.to_pylist(), dtype=object)
        bad = np.flatnonzero((pd.to_numeric(text, errors="coerce").isna() & text.notna()).to_numpy())
        fix = f"pandas.to_numeric(df[{name!r}], errors='coerce')"
        found = "numbers written as text"
        if len(bad):
            found = f"text: {len(bad)} of {len(text)} values are no numbers (first {text[bad[0]]!r} at row {bad[0]})"
    elif pa.types.is_dictionary(kind):
        found = f"categories of {array.type}"
    return DataError(f"The {role} column {name!r} must be numeric, found {found}. Convert it, for example with {fix}.")
