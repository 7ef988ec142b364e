"""The rows of a table in the order of series and time: ids, times, the sort, and where a row is, for messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tsattn.data.calendar import format_time
from tsattn.data.columns import id_values, row_list
from tsattn.data.schema import Roles
from tsattn.data.stamps import time_values
from tsattn.data.table import Columns
from tsattn.errors import DataError, listed, warn

_SHOWN = 3  # places named in a message


@dataclass(frozen=True)
class Rows:
    """``n`` rows of ``S`` series, sorted by series and time, no two alike."""

    codes: np.ndarray  # [n] int32 series
    times: np.ndarray  # [n] int64
    order: np.ndarray | None  # [n] row of the table of each sorted row; None when the table is sorted
    first: np.ndarray  # [S] first sorted row of each series
    ids: pa.Array  # [S] one null without an id column
    roles: Roles
    tz: str | None
    unit: str  # resolution of the stamps, or "integer"

    def __len__(self) -> int:
        """Number of rows ``n``."""
        return len(self.codes)

    @property
    def integer(self) -> bool:
        """Whether time is counted in integers."""
        return self.unit == "integer"

    @property
    def last(self) -> np.ndarray:
        """Last sorted row of each series, ``[S]``."""
        return np.append(self.first[1:], len(self.codes)) - 1

    def name(self, code: int) -> str:
        """A series, for messages."""
        value = self.ids[int(code)].as_py()
        return "the series" if value is None else f"series {value!r}"

    def when(self, row: int) -> str:
        """Time of a sorted row, for messages."""
        return format_time(int(self.times[row]), self.tz, integer=self.integer)

    def places(self, rows: np.ndarray) -> str:
        """``series 'a' at 2020-01-01, ... and 4 more``: some sorted rows, for messages."""
        where = [f"{self.name(self.codes[row])} at {self.when(row)}" for row in rows[:_SHOWN]]
        return ", ".join(where) + (f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else "")

    def table_places(self, table_rows: np.ndarray) -> str:
        """The same for rows as the table counts them."""
        rows = table_rows[:_SHOWN]
        if self.order is not None:
            rows = np.array([int(np.flatnonzero(self.order == row)[0]) for row in rows])
        more = f" and {len(table_rows) - _SHOWN} more" if len(table_rows) > _SHOWN else ""
        return f"{self.places(rows)}{more} ({row_list(table_rows[:1])} of the table)"

    def sort(self, column: np.ndarray) -> np.ndarray:
        """A column of the table ``[n]`` in the order of the rows."""
        return column if self.order is None else column[self.order]

    def constant_step(self) -> int | None:
        """The one difference between neighbouring times within every series; None when there are several or none."""
        if len(self.first) == len(self.codes):
            return None
        steps = np.diff(self.times)
        within = int(np.argmax(np.diff(self.codes) == 0))
        usual = int(steps[within])
        steps[self.first[1:] - 1] = usual  # from one series to the next
        return usual if (steps == usual).all() else None


def read_rows(columns: Columns, roles: Roles, *, training: bool) -> Rows:
    """The rows of a table.

    ``training``: also warn when the id column seems to name rows rather than series. Raises DataError for missing ids
    and times, unreadable times, and two rows of one series and time.
    """
    if roles.id is None:
        codes, ids = np.zeros(len(columns[roles.time]), dtype=np.int32), pa.nulls(1)
    else:
        codes, ids = id_values(columns[roles.id], roles.id)
        if training:
            mention_lone(np.bincount(codes), roles.id)
    times, tz, unit = time_values(columns[roles.time], roles.time)
    return sorted_rows(codes, times, ids, roles, tz, unit)


def mention_lone(counts: np.ndarray, name: str) -> None:
    """Warn when most series have a single row (``counts [S]``): the column probably names rows."""
    lone = int((counts < 2).sum())
    if len(counts) > 1 and lone * 2 >= len(counts):
        warn(
            f"{lone} of the {len(counts)} series named by column {name!r} have a single row. Is {name!r} "
            f"the column that names the series?"
        )


def sorted_rows(codes: np.ndarray, times: np.ndarray, ids: pa.Array, roles: Roles, tz: str | None, unit: str) -> Rows:
    """Rows of series ``codes [n]`` (all of ``ids`` occur) at ``times [n]``; refuses two of one series and time."""
    order = sort_order(codes, times)
    if order is not None:
        codes, times = codes[order], times[order]
    first = np.flatnonzero(np.diff(codes, prepend=np.int32(-1)))
    rows = Rows(codes, times, order, first, ids, roles, tz, unit)
    _refuse_duplicates(rows)
    return rows


def sort_order(codes: np.ndarray, times: np.ndarray) -> np.ndarray | None:
    """Row order by series and time; None when the rows are in that order already."""
    later = times[1:] >= times[:-1]
    if ((codes[1:] > codes[:-1]) | (later & (codes[1:] == codes[:-1]))).all():
        return None
    # Two passes, the minor key first; 16-bit keys are sorted by counting. Equal keys are refused later: any order
    # will do.
    narrow = codes.astype(np.uint16) if int(codes.max()) < 2**16 else codes
    by_time = None if later.all() else np.argsort(times)
    order = np.argsort(narrow if by_time is None else narrow[by_time], kind="stable")
    return order if by_time is None else by_time[order]


def _refuse_duplicates(rows: Rows) -> None:
    same = (rows.times[1:] == rows.times[:-1]) & (rows.codes[1:] == rows.codes[:-1])
    if not same.any():
        return
    twice, roles = np.flatnonzero(same), rows.roles
    if roles.id is None:
        count, distinct = len(rows), len(np.unique(rows.times))
        hint = ""
        if distinct * 2 <= count:
            hint = f" {count} rows share {distinct} times: did you forget the id column (id=...)?"
        keys = [roles.time]
    else:
        hint = f" {len(np.unique(rows.codes[twice]))} of {len(rows.ids)} series are affected."
        keys = [roles.id, roles.time]
    raise DataError(
        f"{len(twice)} duplicate rows in column{'s' if len(keys) > 1 else ''} {listed(map(repr, keys))}: more than "
        f"one row for the same series and time ({rows.places(twice)}).{hint} Keep one row each, for example "
        f"df.drop_duplicates({keys}), or aggregate them with groupby."
    )
