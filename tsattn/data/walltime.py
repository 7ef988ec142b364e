"""Instants and local wall time, as int64 nanoseconds, without a dataframe library.

An instant is nanoseconds since 1970-01-01 UTC. A wall time is what a clock in the zone shows, stored as if it were
UTC; without a zone the two are the same. Zones come from the standard library (:mod:`zoneinfo`); their clock changes
are put in a small table once, so that millions of stamps are converted by one binary search each.
"""

from __future__ import annotations

import difflib
import re
import zoneinfo
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache

import numpy as np

from tsattn.errors import ConfigError

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_UTC = timezone.utc
_EARLIEST = np.iinfo(np.int64).min
_FIXED = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?(?::?(\d{2}))?")


@lru_cache(maxsize=256)
def zone(tz: str) -> tzinfo:
    """The zone of an IANA key (``Europe/Berlin``) or of a fixed offset as text (``+02:00``, ``UTC+02:00``).

    Raises:
        ConfigError: the zone is not known on this machine.
    """
    if tz.upper() in ("UTC", "Z"):
        return _UTC
    if match := _FIXED.fullmatch(tz):
        sign, hours, minutes, seconds = match.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        if offset < timedelta(days=1):
            return timezone(-offset if sign == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(tz)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        near = difflib.get_close_matches(tz, sorted(zoneinfo.available_timezones()), n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"Unknown time zone {tz!r}.{hint} Use an IANA name such as 'Europe/Berlin' or an offset such as '+02:00'."
        ) from None


def to_wall(times: np.ndarray, tz: str | None) -> np.ndarray:
    """Wall time shown in ``tz`` at each instant: int64 nanoseconds, any shape. The identity without a zone."""
    times = np.asarray(times, dtype=np.int64)
    if tz is None or times.size == 0:
        return times
    changes, offsets = _table(tz, times)
    if len(changes) == 0:
        return times + offsets[0]
    return times + offsets[np.searchsorted(changes, times, side="right")]


def from_wall(wall: np.ndarray, tz: str | None) -> np.ndarray:
    """The instant of each wall time in ``tz``. int64 nanoseconds in and out, any shape.

    A wall time that the clock skips (spring) becomes the instant of the change, which is the next wall time that
    exists. A wall time that the clock shows twice (autumn) becomes the first of the two instants.
    """
    wall = np.asarray(wall, dtype=np.int64)
    if tz is None or wall.size == 0:
        return wall
    changes, offsets = _table(tz, wall)
    if len(changes) == 0:
        return wall - offsets[0]
    # The offset before a change holds for every wall time below the change as the old clock shows it. A repeated wall
    # time lies below, so the first instant wins; a skipped one lies above, and the maximum moves it to the change.
    era = np.searchsorted(changes + offsets[:-1], wall, side="right")
    starts = np.concatenate([[_EARLIEST], changes])
    return np.maximum(wall - offsets[era], starts[era])


def format_time(value: int, tz: str | None = None, integer: bool = False) -> str:
    """``value`` for a message: ``2022-10-30 02:00:00+02:00``, only the date at local midnight, or the plain integer.

    Args:
        value: nanoseconds since the epoch (an instant), or an integer time.
        tz: zone to show the instant in; None shows no offset.
        integer: the table counts in integers.
    """
    value = int(value)
    if integer:
        return str(value)
    wall = int(to_wall(np.array([value]), tz)[0])
    seconds, fraction = divmod(wall, SECOND)
    date, _, clock = str(np.datetime64(seconds, "s")).partition("T")
    if wall % DAY == 0:
        return date
    digits = f".{fraction:09d}" if fraction else ""
    while digits.endswith("000"):
        digits = digits[:-3]
    return f"{date} {clock}{digits}" + ("" if tz is None else _offset_text((wall - value) // SECOND))


def _offset_text(seconds: int) -> str:
    sign, rest = ("-" if seconds < 0 else "+"), abs(seconds)
    text = f"{sign}{rest // 3600:02d}:{rest // 60 % 60:02d}"
    return text + (f":{rest % 60:02d}" if rest % 60 else "")


def _table(tz: str, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Clock changes of ``tz`` around ``times``, and the offset before the first, between, and after the last."""
    # Whole decades, two days wider than the data: few cache entries, and no change is missed at either end.
    first, last = (1970 + int(np.floor(int(t) / (365.2425 * DAY))) for t in (times.min(), times.max()))
    return _changes(tz, (first - 1) // 10 * 10, (last + 1) // 10 * 10 + 10)


@lru_cache(maxsize=512)
def _changes(tz: str, first_year: int, last_year: int) -> tuple[np.ndarray, np.ndarray]:
    """Instants ``[k]`` in ``[first_year, last_year)`` when the offset of ``tz`` changes; the ``k + 1`` offsets."""
    where = zone(tz)

    def offset(second: int) -> int:
        moment = (datetime(1970, 1, 1, tzinfo=_UTC) + timedelta(seconds=second)).astimezone(where)
        return round((moment.utcoffset() or timedelta()).total_seconds())

    # Years outside 1677 to 2262 do not fit in int64 nanoseconds; the clip also keeps datetime's own range.
    low, high = (
        int((datetime(year, 1, 1, tzinfo=_UTC) - datetime(1970, 1, 1, tzinfo=_UTC)).total_seconds())
        for year in (max(first_year, 1677), min(max(last_year, 1679), 2263))
    )
    offsets, changes = [offset(low)], []
    if isinstance(where, timezone):
        high = low  # a fixed offset has no changes
    for day in range(low, high, 86_400):
        left, right = day, day + 86_400
        after = offset(right)
        if after == offsets[-1]:
            continue
        while right - left > 1:  # bisect to the second at which the clock changes
            middle = (left + right) // 2
            left, right = (left, middle) if offset(middle) == after else (middle, right)
        changes.append(right)
        offsets.append(after)
    limits = np.array(changes, dtype=np.int64)
    keep = (limits > _EARLIEST // SECOND) & (limits < -(_EARLIEST // SECOND) - 1)
    offsets_kept = np.array([offsets[0], *np.array(offsets[1:], dtype=np.int64)[keep]], dtype=np.int64)
    return limits[keep] * SECOND, offsets_kept * SECOND
