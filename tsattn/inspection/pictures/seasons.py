"""Lags that have a name: a day, a week or a year in steps of a frequency."""

from __future__ import annotations

from tsattn.data.frequency import Frequency
from tsattn.data.walltime import DAY, HOUR, MINUTE, SECOND

_MOST = 8  # named lags in one picture

# kind -> (units per natural unit, singular), shortest first; ticks count nanoseconds
_TICKS = ((SECOND, "second"), (MINUTE, "minute"), (HOUR, "hour"), (DAY, "day"), (7 * DAY, "week"))
_OTHERS = {
    "day": ((7, "week"), (364, "year")),
    "month": ((12, "year"),),
    "business": ((5, "week"),),
    "integer": (),
}


def named_lags(freq: Frequency, longest: int) -> dict[int, str]:
    """Multiples of the seasons of a frequency up to ``longest`` steps: ``{24: "1 day", ..., 168: "1 week"}``.

    Only seasons in whole steps count, from the natural one up. Of many multiples the short ones go first.
    """
    units = _units(freq)
    found: dict[int, str] = {}
    for steps, name in units:
        for count in range(1, longest // steps + 1):
            found[count * steps] = f"{count} {name}" + ("s" if count > 1 else "")
    for steps, _ in units:
        if len(found) <= _MOST:
            break
        longer = [other for other, _ in units if other > steps]
        keep = {lag for lag in found if lag == steps or any(lag % other == 0 for other in longer)}
        found = {lag: name for lag, name in found.items() if lag in keep}
    every = -(-len(found) // _MOST)
    kept = sorted(found.items())[::every] if every else []
    return dict(kept)


def name_of(freq: Frequency, lag: int) -> str | None:
    """The name of one lag, if it has one."""
    names = [(lag // steps, name) for steps, name in _units(freq) if lag % steps == 0]
    return f"{names[-1][0]} {names[-1][1]}" + ("s" if names[-1][0] > 1 else "") if names else None


def _units(freq: Frequency) -> list[tuple[int, str]]:
    """Seasons in steps, the natural one first."""
    if freq.kind == "tick":
        found = [(span // freq.n, name) for span, name in _TICKS if span % freq.n == 0]
    else:
        found = [(span // freq.n, name) for span, name in _OTHERS[freq.kind] if span % freq.n == 0]
    return [(steps, name) for steps, name in found if steps >= max(freq.season(), 2)]
