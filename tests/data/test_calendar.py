"""Frequencies, wall time, inference and calendar features against hand values, pandas and numpy."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsattn.data.calendar import (
    CALENDAR_FEATURES,
    Frequency,
    calendar_features,
    feature_names,
    format_time,
    from_wall,
    infer_frequency,
    to_wall,
)
from tsattn.errors import ConfigError, DataError

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
HOUR, DAY = 3_600_000_000_000, 86_400_000_000_000


def ns(text: str, tz: str | None = None) -> int:
    stamp = pd.Timestamp(text)
    return (stamp if tz is None or stamp.tz is not None else stamp.tz_localize(tz)).as_unit("ns").value


def steps_as_text(freq: str, start: str, steps: list[int], tz: str | None = None) -> list[str]:
    frequency = Frequency.parse(freq, tz=tz)
    return [format_time(t, tz) for t in frequency.at(ns(start, tz), np.array(steps))]


def infer(*series: pd.DatetimeIndex | list[str], tz: str | None = None, name_of=str) -> Frequency:
    indexes = [pd.DatetimeIndex(one).as_unit("ns") for one in series]
    groups = np.repeat(np.arange(len(indexes)), [len(one) for one in indexes])
    return infer_frequency(np.concatenate([one.asi8 for one in indexes]), groups, tz=tz, name_of=name_of)


# ---------------------------------------------------------------- parsing

OLD_AND_NEW = [
    *[("H", "h"), ("T", "min"), ("S", "s"), ("L", "ms"), ("U", "us"), ("N", "ns"), ("M", "ME"), ("Q", "QE")],
    *[
        ("A", "YE"),
        ("Y", "YE"),
        ("AS", "YS"),
        ("3H", "3h"),
        ("15T", "15min"),
        ("Q-MAR", "QE-MAR"),
        ("A-JUN", "YE-JUN"),
    ],
    *[("AS-APR", "YS-APR"), ("W", "W-SUN"), ("QS", "QS-JAN"), ("QE", "QE-DEC"), ("YE", "YE-DEC"), ("1h", "h")],
]


@pytest.mark.parametrize(("old", "new"), OLD_AND_NEW)
def test_old_and_new_alias_are_the_same_frequency(old, new):
    assert Frequency.parse(old) == Frequency.parse(new)


@pytest.mark.parametrize(
    ("freq", "kind", "n", "position", "alias"),
    [
        ("h", "tick", HOUR, "start", "h"),
        (" 3h ", "tick", 3 * HOUR, "start", "3h"),
        ("24h", "tick", 24 * HOUR, "start", "24h"),
        ("D", "day", 1, "start", "D"),
        ("2D", "day", 2, "start", "2D"),
        ("W-TUE", "day", 7, "start", "W-TUE"),
        ("2W", "day", 14, "start", "2W-SUN"),
        ("MS", "month", 1, "start", "MS"),
        ("M", "month", 1, "end", "ME"),
        ("2QE", "month", 6, "end", "2QE-DEC"),
        ("YS-JUL", "month", 12, "start", "YS-JUL"),
        ("B", "business", 1, "start", "B"),
        (5, "integer", 5, "start", "5"),
        (np.int32(5), "integer", 5, "start", "5"),
        ("5", "integer", 5, "start", "5"),
        (timedelta(hours=3), "tick", 3 * HOUR, "start", "3h"),
        (timedelta(days=1), "day", 1, "start", "D"),
        (pd.Timedelta("90min"), "tick", 90 * 60 * 10**9, "start", "90min"),
        (pd.Timedelta(1500, "ns"), "tick", 1500, "start", "1500ns"),
        (np.timedelta64(15, "m"), "tick", 15 * 60 * 10**9, "start", "15min"),
        (np.timedelta64(1, "W"), "day", 7, "start", "7D"),
        (np.timedelta64(3, "M"), "month", 3, "start", "3MS"),
        (np.timedelta64(1, "Y"), "month", 12, "start", "YS-JAN"),
        (pd.offsets.Hour(2), "tick", 2 * HOUR, "start", "2h"),
        (pd.offsets.Day(), "day", 1, "start", "D"),
        (pd.offsets.BDay(), "business", 1, "start", "B"),
        (pd.offsets.MonthEnd(), "month", 1, "end", "ME"),
        (pd.offsets.MonthBegin(), "month", 1, "start", "MS"),
        (pd.offsets.QuarterEnd(startingMonth=3), "month", 3, "end", "QE-MAR"),
        (pd.offsets.QuarterBegin(startingMonth=1), "month", 3, "start", "QS-JAN"),
        (pd.offsets.YearEnd(), "month", 12, "end", "YE-DEC"),
        (pd.offsets.Week(weekday=1), "day", 7, "start", "W-TUE"),
        (pd.offsets.Milli(100), "tick", 10**8, "start", "100ms"),
    ],
)
def test_parse(freq, kind, n, position, alias):
    found = Frequency.parse(freq)
    assert found == Frequency(kind, n, alias, position)
    assert Frequency.parse(found.alias) == found


def test_parse_takes_the_zone_and_a_frequency():
    found = Frequency.parse("D", tz=BERLIN)
    assert found.tz == BERLIN
    assert Frequency.parse(found) == Frequency.parse("D")
    assert Frequency.parse(Frequency.parse("D"), tz=BERLIN) == found
    assert Frequency.parse(2, tz=BERLIN).tz is None


@pytest.mark.parametrize(
    "freq", ["hour", "BME", "m", "W-XYZ", "h-MON", "MS-JAN", "1h30min", "", pd.DateOffset(months=1)]
)
def test_unknown_alias_lists_the_known_ones(freq):
    with pytest.raises(ConfigError, match=r"Unknown frequency.*Known: .*MS.*W-TUE"):
        Frequency.parse(freq)


@pytest.mark.parametrize(
    "freq", [0, -1, "0h", "-3h", "0", timedelta(0), np.timedelta64(-1, "h"), np.timedelta64(0, "M")]
)
def test_a_step_must_be_positive(freq):
    with pytest.raises(ConfigError, match="forward by at least 1"):
        Frequency.parse(freq)


@pytest.mark.parametrize("freq", [None, True, 1.5, ["h"], np.timedelta64("NaT"), np.timedelta64(3)])
def test_other_types_are_refused(freq):
    with pytest.raises(ConfigError, match="freq"):
        Frequency.parse(freq)


@pytest.mark.parametrize(("tz", "near"), [("Europe/Berlyn", "Europe/Berlin"), ("+25:00", "offset"), ("../etc", "IANA")])
def test_unknown_zone(tz, near):
    with pytest.raises(ConfigError, match=rf"Unknown time zone.*{near}"):
        Frequency.parse("h", tz=tz)


@pytest.mark.parametrize(
    ("freq", "season"),
    [
        *[("h", 24), ("3h", 8), ("5h", 5), ("24h", 7), ("15min", 96), ("min", 1440), ("s", 3600), ("30s", 120)],
        *[("ms", 1000), ("us", 1), ("D", 7), ("2D", 4), ("B", 5), ("5B", 1), ("W", 52), ("2W", 26), ("7D", 52)],
        *[
            ("MS", 12),
            ("ME", 12),
            ("2MS", 6),
            ("QS", 4),
            ("QE", 4),
            ("YE", 1),
            ("10YE", 1),
            ("365D", 1),
            (1, 1),
            (7, 1),
        ],
    ],
)
def test_season(freq, season):
    assert Frequency.parse(freq).season() == season


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize(
    ("freq", "start", "steps", "expected"),
    [
        ("3h", "2020-01-01 08:00", [1, 2, 6], ["2020-01-01 11:00:00", "2020-01-01 14:00:00", "2020-01-02 02:00:00"]),
        ("D", "2020-02-28", [1, 2, -1], ["2020-02-29", "2020-03-01", "2020-02-27"]),
        ("W", "2020-01-01", [1], ["2020-01-08"]),
        ("ME", "2023-01-31", [1, 2, 13, -2], ["2023-02-28", "2023-03-31", "2024-02-29", "2022-11-30"]),
        ("ME", "2024-02-29", [12], ["2025-02-28"]),
        ("MS", "2020-11-01", [1, 2], ["2020-12-01", "2021-01-01"]),
        ("MS", "2020-11-01 06:00", [1], ["2020-12-01 06:00:00"]),
        ("QE", "2020-11-30", [1], ["2021-02-28"]),
        ("QS", "2020-02-01", [-1, 4], ["2019-11-01", "2021-02-01"]),
        ("YE", "2020-02-29", [1, 4], ["2021-02-28", "2024-02-29"]),
        ("YS", "1700-01-01", [300], ["2000-01-01"]),
        ("B", "2021-01-01", [1, 5, -1], ["2021-01-04", "2021-01-08", "2020-12-31"]),
        ("2B", "2021-01-01", [1, 2], ["2021-01-05", "2021-01-07"]),
    ],
)
def test_steps_by_hand(freq, start, steps, expected):
    assert steps_as_text(freq, start, steps) == expected
    frequency = Frequency.parse(freq)
    index, exact = frequency.index(ns(start), np.array([ns(text) for text in expected]))
    assert index.tolist() == steps
    assert exact.all()


@pytest.mark.parametrize(
    ("freq", "start", "time", "step"),
    [
        ("3h", "2020-01-01 08:00", "2020-01-01 12:00", 1),
        ("3h", "2020-01-01 08:00", "2020-01-01 07:00", -1),
        ("D", "2020-01-01 12:00", "2020-01-03 11:00", 1),
        ("2D", "2020-01-01", "2020-01-04", 1),
        ("ME", "2020-01-31", "2020-02-28", 0),
        ("MS", "2020-01-01", "2020-02-15", 1),
        ("QS", "2020-01-01", "2020-03-01", 0),
        ("B", "2021-01-01", "2021-01-03", 0),
        ("B", "2021-01-01 09:00", "2021-01-05 08:00", 1),
    ],
)
def test_a_time_off_the_grid_is_rounded_down(freq, start, time, step):
    index, exact = Frequency.parse(freq).index(ns(start), ns(time))
    assert (int(index), bool(exact)) == (step, False)


def test_integer_steps():
    frequency = Frequency.parse(5)
    index, exact = frequency.index(np.array([[0], [3]]), np.array([3, 8, 10, -5]))
    assert index.tolist() == [[0, 1, 2, -1], [0, 1, 1, -2]]
    assert exact.tolist() == [[False, False, True, True], [True, True, False, False]]
    assert frequency.at(3, np.array([0, 2])).tolist() == [3, 13]


def test_each_series_has_its_own_start():
    frequency = Frequency.parse("ME")
    starts = np.array([ns("2020-01-31"), ns("2020-04-30 12:00")])
    assert [format_time(t) for t in frequency.at(starts, 1)] == ["2020-02-29", "2020-05-31 12:00:00"]


@pytest.mark.parametrize(
    ("freq", "start", "why"),
    [
        ("MS", "2020-01-15", "not the first day of a month"),
        ("ME", "2020-01-30", "not the last day of a month"),
        ("B", "2021-01-02", "not a Monday to Friday"),
    ],
)
def test_a_start_that_is_no_stamp(freq, start, why):
    frequency = Frequency.parse(freq)
    assert not frequency.on_calendar(ns(start))
    assert not frequency.index(ns(start), ns(start))[1]
    with pytest.raises(DataError, match=f"{start}.*{why}"):
        frequency.at(np.array([ns(start)]), 1)


@pytest.mark.parametrize("freq", ["h", "D", "MS", "B"])
def test_leaving_the_range_of_stamps_is_an_error(freq):
    with pytest.raises(DataError, match="1677 to 2262"):
        Frequency.parse(freq).at(ns("2020-01-01"), np.array([1, 10**10]))


def test_a_missing_holiday_is_one_missing_business_day():
    days = pd.bdate_range("2021-12-01", periods=30).drop(pd.Timestamp("2021-12-24"))
    index, exact = Frequency.parse("B").index(ns("2021-12-01"), days.as_unit("ns").asi8)
    assert exact.all()
    assert index.tolist() == [k for k in range(30) if k != 17]


def test_business_days_agree_with_numpy():
    days = np.arange("1960-01-01", "2040-01-01", dtype="datetime64[D]")
    days = days[np.is_busday(days)]
    start = np.datetime64("2000-01-03")
    frequency = Frequency.parse("B")
    index, exact = frequency.index(ns("2000-01-03"), days.astype("datetime64[ns]").astype(np.int64))
    assert exact.all()
    np.testing.assert_array_equal(np.busday_offset(start, index), days)


# ---------------------------------------------------------------- clock changes


@pytest.mark.parametrize(
    ("tz", "start", "hours"),
    [
        (BERLIN, "2022-10-29", 25),
        (BERLIN, "2022-03-26", 23),
        (NEW_YORK, "2022-11-05", 25),
        (NEW_YORK, "2022-03-12", 23),
    ],
)
def test_daily_stays_at_midnight_and_hourly_stays_absolute(tz, start, hours):
    first = ns(start, tz)
    days = Frequency.parse("D", tz=tz).at(first, np.arange(4))
    assert [t % DAY for t in to_wall(days, tz)] == [0, 0, 0, 0]
    assert (np.diff(days) // HOUR).tolist() == [24, hours, 24]
    stamps = Frequency.parse("h", tz=tz).at(first, np.arange(72))
    assert (np.diff(stamps) == HOUR).all()
    expected = pd.date_range(pd.Timestamp(start, tz=tz), periods=72, freq="h").as_unit("ns").asi8
    np.testing.assert_array_equal(stamps, expected)
    for freq, values in (("D", days), ("h", stamps)):
        index, exact = Frequency.parse(freq, tz=tz).index(first, values)
        assert exact.all()
        assert index.tolist() == list(range(len(values)))


def test_daily_in_a_skipped_hour_moves_forward_and_in_a_repeated_hour_takes_the_first():
    assert steps_as_text("D", "2022-03-26 02:30", [0, 1, 2], BERLIN) == [
        *["2022-03-26 02:30:00+01:00", "2022-03-27 03:00:00+02:00", "2022-03-28 02:30:00+02:00"]
    ]
    assert steps_as_text("D", "2022-10-29 02:30", [1, 2], BERLIN) == [
        *["2022-10-30 02:30:00+02:00", "2022-10-31 02:30:00+01:00"]
    ]


def test_a_start_in_the_second_of_two_equal_hours_stays():
    start = ns("2022-10-30 02:30+01:00")
    frequency = Frequency.parse("D", tz=BERLIN)
    times = frequency.at(start, np.arange(3))
    assert times[0] == start
    index, exact = frequency.index(start, times)
    assert index.tolist() == [0, 1, 2]
    assert exact.all()


def test_a_month_in_a_zone_keeps_local_midnight():
    assert steps_as_text("ME", "2022-09-30", [1, 2], BERLIN) == ["2022-10-31", "2022-11-30"]
    assert steps_as_text("MS", "2022-10-01", [1], NEW_YORK) == ["2022-11-01"]


@pytest.mark.parametrize(
    "tz", [BERLIN, NEW_YORK, "America/Sao_Paulo", "Europe/Dublin", "Asia/Kolkata", "-03:30", "UTC"]
)
def test_wall_time_agrees_with_pandas(tz):
    rng = np.random.default_rng(0)
    seconds = rng.integers(ns("1975-01-01") // 10**9, ns("2037-01-01") // 10**9, 2000)
    stamps = pd.DatetimeIndex((seconds * 10**9).view("datetime64[ns]"))
    local = stamps.tz_localize("UTC").tz_convert(tz).tz_localize(None)
    np.testing.assert_array_equal(to_wall(stamps.asi8, tz), local.asi8)
    first = stamps.tz_localize(tz, ambiguous=np.ones(2000, dtype=bool), nonexistent="shift_forward")
    np.testing.assert_array_equal(from_wall(stamps.asi8, tz), first.asi8)


@pytest.mark.parametrize("text", ["+02:00", "UTC+02:00", "+0200", "+2"])
def test_fixed_offsets(text):
    assert to_wall(np.array([0]), text).tolist() == [2 * HOUR]
    assert from_wall(np.array([0]), text).tolist() == [-2 * HOUR]


def test_empty_arrays():
    empty = np.array([], dtype=np.int64)
    for freq in ("h", "D", "MS", "B", 1):
        frequency = Frequency.parse(freq, tz=BERLIN)
        index, exact = frequency.index(empty, empty)
        assert (len(index), len(exact), len(frequency.at(empty, empty))) == (0, 0, 0)
    assert calendar_features(["hour"], empty, BERLIN).shape == (0, 2)


FREQS = ["h", "3h", "15min", "D", "2D", "W-TUE", "MS", "ME", "2ME", "QS-FEB", "QE", "YS", "YE-JUN", "B", "3B"]


@settings(deadline=None, max_examples=200)
@given(
    freq=st.sampled_from(FREQS),
    tz=st.sampled_from([None, "UTC", BERLIN, NEW_YORK, "Asia/Kathmandu", "-03:30"]),
    day=st.integers(-7000, 20000),
    second=st.integers(0, 86_399),
    steps=st.lists(st.integers(-200, 400), min_size=1, max_size=20),
)
def test_index_inverts_at(freq, tz, day, second, steps):
    frequency = Frequency.parse(freq, tz=tz)
    if frequency.kind == "month" and frequency.n >= 3:
        steps = [step // 4 for step in steps]  # stay within the years of nanosecond stamps
    date = np.datetime64(day, "D")
    if frequency.kind == "business":
        date = np.busday_offset(date, 0, roll="forward")
    elif frequency.kind == "month":
        month = date.astype("datetime64[M]")
        date = (month + 1).astype("datetime64[D]") - 1 if frequency.position == "end" else month
    wall = date.astype("datetime64[ns]").astype(np.int64) + second * 10**9
    start = from_wall(wall, tz)
    times = frequency.at(start, np.array(steps))
    index, exact = frequency.index(start, times)
    assert index.tolist() == steps
    assert exact.all()
    assert (np.diff(frequency.at(start, np.arange(50))) > 0).all()
    below, on_grid = frequency.index(start, times - 1)
    assert (below == np.array(steps) - 1).all()
    assert not on_grid.any()


def test_a_million_stamps():
    times = ns("2000-01-01", BERLIN) + np.arange(1_000_000) * 15 * 60 * 10**9
    for freq in ("15min", "D", "B", "MS"):
        frequency = Frequency.parse(freq, tz=BERLIN)
        start = frequency.at(ns("2000-03-01", BERLIN), 0)
        index, exact = frequency.index(start, times)
        np.testing.assert_array_equal(frequency.at(start, index)[exact], times[exact])


# ---------------------------------------------------------------- inference

INFERRED = ["s", "100ms", "min", "15min", "h", "3h", "D", "3D", "W-TUE", "2W-FRI", "B", "MS", "ME", "2MS"]
INFERRED += ["QS-JAN", "QS-MAR", "QE-NOV", "QE-DEC", "YS-JAN", "YS-OCT", "YE-MAR", "YE-DEC"]


@pytest.mark.parametrize("freq", INFERRED)
@pytest.mark.parametrize("tz", [None, BERLIN, NEW_YORK])
def test_infer_names_what_pandas_made(freq, tz):
    # up to 2034: the zones of pandas 2 know no clock change after 2037
    stamps = pd.date_range("1975-01-01", periods=60, freq=freq, tz=tz)
    holes = np.delete(np.arange(60), [7, 20, 21])
    found = infer(stamps, stamps[holes][1:], tz=tz)
    assert found == Frequency.parse(freq, tz=tz)
    starts = np.full(len(holes), stamps.as_unit("ns").asi8[0])
    index, exact = found.index(starts, stamps.as_unit("ns").asi8[holes])
    assert exact.all()
    assert index.tolist() == holes.tolist()


def test_infer_integer():
    found = infer_frequency(np.array([0, 2, 4, 8, 1, 3]), np.array([0, 0, 0, 0, 1, 1]), integer=True)
    assert found == Frequency.parse(2)
    with pytest.raises(DataError, match=r"series b goes from 4 to 7 \(3\).*2 \(2 times\), 3 \(1 time\).*renumber"):
        infer_frequency(np.array([0, 2, 4, 7]), np.zeros(4, dtype=int), integer=True, name_of=lambda code: "b")


def test_infer_a_two_row_series_and_rows_alone():
    assert infer(["2020-01-01", "2020-01-02"], ["2020-05-05"]).alias == "D"
    assert infer(["2020-01-01 08:00", "2020-01-01 11:00"]).alias == "3h"


def test_infer_needs_two_different_times():
    for series in (["2020-01-01"], ["2020-01-01", "2020-01-01"]):
        with pytest.raises(DataError, match=r"no series has two rows at different times\. Pass freq="):
            infer(series, ["2021-01-01"])


def test_infer_month_ends_over_a_leap_february():
    assert infer(["2023-12-31", "2024-01-31", "2024-02-29", "2024-03-31"]).alias == "ME"
    assert infer(["2024-01-31", "2024-02-29"], ["2024-04-30"]).alias == "ME"


def test_infer_series_on_other_quarters_or_weekdays_keep_their_phase():
    assert infer(["2020-01-01", "2020-04-01"], ["2020-02-01", "2020-05-01"]).alias == "3MS"
    assert infer(["2020-01-06", "2020-01-13"], ["2020-01-07", "2020-01-14"]).alias == "7D"


def test_infer_business_days_with_a_missing_holiday():
    days = pd.bdate_range("2021-12-01", periods=30)
    assert infer(days.drop(pd.Timestamp("2021-12-24"))).alias == "B"
    assert infer(days[:3]).alias == "D"  # Wednesday to Friday: no weekend was seen
    assert infer(days, pd.date_range("2021-12-01", periods=10)).alias == "D"


def test_infer_utc_days_in_a_local_zone_are_absolute():
    stamps = pd.date_range("2022-10-01", periods=60, freq="D", tz="UTC").tz_convert(BERLIN)
    assert infer(stamps, tz=BERLIN).alias == "24h"


def test_infer_midnights_that_a_zone_skips():
    stamps = pd.date_range("2018-10-01", periods=60).tz_localize("America/Sao_Paulo", nonexistent="shift_forward")
    assert infer(stamps, tz="America/Sao_Paulo").alias == "D"


def test_infer_jitter_says_which_steps_where_and_the_fix():
    jitter = ["2020-01-01 00:00:01", "2020-01-01 00:02:00", "2020-01-01 00:04:02", "2020-01-01 00:06:01"]
    clean = pd.date_range("2020-01-01", periods=2, freq="119s")
    with pytest.raises(DataError) as caught:
        infer(clean, jitter, name_of=lambda code: f"'shop {code}'")
    message = str(caught.value)
    assert "series 'shop 1' goes from 2020-01-01 00:02:00 to 2020-01-01 00:04:02 (2 min 2 s)" in message
    assert "1 of 4 steps do not fit" in message
    assert "1 min 59 s (3 times), 2 min 2 s (1 time)" in message
    assert "freq=" in message
    assert 'df[time].dt.round("2min")' in message


def test_infer_mid_month_stamps_point_to_the_first_day():
    stamps = pd.date_range("2020-01-01", periods=24, freq="MS") + pd.Timedelta(days=14)
    with pytest.raises(DataError, match=r"31 days \(13 times\).*30 days.*first day of the month"):
        infer(stamps)


# ---------------------------------------------------------------- features and text


def test_features_by_hand():
    times = np.array([ns("2024-12-31 18:30")])  # a Tuesday in ISO week 1 of 2025, day 366 of a leap year
    turn = {"minute": 30 / 60, "hour": 18.5 / 24, "day_of_week": 1 / 7, "day_of_month": 30 / 31}
    turn |= {"day_of_year": 365 / 366, "week": 0.0, "month": 11 / 12}
    angles = 2 * np.pi * np.array([turn[name] for name in CALENDAR_FEATURES])
    found = calendar_features(CALENDAR_FEATURES, times)
    assert found.dtype == np.float32
    expected = np.stack([np.sin(angles), np.cos(angles)], 1).reshape(1, -1)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert feature_names(["hour", "week"]) == ["hour_sin", "hour_cos", "week_sin", "week_cos"]


@pytest.mark.parametrize("tz", [None, BERLIN])
def test_features_agree_with_pandas(tz):
    stamps = pd.date_range("1969-12-25", periods=4000, freq="37h", tz=tz)
    found = calendar_features(
        ["day_of_week", "day_of_month", "day_of_year", "week", "month"], stamps.as_unit("ns").asi8, tz
    )
    values = [stamps.day_of_week / 7, (stamps.day - 1) / 31, (stamps.day_of_year - 1) / 366]
    values += [(stamps.isocalendar().week.to_numpy().astype(float) - 1) / 53, (stamps.month - 1) / 12]
    angles = 2 * np.pi * np.stack([np.asarray(value, dtype=float) for value in values], axis=1)
    np.testing.assert_allclose(found[:, 0::2], np.sin(angles), atol=1e-6)
    np.testing.assert_allclose(found[:, 1::2], np.cos(angles), atol=1e-6)


def test_features_are_local():
    times = np.array([ns("2022-07-01 00:00", BERLIN)])
    np.testing.assert_allclose(calendar_features(["hour"], times, BERLIN), [[0, 1]], atol=1e-7)
    np.testing.assert_allclose(
        calendar_features(["hour"], times, "UTC"), [[-0.5, np.cos(2 * np.pi * 22 / 24)]], atol=1e-6
    )


def test_unknown_feature():
    with pytest.raises(ConfigError, match=r"Unknown calendar feature 'hours'. Did you mean 'hour'"):
        calendar_features(["hours"], np.array([0]))


@pytest.mark.parametrize(
    ("value", "tz", "text"),
    [
        ("2022-10-30 00:00+00:00", BERLIN, "2022-10-30 02:00:00+02:00"),
        ("2022-10-29 22:00+00:00", BERLIN, "2022-10-30"),
        ("2022-10-30", None, "2022-10-30"),
        ("2022-10-30 01:02:03.5", None, "2022-10-30 01:02:03.500"),
        ("2022-10-30 01:02:03.000001", None, "2022-10-30 01:02:03.000001"),
        ("1969-12-31 23:59:59.999999999", None, "1969-12-31 23:59:59.999999999"),
        ("2022-01-01 00:00+00:00", "-03:30", "2021-12-31 20:30:00-03:30"),
    ],
)
def test_format_time(value, tz, text):
    assert format_time(ns(value), tz) == text


def test_format_integer_time():
    assert format_time(17, None, integer=True) == "17"
