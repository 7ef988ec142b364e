"""Table -> Panel, vectorised: the schema, the grid, and the checks that need more than one column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tsattn.data.calendar import Frequency, calendar_features, infer_frequency
from tsattn.data.columns import category_values, is_category
from tsattn.data.fill import Coded, coded_columns, panel_codes, panel_values, static_codes, static_values
from tsattn.data.ondisk import on_disk
from tsattn.data.panel import Panel
from tsattn.data.rows import Rows, read_rows
from tsattn.data.schema import Roles, Schema
from tsattn.data.table import Columns, check_columns, column_names, read_columns
from tsattn.data.walltime import DAY, HOUR
from tsattn.errors import DataError, warn

DEFAULT_ID = "unique_id"
_MAX_GRID_GROWTH = 50  # a stray stamp can stretch the grid by years: refuse rather than fill the memory
_SPARSE = 5  # a grid this many times longer than the table is worth a word
_CHUNK = 1 << 20  # rows whose steps are computed at once: bounds the temporaries


def build_panel(
    table: Any,
    roles: Roles,
    *,
    freq: Any = None,
    schema: Schema | None = None,
    spacing: list[tuple[int, int]] | None = None,
) -> Panel:
    """The panel of ``table``; in memory-mapped files for an ``OnDisk``, or a Parquet path too large for the memory.

    ``freq`` is a pandas alias (old or new), an offset, a timedelta or an integer step; None infers it. With
    ``schema`` (of the training table) the frequency and the categories are taken from there, and an unseen category
    becomes "unknown" with one warning. Missing steps of the grid become unobserved rows; the table itself is not
    changed. ``spacing``: the table is one part of several. Its number of gaps between rows and the smallest of them
    (in steps) are appended for ``refuse_coarser``, which can only be asked of all parts together.

    Raises DataError naming column, what was found, where, how many, and the fix.
    """
    disk = on_disk(table, len(roles.columns()))
    table = table if disk is None else disk.path
    if schema is None and roles.id == DEFAULT_ID and DEFAULT_ID not in column_names(table):
        roles = replace(roles, id=None)  # a single series needs no id column
    if schema is not None and roles.id is None and DEFAULT_ID in column_names(table):
        _refuse_ids(table)
    if disk is not None:
        from tsattn.data.stream import stream_panel  # it builds on this module

        check_columns(table, roles.columns())
        return stream_panel(disk, roles, freq=freq, schema=schema)
    columns = read_columns(table, roles.columns(), id=roles.id, covariates=roles.covariates)
    rows = read_rows(columns, roles, training=schema is None)
    step = rows.constant_step()
    training, met = schema is None, None
    if schema is None:
        schema, met = _schema(columns, rows, freq, step)
    check_time_kind(schema, rows)
    indptr, place = grid_of(rows, schema, step)
    if training and is_sparse(len(rows), int(indptr[-1])):
        mention_sparse(schema, len(rows), int(indptr[-1]), widest_gap(rows, place)[1])
    elif spacing is not None:
        spacing.append(closest_rows(rows, place))
    elif not training:
        refuse_coarser([closest_rows(rows, place)], schema)
    coded = coded_columns(columns, schema, met)
    size = int(indptr[-1])
    panel = Panel(
        values=panel_values(columns, schema, rows, place, size),
        codes=panel_codes(coded, schema, rows, place, size),
        static_values=static_values(columns, schema, rows),
        static_codes=static_codes(coded, schema, rows),
        indptr=indptr,
        start=rows.times[rows.first],
        ids=rows.ids,
        schema=schema,
    )
    return with_calendar(panel)


def _schema(columns: Columns, rows: Rows, freq: Any, step: int | None) -> tuple[Schema, dict[str, Coded]]:
    """The schema of a training table, and the categories met on the way."""
    roles = rows.roles
    refuse_calendar_of_integers(roles, rows.integer)
    frequency = inferred_frequency(rows, step) if freq is None else Frequency.parse(freq, tz=rows.tz)
    names = [name for name in (*roles.known_columns, *roles.past, *roles.static) if is_category(columns[name])]
    coded = {name: category_values(columns[name]) for name in names}
    categories = {name: tuple(labels) for name, (_, labels) in coded.items()}
    return Schema(roles, frequency, rows.unit, categories), coded


def refuse_calendar_of_integers(roles: Roles, integer: bool) -> None:
    """Raise DataError when calendar features are asked of a time column that holds integers."""
    if roles.calendar and integer:
        raise DataError(
            f"Calendar features ({', '.join(roles.calendar)}) need stamps, but the time column {roles.time!r} holds "
            f"integers. Leave them out of known=, or pass stamps."
        )


def inferred_frequency(rows: Rows, step: int | None) -> Frequency:
    """The frequency of a table, from a part of it where one step throughout makes the rest the same."""
    times, codes = rows.times, rows.codes
    if step is not None and (rows.integer or step < 23 * HOUR):
        within = int(np.argmax(codes[1:] == codes[:-1]))
        times, codes = times[within : within + 2], codes[within : within + 2]
    elif step is not None and rows.tz is None and step < 28 * DAY:
        long = rows.first[rows.last > rows.first]
        pairs = np.stack([long, long + 1], axis=1).ravel()
        times, codes = times[pairs], codes[pairs]
    try:
        return infer_frequency(
            times,
            codes,
            tz=rows.tz,
            integer=rows.integer,
            name_of=lambda code: rows.name(code).removeprefix("series "),
        )
    except DataError as error:
        raise DataError(f"Time column {rows.roles.time!r}: {error}") from None


def check_time_kind(schema: Schema, rows: Rows) -> None:
    """Raise DataError when the times of a table are not of the kind that the schema counts in."""
    name = rows.roles.time
    if rows.integer != (schema.freq.kind == "integer"):
        found, wanted = ("integers", "stamps") if rows.integer else ("stamps", "integers")
        raise DataError(
            f"The time column {name!r} holds {found}, but the frequency {schema.freq.alias!r} needs {wanted}. "
            f"{'Parse it with pandas.to_datetime' if rows.integer else 'Number the steps'}, or pass another freq=."
        )
    if (rows.tz is None) != (schema.tz is None):
        fix = f"tz_localize({schema.tz!r})" if rows.tz is None else "tz_localize(None)"
        raise DataError(
            f"The time column {name!r} {'has no zone' if rows.tz is None else 'is in ' + rows.tz}, the training "
            f"table {'had none' if schema.tz is None else 'was in ' + schema.tz}. Use df[{name!r}].dt.{fix}."
        )


def grid_of(rows: Rows, schema: Schema, step: int | None) -> tuple[np.ndarray, np.ndarray | None]:
    """``indptr [S + 1]`` of the regular grid, and the place of each row on it ``[n]`` (None: the rows are the
    grid)."""
    freq = schema.freq
    straight = freq.kind in ("integer", "tick") or (freq.kind == "day" and freq.tz is None)
    if step is not None and straight and step == freq.n * (DAY if freq.kind == "day" else 1):
        return np.append(rows.first, len(rows)), None
    steps = _steps(rows, schema)
    indptr = np.concatenate([[0], np.cumsum(steps[rows.last] + 1)])
    steps += indptr[rows.codes]
    _check_growth(rows, indptr, steps)
    if indptr[-1] == len(rows):
        return indptr, None
    return indptr, steps


def _steps(rows: Rows, schema: Schema) -> np.ndarray:
    """Step of each row within its series ``[n]`` int64; refuses rows that are not on the grid."""
    start = rows.times[rows.first]
    steps, exact = np.empty(len(rows), dtype=np.int64), np.empty(len(rows), dtype=bool)
    for begin in range(0, len(rows), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        steps[part], exact[part] = schema.freq.index(start[rows.codes[part]], rows.times[part])
    # Two stamps may fall on one step where the clock is set back: the later one is off the grid.
    exact[1:] &= (steps[1:] != steps[:-1]) | (rows.codes[1:] != rows.codes[:-1])
    bad = np.flatnonzero(~exact)
    if len(bad):
        raise _off_grid(rows, schema, bad)
    return steps


def _off_grid(rows: Rows, schema: Schema, bad: np.ndarray) -> DataError:
    row, name = int(bad[0]), rows.roles.time
    series = len(np.unique(rows.codes[bad]))
    start = rows.first[rows.codes[row]]
    head = (
        f"{len(bad)} of {len(rows)} rows, in {series} of {len(rows.ids)} series, are not on the grid of frequency "
        f"{schema.freq.alias!r} (time column {name!r}). First: {rows.name(rows.codes[row])}"
    )
    if not schema.freq.on_calendar(rows.times[start]).all():
        return DataError(f"{head} starts at {rows.when(start)}: {schema.freq.expected()}.")
    if rows.integer:
        fix = "or renumber the steps"
    else:
        unit = schema.freq.alias if schema.freq.kind == "tick" else "1h"
        fix = f"round the stamps (for example df[{name!r}].dt.round({unit!r})), or resample"
    return DataError(
        f"{head}, {rows.when(row - 1)} is followed by {rows.when(row)}, while the series starts at "
        f"{rows.when(start)}. Pass the right freq=, {fix}."
    )


def widest_gap(rows: Rows, place: np.ndarray | None) -> tuple[int, str]:
    """The most steps between two neighbouring rows of a series, and a sentence that says where; (1, "") if none."""
    if place is None:
        return 1, ""
    jump = np.where(rows.codes[1:] == rows.codes[:-1], np.diff(place), 0)
    worst = int(jump.argmax()) if len(jump) else 0
    if not len(jump) or jump[worst] <= 1:
        return 1, ""
    return int(jump[worst]), (
        f"The largest gap, {int(jump[worst])} steps, is in {rows.name(rows.codes[worst])} from {rows.when(worst)} to "
        f"{rows.when(worst + 1)}."
    )


def _refuse_ids(table: Any) -> None:
    """A model of one series without ids cannot read several: they would be glued together."""
    ids = pc.unique(read_columns(table, [DEFAULT_ID], id=DEFAULT_ID)[DEFAULT_ID])
    if len(ids) > 1:
        raise DataError(
            f"The training table was one series without an id column; this one has {len(ids)} ids in {DEFAULT_ID!r}. "
            f"Forecast them one at a time, or fit on a table with ids."
        )


def closest_rows(rows: Rows, place: np.ndarray | None) -> tuple[int, int]:
    """How many neighbouring rows of one series there are, and the fewest steps between two (0 without any)."""
    same = rows.codes[1:] == rows.codes[:-1]
    if place is None:
        return int(same.sum()), int(same.any())
    gaps = np.diff(place)[same]
    return len(gaps), int(gaps.min()) if len(gaps) else 0


def refuse_coarser(spacing: list[tuple[int, int]], schema: Schema) -> None:
    """A table of a coarser frequency lies on the grid, too, but its forecasts would come a step too early.

    ``spacing``: of each part of the table, the number of gaps between rows and the smallest, in steps.
    """
    gaps, closest = sum(count for count, _ in spacing), min((least for count, least in spacing if count), default=1)
    if gaps >= 2 and closest > 1:
        raise DataError(
            f"The model was trained at frequency {schema.freq.alias!r}, but no two rows of this table (time column "
            f"{schema.roles.time!r}) are one step apart: the closest are {closest}. Resample it first."
        )


def _check_growth(rows: Rows, indptr: np.ndarray, place: np.ndarray) -> None:
    grid = int(indptr[-1])
    if grid > 1_000_000 and grid > _MAX_GRID_GROWTH * len(rows):
        raise DataError(
            f"The regular grid of the time column {rows.roles.time!r} would have {grid} steps for {len(rows)} rows. "
            f"{widest_gap(rows, place)[1]} Correct the stamps there, or pass a coarser freq=."
        )


def is_sparse(rows: int, grid: int) -> bool:
    """Whether the grid has so many steps without a row that it is worth a word."""
    return grid >= _SPARSE * rows and rows > 2


def mention_sparse(schema: Schema, rows: int, grid: int, gap: str) -> None:
    """Warn that most steps of the grid have no row; ``gap`` says where the largest gap is."""
    warn(
        f"The table has {rows} of the {grid} steps of its grid (time column {schema.roles.time!r}, frequency "
        f"{schema.freq.alias!r}); the others are unobserved. {gap} If that is not meant, "
        f"correct the stamps or pass a coarser freq=."
    )


def with_calendar(panel: Panel) -> Panel:
    """The panel with its calendar columns filled in, in place."""
    names = panel.schema.roles.calendar
    for begin in range(0, len(panel.values) if names else 0, _CHUNK):
        row = np.arange(begin, min(begin + _CHUNK, len(panel.values)))
        series = np.searchsorted(panel.indptr, row, side="right") - 1
        times = panel.times(series, row - panel.indptr[series])
        panel.values[row, -2 * len(names) :] = calendar_features(names, times, panel.schema.tz)
    return panel
