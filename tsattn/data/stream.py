"""Parquet -> a panel in files, streamed: the same panel as from memory, a few million rows at a time.

Three steps, each of which goes on where it was stopped:

    labels   one pass over the id and category columns: which there are, and how many rows each series has
    spill    one pass over everything: rows become fixed records, sorted into buckets of whole series
    arrays   bucket by bucket: sort, check, lay out on the grid, append to the arrays

Buckets are ranges of the sorted ids, so the arrays come out in the order of the panel.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tsattn.data.build import (
    check_time_kind,
    closest_rows,
    grid_of,
    inferred_frequency,
    is_sparse,
    mention_sparse,
    refuse_calendar_of_integers,
    refuse_coarser,
    widest_gap,
)
from tsattn.data.calendar import Frequency
from tsattn.data.columns import number_values
from tsattn.data.files import UNREADABLE, parquet_dataset, unreadable
from tsattn.data.fill import as_category, as_float32, label_codes, mention_rounding
from tsattn.data.labels import Labels, read_labels
from tsattn.data.layout import Layout
from tsattn.data.ondisk import ARRAYS, OnDisk, content_key, open_panel, write_description
from tsattn.data.panel import Panel, series_blocks
from tsattn.data.rows import Rows, mention_lone, sorted_rows
from tsattn.data.schema import Roles, Schema
from tsattn.data.stamps import time_values
from tsattn.errors import DataError
from tsattn.locking import FileLock
from tsattn.writing import write_whole

if TYPE_CHECKING:
    import pyarrow.dataset

_BUCKET = 1 << 21  # rows that are sorted at once, unless a series is longer
_BATCH = 1 << 18  # rows that are read at once
_STATE_SECONDS = 2.0  # between two notes of how far the spill is


def stream_panel(source: OnDisk, roles: Roles, *, freq: Any = None, schema: Schema | None = None) -> Panel:
    """The panel of a Parquet file or folder, from its files in the cache; they are made when they are not there.

    Arguments and errors as in ``build_panel``. Warnings come when the files are made, not when they are found.
    """
    try:
        folder = source.folder / content_key(source, roles, freq, schema)
        panel = open_panel(folder)
        if panel is not None:
            return panel
        source.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock"))():  # another process may be at it: then its files are read
            panel = open_panel(folder)
            if panel is None:
                _Build(source, roles, freq, schema, folder).run()
                panel = open_panel(folder)
    except OSError as error:
        raise DataError(
            f"Cannot keep the arrays of {source.path} in {source.folder}: {error}. They take about as much space as "
            f"the table itself, and twice that while they are made; what is done is kept, and the next run goes on "
            f"from there. Free some space, or name another folder: OnDisk(path, cache=FOLDER)."
        ) from None
    assert panel is not None
    return panel


@dataclass
class _State:
    """How far a build is; plain data, kept as JSON beside its files."""

    pieces: int = 0  # row groups spilled
    rows: int = 0  # rows spilled
    spilled: dict[str, int] = field(default_factory=dict)  # bytes of each bucket
    buckets: int = 0  # laid out
    written: dict[str, int] = field(default_factory=dict)  # bytes of each array
    tz: str | None = None
    unit: str = ""  # of the times; "" before the first batch
    schema: dict[str, Any] | None = None  # once the frequency is known
    limits: dict[str, list[float]] = field(default_factory=dict)  # column -> least and greatest number
    grid: int = 0  # steps of the grid
    gap: int = 0  # widest, in steps
    gap_text: str = ""
    pairs: int = 0  # neighbouring rows of one series
    closest: int = 0  # steps between the closest of them


class _Build:
    """One build of a panel in files."""

    def __init__(self, source: OnDisk, roles: Roles, freq: Any, schema: Schema | None, folder: Path) -> None:
        self.path, self.roles, self.freq, self.given, self.folder = Path(source.path), roles, freq, schema, folder
        self.part = folder.with_suffix(".part")
        self.state = _State()
        self.dataset, folders = parquet_dataset(self.path, roles.columns())
        self.labels: Labels = read_labels(self.dataset, self.path, folders, roles, schema)
        self.layout = Layout.of(roles, self.labels.categories)

    def run(self) -> None:
        """Go on from where the last build stopped, to the end."""
        try:
            self._run()
        except DataError:  # other data or another freq= will be another panel: nothing here is of use to it
            shutil.rmtree(self.part, ignore_errors=True)
            raise

    def _run(self) -> None:
        self._resume()
        bounds = np.concatenate([[0], np.cumsum(self.labels.counts)])
        self.buckets = [series for series, _ in series_blocks(bounds, _BUCKET)]
        self._spill()
        self._lay_out()
        self._finish()

    # ------------------------------------------------------------------ state

    def _resume(self) -> None:
        """Load how far an earlier build came, and cut off what it wrote after its last note."""
        self.part.mkdir(exist_ok=True)
        try:
            found = json.loads((self.part / "state.json").read_text(encoding="utf-8"))
            if set(found) != set(asdict(self.state)):
                raise ValueError("the note is of another version")
            self.state = _State(**found)
            if self.state.schema is not None:
                Schema.from_dict(self.state.schema)
            for name, size in {**self.state.spilled, **self.state.written}.items():
                if (self.part / name).stat().st_size < size:
                    raise ValueError("a file is shorter than it was")
                os.truncate(self.part / name, size)
        except (OSError, ValueError, TypeError, RecursionError):
            shutil.rmtree(self.part)
            self.part.mkdir()
            self.state = _State()
        known = {**self.state.spilled, **self.state.written, "state.json": 0}
        for file in self.part.iterdir():
            if file.name not in known:
                file.unlink()

    def _note(self) -> None:
        write_whole(self.part / "state.json", json.dumps(asdict(self.state)).encode())

    # ------------------------------------------------------------------ spill

    def _spill(self) -> None:
        """Rows into buckets; every row group once."""
        starts = np.array([series.start for series in self.buckets])
        pieces = [piece for whole in self.dataset.get_fragments() for piece in whole.split_by_row_group()]
        noted = time.monotonic()
        for number in range(self.state.pieces, len(pieces)):
            for batch in _batches(self.dataset, pieces[number], self.roles.columns(), self.path):
                if not len(batch):  # a file without rows; it says nothing of the kind of times either
                    continue
                self._append(self._records(batch), starts)
                self.state.rows += len(batch)
                self._show("reading", self.state.rows)
            self.state.pieces = number + 1
            if time.monotonic() - noted > _STATE_SECONDS or self.state.pieces == len(pieces):
                self._note()
                noted = time.monotonic()

    def _records(self, batch: pa.RecordBatch) -> np.ndarray:
        """Rows as records; raises DataError for values that cannot be read, and says in which rows."""
        out = np.empty(len(batch), dtype=self.layout.record)
        try:
            out["series"] = self.labels.series(batch, self.roles)
            out["time"], tz, unit = time_values(self.labels.column(batch, self.roles.time), self.roles.time)
            self._same_times(tz, unit)
            for place, (name, role) in enumerate(self.layout.numbers):
                column = number_values(self.labels.column(batch, name), name, role)
                out["numbers"][:, place] = as_float32(column, name, role)
                self._widen(name, column)
        except DataError as error:
            raise DataError(
                f"{error} (The rows are counted from row {self.state.rows} of {self.path}, of which "
                f"{len(batch)} are read at a time.)"
            ) from None
        for place, name in enumerate(self.layout.codes):
            found, labels = as_category(self.labels.column(batch, name), name)
            out["codes"][:, place] = np.append(label_codes(labels, self.labels.categories[name]), np.int32(0))[found]
        return out

    def _same_times(self, tz: str | None, unit: str) -> None:
        """All batches must hold the same kind of times."""
        if not self.state.unit:
            self.state.tz, self.state.unit = tz, unit
            refuse_calendar_of_integers(self.roles, unit == "integer")
        if (tz, unit) != (self.state.tz, self.state.unit):
            found = [f"{u}{'' if z is None else ' in ' + z}" for z, u in ((self.state.tz, self.state.unit), (tz, unit))]
            raise DataError(
                f"The time column {self.roles.time!r} changes its kind from {found[0]} to {found[1]}. Write it as "
                f"stamps with one zone."
            )

    def _widen(self, name: str, column: np.ndarray) -> None:
        """Keep the range of a column of doubles, for the word on rounding."""
        if column.dtype != np.float64 or np.isnan(column).all():
            return
        low, high = self.state.limits.get(name, [np.inf, -np.inf])
        self.state.limits[name] = [min(low, float(np.nanmin(column))), max(high, float(np.nanmax(column)))]

    def _append(self, records: np.ndarray, starts: np.ndarray) -> None:
        """Records to the files of their buckets."""
        bucket = np.searchsorted(starts, records["series"], side="right") - 1
        if (bucket[1:] < bucket[:-1]).any():
            narrow = bucket.astype(np.uint16) if len(starts) < 2**16 else bucket  # 16 bits are sorted by counting
            order = np.argsort(narrow, kind="stable")
            records, bucket = records[order], bucket[order]
        cuts = np.flatnonzero(np.diff(bucket)) + 1
        for part, first in zip(np.split(records, cuts), bucket[np.concatenate([[0], cuts])], strict=True):
            name = f"bucket-{first}"
            with (self.part / name).open("ab") as file:
                part.tofile(file)
            self.state.spilled[name] = self.state.spilled.get(name, 0) + part.nbytes

    # ------------------------------------------------------------------ arrays

    def _lay_out(self) -> None:
        """Every bucket as a panel, appended to the arrays."""
        schema = self._schema() if self.state.schema is None else Schema.from_dict(self.state.schema)
        for number in range(self.state.buckets, len(self.buckets)):
            with self._counted_in(number):
                rows, records = self._rows(number)
                step = rows.constant_step()
                check_time_kind(schema, rows)
                self._same_frequency(rows, step, schema)
                indptr, place = grid_of(rows, schema, step)
                self._count(rows, indptr, place)
                self._write(self.layout.panel(rows, records, indptr, place, schema))
            self.state.schema = schema.to_dict()  # not before the times were found to be of its kind
            self.state.buckets = number + 1
            self.state.spilled.pop(f"bucket-{number}")
            self._note()
            (self.part / f"bucket-{number}").unlink()
            self._show("laying out", int(self.labels.counts[: self.buckets[number].stop].sum()))

    @contextmanager
    def _counted_in(self, number: int) -> Iterator[int]:
        """Say in a fault of a bucket that it counts the rows of the bucket alone."""
        try:
            yield number
        except DataError as error:
            if len(self.buckets) == 1:
                raise
            series = self.buckets[number]
            rows = int(self.labels.counts[series].sum())
            raise DataError(
                f"{error} (Counted in {rows:,} of the {self.labels.rows:,} rows: series {series.start + 1:,} to "
                f"{series.stop:,} of {len(self.labels.counts):,} in order. The others may hold more of it.)"
            ) from None

    def _rows(self, number: int) -> tuple[Rows, np.ndarray]:
        """The sorted rows of a bucket, and its records as they came."""
        records = np.fromfile(self.part / f"bucket-{number}", dtype=self.layout.record)
        series = self.buckets[number]
        ids = self.labels.ids.slice(series.start, series.stop - series.start)
        codes = records["series"] - np.int32(series.start)
        times = np.ascontiguousarray(records["time"])
        return sorted_rows(codes, times, ids, self.roles, self.state.tz, self.state.unit), records

    def _schema(self) -> Schema:
        """The given schema, or one with the frequency of the first bucket that tells it."""
        if self.given is not None:
            return self.given
        if self.freq is not None:
            frequency = Frequency.parse(self.freq, tz=self.state.tz)
        else:
            telling = [i for i, series in enumerate(self.buckets) if self.labels.counts[series].max() > 1]
            with self._counted_in(telling[0] if telling else 0) as number:
                rows, _ = self._rows(number)
                frequency = inferred_frequency(rows, rows.constant_step())
        return Schema(self.roles, frequency, self.state.unit, self.labels.categories)

    def _same_frequency(self, rows: Rows, step: int | None, schema: Schema) -> None:
        """What was inferred from the first series must be what the others say."""
        if self.given is not None or self.freq is not None or len(rows.first) == len(rows):
            return
        found = inferred_frequency(rows, step)
        if found != schema.freq:
            raise DataError(
                f"The frequency cannot be inferred: it is {schema.freq.alias!r} in the first series, and "
                f"{found.alias!r} from {rows.name(0)} to {rows.name(len(rows.ids) - 1)}. Pass freq=."
            )

    def _count(self, rows: Rows, indptr: np.ndarray, place: np.ndarray | None) -> None:
        """What can only be judged when all buckets are laid out."""
        state = self.state
        state.grid += int(indptr[-1])
        gap, text = widest_gap(rows, place)
        if gap > state.gap:
            state.gap, state.gap_text = gap, text
        pairs, closest = closest_rows(rows, place)
        state.pairs += pairs
        state.closest = min(closest, state.closest) if pairs and state.closest else closest or state.closest

    def _write(self, panel: Panel) -> None:
        arrays = {name: getattr(panel, name) for name in ARRAYS}
        for name, array in arrays.items():
            with (self.part / name).open("ab") as file:
                np.ascontiguousarray(array, dtype=ARRAYS[name]).tofile(file)
            self.state.written[name] = self.state.written.get(name, 0) + array.size * np.dtype(ARRAYS[name]).itemsize

    # ------------------------------------------------------------------ end

    def _finish(self) -> None:
        """The checks that need all rows, then the files become the panel in one step."""
        state = self.state
        schema = Schema.from_dict(state.schema or {})
        if self.given is not None:
            refuse_coarser([(state.pairs, state.closest)], schema)
        else:
            self._mention(schema)
        for name in ARRAYS:
            with (self.part / name).open("ab") as file:
                os.fsync(file.fileno())
        write_description(self.part, schema, self.labels.ids)
        (self.part / "state.json").unlink()
        if self.folder.exists():  # of a panel that was not whole
            shutil.rmtree(self.folder)
        os.replace(self.part, self.folder)
        if sys.stderr.isatty():
            print(file=sys.stderr)

    def _mention(self, schema: Schema) -> None:
        if self.roles.id is not None:
            mention_lone(self.labels.counts, self.roles.id)
        if is_sparse(self.state.rows, self.state.grid):
            mention_sparse(schema, self.state.rows, self.state.grid, self.state.gap_text)
        for name, role in self.layout.numbers:
            if name in self.state.limits:
                low, high = self.state.limits[name]
                mention_rounding(low, high, name, role)

    def _show(self, what: str, rows: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{what} {self.path.name}: {rows:,} of {self.labels.rows:,} rows ", end="", file=sys.stderr)


def _batches(dataset: pyarrow.dataset.Dataset, piece: Any, columns: list[str], path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of one row group, with little read ahead."""
    from pyarrow.dataset import ParquetFragmentScanOptions

    try:
        yield from piece.to_batches(
            schema=dataset.schema,
            columns=columns,
            batch_size=_BATCH,
            batch_readahead=1,
            fragment_readahead=1,
            fragment_scan_options=ParquetFragmentScanOptions(use_buffered_stream=True, pre_buffer=False),
        )
    except UNREADABLE as error:
        raise unreadable(path, error) from None
