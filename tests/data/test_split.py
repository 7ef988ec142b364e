"""Window origins against loops that are slow and obvious."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsattn.data.build import build_panel
from tsattn.data.schema import Roles
from tsattn.data.split import (
    Origins,
    chronological,
    last_origins,
    rolling_folds,
    scored_origins,
    training_origins,
)
from tsattn.errors import ConfigError, DataError


def panel(*lengths):
    parts = [pd.DataFrame({"unique_id": k, "ds": np.arange(length), "y": 1.0}) for k, length in enumerate(lengths)]
    return build_panel(pd.concat(parts), Roles.of("unique_id", "ds", "y"), freq=1)


def keys(origins):
    return list(zip(*(part.tolist() for part in origins.locate(np.arange(len(origins)))), strict=True))


def looped(first, last, step):
    return [(s, o) for s, (a, b) in enumerate(zip(first, last, strict=True)) for o in range(a, b + 1, step)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-5, 20)), min_size=1, max_size=6), st.integers(1, 4))
def test_origins_are_a_list_of_keys(intervals, step):
    first, last = (np.array(part) for part in zip(*intervals, strict=True))
    last = np.maximum(last, first - 1)
    origins = Origins(first, last, step)
    assert keys(origins) == looped(first, last, step)
    assert len(origins) == len(looped(first, last, step))
    assert origins.counts.sum() == origins.offsets()[-1]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 40), st.integers(1, 12), st.integers(1, 6))
def test_training_windows(stop, context, horizon):
    found = [origin for _, origin in keys(training_origins(np.array([stop]), context, horizon))]
    # Every origin with room for the horizon and at least one step before it is possible ...
    possible = [origin for origin in range(1, stop) if origin + horizon <= stop]
    # ... and used, unless its context is short although the series could fill more of it.
    assert found == [origin for origin in possible if origin >= min(context, max((stop - horizon) // 2, 1))]
    if found:
        read = {step for origin in found for step in range(max(origin - context, 0), origin + horizon)}
        assert read == set(range(stop))  # no row lost, at neither end


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    st.integers(1, 10),
    st.integers(1, 6),
    st.one_of(st.none(), st.integers(0, 30), st.floats(0, 0.9)),
)
@pytest.mark.filterwarnings("ignore:.*have a single row")
def test_parts_are_disjoint_and_complete(lengths, context, horizon, val_size):
    data = panel(*lengths)
    try:
        split = chronological(data, context, horizon, val_size)
    except DataError as error:
        assert "too short to train on" in str(error) or "0 windows" in str(error)  # noqa: PT017
        return
    scored = [{(s, o + h) for s, o in keys(part) for h in range(horizon)} for part in (split.train, split.validation)]
    assert not scored[0] & scored[1]
    assert (split.train_end >= 0).all()
    for s, length in enumerate(lengths):
        end = split.train_end[s]
        assert all(step < end for series, step in scored[0] if series == s)
        assert all(end <= step < length for series, step in scored[1] if series == s)
        if length - max(end, 1) >= horizon:  # every step of the validation part is scored
            assert {step for series, step in scored[1] if series == s} == set(range(max(end, 1), length))
        elif val_size is None:
            assert end == length  # too short for both parts: all of it is for training


def test_validation_reads_its_context_from_training():
    split = chronological(panel(30), 10, 3, 6)
    assert split.train_end.tolist() == [24]
    assert keys(split.train) == [(0, origin) for origin in range(10, 22)]
    assert keys(split.validation) == [(0, origin) for origin in range(24, 28)]


def test_a_young_series_is_judged_by_its_own_length():
    late = panel(20, 10)
    split = chronological(late, 5, 5, 0)
    assert [key for key in keys(split.train) if key[0] == 1] == keys_of_alone(10)


def keys_of_alone(length):
    return [(1, origin) for _, origin in keys(chronological(panel(length), 5, 5, 0).train)]


@pytest.mark.parametrize(
    ("val_size", "end"),
    [(None, 90), (0, 100), (7, 93), (0.25, 75), (np.float32(0.25), 75), (np.int64(7), 93), (0.0, 100)],
)
def test_sizes_of_the_validation_part(val_size, end):
    assert chronological(panel(100), 10, 3, val_size).train_end.tolist() == [end]


@pytest.mark.parametrize("val_size", [-1, 1.0, 1.5, float("nan"), True, "10"])
def test_sizes_that_are_none(val_size):
    with pytest.raises(ConfigError, match="val_size must be a number of steps, a fraction below 1, 0 or None; found"):
        chronological(panel(100), 10, 3, val_size)


def test_a_series_shorter_than_the_validation_part_trains_nothing():
    split = chronological(panel(40, 5), 4, 2, 10)
    assert split.train_end.tolist() == [30, 0]
    assert [origin for series, origin in keys(split.train) if series == 1] == []
    assert [origin for series, origin in keys(split.validation) if series == 1] == [1, 2, 3]


@pytest.mark.parametrize(
    ("lengths", "val_size", "message"),
    [
        (
            (3, 5),
            None,
            r"horizon 6 needs at least 7 steps, the longest of 2 series \(1\) has 5. Use a shorter horizon",
        ),
        ((3, 9), 4, r"the longest of 2 series \(1\) has 9, 4 of them held out for validation"),
        (
            (3, 20),
            4,
            "val_size=4 leaves 4 steps at most, horizon 6 needs at least 6. Use a larger val_size, or val_size=0",
        ),
    ],
)
def test_too_short(lengths, val_size, message):
    with pytest.raises(DataError, match=message):
        chronological(panel(*lengths), 4, 6, val_size)


def test_rolling_origins():
    assert last_origins(panel(20, 6), 3, 3, 2).tolist() == [[13, -1], [15, 1], [17, 3]]
    assert keys(scored_origins(np.array([0, 4]), np.array([6, 5]), 2)) == [(0, 1), (0, 2), (0, 3), (0, 4)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(50, 120), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 6),
    st.sampled_from([None, 6, 0.2]),
    st.integers(1, 20),
)
def test_rolling_folds_follow_one_another(lengths, folds, horizon, val_size, context):
    made = rolling_folds(panel(*lengths), horizon, folds, val_size)
    scored = [[] for _ in lengths]
    for fold in range(folds):
        split = made.split(fold, context)
        for series, origin in keys(split.train):
            assert origin + horizon <= split.train_end[series]
        for series, origin in keys(split.validation):
            assert origin >= split.train_end[series]  # nothing scored was trained on
            scored[series].append((fold, origin + horizon))
        # other contexts are scored on the same windows
        assert keys(made.split(fold, context + 7).validation) == keys(split.validation)
    for length, ends in zip(lengths, scored, strict=True):
        assert ends == sorted(ends)
        assert not ends or ends[-1][1] == length  # the last fold ends with the series


def test_rolling_folds_refuse_what_cannot_be():
    with pytest.raises(ConfigError, match="folds must be a whole number of at least 1, found 0"):
        rolling_folds(panel(50), 3, 0)
    with pytest.raises(DataError, match="Fold 1 of 3 has 0 validation windows"):
        rolling_folds(panel(12), 4, 3)
    with pytest.raises(DataError, match="Fold 1 of 4 has 0 training windows"):
        rolling_folds(panel(40), 3, 4, 10)
