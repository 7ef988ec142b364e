"""Dirty tables: what is repaired, what is refused, and in which words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsattn.data.build import build_panel
from tsattn.data.schema import Roles, Schema
from tsattn.errors import ConfigError, DataError, TsattnWarning


def table(lengths=(4, 3), freq="D", start="2024-01-01", **columns) -> pd.DataFrame:
    """Series a, b, ... of the given lengths; ``y`` counts the rows."""
    parts = [
        pd.DataFrame({"unique_id": chr(97 + number), "ds": pd.date_range(start, periods=length, freq=freq)})
        for number, length in enumerate(lengths)
    ]
    return pd.concat(parts, ignore_index=True).assign(y=lambda df: np.arange(len(df), dtype=float), **columns)


def roles(**changes) -> Roles:
    return Roles.of(**{"id": "unique_id", "time": "ds", "target": "y", **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": 0}, r"found target=0 \(int\)"),
        ({"target": ["y", 1]}, r"found target=1 \(int\)"),
        ({"id": 5}, r"found id=5 \(int\)"),
        ({"time": None}, r"found time=None"),
        ({"known": [3]}, r"found known=3 \(int\)"),
        ({"past": [("a", "b")]}, r"found past=\('a', 'b'\) \(tuple\)"),
        ({"static": 3.5}, r"found static=3.5 \(float\)"),
    ],
)
def test_names_of_columns_are_text(changes, message):
    with pytest.raises(ConfigError, match=rf"names of columns must be text, {message}.*astype\(str\)"):
        roles(**changes)


def same(a, b) -> bool:
    """Bit for bit."""
    arrays = ("values", "codes", "static_values", "static_codes", "indptr", "start")
    equal = all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in arrays)
    return equal and a.ids.equals(b.ids) and a.schema == b.schema


def stamps(panel, series=0):
    steps = np.arange(panel.lengths[series])
    return pd.DatetimeIndex(panel.times(np.full(len(steps), series), steps).astype("datetime64[ns]"))


# ------------------------------------------------------------------ refused


REFUSED = {
    "duplicates": (
        lambda: pd.concat([table(), table().iloc[[1, 5]]]),
        r"2 duplicate rows in columns 'unique_id', 'ds': more than one row for the same series and time "
        r"\(series 'a' at 2024-01-02, series 'b' at 2024-01-02\). 2 of 2 series are affected. "
        r"Keep one row each, for example df.drop_duplicates\(\['unique_id', 'ds'\]\)",
    ),
    "many duplicates": (lambda: pd.concat([table()] * 2), r"7 duplicate rows .* and 4 more\)"),
    "unparsable": (
        lambda: table().assign(ds=lambda df: df.ds.astype(str).where(df.index != 2, "yesterday")),
        r"time column 'ds' has 1 of 7 values that are no time .*'yesterday'; row 2\).*pandas.to_datetime",
    ),
    "mixed zones": (
        lambda: table().assign(ds=[f"2024-01-0{day}T00:00:00+0{day % 2}:00" for day in range(1, 8)]),
        r"'ds' mixes zones: \+01:00 \(4 rows, first .* at row 0\), UTC \(3 rows, .*tz_convert",
    ),
    "jitter": (
        lambda: table(freq="h").assign(ds=lambda df: df.ds + pd.to_timedelta([0, 0, 2, 0, 0, 0, 0], unit="s")),
        r"Time column 'ds': Cannot infer the frequency: series 'a' goes from 2024-01-01 01:00:00 to 2024-01-01 "
        r"02:00:02 \(1 h 2 s\).*Most frequent steps: 1 h \(3 times\).*Pass freq=, or round",
    ),
    "infinite": (
        lambda: table().assign(y=[0, 1, np.inf, 3, 4, -np.inf, 6]),
        r"target column 'y' holds 2 infinite of 7 values \(first inf: series 'a' at 2024-01-03, series 'b' at "
        r"2024-01-02 \(row 2 of the table\)\).*NaN for 'not observed'",
    ),
    "overflow": (
        lambda: table().assign(y=lambda df: df.y + 1e39),
        r"'y' holds 7 too large of 7 values \(first 1e\+39: series 'a' at 2024-01-01.* and 4 more .*3.4e\+38.*unit",
    ),
    "text target": (lambda: table().assign(y=list("1234x67")), "1 of 7 values are no numbers .*'x' at row 4"),
    "no time": (
        lambda: table().assign(ds=lambda df: df.ds.where(df.index != 3)),
        r"time column 'ds' is missing in 1 of 7 rows \(row 3\). Drop these rows",
    ),
    "no id": (
        lambda: table().assign(unique_id=["a"] * 3 + [None] * 4),
        r"id column 'unique_id' is missing in 4 of 7 rows \(rows 3, 4, 5 and 1 more\). Drop these rows",
    ),
    "empty": (lambda: table().iloc[:0], r"The table has no rows \(columns: unique_id, ds, y\)"),
    "one row each": (lambda: table((1,)), "'ds': Cannot infer the frequency: no series has two rows.*freq="),
    "stray stamp": (
        lambda: pd.concat([table((60,), "s"), table((1,), start="1999-01-01")]),
        r"grid of the time column 'ds' would have 788918460 steps for 61 rows. The largest gap, 788918400 steps, is "
        r"in series 'a' from 1999-01-01 to 2024-01-01. Correct the stamps there, or pass a coarser freq=",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_column_place_count_and_fix(case):
    make, message = REFUSED[case]
    with pytest.raises(DataError, match=message):
        build_panel(make(), roles())


def test_forgotten_id_column_gets_a_hint():
    with pytest.raises(
        DataError, match=r"4 duplicate rows in column 'ds'.*8 rows share 4 times: did you forget the id"
    ):
        build_panel(table((4, 4)).drop(columns="unique_id"), roles())
    with pytest.raises(DataError, match="did you forget the id column"):
        build_panel(table((4, 4)).rename(columns={"unique_id": "shop"}), roles())


def test_first_places_are_those_of_the_table_when_it_is_not_sorted():
    dirty = table().assign(y=[0, 1, 2, 3, 4, np.inf, 6]).iloc[::-1]
    with pytest.raises(DataError, match=r"first inf: series 'b' at 2024-01-02 \(row 1 of the table\)"):
        build_panel(dirty, roles())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "z"}, "Column 'z' not in the table. It has: unique_id, ds, y"),
        ({"time": "when"}, "Column 'when' not in the table"),
        ({"known": "Y"}, "Column 'Y' not in the table"),
    ],
)
def test_missing_columns(change, message):
    with pytest.raises(DataError, match=message):
        build_panel(table(), roles(**change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": ["y", "unique_id"]}, "'unique_id' is both id and target; give it one role"),
        ({"known": "x", "past": ["x"]}, "'x' is both known and past"),
        ({"known": "calendar.hours"}, r"Unknown calendar feature 'calendar.hours'. Did you mean 'calendar.hour'\?"),
        ({"target": ()}, "No target"),
    ],
)
def test_roles_that_clash(change, message):
    with pytest.raises(ConfigError, match=message):
        roles(**change)


@pytest.mark.parametrize("values", [[1, 1, 1, 2, 5, 5, 6], list("xxxyzzw")])
def test_a_static_column_that_changes(values):
    with pytest.raises(
        DataError, match=r"static column 's' changes within 2 of 2 series \(first: series 'a' at 2024-01-04\)"
    ):
        build_panel(table(s=values), roles(static="s"))


NUMBERED = [1, 2, 3, 4, 1, 2, 3]
UNFIT = {
    "too coarse": (
        "h",
        lambda: table(freq="30min"),
        r"3 of 7 rows, in 2 of 2 series, .*frequency 'h' \(time column 'ds'\). First: series 'a', 2024-01-01 is "
        r"followed by 2024-01-01 00:30:00.*round\('h'\)",
    ),
    "middle of the month": (
        "MS",
        lambda: table(freq="MS").assign(ds=lambda df: df.ds + pd.Timedelta(days=14)),
        r"7 of 7 rows, in 2 of 2 series.*series 'a' starts at 2024-01-15: it is not the first day of a month",
    ),
    "integers": (
        2,
        lambda: table().assign(ds=[1, 3, 4, 5, 1, 3, 5]),
        r"1 of 7 rows, in 1 of 2 series.*3 is followed by 4.*renumber",
    ),
    "stamps wanted": ("D", lambda: table().assign(ds=NUMBERED), "holds integers, but the frequency 'D' needs stamps"),
    "integers wanted": (1, table, "'ds' holds stamps, but the frequency '1' needs integers"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_frequency_that_does_not_fit(case):
    freq, make, message = UNFIT[case]
    with pytest.raises(DataError, match=message):
        build_panel(make(), roles(), freq=freq)


def test_calendar_features_need_stamps():
    with pytest.raises(
        DataError, match=r"Calendar features \(hour\) need stamps, but the time column 'ds' holds integers"
    ):
        build_panel(table().assign(ds=[1, 2, 3, 4, 1, 2, 3]), roles(known="calendar.hour"))


# ------------------------------------------------------------------ said


def test_ids_that_name_rows_are_mentioned():
    rows = pd.concat([table((1,) * 3), table((4,)).assign(unique_id="z")])
    with pytest.warns(TsattnWarning, match="3 of the 4 series named by column 'unique_id' have a single row") as caught:
        panel = build_panel(rows, roles())
    assert caught[0].filename == __file__
    build_panel(rows, panel.schema.roles, schema=panel.schema)  # new series with one row are nothing special


@pytest.mark.parametrize(
    ("freq", "rows"), [("h", table((5,))), ("D", pd.concat([table((3,)), table((1,), start="2019-01-01")]))]
)
def test_a_grid_that_is_mostly_empty_is_mentioned(freq, rows):
    with pytest.warns(
        TsattnWarning, match=r"of the \d+ steps of its grid \(time column 'ds'.*largest gap.*in series 'a' from"
    ):
        build_panel(rows, roles(), freq=freq)


def test_unseen_categories_one_warning_per_column():
    seen = table(colour=list("rrggrgr"), shop=["x"] * 4 + ["w"] * 3)
    schema = build_panel(seen, roles(known="colour", static="shop")).schema
    new = table(colour=list("rbgbbgr"), shop=["x"] * 4 + ["w"] * 3)
    message = (
        "Column 'colour' has 1 categories that training did not see .'b'; 3 of 7 rows.. They are treated as unknown"
    )
    with pytest.warns(TsattnWarning, match=message) as caught:
        panel = build_panel(new, schema.roles, schema=schema)
    assert len(caught) == 1
    assert panel.codes[:, 0].tolist() == [2, 0, 1, 0, 0, 1, 2]
    assert panel.static_codes[:, 0].tolist() == [2, 1]


# ------------------------------------------------------------------ read as they are meant


def test_sorted_or_not_bit_identical_and_the_frame_is_not_touched():
    clean = table((50, 3, 20), "h", x=lambda df: df.y * 2, kind=lambda df: df.unique_id + "k").drop(index=[7, 8, 60])
    reading = roles(past="x", known="calendar.hour", static="kind")
    panel = build_panel(clean, reading)
    for seed in range(3):
        mixed = clean.sample(frac=1, random_state=seed)
        before = mixed.copy(deep=True)
        assert same(build_panel(mixed, reading), panel)
        pd.testing.assert_frame_equal(mixed, before)
    by_time = clean.sort_values("ds", kind="stable")
    assert same(build_panel(by_time, reading), panel)
    panel.values[:] = -1
    assert clean.y.min() >= 0


def test_gaps_become_unobserved_rows():
    panel = build_panel(table((6, 2)).drop(index=[2, 3]), roles())
    assert panel.lengths.tolist() == [6, 2]
    np.testing.assert_array_equal(panel.values[:, 0], [0, 1, np.nan, np.nan, 4, 5, 6, 7])


@pytest.mark.parametrize(
    ("given", "alias", "start"),
    [
        ("3h", "3h", "2024-01-01 08:00"),
        ("MS", "MS", "2024-01-01"),
        ("ME", "ME", "2024-01-31"),
        ("YE-MAR", "YE-MAR", "2003-03-31"),
        ("W-TUE", "W-TUE", "2024-01-02"),
        ("15min", "15min", "2024-01-01"),
        ("D", "D", "2024-01-01 06:30"),
    ],
)
def test_inferred_frequency_and_phase(given, alias, start):
    offsets = pd.date_range(start, periods=30, freq=given)
    rows = pd.DataFrame({"unique_id": "a", "ds": offsets, "y": 1.0})
    panel = build_panel(rows.drop(index=[4, 5]), roles())
    assert panel.schema.freq.alias == alias
    assert (stamps(panel) == offsets).all()


def test_business_days_with_a_holiday():
    days = pd.bdate_range("2024-01-01", periods=30).delete(7)
    panel = build_panel(pd.DataFrame({"unique_id": "a", "ds": days, "y": 1.0}), roles())
    assert panel.schema.freq.alias == "B"
    assert (panel.lengths.tolist(), int(np.isnan(panel.values).sum())) == ([30], 1)


@pytest.mark.parametrize("tz", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("around", ["2022-03-11", "2022-03-26", "2022-10-29", "2022-11-05"])
@pytest.mark.parametrize("freq", ["h", "D"])
def test_clock_changes(tz, around, freq):
    ds = pd.date_range(around, periods=96 if freq == "h" else 6, freq=freq, tz=tz)
    panel = build_panel(pd.DataFrame({"unique_id": "a", "ds": ds, "y": 1.0}), roles())
    assert (panel.schema.freq.alias, panel.schema.tz) == (freq, tz)
    assert (stamps(panel).tz_localize("UTC").tz_convert(tz) == ds).all()
    assert not np.isnan(panel.values).any()


def test_integer_time_and_own_starts():
    rows = pd.DataFrame({"unique_id": list("aaabb"), "ds": [10, 20, 40, -5, 5], "y": np.arange(5.0)})
    panel = build_panel(rows, roles())
    assert panel.schema.freq.alias == "10"
    assert panel.schema.integer_time
    assert (panel.lengths.tolist(), panel.start.tolist()) == ([4, 2], [10, -5])
    np.testing.assert_array_equal(panel.values[:, 0], [0, 1, np.nan, 2, 3, 4])


def test_two_rows_one_series_without_an_id():
    panel = build_panel(table((2,)).drop(columns="unique_id"), roles())
    assert (len(panel), panel.lengths.tolist(), panel.ids.to_pylist()) == (1, [2], [None])
    assert panel.schema.roles.id is None
    assert panel.name(0) == "the series"


def test_columns_that_share_a_value_stay_apart():
    panel = build_panel(table(c=["foo"] * 4 + ["bar"] * 3, d="foo"), roles(static=["c", "d"]))
    assert panel.schema.categories == {"c": ("bar", "foo"), "d": ("foo",)}
    assert panel.static_codes.tolist() == [[2, 1], [1, 1]]
    assert panel.schema.sizes("static") == (3, 2)


def test_statics_with_holes():
    reading = roles(static=["size", "place"])
    rows = table(size=[np.nan, 5, 5, np.nan] + [np.nan] * 3, place=[None, "x", None, "x"] + [None] * 3)
    panel = build_panel(rows, reading)
    np.testing.assert_array_equal(panel.static_values, [[5], [np.nan]])
    assert panel.static_codes.tolist() == [[1], [0]]


def test_boolean_and_missing_categories():
    panel = build_panel(table(open=[True, False, None, True, True, True, False]), roles(known="open"))
    assert panel.schema.categories == {"open": ("False", "True")}
    assert panel.codes[:, 0].tolist() == [2, 1, 0, 2, 2, 2, 1]


def test_categories_read_back_from_numbers():
    schema = build_panel(table(store=pd.Categorical([1, 2, 1, 2, 2, 1, 1])), roles(known="store")).schema
    for column in ([1, 2, 2, 1, 1, 1, 1], [1.0, np.nan, 2, 1, 1, 1, 1], ["1", "2", "2", "1", "1", "1", "1"]):
        panel = build_panel(table(store=column), schema.roles, schema=schema)
        assert panel.codes[[0, 2], 0].tolist() == [1, 2]
    with pytest.raises(DataError, match=r"'store' was a category in training and is timestamp.*astype"):
        build_panel(table(store=pd.Timestamp("2024")), schema.roles, schema=schema)


@pytest.mark.parametrize(
    ("old", "new", "natural"),
    [
        ("H", "h", "h"),
        ("T", "min", "min"),
        ("M", "ME", "ME"),
        ("Q", "QE", "QE"),
        ("A", "YE", "YE"),
        ("W", "W-SUN", "W-SUN"),
    ],
)
def test_old_and_new_aliases_are_equal(old, new, natural):
    rows = pd.DataFrame({"unique_id": "a", "ds": pd.date_range("2024-01-01", periods=5, freq=natural), "y": 1.0})
    panels = [build_panel(rows, roles(known="calendar.month"), freq=freq) for freq in (old, new)]
    assert same(*panels)
    assert panels[0].lengths.tolist() == [5]


def test_offsets_and_timedeltas_name_a_frequency():
    for freq in (pd.offsets.Day(), pd.Timedelta(days=1), np.timedelta64(1, "D"), "1D"):
        assert build_panel(table(), roles(), freq=freq).schema.freq.alias == "D"


def test_another_table_is_read_as_the_training_table():
    schema = build_panel(table(freq="h"), roles()).schema
    one = build_panel(table((1,)), schema.roles, schema=schema)  # one row: nothing to infer from
    assert (one.schema, one.lengths.tolist()) == (schema, [1])
    utc = table(freq="h").assign(ds=lambda df: df.ds.dt.tz_localize("UTC"))
    with pytest.raises(
        DataError, match=r"'ds' is in UTC, the training table had none. Use df\['ds'\].dt.tz_localize\(None\)"
    ):
        build_panel(utc, schema.roles, schema=schema)
    zoned = build_panel(utc, roles()).schema
    with pytest.raises(DataError, match=r"has no zone, the training table was in UTC. Use .*tz_localize\('UTC'\)"):
        build_panel(table(freq="h"), roles(), schema=zoned)
    berlin = utc.assign(ds=lambda df: df.ds.dt.tz_convert("Europe/Berlin"))
    assert same(build_panel(berlin, roles(), schema=zoned), build_panel(utc, roles(), schema=zoned))
    with pytest.raises(DataError, match="'ds' holds integers"):
        build_panel(table().assign(ds=[1, 2, 3, 4, 1, 2, 3]), schema.roles, schema=schema)
    with pytest.raises(DataError, match="'unique_id' not in the table"):
        build_panel(table((2,)).drop(columns="unique_id"), schema.roles, schema=schema)
    assert Schema.from_dict(schema.to_dict()) == schema


def test_span_and_select():
    panel = build_panel(table((5, 3), "h", x=lambda df: df.y * 10), roles(past="x", known="calendar.hour"))
    part = panel.span(np.array([2, 0]), np.array([6, 3]))
    assert part.lengths.tolist() == [4, 3]
    np.testing.assert_array_equal(part.values[:, 0], [2, 3, 4, np.nan, 5, 6, 7])
    assert np.isfinite(part.values[3, -2:]).all()  # the calendar goes on
    assert part.when(0, 0) == "2024-01-01 02:00:00"
    swapped = panel.select(np.array([1, 0]))
    assert swapped.ids.to_pylist() == ["b", "a"]
    np.testing.assert_array_equal(swapped.values[:, 0], [5, 6, 7, 0, 1, 2, 3, 4])


# ------------------------------------------------------------------ any table


@st.composite
def messy(draw):
    """Series of random lengths with random gaps; every value says where it belongs."""
    parts = []
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    integer = draw(st.booleans())
    for number, length in enumerate(lengths):
        keep = draw(st.lists(st.booleans(), min_size=length, max_size=length))
        keep[0] = True
        steps = np.flatnonzero(keep) + draw(st.integers(0, 5))
        parts.append(pd.DataFrame({"id": number, "step": steps, "y": number * 1000.0 + steps}))
    rows = pd.concat(parts, ignore_index=True)
    rows["ds"] = rows.step if integer else pd.Timestamp("2024-01-01") + pd.to_timedelta(rows.step, unit="h")
    dtype = draw(st.sampled_from(["int64", "str", "object", "category"]))
    text = rows.id.map("s{}".format)
    rows["unique_id"] = rows.id + 2**53 if dtype == "int64" else text.astype(dtype)
    rows["y"] = rows.y.astype(draw(st.sampled_from(["float64", "float32", "int64"])))
    return rows, integer, draw(st.permutations(range(len(rows))))


@settings(max_examples=60, deadline=None)
@given(messy())
@pytest.mark.filterwarnings("ignore:.*have a single row", "ignore:The table has")
def test_every_value_stays_at_its_id_and_stamp(case):
    rows, integer, order = case
    panel = build_panel(rows.iloc[list(order)], roles(), freq=1 if integer else "h")
    assert set(panel.ids.to_pylist()) == set(rows.unique_id)
    assert same(panel, build_panel(rows, roles(), freq=1 if integer else "h"))
    assert same(
        panel, build_panel(pa.Table.from_pandas(rows, preserve_index=False), roles(), freq=1 if integer else "h")
    )
    expected = {(name, time): float(y) for name, time, y in zip(rows.unique_id, rows.ds, rows.y, strict=True)}
    found = {}
    for series in range(len(panel)):
        times = panel.times(np.full(panel.lengths[series], series), np.arange(panel.lengths[series]))
        for row, time in zip(range(panel.indptr[series], panel.indptr[series + 1]), times, strict=True):
            if not np.isnan(panel.values[row, 0]):
                key = int(time) if integer else pd.Timestamp(int(time))
                found[panel.ids[series].as_py(), key] = float(panel.values[row, 0])
    assert found == expected
