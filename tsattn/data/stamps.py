"""The time column -> int64: stamps of every resolution and zone, dates, text, and plain integers."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tsattn.data.columns import dictionary_codes, encode, is_text, row_list
from tsattn.errors import DataError, listed, warn

if TYPE_CHECKING:
    import pandas as pd

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
# An offset counts only behind a time of day, so that no date is mistaken for one.
_OFFSET = re.compile(r"(?:T\d\d| \d{1,2}:\d\d).*?(Z|[+-]\d\d:?\d\d)$")
_WRITTEN_DATES = {6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H"}  # digits -> form
_LOWER_CASE = re.compile(r"(?<=\d)t(?=\d)|(?<=\d)z$|(?<=\d )z$")
_QUARTER = re.compile(r"^(?P<year>\d{4})[- ]?[Qq](?P<quarter>[1-4])$|^[Qq](?P<early>[1-4])[- ]?(?P<late>\d{4})$")
_NUMBERS_FIRST = re.compile(r"^\s*(\d{1,2})[/.-](\d{1,2})[/.-]\d{2,4}")


def time_values(array: pa.Array, name: str) -> tuple[np.ndarray, str | None, str]:
    """Time column -> (int64 values ``[n]``, zone, unit).

    Stamps become nanoseconds since 1970 in UTC (without a zone: wall time), ``unit`` is their resolution in the table
    ("s", "ms", "us", "ns"). Integers stay as they are with unit "integer". Raises DataError for missing, unparsable
    or mixed-zone times, for stamps that nanoseconds cannot hold, and for dates written as integers.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        rows = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        raise DataError(
            f"The time column {name!r} is missing in {len(rows)} of {len(array)} rows ({row_list(rows)}). "
            f"Drop these rows, for example df.dropna(subset=[{name!r}]), or fill in the time."
        )
    kind = array.type
    if pa.types.is_integer(kind):
        return _integers(array, name), None, "integer"
    if pa.types.is_floating(kind):
        return _whole_floats(array, name), None, "integer"
    if is_text(kind):
        return _parse_text(array, name)
    if pa.types.is_date(kind):
        array = array.cast(pa.timestamp("ms" if pa.types.is_date64(kind) else "s"))
    elif not pa.types.is_timestamp(kind):
        raise DataError(
            f"The time column {name!r} must hold stamps or integers, found {kind}. "
            f"Convert it with pandas.to_datetime, or name another column with time=."
        )
    raw = array.view(pa.int64()).to_numpy(zero_copy_only=False)
    return _nanoseconds(raw, array.type.unit, name), array.type.tz, array.type.unit


def _nanoseconds(raw: np.ndarray, unit: str, name: str) -> np.ndarray:
    factor = _NANOSECONDS[unit]
    if factor == 1:
        return raw
    limit = np.iinfo(np.int64).max // factor
    if len(raw) and max(abs(int(raw.min())), abs(int(raw.max()))) > limit:
        bad = np.flatnonzero((raw > limit) | (raw < -limit))
        first = raw[bad[:1]].astype(f"datetime64[{unit}]")[0]
        raise DataError(
            f"The time column {name!r} holds {len(bad)} of {len(raw)} stamps outside the years 1678 to 2261 (first "
            f"{first} at row {bad[0]}). Correct or drop them."
        )
    return raw * factor


def _integers(array: pa.Array, name: str) -> np.ndarray:
    try:
        values = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        raise DataError(f"The time column {name!r} holds integers above 2**63 - 1. Renumber the steps.") from None
    _refuse_written_dates(values, name)
    return values


def _refuse_written_dates(values: np.ndarray, name: str) -> None:
    """202312 and 202401 are one month apart, not 89 steps. Raises DataError for months, days and hours so written."""
    import pandas as pd

    first, last = (str(values.min()), str(values.max())) if len(values) > 1 else ("", "")
    form = _WRITTEN_DATES.get(len(first))
    if form is None or len(first) != len(last) or first[:4] < "1900" or last[:4] > "2100":
        return
    distinct = np.unique(values)
    if pd.to_datetime(distinct.astype(str), format=form, errors="coerce").isna().any():
        return
    if form == "%Y%m":  # six digits may well be a count: only one that leaves out 13 to 99 is none
        turn = np.diff(distinct)[np.diff(distinct // 100) > 0]
        if not (turn % 100).any():
            return
    raise DataError(
        f"The time column {name!r} holds dates written as integers (first {values[0]}), which would be counted as "
        f"steps. Parse them: pandas.to_datetime(df[{name!r}].astype(str), format={form!r})."
    )


def _whole_floats(array: pa.Array, name: str) -> np.ndarray:
    if pa.types.is_float16(array.type):
        raise DataError(f"The time column {name!r} holds float16, too coarse to count steps. Use integers or stamps.")
    values = array.to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2.0**53)))
    if len(bad):
        raise DataError(
            f"The time column {name!r} holds {len(bad)} of {len(values)} numbers that are not whole (first "
            f"{float(values[bad[0]])!r} at row {bad[0]}). Use integers or stamps."
        )
    whole = values.astype(np.int64)
    _refuse_written_dates(whole, name)
    return whole


def _parse_text(array: pa.Array, name: str) -> tuple[np.ndarray, str | None, str]:
    """Parse each distinct text once; a zone must be the same everywhere."""
    import pandas as pd

    encoded = encode(array, name)
    codes = dictionary_codes(encoded)
    text = pd.Series(encoded.dictionary.to_pylist(), dtype=object)
    plain = _usual_spelling(text)
    zones = plain.str.extract(_OFFSET, expand=False).fillna("none").map(_offset_name)
    if zones.nunique() > 1:
        raise _mixed_zones(zones, codes, text, name)
    stamps = _parse_stamps(plain, name)
    bad = text[stamps.isna()]
    if len(bad):
        rows = np.flatnonzero(np.isin(codes, np.asarray(bad.index)))
        raise DataError(
            f"The time column {name!r} has {len(rows)} of {len(array)} values that are no time (for example "
            f"{listed([repr(value) for value in bad[:3]])}; {row_list(rows)}). "
            f"Correct them, or parse the column with pandas.to_datetime first."
        )
    tz = None
    if stamps.dt.tz is not None:
        tz = str(stamps.dt.tz) if zones.iloc[0] == "none" else str(zones.iloc[0])
        stamps = stamps.dt.tz_convert("UTC").dt.tz_localize(None)
    raw = stamps.to_numpy().astype(np.int64)
    fine = stamps.dt.unit == "ns" and (raw % 1000).any()
    return _nanoseconds(raw[codes], stamps.dt.unit, name), tz, "ns" if fine else "us"


def _mixed_zones(zones: pd.Series, codes: np.ndarray, text: pd.Series, name: str) -> DataError:
    rows = np.bincount(codes, minlength=len(text))
    found = []
    for zone in zones.unique():
        which = np.flatnonzero(zones == zone)
        first = int(np.flatnonzero(np.isin(codes, which))[0])
        found.append(f"{zone} ({int(rows[which].sum())} rows, first {text[codes[first]]!r} at row {first})")
    return DataError(
        f"The time column {name!r} mixes zones: {listed(found)}. Put all stamps in one zone, for example "
        f"pandas.to_datetime(df[{name!r}], utc=True).dt.tz_convert('Europe/Berlin')."
    )


def _usual_spelling(text: pd.Series) -> pd.Series:
    """Lower-case t and z, which ISO 8601 allows and pandas passes over, as T and Z; 2024Q3 as 2024-07-01."""

    def first_day(match: re.Match[str]) -> str:
        year, quarter = match["year"] or match["late"], int(match["quarter"] or match["early"])
        return f"{year}-{3 * quarter - 2:02d}-01"

    upper = text.str.replace(_LOWER_CASE, lambda match: match[0].upper(), regex=True)
    return upper.str.replace(_QUARTER, first_day, regex=True)


def _parse_stamps(text: pd.Series, name: str) -> pd.Series:
    import pandas as pd

    try:
        stamps = pd.to_datetime(text, format="ISO8601", errors="coerce")
    except ValueError:  # a form that no calendar has, such as a thirteenth month with a zone
        stamps = pd.Series(pd.NaT, index=text.index)
    if stamps.isna().mean() <= 0.5:
        return stamps
    # Not ISO: pandas takes the form of the first value for all of them. Day or month first is read from all values.
    numbers = text.str.extract(_NUMBERS_FIRST).astype(float)
    day_first = bool((numbers[0] > 12).any())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            stamps = pd.to_datetime(text, errors="coerce", dayfirst=day_first)
        except ValueError as error:
            raise DataError(
                f"The time column {name!r} cannot be read: {error}. Use pandas.to_datetime first."
            ) from None
    if numbers[0].notna().any() and not day_first and not (numbers[1] > 12).any():
        warn(
            f"The time column {name!r} was read as month/day/year ({text.iloc[0]!r} is {stamps.iloc[0]}), since "
            f"nothing in it says otherwise. If that is wrong, parse it with pandas.to_datetime(..., dayfirst=True) "
            f"first."
        )
    return stamps


def _offset_name(zone: str) -> str:
    if zone in ("Z", "+00:00", "+0000"):
        return "UTC"
    return zone if ":" in zone or zone == "none" else f"{zone[:3]}:{zone[3:]}"
