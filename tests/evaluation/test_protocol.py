"""The benchmark protocol: known scores of untrained models on the real files, slow loops on a toy, refusals."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tsattn.data import catalog
from tsattn.data.catalog import dataset_card
from tsattn.errors import ConfigError, DataError
from tsattn.evaluation import benchmark as benchmark_module
from tsattn.evaluation import protocol as protocol_module
from tsattn.evaluation import published
from tsattn.evaluation.benchmark import benchmark
from tsattn.evaluation.protocol import (
    PROTOCOLS,
    Protocol,
    _evaluate,
    find_protocol,
    floor_score,
    run_protocol,
)

DATA = os.environ.get("TSATTN_DATA")
TOY = Protocol("toy", rows=131, train=70, validation=23, test=31, channels=3, season=5, horizons=(4, 7))

# "Repeat the last value" and the seasonal naive over all test windows (MSE, MAE), computed independently of tsattn.
REPEAT = {
    "ETTh1": {96: (1.2944, 0.7132), 192: (1.3249, 0.7331), 336: (1.3299, 0.7460), 720: (1.3351, 0.7550)},
    "ETTh2": {96: (0.4317, 0.4216), 192: (0.5337, 0.4725), 336: (0.5973, 0.5109), 720: (0.5945, 0.5190)},
    "exchange": {96: (0.0811, 0.1964), 192: (0.1671, 0.2887), 336: (0.3057, 0.3978), 720: (0.8101, 0.6764)},
    "illness": {24: (6.2133, 1.6222), 36: (7.7138, 1.9059), 48: (7.8513, 1.9521), 60: (6.8849, 1.7884)},
}
SEASONAL = {
    ("ETTh1", 24): {96: (0.512, 0.433), 192: (0.581, 0.469), 336: (0.650, 0.501), 720: (0.655, 0.514)},
    ("ETTh1", 168): {96: (0.657, 0.509), 192: (0.662, 0.513), 336: (0.683, 0.520), 720: (0.658, 0.522)},
    ("ETTh2", 24): {96: (0.391, 0.380), 192: (0.482, 0.429), 336: (0.532, 0.466), 720: (0.526, 0.474)},
    ("illness", 52): {24: (2.564, 1.004), 36: (2.266, 0.957), 48: (2.143, 0.941), 60: (1.917, 0.939)},
}


def values_of(dataset: str) -> np.ndarray:
    """The channels of a real file, or a skip with the reason."""
    card = dataset_card(dataset)
    names = [name for item in card.files for name in (item.file, *item.also)]
    if not DATA or not any((Path(DATA) / name).is_file() for name in names):
        pytest.skip(f"{names[0]} is not on this machine: name its folder in TSATTN_DATA")
    return catalog.load_dataset(dataset, data_dir=DATA)[list(card.columns.target)].to_numpy(float)


def toy_values() -> np.ndarray:
    """Rows that need scaling, with a channel that is constant in the training part."""
    rng = np.random.default_rng(0)
    values = 50.0 + 7.0 * rng.standard_normal((TOY.rows, TOY.channels)).cumsum(axis=0)
    values[: TOY.train, 2] = 3.0
    return values


def slow_scores(values: np.ndarray, horizon: int, season: int) -> tuple[int, float, float]:
    """Windows, MSE and MAE of the seasonal naive (season 1: last value), word for word from the rules."""
    mean = values[: TOY.train].mean(axis=0)
    deviation = values[: TOY.train].std(axis=0)
    scaled = (values - mean) / np.where(deviation == 0.0, 1.0, deviation)
    first, stop = TOY.train + TOY.validation, TOY.train + TOY.validation + TOY.test
    errors = []
    for origin in range(first, stop):
        if origin + horizon <= stop:
            for step in range(horizon):
                forecast = scaled[origin - season + step % season]
                errors.append(scaled[origin + step] - forecast)
    windows = len(errors) // horizon
    return windows, float(np.square(errors).mean()), float(np.abs(errors).mean())


# ---------------------------------------------------------------- the real files


@pytest.mark.parametrize("dataset", REPEAT)
def test_naive_equals_repeat_over_all_windows(dataset: str) -> None:
    values = values_of(dataset)
    for horizon, expected in REPEAT[dataset].items():
        result = _evaluate(PROTOCOLS[dataset], values, "naive", horizon, 24, (0,), {}, None, False)
        found = (result.seeds[0].mse, result.seeds[0].mae)
        assert found == pytest.approx(expected, abs=6e-5)
        assert (result.floors["naive"].mse, result.floors["naive"].mae) == pytest.approx(found, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("dataset", "season"), SEASONAL)
def test_seasonal_naive_over_all_windows(dataset: str, season: int) -> None:
    values = values_of(dataset)
    rules = replace(PROTOCOLS[dataset], season=season)
    panel = rules.panel(values)
    for horizon, expected in SEASONAL[dataset, season].items():
        score = floor_score(rules, panel, "seasonal_naive", horizon)
        assert (score.mse, score.mae) == pytest.approx(expected, abs=6e-4)


def test_run_protocol_reads_the_file_itself(capsys: pytest.CaptureFixture[str]) -> None:
    values_of("illness")
    result = run_protocol("ILI", model="naive", horizon=24, context=36, data_dir=DATA)
    assert result.scored_windows == 170
    assert len(result.seeds) == 1  # nothing to train: one run
    assert "illness 24, naive, seed 0" in capsys.readouterr().err
    text = str(result)
    assert "170 test windows" in text
    assert "PatchTST/64" in text
    assert "drop_last" in text


# ---------------------------------------------------------------- the rules


@pytest.mark.parametrize("name", PROTOCOLS)
def test_borders_follow_the_published_rule(name: str) -> None:
    rules, card = PROTOCOLS[name], dataset_card(name)
    if name.startswith("ETT"):
        month = 30 * 24 * (4 if name.startswith("ETTm") else 1)
        assert (rules.train, rules.validation, rules.test) == (12 * month, 4 * month, 4 * month)
    else:
        train, test = int(rules.rows * 0.7), int(rules.rows * 0.2)
        assert (rules.train, rules.validation, rules.test) == (train, rules.rows - train - test, test)
    assert (rules.name, rules.rows, rules.channels) == (name, card.rows, len(card.columns.target))
    assert rules.season == card.season


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("ETTh1", {96: 2785, 192: 2689, 336: 2545, 720: 2161}),
        ("exchange", {96: 1422, 192: 1326, 336: 1182, 720: 798}),
        ("illness", {24: 170, 36: 158, 48: 146, 60: 134}),
    ],
)
def test_number_of_windows(name: str, counts: dict[int, int]) -> None:
    for horizon, windows in counts.items():
        assert len(PROTOCOLS[name].scored(horizon)) == windows
    assert len(PROTOCOLS["exchange"].split(96, 720).validation) == 41
    assert len(PROTOCOLS["illness"].split(36, 60).validation) == 38


@pytest.mark.parametrize("context", [1, 20])
@pytest.mark.parametrize("horizon", TOY.horizons)
def test_toy_equals_a_slow_loop(horizon: int, context: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_module, "_BLOCK", 500)  # several blocks
    values = toy_values()
    result = _evaluate(TOY, values, "seasonal_naive", horizon, context, (0, 1), {}, None, False)
    for name, season in (("naive", 1), ("seasonal_naive", TOY.season)):
        windows, mse, mae = slow_scores(values, horizon, season)
        assert result.scored_windows == windows == TOY.test - horizon + 1
        assert (result.floors[name].mse, result.floors[name].mae) == pytest.approx((mse, mae), rel=1e-5)


def test_parts_do_not_touch_and_contexts_reach_back() -> None:
    split, test = TOY.split(context=20, horizon=4), TOY.scored(4)
    assert (split.train.first[0] - 20, split.train.last[0] + 4) == (0, TOY.train)
    assert len(split.train) == TOY.train - 20 - 4 + 1
    assert (split.validation.first[0], split.validation.last[0] + 4) == (70, 93)
    assert (test.first[0], test.last[0] + 4) == (93, 124)
    assert len(TOY.panel(toy_values()).values) == 124  # the rows after the test part are not even in the panel


def test_rows_after_the_test_part_and_of_the_test_part_do_not_touch_the_training() -> None:
    values, poisoned = toy_values(), toy_values()
    poisoned[93:] += 1e3
    training = {"epochs": 2, "batch_size": 16}
    clean, other = (_evaluate(TOY, v, "nlinear", 4, 10, (0,), {}, training, False) for v in (values, poisoned))
    assert clean.seeds[0].val_mse == other.seeds[0].val_mse
    assert clean.seeds[0].mse != other.seeds[0].mse


def test_trained_model_mean_spread_and_json() -> None:
    training = {"epochs": 2, "batch_size": 16}
    result = _evaluate(TOY, toy_values(), "nlinear", 4, 10, (0, 1), {}, training, False)
    assert [r.seed for r in result.seeds] == [0, 1]
    scores = [r.mse for r in result.seeds]
    assert result.mean("mse") == pytest.approx(np.mean(scores))
    assert result.spread("mse") == pytest.approx(np.std(scores, ddof=1))
    assert all(r.epochs == 2 and r.parameters > 0 and r.val_mse > 0 for r in result.seeds)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["training"] == training
    assert data["scored_windows"] == 28
    assert data["protocol"]["train"] == 70
    assert "nlinear" in str(result)
    assert "best validation MSE" in str(result)


def test_the_windows_that_choose_the_weights_are_fixed() -> None:
    with pytest.raises(ConfigError, match="validation_windows would choose the weights by other windows"):
        _evaluate(TOY, toy_values(), "nlinear", 4, 10, (0,), {}, {"epochs": 1, "validation_windows": 2}, False)


def test_another_loss_is_named_as_what_chose_the_weights() -> None:
    result = _evaluate(TOY, toy_values(), "nlinear", 4, 10, (0,), {}, {"epochs": 1, "loss": "mae"}, False)
    assert "best validation MAE" in str(result)
    assert result.spread("mse") is None


# ---------------------------------------------------------------- refusals


def test_horizon_must_be_published() -> None:
    with pytest.raises(ConfigError, match=r"ETTh1 is published for the horizons 96, 192, 336, 720; found 100"):
        run_protocol("etth1", model="naive", horizon=100, context=96)


@pytest.mark.parametrize("rule", ["stride", "scaler", "split", "val_size", "drop_last"])
def test_rules_cannot_be_changed(rule: str) -> None:
    with pytest.raises(ConfigError, match=f"fixed, {rule} cannot be set"):
        run_protocol("etth1", model="naive", horizon=96, context=96, **{rule: 1})


@pytest.mark.parametrize("context", [0, -1, 8545, 96.0, True])
def test_context_must_fit_the_training_rows(context: int) -> None:
    with pytest.raises(ConfigError, match=r"from 1 to 8544"):
        run_protocol("etth1", model="naive", horizon=96, context=context)


def test_unknown_names() -> None:
    with pytest.raises(ConfigError, match=r"Unknown benchmark 'ETTh3'. Did you mean 'ETTh"):
        run_protocol("ETTh3", model="naive", horizon=96, context=96)
    with pytest.raises(ConfigError, match="Unknown benchmark 'traffic'"):
        run_protocol("traffic", model="naive", horizon=96, context=96)
    with pytest.raises(ConfigError, match="Unknown model 'lucidd'"):
        run_protocol("etth1", model="lucidd", horizon=96, context=96)
    with pytest.raises(ConfigError, match="No seeds"):
        run_protocol("etth1", model="lucid", horizon=96, context=96, seeds=())
    assert find_protocol("weather").name == find_protocol("JENA").name == "weather"


def test_a_file_of_another_size_or_with_holes_is_refused() -> None:
    with pytest.raises(DataError, match="toy has 131 rows of 3 channels; found 130 rows of 3"):
        TOY.panel(toy_values()[:-1])
    values = toy_values()
    values[5, 1] = np.nan
    with pytest.raises(DataError, match="toy has no missing values; found 1"):
        TOY.panel(values)


# ---------------------------------------------------------------- published scores and the command


def test_every_published_row_is_complete() -> None:
    with open(published._FILE, encoding="utf-8", newline="") as stream:
        raw = list(csv.DictReader(stream))
    assert list(raw[0]) == ["dataset", "horizon", "context", "model", "mse", "mae", "lost_windows", "source"]
    keys = [(r["dataset"], r["horizon"], r["context"], r["model"], r["source"]) for r in raw]
    assert len(set(keys)) == len(keys)
    for row in raw:
        assert int(row["horizon"]) in PROTOCOLS[row["dataset"]].horizons
        assert row["lost_windows"] in published.WINDOWS
        assert row["source"]
    for name, rules in PROTOCOLS.items():
        assert all(published.published_rows(name, horizon) for horizon in rules.horizons)


def test_published_repeat_differs_from_ours_only_by_the_lost_windows() -> None:
    """ETTh1 96 loses one window of 2785, illness 36 loses 30 of 158."""
    repeat = {
        (name, horizon): next(r for r in published.published_rows(name, horizon) if r.model == "Repeat")
        for name, horizon in (("ETTh1", 96), ("illness", 36))
    }
    assert all(row.lost_windows == "yes" for row in repeat.values())
    assert repeat["ETTh1", 96].mse == pytest.approx(REPEAT["ETTh1"][96][0], abs=1e-3)
    assert abs(repeat["illness", 36].mse - REPEAT["illness"][36][0]) > 0.5


def test_command_prints_and_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = _evaluate(TOY, toy_values(), "naive", 4, 10, (0,), {}, None, False)
    asked = {}
    monkeypatch.setattr(benchmark_module, "find_protocol", lambda name: TOY)
    monkeypatch.setattr(benchmark_module, "run_protocol", lambda name, **kw: asked.update(kw, name=name) or result)
    out = tmp_path / "result.json"
    benchmark("toy", model="naive", horizon=4, context=10, seeds=2, out=str(out))
    assert (asked["name"], asked["horizon"], list(asked["seeds"])) == ("toy", 4, [0, 1])
    assert json.loads(out.read_text())["model"] == "naive"
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert "28 test windows" in capsys.readouterr().out
    asked.clear()
    for wrong in (tmp_path, tmp_path / "missing" / "result.json"):
        with pytest.raises(ConfigError, match="not a file in an existing folder"):
            benchmark("toy", horizon=4, out=str(wrong))
    with pytest.raises(ConfigError, match="seeds must be at least 1"):
        benchmark("toy", horizon=4, seeds=0)
    with pytest.raises(ConfigError, match="horizon is missing"):
        benchmark("toy")
    assert not asked  # refused before anything is trained


def test_the_validation_part_is_scored_without_a_look_at_the_test() -> None:
    values = toy_values()
    poisoned = values.copy()
    poisoned[TOY.train + TOY.validation :] = 1e6
    clean, blind = (
        _evaluate(TOY, v, "nlinear", 4, 10, (0,), {}, {"epochs": 2}, False, part="validation")
        for v in (values, poisoned)
    )
    assert clean.seeds[0].mse == clean.seeds[0].val_mse == blind.seeds[0].mse
    assert clean.floors == blind.floors
    assert clean.scored_windows == TOY.validation - 4 + 1
    assert clean.published == ()
    assert "20 validation windows" in str(clean)
    assert str(clean).count(f"validation MSE {clean.seeds[0].mse:.4f}") == 1
    with pytest.raises(ConfigError, match="Unknown part 'tests'"):
        run_protocol("ETTh1", model="naive", horizon=96, context=1, part="tests")
