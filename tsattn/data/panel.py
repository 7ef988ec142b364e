"""The panel: all series of a table as contiguous arrays on one regular grid of steps.

    S series   rows = sum of their lengths   C targets   Kp, Kk numeric past-only and known covariates

A row is one step of one series; series ``s`` owns rows ``indptr[s]:indptr[s + 1]``. A step the table lacks is a row
of NaN. ``data/build.py`` makes panels and raises every error about a user's data. The arrays may lie in files
(``data/ondisk.py``): whatever reads all rows does so block by block.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsattn.data.calendar import calendar_features, format_time
from tsattn.data.schema import Schema

_BLOCK = 1 << 20  # rows that are read at once: bounds the temporaries


def series_blocks(indptr: np.ndarray, rows: int = _BLOCK) -> Iterator[tuple[slice, slice]]:
    """All series ``indptr [S + 1]``, some at a time: which series, and which rows are theirs.

    A block has up to ``rows`` rows, or one series that is longer.
    """
    first = 0
    while first < len(indptr) - 1:
        stop = int(np.searchsorted(indptr, indptr[first] + rows, side="right")) - 1
        stop = max(stop, first + 1)
        yield slice(first, stop), slice(int(indptr[first]), int(indptr[stop]))
        first = stop


@dataclass(frozen=True, eq=False)
class Panel:
    """Validated series. Arrays are never changed after the panel is built."""

    values: np.ndarray  # [rows, C + Kp + Kk] float32: targets, past-only, known (calendar last); NaN where unobserved
    codes: np.ndarray  # [rows, Kpc + Kkc] int32: categorical past-only, then known; 0 is "unknown"
    static_values: np.ndarray  # [S, Ks] float32
    static_codes: np.ndarray  # [S, Ksc] int32
    indptr: np.ndarray  # [S + 1] int64
    start: np.ndarray  # [S] int64: time of the first step (nanoseconds UTC, or the integer)
    ids: pa.Array  # [S] sorted, in the type of the id column; one null when the table has no id column
    schema: Schema

    @property
    def lengths(self) -> np.ndarray:
        """Steps of each series, ``[S]``."""
        return np.diff(self.indptr)

    @property
    def targets(self) -> np.ndarray:
        """The target columns, a view ``[rows, C]``."""
        return self.values[:, : len(self.schema.roles.target)]

    def __len__(self) -> int:
        """Number of series ``S``."""
        return len(self.start)

    @property
    def on_disk(self) -> bool:
        """Whether the rows lie in memory-mapped files."""
        return isinstance(self.values, np.memmap)

    def checksum(self) -> int:
        """CRC-32 of everything that is learnt from, to tell whether two runs have the same data."""
        found = 0
        for array in (self.values, self.codes, self.static_values, self.static_codes, self.indptr, self.start):
            for begin in range(0, len(array), _BLOCK):
                found = zlib.crc32(np.ascontiguousarray(array[begin : begin + _BLOCK]).tobytes(), found)
        return found

    def times(self, series: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Absolute times int64 of ``steps`` of ``series`` (broadcast together); steps may lie beyond the end."""
        return self.schema.freq.at(self.start[series], steps)

    def name(self, series: int) -> str:
        """The id of a series, for messages."""
        value = self.ids[int(series)].as_py()
        return "the series" if value is None else repr(value)

    def when(self, series: int, step: int) -> str:
        """The time of a step of a series, for messages."""
        value = self.times(np.array([series]), np.array([step]))[0]
        return format_time(int(value), self.schema.tz, integer=self.schema.integer_time)

    def span(self, first: np.ndarray, stop: np.ndarray) -> Panel:
        """Steps ``first[s]`` to ``stop[s] - 1`` of each series as a panel of its own (copies these rows only).

        ``stop`` may lie beyond the end: the rows added are unobserved, but their calendar features are filled in.
        """
        lengths = stop - first
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        values = np.empty((indptr[-1], self.values.shape[1]), dtype=np.float32)
        codes = np.empty((indptr[-1], self.codes.shape[1]), dtype=np.int32)
        start = self.times(np.arange(len(self)), first)
        part = replace(self, values=values, codes=codes, indptr=indptr, start=start)
        for series, rows in series_blocks(indptr):
            values[rows], codes[rows] = self._cut(first, part, series)
        return part

    def _cut(self, first: np.ndarray, part: Panel, block: slice) -> tuple[np.ndarray, np.ndarray]:
        """Values and codes of some series of ``part``, which begins ``first[s]`` steps into this panel."""
        lengths = part.lengths[block]
        series = np.repeat(np.arange(block.start, block.stop), lengths)
        step = np.arange(part.indptr[block.start], part.indptr[block.stop]) - part.indptr[series] + first[series]
        inside = step < self.lengths[series]
        source = self.indptr[series] + np.where(inside, step, 0)
        values = np.full((len(step), self.values.shape[1]), np.nan, dtype=np.float32)
        codes = np.zeros((len(step), self.codes.shape[1]), dtype=np.int32)
        values[inside] = self.values[source[inside]]
        codes[inside] = self.codes[source[inside]]
        calendar = self.schema.roles.calendar
        if calendar and not inside.all():
            times = self.times(series[~inside], step[~inside])
            values[~inside, -2 * len(calendar) :] = calendar_features(calendar, times, self.schema.tz)
        return values, codes

    @classmethod
    def join(cls, panels: Sequence[Panel]) -> Panel:
        """The series of panels of one schema, none of them in two, as one panel."""
        first = panels[0]
        arrays = {
            name: np.concatenate([getattr(panel, name) for panel in panels])
            for name in ("values", "codes", "static_values", "static_codes", "start")
        }
        indptr = np.concatenate([[0], np.cumsum(np.concatenate([panel.lengths for panel in panels]))])
        ids = pa.concat_arrays([panel.ids for panel in panels])
        joined = cls(**arrays, indptr=indptr, ids=ids, schema=first.schema)
        return joined.select(pc.sort_indices(ids).to_numpy().astype(np.int64))

    def select(self, series: np.ndarray) -> Panel:
        """Some series (indices ``[n]``), in the order given."""
        lengths = self.lengths[series]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths) + np.repeat(self.indptr[series], lengths)
        return replace(
            self,
            values=self.values[rows],
            codes=self.codes[rows],
            static_values=self.static_values[series],
            static_codes=self.static_codes[series],
            indptr=indptr,
            start=self.start[series],
            ids=self.ids.take(pa.array(series)),
        )
