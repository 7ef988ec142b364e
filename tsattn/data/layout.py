"""Records of fixed size for the rows of a table, and the panel they make: what a streamed build sorts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tsattn.data.build import with_calendar
from tsattn.data.fill import one_each
from tsattn.data.panel import Panel
from tsattn.data.rows import Rows
from tsattn.data.schema import Roles, Schema


@dataclass(frozen=True)
class Layout:
    """Which columns a record holds, those with one value per series last."""

    numbers: tuple[tuple[str, str], ...]  # name and role
    codes: tuple[str, ...]
    moving: int  # numbers that change within a series
    moving_codes: int

    @classmethod
    def of(cls, roles: Roles, categories: dict[str, tuple[str, ...]]) -> Layout:
        """In the order of a panel; ``categories`` are kept as codes."""
        moving = [(name, "target") for name in roles.target]
        moving += [(name, "past") for name in roles.past if name not in categories]
        moving += [(name, "known") for name in roles.known_columns if name not in categories]
        static = [(name, "static") for name in roles.static if name not in categories]
        codes = [name for name in (*roles.past, *roles.known_columns) if name in categories]
        static_codes = [name for name in roles.static if name in categories]
        return cls((*moving, *static), (*codes, *static_codes), len(moving), len(codes))

    @property
    def record(self) -> np.dtype:
        """The type of a row: its series, its time, its numbers and its codes."""
        columns = ("numbers", np.float32, (len(self.numbers),)), ("codes", np.int32, (len(self.codes),))
        return np.dtype([("series", np.int32), ("time", np.int64), *columns])

    def panel(
        self, rows: Rows, records: np.ndarray, indptr: np.ndarray, place: np.ndarray | None, schema: Schema
    ) -> Panel:
        """The panel of sorted ``rows`` and their ``records [n]`` (as they came) on a grid, as ``grid_of`` gives it."""
        size, where = int(indptr[-1]), slice(None) if place is None else place
        numbers, codes = rows.sort(records["numbers"]), rows.sort(records["codes"])
        values = np.full((size, self.moving + 2 * len(schema.roles.calendar)), np.nan, dtype=np.float32)
        values[where, : self.moving] = numbers[:, : self.moving]
        moving_codes = np.zeros((size, self.moving_codes), dtype=np.int32)
        moving_codes[where] = codes[:, : self.moving_codes]
        panel = Panel(
            values=values,
            codes=moving_codes,
            static_values=_one_each(numbers, [name for name, _ in self.numbers], self.moving, rows),
            static_codes=_one_each(codes, list(self.codes), self.moving_codes, rows),
            indptr=indptr,
            start=rows.times[rows.first],
            ids=rows.ids,
            schema=schema,
        )
        return with_calendar(panel)


def _one_each(columns: np.ndarray, names: list[str], first: int, rows: Rows) -> np.ndarray:
    """The columns from ``first`` on, one value per series: ``[S, K]``."""
    out = np.empty((len(rows.first), columns.shape[1] - first), dtype=columns.dtype)
    for place in range(first, columns.shape[1]):
        column = np.ascontiguousarray(columns[:, place])
        missing = np.isnan(column) if column.dtype.kind == "f" else column == 0
        out[:, place - first] = one_each(column, missing, names[place], rows)
    return out
