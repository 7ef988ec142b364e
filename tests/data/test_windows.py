"""The gather against a loop over steps, the sampler against the set of all windows, statistics against poison."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsattn.data.build import build_panel
from tsattn.data.future import extend
from tsattn.data.panel import series_blocks
from tsattn.data.schema import Roles
from tsattn.data.shuffle import shuffled
from tsattn.data.split import chronological, training_origins
from tsattn.data.statistics import Scaling, training_statistics
from tsattn.data.windows import EpochSampler, WindowLoader, WindowSource
from tsattn.evaluation.metrics import seasonal_scale

KINDS = np.array(["x", "y", "z", None], dtype=object)
REACH = Roles.of(
    "unique_id", "ds", ["y", "w"], known=["k", "kc", "calendar.hour"], past=["p", "pc"], static=["s", "sc"]
)


def random_panel(seed, lengths=(7, 1, 12, 2)):
    """Two targets, and a numeric and a categorical covariate in each role, with holes and gaps."""
    rng = np.random.default_rng(seed)
    parts = []
    for number, length in enumerate(lengths):
        part = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=length, freq="h")})
        for name in ("y", "w", "p", "k"):
            part[name] = np.where(rng.random(length) < 0.2, np.nan, rng.normal(size=length) * 10 ** rng.integers(0, 4))
        for name in ("pc", "kc"):
            part[name] = KINDS[rng.integers(0, 4, length)]
        part["s"], part["sc"] = rng.normal(), KINDS[number % 3]
        if length > 3:
            part = part.drop(index=[2])
        parts.append(part.assign(unique_id=f"id{number}"))
    table = pd.concat(parts, ignore_index=True)
    return build_panel(table.astype({"pc": "category", "kc": "category"}), REACH, freq="h")


def source_of(panel, context=5, horizon=3, end=None):
    end = panel.lengths if end is None else end
    return WindowSource(panel, context, horizon, training_statistics(panel, end)[0], training_statistics(panel, end)[1])


def slow_window(panel, scaling, context, horizon, series, origin):
    """One window, step by step, straight from the definition."""
    targets, past = len(panel.schema.roles.target), len(panel.schema.numeric("past"))
    out = {name: [] for name in ("target", "observed", "past_cov", "known", "past_codes", "known_codes")}
    for step in range(origin - context, origin + horizon):
        inside = 0 <= step < panel.lengths[series]
        row = panel.indptr[series] + step
        values = panel.values[row] if inside else np.full(panel.values.shape[1], np.nan, dtype=np.float32)
        codes = panel.codes[row] if inside else np.zeros(panel.codes.shape[1], dtype=np.int32)
        covariates = (values[targets:].astype(float) - scaling.mean) / scaling.deviation
        covariates = np.where(np.isnan(covariates), 0, covariates)
        out["target"].append(np.where(np.isnan(values[:targets]), 0, values[:targets]))
        out["observed"].append(~np.isnan(values[:targets]))
        out["known"].append(covariates[past:])
        out["known_codes"].append(codes[len(panel.schema.categorical("past")) :])
        if step < origin:
            out["past_cov"].append(covariates[:past])
            out["past_codes"].append(codes[: len(panel.schema.categorical("past"))])
    return {name: np.array(value) for name, value in out.items()}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 4))
def test_gather_is_the_loop(seed, context, horizon):
    panel = random_panel(seed)
    scaling = training_statistics(panel, panel.lengths)[0]
    source = WindowSource(panel, context, horizon, scaling, training_statistics(panel, panel.lengths)[1])
    keys = [(s, o) for s in range(len(panel)) for o in range(1, panel.lengths[s] + 1)]
    batch = source.gather(*(torch.tensor(part) for part in zip(*keys, strict=True)))
    assert len(batch) == len(keys)
    for i, (series, origin) in enumerate(keys):
        slow = slow_window(panel, scaling, context, horizon, series, origin)
        readable = slow["observed"][:context].any(axis=0)
        np.testing.assert_array_equal(batch.past[i], slow["target"][:context])
        np.testing.assert_array_equal(batch.future[i], slow["target"][context:])
        np.testing.assert_array_equal(batch.past_observed[i], slow["observed"][:context])
        np.testing.assert_array_equal(batch.future_observed[i], slow["observed"][context:])
        np.testing.assert_array_equal(batch.scored[i], slow["observed"][context:] & readable)
        np.testing.assert_allclose(batch.past_cov[i], slow["past_cov"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(batch.known[i], slow["known"], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(batch.past_codes[i], slow["past_codes"])
        np.testing.assert_array_equal(batch.known_codes[i], slow["known_codes"])
        np.testing.assert_array_equal(batch.static_codes[i], panel.static_codes[series])
        assert (int(batch.series[i]), int(batch.origin[i])) == (series, origin)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 6])
def test_short_series_are_padded_on_the_left_and_masked(length):
    table = pd.DataFrame({"ds": np.arange(length), "y": np.arange(length) + 1.0})
    panel = build_panel(table, Roles.of("unique_id", "ds", "y"), freq=1)
    batch = source_of(panel).gather(torch.tensor([0]), torch.tensor([length]))
    seen = min(length, 5)
    assert batch.past_observed[0, :, 0].tolist() == [False] * (5 - seen) + [True] * seen
    assert batch.past[0, :, 0].tolist() == [0.0] * (5 - seen) + [length - seen + 1.0 + k for k in range(seen)]
    assert not batch.future_observed.any()


def test_nothing_past_only_after_the_origin_and_no_future_without_the_answer():
    panel = random_panel(0)
    poisoned = replace(panel, values=panel.values.copy(), codes=panel.codes.copy())
    origin, series = 4, 2
    rows = slice(panel.indptr[series] + origin, panel.indptr[series + 1])
    poisoned.values[rows, :3] = 1e6  # both targets and the past-only covariate
    poisoned.codes[rows, 0] = 1
    scaling = training_statistics(panel, panel.lengths)[0]
    clean, dirty = (
        WindowSource(p, 5, 3, scaling).gather(torch.tensor([series]), torch.tensor([origin])).without_future()
        for p in (panel, poisoned)
    )
    for field in fields(clean):
        assert torch.equal(getattr(clean, field.name), getattr(dirty, field.name)), field.name
    assert not clean.future.any()
    assert not clean.future_observed.any()


def test_a_window_without_observed_past_does_not_enter_the_loss():
    table = pd.DataFrame({"ds": np.arange(12), "y": [np.nan] * 6 + [1.0] * 6, "w": 1.0})
    panel = build_panel(table, Roles.of(None, "ds", ["y", "w"]))
    batch = source_of(panel).gather(torch.tensor([0, 0]), torch.tensor([6, 7]))
    assert batch.scored[:, :, 0].tolist() == [[False] * 3, [True] * 3]
    assert batch.scored[:, :, 1].all()
    assert batch.future_observed.all()


@pytest.mark.parametrize("poison", [1e6, np.nan, -1e30])
def test_statistics_come_from_the_training_part_alone(poison):
    panel = random_panel(1, (40, 30, 2))
    split = chronological(panel, 5, 3, 8)
    assert split.train_end.tolist() == [32, 22, 0]
    poisoned = replace(panel, values=panel.values.copy())
    for series, end in enumerate(split.train_end):
        poisoned.values[panel.indptr[series] + end : panel.indptr[series + 1]] = poison
    clean, dirty = (training_statistics(p, split.train_end)[0] for p in (panel, poisoned))
    assert clean.to_dict() == dirty.to_dict()
    one, two = (training_statistics(p, split.train_end)[1] for p in (panel, poisoned))
    np.testing.assert_array_equal(one, two)
    train = np.concatenate([panel.values[:32, 2], panel.values[40:62, 2]]).astype(float)
    np.testing.assert_allclose([clean.mean[0], clean.deviation[0]], [np.nanmean(train), np.nanstd(train)], rtol=1e-5)


def test_unit_of_the_loss():
    table = pd.DataFrame({"unique_id": list("aabbcc"), "ds": [0, 1] * 3, "y": [0, 2, 7, 7, 100, 160.0]})
    panel = build_panel(table, Roles.of("unique_id", "ds", "y"))
    assert training_statistics(panel, panel.lengths)[1][:, 0].tolist() == [1, 15.5, 30]  # a constant takes the median
    assert training_statistics(panel, np.zeros(3, dtype=np.int64))[1][:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "values", [[1e38, -3e38, 3e38], [1e-45, 0, 1e-45], [7, 7, 7], [np.nan] * 3, [1e12, 1e12, -1e12]]
)
def test_extreme_covariates_stay_finite(values):
    table = pd.DataFrame({"ds": np.arange(3), "y": values, "p": values, "s": 1e38})
    panel = build_panel(table.astype({"p": float}), Roles.of(None, "ds", "y", past="p", static="s"))
    scaling = training_statistics(panel, panel.lengths)[0]
    assert (scaling.deviation > 0).all()
    batch = source_of(panel).gather(torch.tensor([0]), torch.tensor([2]))
    for name in ("past", "past_cov", "static", "scale"):
        assert torch.isfinite(getattr(batch, name)).all()
    assert (batch.scale > 0).all()
    assert Scaling.from_dict(scaling.to_dict()).to_dict() == scaling.to_dict()


# ------------------------------------------------------------------ the sampler


def flat(batches):
    return [window for batch in batches for window in batch]


def epoch(sampler):
    return [batch.tolist() for batch in sampler]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(1, 17), st.booleans(), st.integers(0, 5))
def test_every_window_once_per_epoch(windows, size, shuffle, seed):
    sampler = EpochSampler(windows, size, shuffle=shuffle, seed=seed)
    first, second = epoch(sampler), epoch(sampler)
    for batches in (first, second):
        assert sorted(flat(batches)) == list(range(windows))
        assert len(batches) == len(sampler) == -(-windows // size)
    again = EpochSampler(windows, size, shuffle=shuffle, seed=seed)
    assert [epoch(again), epoch(again)] == [first, second]
    if not shuffle:
        assert flat(first) == list(range(windows))


def test_seed_and_epoch_change_the_order():
    orders = [epoch(EpochSampler(100, 100, shuffle=True, seed=seed)) for seed in (0, 1)]
    sampler = EpochSampler(100, 100, shuffle=True)
    assert orders[0] != orders[1]
    assert epoch(sampler) != epoch(sampler)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(1, 17), st.integers(0, 12))
def test_resume_in_the_middle_is_no_interruption(windows, size, stop):
    whole = EpochSampler(windows, size, shuffle=True, seed=3)
    expected = epoch(whole) + epoch(whole) + epoch(whole)
    begun, given_out, state = EpochSampler(windows, size, shuffle=True, seed=3), [], None
    stop = min(stop, 2 * len(begun))
    state = begun.state_dict()
    while len(given_out) < stop:
        for batch in begun:
            given_out.append(batch.tolist())
            state = begun.state_dict()
            if len(given_out) == stop:
                break
    resumed = EpochSampler(windows, size, shuffle=True, seed=99)
    resumed.load_state_dict(state)
    while len(given_out) < len(expected):
        given_out += epoch(resumed)
    assert given_out == expected


def test_a_loop_that_was_left_early_is_not_continued():
    sampler = EpochSampler(10, 3, shuffle=False)
    for _ in sampler:
        break
    assert epoch(sampler) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.integers(1, 17), st.sampled_from([2, 3]))
def test_the_shares_of_all_processes_are_one_process(windows, size, world):
    whole = epoch(EpochSampler(windows, size, shuffle=True, seed=1))
    shares = [epoch(EpochSampler(windows, size, shuffle=True, seed=1, rank=r, world=world)) for r in range(world)]
    assert [flat(parts) for parts in zip(*shares, strict=True)] == whole


def test_loader_yields_the_windows_of_its_part():
    panel = random_panel(2, (20, 1, 15))
    origins = training_origins(panel.lengths, 5, 3)
    loader = WindowLoader(source_of(panel), origins, EpochSampler(len(origins), 4, shuffle=True))
    keys = [(int(s), int(o)) for batch in loader for s, o in zip(batch.series, batch.origin, strict=True)]
    expected = list(zip(*(part.tolist() for part in origins.locate(np.arange(len(origins)))), strict=True))
    assert sorted(keys) == expected
    assert len(loader) == -(-len(expected) // 4)


def test_the_tail_is_the_same_window():
    """What a forecast starts from equals the window of the whole panel at the same origin."""
    table = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=9, freq="h"), "y": np.arange(9.0), "p": 1.0})
    panel = build_panel(table, Roles.of(None, "ds", "y", past="p", known="calendar.hour"))
    scaling = training_statistics(panel, panel.lengths)[0]
    whole = WindowSource(panel, 5, 3, scaling).gather(torch.tensor([0]), torch.tensor([6]))
    short = build_panel(table[:6], panel.schema.roles, schema=panel.schema)
    ends = WindowSource(extend(short, 5, 3), 5, 3, scaling).gather(torch.tensor([0]), torch.tensor([5]))
    for name in ("past", "past_observed", "past_cov", "known"):
        assert torch.equal(getattr(whole, name), getattr(ends, name)), name
    assert whole.future_observed.all()
    assert not ends.future_observed.any()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 100, 4097])
def test_a_shuffle_that_is_not_kept_is_a_shuffle(size):
    whole = shuffled(np.arange(size), size, seed=3)
    assert sorted(whole.tolist()) == list(range(size))
    np.testing.assert_array_equal(shuffled(np.arange(size)[size // 2 :], size, seed=3), whole[size // 2 :])
    if size > 50:
        assert (shuffled(np.arange(size), size, seed=4) != whole).mean() > 0.9


def test_a_shuffle_that_is_not_kept_has_no_favourites():
    """Every number is as likely in every place: 500 seeds, chi-square of 20 x 20 cells below its 0.1 % level."""
    counts = np.zeros((20, 20))
    for seed in range(500):
        counts[np.arange(20), shuffled(np.arange(20), 20, seed)] += 1
    assert ((counts - 25) ** 2 / 25).sum() < 451.5  # 361 degrees of freedom
    neighbours = np.diff(np.concatenate([shuffled(np.arange(5000), 5000, seed) for seed in range(20)]))
    assert (neighbours == 1).mean() < 5 / 5000


def test_long_epochs_are_shuffled_batch_by_batch(monkeypatch):
    monkeypatch.setattr("tsattn.data.windows._LONG_SHUFFLE", 100)
    sampler = EpochSampler(1001, 10, shuffle=True, seed=1)
    first, second = (torch.cat(list(sampler)) for _ in range(2))
    assert sorted(first.tolist()) == list(range(1001))
    assert not first.equal(second)
    stopped = EpochSampler(1001, 10, shuffle=True, seed=1)
    batches = iter(stopped)
    begun = [next(batches) for _ in range(37)]
    resumed = EpochSampler(1001, 10, shuffle=True, seed=1)
    resumed.load_state_dict(stopped.state_dict())
    assert torch.cat([*begun, *resumed]).equal(first)


def test_nothing_depends_on_the_blocks(monkeypatch):
    panel = random_panel(5)
    end, ahead = panel.lengths - 1, np.minimum(1, panel.lengths)
    scaling, unit = training_statistics(panel, end)
    seasonal = seasonal_scale(panel.targets, season=2, indptr=panel.indptr, ends=end)
    checksum, span = panel.checksum(), panel.span(ahead, panel.lengths + 3)
    monkeypatch.setattr(series_blocks, "__defaults__", (7,))
    monkeypatch.setattr("tsattn.data.panel._BLOCK", 7)
    assert len(list(series_blocks(panel.indptr))) > 1
    again, unit_again = training_statistics(panel, end)
    for name, values in scaling.to_dict().items():
        np.testing.assert_allclose(again.to_dict()[name], values, rtol=1e-6, err_msg=name)
    np.testing.assert_array_equal(unit_again, unit)
    np.testing.assert_array_equal(seasonal, seasonal_scale(panel.targets, season=2, indptr=panel.indptr, ends=end))
    assert panel.checksum() == checksum
    np.testing.assert_array_equal(panel.span(ahead, panel.lengths + 3).values, span.values)


def test_short_epochs_read_other_windows_each_time():
    sampler = EpochSampler(1001, 10, shuffle=True, seed=1, most=7)
    assert len(sampler) == 7
    first, second = (torch.cat(list(sampler)) for _ in range(2))
    assert len(first) == len(set(first.tolist())) == 70
    assert len(set(first.tolist()) & set(second.tolist())) < 20
    stopped = EpochSampler(1001, 10, shuffle=True, seed=1, most=7)
    batches = iter(stopped)
    begun = [next(batches) for _ in range(3)]
    resumed = EpochSampler(1001, 10, shuffle=True, seed=1, most=7)
    resumed.load_state_dict(stopped.state_dict())
    assert torch.cat([*begun, *resumed]).equal(first)
    assert torch.cat(list(resumed)).equal(second)


@pytest.mark.parametrize(("windows", "read"), [(1001, 10), (7, 7), (10, 3), (5, 1)])
def test_some_windows_are_spaced_evenly(windows, read):
    numbers = torch.cat(list(EpochSampler(windows, 4, shuffle=False, read=read))).numpy()
    assert len(numbers) == read
    assert numbers[0] == 0
    gaps = np.diff(np.append(numbers, windows))
    assert gaps.max() - gaps.min() <= 1
