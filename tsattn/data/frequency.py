"""The step of a time axis: parsing its name, counting steps, and stepping.

Rules, for every kind:

    integer   plain integers, a constant step
    tick      nanoseconds to hours: absolute time, so a 23-hour day has 23 hourly steps
    day       days and weeks: local wall time, so a daily series crosses a clock change with a 23 or 25 hour step
    month     months, quarters, years: local wall time, on the first or on the last day of the month
    business  Monday to Friday, local wall time; public holidays are ordinary steps (a missing row)

The phase always comes from the start of the series: three-hour data from 08:00 stays on 08, 11, 14. One table maps
the old and new pandas names of each alias, so no pandas version can rename or warn about them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

import numpy as np

from tsattn.data.walltime import DAY, HOUR, MINUTE, SECOND, format_time, from_wall, to_wall, zone
from tsattn.errors import ConfigError, DataError, unknown_name

Kind = Literal["integer", "tick", "day", "month", "business"]
Position = Literal["start", "end"]

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")

# alias -> (canonical alias, nanoseconds)
_TICKS = {
    **dict.fromkeys(("h", "H"), ("h", HOUR)),
    **dict.fromkeys(("min", "T"), ("min", MINUTE)),
    **dict.fromkeys(("s", "S"), ("s", SECOND)),
    **dict.fromkeys(("ms", "L"), ("ms", SECOND // 1000)),
    **dict.fromkeys(("us", "U"), ("us", 1000)),
    **dict.fromkeys(("ns", "N"), ("ns", 1)),
}
# alias -> (canonical alias, months, position, anchor when none is written)
_MONTHLY: dict[str, tuple[str, int, Position, str]] = {
    **dict.fromkeys(("M", "ME"), ("ME", 1, "end", "")),
    "MS": ("MS", 1, "start", ""),
    **dict.fromkeys(("Q", "QE"), ("QE", 3, "end", "DEC")),
    "QS": ("QS", 3, "start", "JAN"),
    **dict.fromkeys(("A", "Y", "YE"), ("YE", 12, "end", "DEC")),
    **dict.fromkeys(("AS", "YS"), ("YS", 12, "start", "JAN")),
}
KNOWN_ALIASES = (*_TICKS, *_MONTHLY, "B", "D", "W", "W-TUE", "QE-MAR", "YS-APR", "3h", "15min", "an integer")
_TEXT = re.compile(r"\s*(-?\d+)?\s*([A-Za-z]+)(?:-([A-Za-z]{3}))?\s*")


@dataclass(frozen=True)
class Frequency:
    """One step of a time axis. Build it with :meth:`parse`."""

    kind: Kind
    n: int  # integer: step; tick: nanoseconds; day: wall-clock days; month: months; business: business days
    alias: str  # canonical (new) pandas alias, for people and for JSON; parse(alias, tz=tz) gives this object back
    position: Position = "start"  # month only: stamps sit on the first or on the last day of a month
    tz: str | None = None  # zone of the stamps: IANA key or an offset such as "+02:00"; None for naive stamps

    @classmethod
    def parse(cls, freq: object, *, tz: str | None = None) -> Frequency:
        """The frequency named by ``freq``.

        Args:
            freq: an old or new pandas alias with an optional multiplier (``"h"``, ``"15T"``, ``"QS-OCT"``, ``"W"``),
                a pandas offset object, ``timedelta`` or ``timedelta64`` (whole days are wall-clock days), an integer
                (or its text) for integer time, or a Frequency.
            tz: zone of the table's stamps. Ignored for integer time.

        Raises:
            ConfigError: the alias or the zone is unknown, or the step is not positive.
        """
        if tz is not None:
            zone(tz)
        if isinstance(freq, Frequency):
            return freq if freq.kind == "integer" else replace(freq, tz=tz)
        if isinstance(freq, np.timedelta64):
            return _from_timedelta64(freq, tz)
        if isinstance(freq, timedelta):  # pandas Timedelta as well, which adds nanoseconds
            micro = (freq.days * 86_400 + freq.seconds) * 1_000_000 + freq.microseconds
            return _from_nanoseconds(micro * 1000 + int(getattr(freq, "nanoseconds", 0)), tz, freq)
        if isinstance(freq, (int, np.integer)) and not isinstance(freq, bool):
            return cls("integer", _positive(int(freq), freq), str(int(freq)))
        text = freq if isinstance(freq, str) else getattr(freq, "freqstr", None)
        if not isinstance(text, str):
            raise ConfigError(
                f"freq must be an alias such as 'h' or 'MS', a pandas offset, a timedelta or an integer, "
                f"not {freq!r} ({type(freq).__name__})."
            )
        return _from_text(text, tz)

    def index(self, start: np.ndarray | int, times: np.ndarray | int) -> tuple[np.ndarray, np.ndarray]:
        """Steps from ``start`` to ``times``, and whether each time is exactly on the grid of its start.

        Args:
            start: int64 first time of the series; broadcasts with ``times``.
            times: int64 times.

        Returns:
            ``steps`` int64, rounded down when off the grid, and ``exact`` bool, both of the broadcast shape. Never
            exact from a start that is no possible stamp itself (:meth:`on_calendar`), such as the 15th for ``MS``.
        """
        start, times = np.asarray(start, dtype=np.int64), np.asarray(times, dtype=np.int64)
        if self.kind in ("integer", "tick"):
            steps, rest = np.divmod(times - start, self.n)
            return steps, rest == 0
        units = self._units(to_wall(times, self.tz)) - self._units(to_wall(start, self.tz))
        steps = np.floor_divide(units, self.n)
        # The guess counts whole days or months; stepping back settles the time of day and the clock changes.
        stamps = self._step(start, steps)
        return steps - (stamps > times), (stamps == times) & self.on_calendar(start)

    def at(self, start: np.ndarray | int, steps: np.ndarray | int) -> np.ndarray:
        """Times ``steps`` steps after ``start`` (int64, broadcast shape); the inverse of :meth:`index`.

        Raises:
            DataError: a start is no possible stamp (the 15th for ``MS``, a Sunday for ``B``), or a result leaves the
                range of nanosecond stamps (the years 1677 to 2262).
        """
        start, steps = np.asarray(start, dtype=np.int64), np.asarray(steps, dtype=np.int64)
        if self.kind == "integer":
            return start + steps * self.n
        valid = self.on_calendar(start)
        if not valid.all():
            bad = format_time(start[~valid].flat[0] if start.ndim else int(start), self.tz)
            raise DataError(f"{bad} cannot start a series of frequency {self.alias!r}: {self.expected()}.")
        typical = {"tick": 1.0, "day": 1.0 * DAY, "month": 30.436875 * DAY, "business": 1.4 * DAY}[self.kind] * self.n
        if (np.abs(start + steps * typical) > 9.22e18).any():
            raise DataError(f"Steps of {self.alias!r} leave the range of nanosecond stamps (years 1677 to 2262).")
        return self._step(start, steps)

    def on_calendar(self, start: np.ndarray | int) -> np.ndarray:
        """bool, shape of ``start``: may a series start here? Always, but for months and business days."""
        start = np.asarray(start, dtype=np.int64)
        if self.kind == "month":
            day = _days(to_wall(start, self.tz))
            return day == _month_day(_month(day), self.position)
        if self.kind == "business":
            return weekday(_days(to_wall(start, self.tz))) < 5
        return np.ones(start.shape, dtype=bool)

    def season(self) -> int:
        """Natural season in steps: h 24, 15min 96, D 7, B 5, W 52, months 12, quarters 4; 1 when there is none.

        Minutes and hours repeat daily, seconds hourly, milliseconds each second. A multiple divides (3h: 8),
        rounded, at least 1.
        """
        period, n = 1.0, float(self.n)
        if self.kind == "month":
            period = 12
        elif self.kind == "business":
            period = 5
        elif self.kind == "day" or (self.kind == "tick" and self.n >= DAY):
            n = n / DAY if self.kind == "tick" else n
            period = 7 if n < 7 else 364
        elif self.kind == "tick":
            period = next((long for short, long in _SEASONS if self.n >= short), n)
        return max(1, round(period / n))

    def _units(self, wall: np.ndarray) -> np.ndarray:
        """Number of the day, month or business day that holds each wall time."""
        day = _days(wall)
        if self.kind == "month":
            return _month(day)
        return _business_number(day) if self.kind == "business" else day

    def _step(self, start: np.ndarray, steps: np.ndarray) -> np.ndarray:
        if self.kind in ("integer", "tick"):
            return start + steps * self.n
        wall = to_wall(start, self.tz)
        units = self._units(wall) + steps * self.n
        if self.kind == "month":
            units = _month_day(units, self.position)
        elif self.kind == "business":
            week, day = np.divmod(units, 5)
            units = week * 7 + day - _MONDAY
        stamps = from_wall(units * DAY + wall % DAY, self.tz)
        # A start in the second of two equal wall hours stays itself; only later steps take the first.
        return np.where(steps == 0, start, stamps)

    def expected(self) -> str:
        """Why :meth:`on_calendar` refuses a stamp, and the fix: the end of a message."""
        if self.kind == "business":
            return "it is not a Monday to Friday; for data on all days pass freq='D'"
        day = "first" if self.position == "start" else "last"
        how = ".dt.to_period('M').dt.to_timestamp()" + ("" if self.position == "start" else " + pd.offsets.MonthEnd(0)")
        return f"it is not the {day} day of a month; move the stamps there, in pandas: {how}"


# shortest tick -> the period it repeats in
_SEASONS = ((MINUTE, DAY), (SECOND, HOUR), (SECOND // 1000, SECOND))
_MONDAY = 3  # days from Monday 1969-12-29 to 1970-01-01


def weekday(day: np.ndarray) -> np.ndarray:
    """0 Monday to 6 Sunday of each day number since 1970-01-01."""
    return (day + _MONDAY) % 7


def _days(wall: np.ndarray) -> np.ndarray:
    return np.floor_divide(wall, DAY)


def _month(day: np.ndarray) -> np.ndarray:
    """Month number since 1970-01 of each day number."""
    return day.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _month_day(month: np.ndarray, position: Position) -> np.ndarray:
    """Day number of the first or of the last day of each month number."""
    month = np.asarray(month)
    if position == "start":
        return month.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    return (month + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) - 1


def _business_number(day: np.ndarray) -> np.ndarray:
    """Business days since Monday 1969-12-29; a weekend belongs to its Friday."""
    week, rest = np.divmod(day + _MONDAY, 7)
    return week * 5 + np.minimum(rest, 4)


def _from_text(text: str, tz: str | None) -> Frequency:
    if text.strip().isdecimal():
        return Frequency("integer", _positive(int(text), text), str(int(text)))
    match = _TEXT.fullmatch(text)
    if match is None:
        raise unknown_name("frequency", text, KNOWN_ALIASES)
    count = _positive(int(match[1] or "1"), text)
    name, anchor, times = match[2], (match[3] or "").upper(), "" if count == 1 else str(count)
    if name in _TICKS and not anchor:
        alias, unit = _TICKS[name]
        return Frequency("tick", count * unit, times + alias, tz=tz)
    if name in ("B", "D") and not anchor:
        return Frequency("business" if name == "B" else "day", count, times + name, tz=tz)
    if name == "W" and (not anchor or anchor in WEEKDAYS):
        return Frequency("day", 7 * count, f"{times}W-{anchor or 'SUN'}", tz=tz)
    if name in _MONTHLY:
        alias, months, position, usual = _MONTHLY[name]
        if not anchor or (usual and anchor in MONTHS):
            suffix = f"-{anchor or usual}" if usual else ""
            return Frequency("month", count * months, times + alias + suffix, position, tz)
    raise unknown_name("frequency", text, KNOWN_ALIASES)


def _from_timedelta64(freq: np.timedelta64, tz: str | None) -> Frequency:
    unit, count = np.datetime_data(freq.dtype)
    if unit == "generic" or np.isnat(freq):
        raise ConfigError(f"freq {freq!r} has no unit or is not a time; pass for example np.timedelta64(1, 'h').")
    if unit in ("M", "Y"):
        return _from_text(f"{_positive(int(freq.astype(np.int64)) * count, freq)}{unit}S", tz)
    return _from_nanoseconds(int(freq.astype("timedelta64[ns]").astype(np.int64)), tz, freq)


def _from_nanoseconds(value: int, tz: str | None, given: object) -> Frequency:
    """Whole days are wall-clock days (what a daily table means); anything else is absolute."""
    return _from_text(nanoseconds_alias(_positive(value, given)), tz)


def nanoseconds_alias(value: int) -> str:
    """``3h``, ``15min``, ``2D``: nanoseconds in the largest unit that divides them."""
    units = {"D": DAY, "h": HOUR, "min": MINUTE, "s": SECOND, "ms": SECOND // 1000, "us": 1000, "ns": 1}
    name, unit = next((name, unit) for name, unit in units.items() if value % unit == 0)
    return name if value == unit else f"{value // unit}{name}"


def _positive(value: int, given: object) -> int:
    if value < 1:
        raise ConfigError(f"A frequency steps forward by at least 1, but freq is {given!r}.")
    return value
