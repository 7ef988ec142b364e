"""The ids and categories of a Parquet dataset, and how many rows each has: one pass over these columns alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsattn.data.columns import dictionary_codes, encode, id_values, is_category
from tsattn.data.files import UNREADABLE, folder_kind, unreadable
from tsattn.data.fill import as_category, label_codes, mention_unseen
from tsattn.data.schema import Roles, Schema
from tsattn.errors import DataError

if TYPE_CHECKING:
    import pyarrow.dataset

_MERGED = 1 << 20  # labels kept apart before equal ones are put together


@dataclass(frozen=True, eq=False)
class Labels:
    """What is known of a dataset after the first pass."""

    ids: pa.Array  # [S] sorted; one null without an id column
    counts: np.ndarray  # [S] rows of each series
    categories: dict[str, tuple[str, ...]]  # column -> labels, coded from 1
    folders: dict[str, pa.DataType]  # columns that are names of folders -> what these names are

    @property
    def rows(self) -> int:
        """Rows of the dataset."""
        return int(self.counts.sum())

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """A column of a batch; the name of a folder in its own type."""
        return _typed(batch, name, self.folders)

    def series(self, batch: pa.RecordBatch, roles: Roles) -> np.ndarray:
        """The series of each row of a batch, int32."""
        if roles.id is None:
            return np.zeros(len(batch), dtype=np.int32)
        encoded = encode(self.column(batch, roles.id), roles.id)
        place = pc.index_in(encoded.dictionary.cast(self.ids.type), value_set=self.ids)
        return place.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)[dictionary_codes(encoded)]


def read_labels(
    dataset: pyarrow.dataset.Dataset, path: Path, folders: list[str], roles: Roles, schema: Schema | None
) -> Labels:
    """Read the id and category columns; with ``schema`` (of training) the categories are its own.

    ``folders`` are the columns that are names of folders. Raises DataError for missing ids and an empty table; warns
    of categories that the schema does not have.
    """
    kinds = {name: folder_kind(dataset.get_fragments(), name) for name in folders}
    if schema is None:
        candidates = (*roles.known_columns, *roles.past, *roles.static)
        names = [n for n in candidates if is_category(pa.nulls(0, kinds.get(n, dataset.schema.field(n).type)))]
    else:
        names = list(schema.categories)
    found = _distinct(dataset, path, [*([] if roles.id is None else [roles.id]), *names], kinds)
    rows = int(dataset.count_rows())
    if not rows:
        raise DataError(f"The table {path} has no rows. Pass a table with at least one row.")
    if roles.id is None:
        ids, counts = pa.nulls(1), np.array([rows])
    else:
        ids, counts = _ids(*found[roles.id], roles.id)
    categories = {} if schema is None else schema.categories
    for name in names:
        values, counted, _ = found[name]
        codes, labels = as_category(values, name)
        if schema is None:
            categories[name] = tuple(labels)
            continue
        seen = np.bincount(codes + 1, counted, minlength=len(labels) + 1)[1:].astype(np.int64)
        mention_unseen(name, labels, label_codes(labels, categories[name]), seen, rows)
    return Labels(ids, counts, categories, kinds)


def _ids(values: pa.Array, counted: np.ndarray, missing: int, name: str) -> tuple[pa.Array, np.ndarray]:
    """Sorted ids, and the rows of each."""
    if missing:
        raise DataError(
            f"The id column {name!r} is missing in {missing} of {int(counted.sum()) + missing} rows. "
            f"Drop these rows, or fill in the id."
        )
    codes, ids = id_values(values, name)
    return ids, np.bincount(codes, counted, minlength=len(ids)).astype(np.int64)


Counted = tuple[pa.Array, np.ndarray, int]  # distinct values, rows of each, rows without a value


def _distinct(
    dataset: pyarrow.dataset.Dataset, path: Path, names: list[str], kinds: dict[str, pa.DataType]
) -> dict[str, Counted]:
    """The distinct values of some columns."""
    parts: dict[str, list[pa.Table]] = {name: [] for name in names}
    missing = dict.fromkeys(names, 0)
    for batch in _batches(dataset, path, names):
        for name in names:
            encoded = encode(_typed(batch, name, kinds), name)
            codes = dictionary_codes(encoded)
            missing[name] += int((codes < 0).sum())
            counts = np.bincount(codes[codes >= 0], minlength=len(encoded.dictionary))
            used = np.flatnonzero(counts)
            parts[name].append(pa.table({"v": encoded.dictionary.take(pa.array(used)), "n": counts[used]}))
            if sum(len(part) for part in parts[name]) > _MERGED and len(parts[name]) > 1:
                parts[name] = [_merged(parts[name])]
    out: dict[str, Counted] = {}
    for name in names:
        table = _merged(parts[name]) if parts[name] else pa.table({"v": pa.nulls(0), "n": pa.array([], pa.int64())})
        values = table["v"].combine_chunks()
        values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
        out[name] = values, table["n"].to_numpy(), missing[name]
    return out


def _merged(parts: Iterable[pa.Table]) -> pa.Table:
    grouped = pa.concat_tables(parts).group_by("v").aggregate([("n", "sum")])
    return pa.table({"v": grouped["v"], "n": grouped["n_sum"]})


def _batches(dataset: pyarrow.dataset.Dataset, path: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    if not names:
        return
    try:
        yield from dataset.to_batches(columns=names, batch_readahead=2, fragment_readahead=1)
    except UNREADABLE as error:
        raise unreadable(path, error) from None


def _typed(batch: pa.RecordBatch, name: str, kinds: dict[str, pa.DataType]) -> pa.Array:
    column: Any = batch.column(batch.schema.get_field_index(name))
    return column.cast(kinds[name]) if name in kinds else column
