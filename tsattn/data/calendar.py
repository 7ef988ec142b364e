"""The calendar of a table: find its frequency, and turn stamps into calendar features.

Times are int64: nanoseconds since 1970-01-01 UTC (naive stamps: their wall time, read as UTC), or plain integers.
The frequency itself is :class:`tsattn.data.frequency.Frequency`; zones are in :mod:`tsattn.data.walltime`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tsattn.data.frequency import MONTHS, WEEKDAYS, Frequency, nanoseconds_alias, weekday
from tsattn.data.walltime import DAY, HOUR, MINUTE, SECOND, format_time, from_wall, to_wall
from tsattn.errors import DataError, unknown_name

__all__ = [
    "CALENDAR_FEATURES",
    "Frequency",
    "calendar_features",
    "feature_names",
    "format_time",
    "from_wall",
    "infer_frequency",
    "to_wall",
]

# name -> period: the feature goes once around the circle in this many units
_PERIODS = {
    "minute": 60.0,
    "hour": 24.0,
    "day_of_week": 7.0,
    "day_of_month": 31.0,
    "day_of_year": 366.0,
    "week": 53.0,
    "month": 12.0,
}
CALENDAR_FEATURES = tuple(_PERIODS)


def feature_names(names: Sequence[str]) -> list[str]:
    """Column names of :func:`calendar_features`: ``hour_sin``, ``hour_cos``, ..."""
    return [f"{name}_{part}" for name in names for part in ("sin", "cos")]


def calendar_features(names: Sequence[str], times: np.ndarray, tz: str | None = None) -> np.ndarray:
    """Sine and cosine of calendar positions in local time.

    Args:
        names: any of :data:`CALENDAR_FEATURES`. ``hour`` and ``minute`` are continuous (half past six is 6.5 hours);
            days, ISO weeks and months are counted from 0, Monday and January first.
        times: int64 instants ``[n]``.
        tz: zone whose clock is read; None reads the stamps as they are.

    Returns:
        float32 ``[n, 2 * len(names)]`` in ``[-1, 1]``: ``sin`` then ``cos`` of ``2 pi value / period`` for each name.

    Raises:
        ConfigError: a name is unknown.
    """
    for name in names:
        if name not in _PERIODS:
            raise unknown_name("calendar feature", name, CALENDAR_FEATURES)
    wall = to_wall(times, tz)
    out = np.empty((len(wall), 2 * len(names)), dtype=np.float32)
    for column, name in enumerate(names):
        angle = _position(name, wall) * (2 * np.pi / _PERIODS[name])
        out[:, 2 * column], out[:, 2 * column + 1] = np.sin(angle), np.cos(angle)
    return out


def _position(name: str, wall: np.ndarray) -> np.ndarray:
    """Position of each wall time inside the period of ``name``, from 0, in the unit of the name."""
    if name == "minute":
        return wall % HOUR / MINUTE
    if name == "hour":
        return wall % DAY / HOUR
    days = np.floor_divide(wall, DAY)
    if name == "day_of_week":
        return weekday(days)
    if name == "week":
        days = days - weekday(days) + 3  # an ISO week belongs to the year of its Thursday
    date = days.astype("datetime64[D]")
    if name == "month":
        return date.astype("datetime64[M]").astype(np.int64) % 12
    period = date.astype("datetime64[M]" if name == "day_of_month" else "datetime64[Y]")
    since = days - period.astype("datetime64[D]").astype(np.int64)
    return since // 7 if name == "week" else since


def infer_frequency(
    times: np.ndarray,
    groups: np.ndarray,
    *,
    tz: str | None = None,
    integer: bool = False,
    name_of: Callable[[int], str] = str,
) -> Frequency:
    """The frequency of a table: the most frequent step, if every other step is a multiple of it.

    Steps are looked for in this order: months (all stamps on the first, or all on the last day of a month), business
    days (no weekend anywhere, and a step from Friday to Monday), days and weeks in local time, then absolute time.

    Args:
        times: int64 ``[n]``, sorted within each series.
        groups: int64 ``[n]`` series codes, sorted.
        tz: zone of the stamps.
        integer: times are plain integers.
        name_of: text of a series code, for the message.

    Raises:
        DataError: no series has two different times, or no step fits. The message has the three most frequent steps,
            the first series and stamps that break the most frequent one, and the fix.
    """
    times, groups = np.asarray(times, dtype=np.int64), np.asarray(groups)
    same = groups[1:] == groups[:-1]
    values, counts = _count(np.diff(times)[same])
    if len(values) == 0:
        raise DataError(
            "Cannot infer the frequency: no series has two rows at different times. Pass freq=, for example freq='D'."
        )
    mode = int(values[counts.argmax()])
    if integer:
        if not (values % mode).any():
            return Frequency.parse(mode)
    # Below 23 hours no step can be a local day, so the wall clock need not be read.
    elif mode < 23 * HOUR:
        if not (values % mode).any():
            return Frequency.parse(_tick_alias(mode), tz=tz)
    else:
        starts = times[_starts(groups)]
        for candidate in _candidates(times, groups, same, tz):
            if candidate.kind == "tick" or candidate.index(starts, times)[1].all():
                return candidate
    raise _no_step(times, groups, tz, integer, name_of)


def _candidates(times: np.ndarray, groups: np.ndarray, same: np.ndarray, tz: str | None) -> Iterator[Frequency]:
    """Frequencies worth checking against every stamp, best first, for steps of a day and more."""
    days = np.floor_divide(to_wall(times, tz), DAY)
    gaps = np.diff(days)
    day_steps, day_counts = _count(gaps[same])
    if len(day_steps):
        mode = int(day_steps[day_counts.argmax()])
        if day_steps[0] >= 28:
            yield from _month_candidates(days, same, tz)
        # Weekdays are read only when the steps make them matter: these arrays have a row for each row of the table.
        if mode == 1 and (day_steps == 3).any() and (weekday(days) < 5).all():
            from_friday = same & (gaps == 3) & (weekday(days[:-1]) == 4)
            if from_friday.any():
                yield Frequency.parse("B", tz=tz)
        if not (day_steps % mode).any():
            one_weekday = mode % 7 == 0 and ((days - days[0]) % 7 == 0).all()
            weeks = "" if mode == 7 else str(mode // 7)
            yield Frequency.parse(f"{weeks}W-{WEEKDAYS[weekday(days[0])]}" if one_weekday else f"{mode}D", tz=tz)
    steps, counts = _count(np.diff(times)[same])
    tick = int(steps[counts.argmax()])
    if not (steps % tick).any():
        yield Frequency.parse(_tick_alias(tick), tz=tz)


def _month_candidates(days: np.ndarray, same: np.ndarray, tz: str | None) -> Iterator[Frequency]:
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    last = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) - 1
    for letter, edge in (("S", first), ("E", last)):
        steps, counts = _count(np.diff(months)[same])
        if not (days == edge).all() or len(steps) == 0:
            continue
        n = int(steps[counts.argmax()])
        if (steps % n).any():
            continue
        # A quarter or year is named after its month, unless the series do not share one: then only the count is true.
        phase = months % n if n in (3, 12) else None
        if phase is None or (phase != phase[0]).any():
            yield Frequency.parse(f"{n}M{letter}", tz=tz)
        else:
            month = int(phase[0]) if letter == "S" or n == 12 else int(phase[0]) + 9
            yield Frequency.parse(f"{'Q' if n == 3 else 'Y'}{letter}-{MONTHS[month]}", tz=tz)


def _count(steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct positive steps, ascending, and how often each occurs. Equal stamps are the business of the caller."""
    if len(steps) and (steps == steps[0]).all():  # the usual table, without a sort
        values, counts = steps[:1], np.array([len(steps)])
    else:
        values, counts = np.unique(steps, return_counts=True)
    return values[values > 0], counts[values > 0]


def _starts(groups: np.ndarray) -> np.ndarray:
    """Row ``[n]`` at which the series of each row starts."""
    first = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    return np.repeat(first, np.diff(np.append(first, len(groups))))


def _tick_alias(step: int) -> str:
    """Absolute alias of nanoseconds: whole days are written in hours, since ``D`` means local days."""
    return f"{step // HOUR}h" if step % DAY == 0 else nanoseconds_alias(step)


def _no_step(
    times: np.ndarray, groups: np.ndarray, tz: str | None, integer: bool, name_of: Callable[[int], str]
) -> DataError:
    """The error for steps that are no multiples of the most frequent one."""
    same = groups[1:] == groups[:-1]
    steps, counts = _count(np.diff(times)[same])
    # Long steps are read on the wall clock (days and months are local), short ones in absolute time.
    read = times if integer or steps[counts.argmax()] < 23 * HOUR else to_wall(times, tz)
    steps, counts = _count(np.diff(read)[same])
    mode = int(steps[counts.argmax()])
    show = (lambda step: str(int(step))) if integer else _duration
    bad = same & (np.diff(read) % mode != 0)
    bad = bad if bad.any() else same  # multiples on the wall clock, yet on no grid: a repeated hour in autumn
    row = int(np.flatnonzero(bad)[0])
    often = sorted(zip(counts.tolist(), steps.tolist(), strict=True), key=lambda pair: (-pair[0], pair[1]))[:3]
    listing = ", ".join(f"{show(step)} ({count} {'time' if count == 1 else 'times'})" for count, step in often)
    a, b = (format_time(int(t), tz, integer) for t in times[row : row + 2])
    return DataError(
        f"Cannot infer the frequency: series {name_of(int(groups[row]))} goes from {a} to {b} "
        f"({show(int(read[row + 1] - read[row]))}), no multiple of the most frequent step. "
        f"{int(bad.sum())} of {int(same.sum())} steps do not fit. "
        f"Most frequent steps: {listing}. Pass freq=, or {_fix(read, same, integer)}."
    )


def _fix(read: np.ndarray, same: np.ndarray, integer: bool) -> str:
    if integer:
        return "renumber the rows so that all steps are multiples of one"
    steps = np.diff(read)[same]
    usual = float(np.median(steps[steps > 0]))
    if usual >= 27 * DAY:
        return "move the stamps to the first day of the month, e.g. df[time].dt.to_period('M').dt.to_timestamp()"
    units = {"D": DAY, "h": HOUR, "min": MINUTE, "s": SECOND, "ms": SECOND // 1000, "us": 1000, "ns": 1}
    name, unit = next((name, unit) for name, unit in units.items() if usual >= 0.9 * unit)
    count = max(1, round(usual / unit))
    return f'round the stamps to a grid first, e.g. df[time].dt.round("{"" if count == 1 else count}{name}")'


def _duration(step: int) -> str:
    """``1 day 2 h``: nanoseconds for people."""
    units = (
        ("day", DAY),
        ("h", HOUR),
        ("min", MINUTE),
        ("s", SECOND),
        ("ms", SECOND // 1000),
        ("us", 1000),
        ("ns", 1),
    )
    parts, rest = [], int(step)
    for name, unit in units:
        count, rest = divmod(rest, unit)
        if count:
            parts.append(f"{count} {name}{'s' if name == 'day' and count > 1 else ''}")
    return " ".join(parts) or "0 s"
