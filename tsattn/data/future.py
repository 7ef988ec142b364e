"""The end of a panel, extended over the horizon with the known covariates: what a forecast starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsattn.data.columns import id_values
from tsattn.data.fill import codes_of, float32_values
from tsattn.data.panel import Panel
from tsattn.data.schema import Schema
from tsattn.data.stamps import time_values
from tsattn.data.table import Columns, read_columns
from tsattn.errors import DataError, listed, warn


@dataclass(frozen=True)
class _Place:
    """Where the rows of the known table lie on the extended panel."""

    series: np.ndarray  # [n] index in the panel, -1 for a series it does not have
    steps: np.ndarray  # [n] step in that series, rounded down
    exact: np.ndarray  # [n] bool: on the grid
    strangers: list[Any]  # ids the panel does not have


def extend(panel: Panel, context: int, horizon: int, known: Any = None) -> Panel:
    """The last ``context`` steps of each series plus ``horizon`` steps whose targets are unobserved.

    ``known`` is a table (id, time, known columns) with the covariates after the last row of every series; rows
    outside the horizon and other series are ignored. Missing values in it enter as "unknown" with one warning. Raises
    DataError, with the four dates, where its rows do not cover the horizon.
    """
    lengths = panel.lengths
    tail = panel.span(np.maximum(lengths - context, 0), lengths + horizon)
    names, roles = known_columns(panel.schema, horizon, known), panel.schema.roles
    if not names:
        return tail
    head = [roles.time] if roles.id is None else [roles.id, roles.time]
    columns = read_columns(known, [*head, *names], id=roles.id, covariates=names)
    place = _locate(tail, columns)
    origin = np.minimum(lengths, context)
    owner = np.maximum(place.series, 0)
    inside = (place.series >= 0) & (place.steps >= origin[owner]) & (place.steps < origin[owner] + horizon)
    use = np.flatnonzero(inside & place.exact)
    row = tail.indptr[owner[use]] + place.steps[use]
    _check_cover(tail, origin, horizon, row, place, names)
    _refuse_duplicates(tail, row)
    _fill(tail, {name: columns[name].take(pa.array(use)) for name in names}, row)
    return tail


def known_columns(schema: Schema, horizon: int, known: Any) -> tuple[str, ...]:
    """The known columns to be read; raises DataError unless ``known`` is given exactly where there are some."""
    names, roles = schema.roles.known_columns, schema.roles
    if not names and known is not None:
        raise DataError(
            "known= was given, but the model was fitted without known columns. Leave it out, or name the columns "
            "in Forecaster(known=...)."
        )
    if names and known is None:
        head = [roles.time] if roles.id is None else [roles.id, roles.time]
        raise DataError(
            f"The model reads the known columns {listed(map(repr, names))}: pass predict(known=table) with "
            f"{listed(map(repr, head))} and these columns for the {horizon} steps after the last row of each series."
        )
    return names


def _locate(tail: Panel, columns: Columns) -> _Place:
    roles, schema = tail.schema.roles, tail.schema
    times, tz, unit = time_values(columns[roles.time], roles.time)
    if (unit == "integer") != schema.integer_time:
        found, wanted = ("stamps", "integers") if schema.integer_time else ("integers", "stamps")
        raise DataError(
            f"The time column {roles.time!r} of known= holds {found}, the series have {wanted}. Use {wanted}."
        )
    if (tz is None) != (schema.tz is None):
        fix = "tz_localize" if tz is None else "dt.tz_localize(None)"
        raise DataError(
            f"The time column {roles.time!r} of known= {'has no zone' if tz is None else 'is in ' + tz}, the series "
            f"{'have none' if schema.tz is None else 'are in ' + schema.tz}. Both must have a zone, or both none: "
            f"use {fix}."
        )
    if roles.id is None:
        series, strangers = np.zeros(len(times), dtype=np.int64), []
    else:
        codes, labels = id_values(columns[roles.id], roles.id)
        place = pc.index_in(_cast(labels, tail.ids.type, roles.id), value_set=tail.ids)
        found = pc.fill_null(place, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        series, strangers = found[codes], labels.filter(pa.array(found < 0)).to_pylist()
    steps, exact = schema.freq.index(tail.start[np.maximum(series, 0)], times)
    return _Place(series, steps, exact, strangers)


def _cast(labels: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        cast = labels.cast(kind)
        if pa.types.is_integer(kind) and not cast.cast(labels.type).equals(labels):
            raise pa.ArrowInvalid("an id such as '007' is not the number 7")
        return cast
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"The id column {name!r} of known= holds {labels.type} (for example {labels[0].as_py()!r}), the series "
            f"have {kind}. Use the same ids in both tables."
        ) from None


def _check_cover(
    tail: Panel, origin: np.ndarray, horizon: int, row: np.ndarray, place: _Place, names: tuple[str, ...]
) -> None:
    """Refuse a horizon with steps that no row of the known table is for."""
    begin = tail.indptr[:-1] + origin
    filled = np.zeros(len(tail.values), dtype=bool)
    filled[row] = True
    lacking = np.flatnonzero(~filled[begin[:, None] + np.arange(horizon)].all(axis=1))
    if not len(lacking):
        return
    worst = int(lacking[0])
    mine = place.series == worst
    given = place.steps[mine & place.exact]
    span = f"{tail.when(worst, int(given.min()))} to {tail.when(worst, int(given.max()))}" if len(given) else "no row"
    if len(given):
        steps = begin[worst] + np.arange(horizon)
        absent = np.flatnonzero(~filled[steps])
        span += f" ({len(absent)} steps absent, first {tail.when(worst, int(origin[worst] + absent[0]))})"
    off = int((mine & ~place.exact).sum())
    hint = f" {off} of its rows are not on the grid of frequency {tail.schema.freq.alias!r}." if off else ""
    if place.strangers:
        strangers = listed(map(repr, place.strangers))
        hint += f" known= has {len(place.strangers)} ids that the series do not have ({strangers})."
    raise DataError(
        f"Known column{'s' if len(names) > 1 else ''} {listed(map(repr, names))} must cover every step of the "
        f"horizon; {len(lacking)} of {len(tail)} series lack some. First: {tail.name(worst)} needs "
        f"{tail.when(worst, int(origin[worst]))} to {tail.when(worst, int(origin[worst]) + horizon - 1)}, given: "
        f"{span}.{hint} Add these rows to known=."
    )


def _at(tail: Panel, row: int) -> str:
    series = int(np.searchsorted(tail.indptr, row, side="right")) - 1
    return f"{tail.name(series)} at {tail.when(series, row - int(tail.indptr[series]))}"


def _refuse_duplicates(tail: Panel, row: np.ndarray) -> None:
    found, count = np.unique(row, return_counts=True)
    twice = found[count > 1]
    if len(twice):
        raise DataError(
            f"known= has more than one row for {len(twice)} steps of the horizon (first: "
            f"{_at(tail, int(twice[0]))}). Keep one row each, for example with drop_duplicates."
        )


def _fill(tail: Panel, columns: Columns, row: np.ndarray) -> None:
    """Write the known columns of the horizon into the (freshly made) arrays of ``tail``."""
    schema = tail.schema
    offset = len(schema.roles.target) + len(schema.numeric("past"))
    plain = [name for name in schema.roles.known_columns if name not in schema.categories]
    for position, name in enumerate(plain):
        values = float32_values(columns[name], name, "known")
        tail.values[row, offset + position] = values
        _mention_missing(tail, name, row[np.isnan(values)], len(row), "the mean of training")
    offset = len(schema.categorical("past"))
    for position, name in enumerate(schema.categorical("known")):
        tail.codes[row, offset + position] = codes_of(columns[name], name, schema)
        absent = columns[name].is_null().to_numpy(zero_copy_only=False)
        _mention_missing(tail, name, row[absent], len(row), "unknown")


def _mention_missing(tail: Panel, name: str, rows: np.ndarray, of: int, instead: str) -> None:
    if len(rows):
        warn(
            f"Known column {name!r} is missing in {len(rows)} of {of} steps of the horizon (first: "
            f"{_at(tail, int(rows[0]))}). These steps are read as {instead}."
        )
