"""The end of a panel, extended over the horizon with the known covariates: what a forecast starts from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsattn.data.build import codes_of, finite
from tsattn.data.panel import Panel
from tsattn.data.schema import Schema
from tsattn.data.table import Columns, id_values, number_values, read_columns, time_values
from tsattn.errors import DataError, listed


def extend(panel: Panel, context: int, horizon: int, known: Any = None) -> Panel:
    """The last ``context`` steps of each series plus ``horizon`` steps whose targets are unobserved.

    ``known`` is a table (id, time, known columns) with the covariates after the last row of every series; rows outside
    the horizon are ignored. Raises DataError, with the four dates, where it does not cover the horizon.
    """
    lengths = panel.lengths
    tail = panel.span(np.maximum(lengths - context, 0), lengths + horizon)
    names = panel.schema.roles.known_columns
    if not names:
        if known is not None:
            raise DataError("known= was given, but the model was fitted without known columns.")
        return tail
    if known is None:
        raise DataError(
            f"The model reads the known columns {listed(names)}: pass predict(known=table) with "
            f"{panel.schema.roles.time!r} and these columns for the {horizon} steps after the last row of each series."
        )
    origin = np.minimum(lengths, context)
    series, steps, keep, columns = _locate(tail, known)
    inside = keep & (steps >= origin[series]) & (steps < origin[series] + horizon)
    filled = np.zeros(len(tail.values), dtype=bool)
    row = tail.indptr[series] + steps
    filled[row[inside]] = True
    _check_cover(tail, origin, horizon, filled, series[keep], steps[keep], names)
    _fill(tail, columns, row, inside)
    return tail


def _locate(tail: Panel, known: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, Columns]:
    """Series index, step and usability of each row of the known table, and its columns."""
    roles = tail.schema.roles
    head = [roles.time] if roles.id is None else [roles.id, roles.time]
    columns = read_columns(known, [*head, *roles.known_columns])
    times, tz, _ = time_values(columns[roles.time], roles.time)
    if (tz is None) != (tail.schema.tz is None):
        raise DataError(f"The time column {roles.time!r} of known= and of the series must both have a zone, or both none.")
    if roles.id is None:
        series = np.zeros(len(times), dtype=np.int64)
    else:
        codes, labels = id_values(columns[roles.id], roles.id)
        place = pc.index_in(_cast(labels, tail.ids.type, roles.id), value_set=tail.ids)
        series = pc.fill_null(place, -1).to_numpy(zero_copy_only=False).astype(np.int64)[codes]
    present = series >= 0
    steps, exact = tail.schema.freq.index(tail.start[np.maximum(series, 0)], times)
    return np.maximum(series, 0), steps, present & exact, columns


def _cast(labels: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return labels.cast(kind)
    except pa.ArrowInvalid:
        raise DataError(f"The id column {name!r} of known= holds {labels.type}, the series have {kind}.") from None


def _check_cover(
    tail: Panel,
    origin: np.ndarray,
    horizon: int,
    filled: np.ndarray,
    series: np.ndarray,
    steps: np.ndarray,
    names: tuple[str, ...],
) -> None:
    step_of_row = np.arange(len(filled)) - np.repeat(tail.indptr[:-1], tail.lengths)
    owner = np.repeat(np.arange(len(tail)), tail.lengths)
    lacking = np.unique(owner[~filled & (step_of_row >= origin[owner])])
    if not len(lacking):
        return
    worst = int(lacking[0])
    given = steps[series == worst]
    span = f"{tail.when(worst, int(given.min()))} to {tail.when(worst, int(given.max()))}" if len(given) else "no row"
    first, last = int(origin[worst]), int(origin[worst]) + horizon - 1
    raise DataError(
        f"Known column{'s' if len(names) > 1 else ''} {listed(names)} must cover every step of the horizon; "
        f"{len(lacking)} of {len(tail)} series lack some. First: {tail.name(worst)} needs "
        f"{tail.when(worst, first)} to {tail.when(worst, last)}, given: {span}."
    )


def _fill(tail: Panel, columns: Columns, row: np.ndarray, inside: np.ndarray) -> None:
    """Write the known columns of the horizon into the (freshly made) arrays of ``tail``."""
    schema: Schema = tail.schema
    offset = len(schema.roles.target) + len(schema.numeric("past"))
    plain = [name for name in schema.roles.known_columns if name not in schema.categories]
    for position, name in enumerate(plain):
        column = finite(number_values(columns[name], name, "known"), name)
        tail.values[row[inside], offset + position] = column[inside]
    offset = len(schema.categorical("past"))
    for position, name in enumerate(schema.categorical("known")):
        tail.codes[row[inside], offset + position] = codes_of(columns[name], name, schema)[inside]

