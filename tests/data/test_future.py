"""The horizon: known covariates that cover it, more than cover it, or do not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tsattn.data.build import build_panel
from tsattn.data.calendar import calendar_features
from tsattn.data.future import extend
from tsattn.data.schema import Roles
from tsattn.errors import DataError, TsattnWarning

HORIZON, CONTEXT = 3, 4


def history(lengths=(6, 2), tz=None) -> pd.DataFrame:
    parts = []
    for number, length in enumerate(lengths):
        ds = pd.date_range("2024-01-01", periods=length, freq="h", tz=tz)
        parts.append(
            pd.DataFrame({"unique_id": "ab"[number], "ds": ds, "y": 1.0, "price": np.arange(length) + 10.0 * number})
        )
    return pd.concat(parts, ignore_index=True).assign(open=lambda df: np.where(df.price % 2 == 0, "yes", "no"))


def future(steps=HORIZON, lengths=(6, 2), tz=None) -> pd.DataFrame:
    parts = []
    for number, length in enumerate(lengths):
        ds = pd.date_range("2024-01-01", periods=length + steps, freq="h", tz=tz)[length:]
        parts.append(
            pd.DataFrame({"unique_id": "ab"[number], "ds": ds, "price": 100.0 * (number + 1) + np.arange(steps)})
        )
    return pd.concat(parts, ignore_index=True).assign(open="yes")


def panel(known=("price",), tz=None, **changes):
    return build_panel(history(tz=tz, **changes), Roles.of("unique_id", "ds", "y", known=known))


def test_numbers_categories_and_calendar_of_the_horizon():
    tail = extend(panel(("price", "open", "calendar.hour")), CONTEXT, HORIZON, future())
    assert tail.lengths.tolist() == [CONTEXT + HORIZON, 2 + HORIZON]
    np.testing.assert_array_equal(tail.values[:, 0], [1] * 4 + [np.nan] * 3 + [1] * 2 + [np.nan] * 3)
    np.testing.assert_array_equal(tail.values[:, 1], [2, 3, 4, 5, 100, 101, 102, 10, 11, 200, 201, 202])
    assert tail.codes[:, 0].tolist() == [2, 1, 2, 1, 2, 2, 2, 2, 1, 2, 2, 2]
    hours = np.array([2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4]) * 3_600_000_000_000
    np.testing.assert_array_equal(tail.values[:, 2:], calendar_features(["hour"], hours))


def test_calendar_alone_needs_no_table_and_reads_local_time():
    tail = extend(panel(("calendar.hour",), tz="Europe/Berlin"), CONTEXT, HORIZON)
    times = pd.date_range("2024-01-01 02:00", periods=7, freq="h").to_numpy().astype("datetime64[ns]").astype(np.int64)
    np.testing.assert_array_equal(tail.values[:7, 1:], calendar_features(["hour"], times))


def test_more_rows_any_order_and_other_series_are_accepted():
    expected = extend(panel(), CONTEXT, HORIZON, future())
    more = pd.concat([history(), future(9), future().assign(unique_id="zz", price=np.inf)]).drop(columns="y")
    for known in (more, more.sample(frac=1, random_state=0), pl.from_pandas(more)):
        tail = extend(panel(), CONTEXT, HORIZON, known)
        np.testing.assert_array_equal(tail.values, expected.values)


def test_four_dates_when_it_ends_too_early():
    message = (
        r"Known column 'price' must cover every step of the horizon; 2 of 2 series lack some. First: 'a' needs "
        r"2024-01-01 06:00:00 to 2024-01-01 08:00:00, given: 2024-01-01 06:00:00 to 2024-01-01 07:00:00 "
        r"\(1 steps absent, first 2024-01-01 08:00:00\). Add these rows to known="
    )
    with pytest.raises(DataError, match=message):
        extend(panel(), CONTEXT, HORIZON, future(2))


UNFIT = {
    "a hole": (
        lambda: future().drop(index=1),
        r"1 of 2 series.*given: .*06:00:00 to .*08:00:00 \(1 steps absent, first .*07:00",
    ),
    "other ids": (
        lambda: future().assign(unique_id="zz").drop_duplicates("ds"),
        r"given: no row. known= has 1 ids that the series do not have \('zz'\)",
    ),
    "off the grid": (
        lambda: future().assign(ds=lambda df: df.ds + pd.Timedelta(minutes=5)),
        "given: no row. 3 of its rows are not on the grid",
    ),
    "twice": (
        lambda: pd.concat([future(), future().iloc[:1]]),
        r"more than one row for 1 steps of the horizon \(first: 'a' at 2024-01-01 06:00:00\)",
    ),
    "zone": (
        lambda: future().assign(ds=lambda df: df.ds.dt.tz_localize("UTC")),
        "'ds' of known= is in UTC, the series have none",
    ),
    "integers": (lambda: future().assign(ds=range(6)), "'ds' of known= holds integers, the series have stamps"),
    "no column": (lambda: future().drop(columns="price"), "'price' not in the table"),
    "text": (lambda: future().assign(price="x"), "known column 'price' must be numeric"),
    "infinite": (lambda: future().assign(price=np.inf), "known column 'price' holds 6 infinite"),
    "nothing": (
        lambda: None,
        r"reads the known columns 'price': pass predict\(known=table\) with 'unique_id', 'ds' .* for the 3 steps",
    ),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_known_table_that_does_not_fit(case):
    known, message = UNFIT[case]
    with pytest.raises(DataError, match=message):
        extend(panel(), CONTEXT, HORIZON, known())


def test_ids_are_matched_by_value():
    numbered = history().assign(unique_id=lambda df: df.unique_id.map({"a": 2**53 + 1, "b": 7}))
    numbers = build_panel(numbered, Roles.of("unique_id", "ds", "y", known="price"))
    known = future().assign(unique_id=lambda df: df.unique_id.map({"a": 2**53 + 1, "b": 7}))
    expected = extend(numbers, CONTEXT, HORIZON, known)
    as_text = extend(numbers, CONTEXT, HORIZON, known.assign(unique_id=known.unique_id.astype(str)))
    np.testing.assert_array_equal(as_text.values, expected.values)
    assert expected.values[:, 1].tolist() == [10, 11, 200, 201, 202, 2, 3, 4, 5, 100, 101, 102]
    with pytest.raises(
        DataError, match=r"'unique_id' of known= holds string \(for example 'a'\), the series have int64"
    ):
        extend(numbers, CONTEXT, HORIZON, future())


def test_missing_and_unseen_values_are_mentioned_once():
    known = future().assign(price=[np.nan, 1, 2, 3, 4, 5])
    with pytest.warns(
        TsattnWarning, match=r"'price' is missing in 1 of 6 steps of the horizon \(first: 'a' at .*06:00"
    ) as said:
        extend(panel(), CONTEXT, HORIZON, known)
    assert len(said) == 1
    with pytest.warns(
        TsattnWarning, match="'open' has 1 categories that training did not see .'maybe'; 2 of 6 rows"
    ) as said:
        tail = extend(panel(("open",)), CONTEXT, HORIZON, future().assign(open=["maybe", "yes", "no"] * 2))
    assert len(said) == 1
    assert tail.codes[4:7, 0].tolist() == [0, 2, 1]


def test_categories_outside_the_horizon_do_not_matter():
    known = pd.concat([future(), future(4).assign(open="never").iloc[[3, 7]]])
    tail = extend(panel(("open",)), CONTEXT, HORIZON, known)
    np.testing.assert_array_equal(tail.codes, extend(panel(("open",)), CONTEXT, HORIZON, future()).codes)


def test_one_series_without_id():
    one = build_panel(history((6,)).drop(columns="unique_id"), Roles.of(None, "ds", "y", known="price"))
    tail = extend(one, CONTEXT, HORIZON, future(lengths=(6,)))
    assert tail.values[:, 1].tolist() == [2, 3, 4, 5, 100, 101, 102]


def test_known_without_known_columns_is_refused():
    with pytest.raises(DataError, match=r"known= was given, but .* without known columns. Leave it out"):
        extend(panel(()), CONTEXT, HORIZON, future())
