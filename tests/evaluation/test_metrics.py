"""Scores against hand numbers and against slow loops that follow the formulas word for word."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tsattn.errors import ConfigError, DataError
from tsattn.evaluation import metrics
from tsattn.evaluation.metrics import (
    coverage,
    mae,
    mase,
    mse,
    quantile_loss,
    rmse,
    rmsse,
    score_table,
    seasonal_scale,
    smape,
    weighted_quantile_loss,
)

NAN = float("nan")
LEVELS = (0.1, 0.5, 0.9)
W, H, C, S = 13, 4, 2, 5


def column(*values: float) -> np.ndarray:
    """One window, one target."""
    return np.array(values, dtype=float).reshape(1, -1, 1)


# ---------------------------------------------------------------- hand numbers


def test_errors_by_hand():
    actual, forecast = column(1, 2, NAN, 4), column(2, 4, 100, 4)
    assert mae(actual, forecast) == pytest.approx(1.0)
    assert mse(actual, forecast) == pytest.approx(5 / 3)
    assert rmse(actual, forecast) == pytest.approx(math.sqrt(5 / 3))
    assert mae(actual, forecast, by="step").tolist() == pytest.approx([1, 2, NAN, 0], nan_ok=True)


def test_smape_by_hand():
    assert smape(column(1, 0, 0, -2), column(3, 0, 5, 2)) == pytest.approx((100 + 0 + 200 + 200) / 4)


def test_pinball_by_hand():
    actual, forecast = column(10, 10), column(8, 13)
    assert quantile_loss(actual, forecast, 0.9) == pytest.approx((0.9 * 2 + 0.1 * 3) / 2)
    assert quantile_loss(actual, forecast, 0.5) == pytest.approx(mae(actual, forecast) / 2)


def test_weighted_quantile_loss_by_hand():
    quantiles = np.stack([column(8, 13), column(10, 14)], axis=-1)
    low, high = 2 * (0.1 * 2 + 0.9 * 3) / 20, 2 * (0.1 * 4) / 20
    assert weighted_quantile_loss(column(10, 10), quantiles, [0.1, 0.9]) == pytest.approx((low + high) / 2)


def test_coverage_includes_its_ends():
    assert coverage(column(1, 2, 3, NAN), column(1, 0, 4, 0), column(5, 2, 9, 9)) == pytest.approx(2 / 3)


def test_seasonal_scale_by_hand():
    values = np.array([[1.0], [5.0], [4.0], [3.0], [NAN], [9.0]])
    scale_mae, scale_mse = seasonal_scale(values, None, 2)  # |4-1|, |3-5|, gap, |9-3|
    assert scale_mae.tolist() == pytest.approx([11 / 3])
    assert scale_mse.tolist() == pytest.approx([49 / 3])
    assert seasonal_scale(values, None, 2, ends=np.array([4]))[0].tolist() == [2.5]
    assert seasonal_scale(np.ones((4, 1)), None, 1)[0].tolist() == [0]
    assert np.isnan(seasonal_scale(np.ones((4, 1)), None, 4)[0]).all()
    assert np.isnan(seasonal_scale(np.ones((4, 1)), None, 9)[0]).all()


def test_scaled_errors_by_hand():
    actual, forecast = np.zeros((2, 2, 1)), np.array([[[1.0], [3.0]], [[4.0], [4.0]]])
    series, scale = np.array([1, 0]), np.array([[8.0], [2.0]])
    assert mase(actual, forecast, scale, series=series) == pytest.approx((0.5 + 1.5 + 0.5 + 0.5) / 4)
    assert rmsse(actual, forecast, scale, series=series) == pytest.approx(math.sqrt((0.5 + 4.5 + 2 + 2) / 4))
    assert mase(actual, forecast, scale, by="series", series=series).tolist() == pytest.approx([0.5, 1.0])
    assert mase(actual, forecast, scale[series][:, None, :]) == pytest.approx(0.75)
    assert mase(actual, forecast, np.array([2.0])) == pytest.approx(1.5)


def test_a_scale_of_zero_is_left_out():
    actual, forecast = np.zeros((3, 2, 1)), np.ones((3, 2, 1))
    scale, series = np.array([[0.0], [NAN], [4.0]]), np.arange(3)
    assert mase(actual, forecast, scale, series=series) == pytest.approx(0.25)
    by_series = mase(actual, forecast, scale, by="series", series=series)
    assert by_series.tolist() == pytest.approx([NAN, NAN, 0.25], nan_ok=True)
    assert np.isnan(rmsse(actual, forecast, np.zeros((3, 1)), series=series))


# ---------------------------------------------------------------- loops


@pytest.fixture
def case() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    actual = rng.normal(size=(W, H, C))
    actual[rng.random(actual.shape) < 0.3] = np.nan
    observed = rng.random(actual.shape) < 0.8
    actual[2], observed[4] = np.nan, False
    forecast = rng.normal(size=(W, H, C))
    quantiles = np.sort(rng.normal(size=(W, H, C, 3)), axis=-1)
    quantiles[~observed] = np.nan
    series = rng.integers(0, S, W) * 2
    scale = rng.random((2 * S, C)) + 0.1
    scale[2, 0], scale[4, 1] = 0.0, np.nan
    return {
        "actual": actual,
        "observed": observed,
        "forecast": forecast,
        "quantiles": quantiles,
        "series": series,
        "scale_mae": scale,
        "scale_mse": scale**2,
    }


def average(entries: list[float]) -> float:
    return sum(entries) / len(entries) if entries else NAN


def loop_scores(case: dict[str, np.ndarray], keep) -> dict[str, float]:
    """Every score over the entries with ``keep(window, step, target)``, one entry at a time."""
    absolute, squared, scaled, scaled_squared, symmetric, inside, sizes = [], [], [], [], [], [], []
    pinball: dict[float, list[float]] = {q: [] for q in LEVELS}
    for w in range(W):
        for h in range(H):
            for c in range(C):
                y, f = case["actual"][w, h, c], case["forecast"][w, h, c]
                if not keep(w, h, c) or not case["observed"][w, h, c] or math.isnan(y):
                    continue
                absolute.append(abs(y - f))
                squared.append((y - f) ** 2)
                sizes.append(abs(y))
                symmetric.append(200 * abs(y - f) / (abs(y) + abs(f)))
                scale = case["scale_mae"][case["series"][w], c]
                if scale > 0:
                    scaled.append(abs(y - f) / scale)
                    scaled_squared.append((y - f) ** 2 / case["scale_mse"][case["series"][w], c])
                low, _, high = case["quantiles"][w, h, c]
                inside.append(1.0 if low <= y <= high else 0.0)
                for k, q in enumerate(LEVELS):
                    error = y - case["quantiles"][w, h, c, k]
                    pinball[q].append(q * error if error > 0 else (q - 1) * error)
    weighted = [2 * sum(pinball[q]) / sum(sizes) for q in LEVELS] if sizes else []
    return {
        "mae": average(absolute),
        "mse": average(squared),
        "rmse": math.sqrt(average(squared)),
        "smape": average(symmetric),
        "mase": average(scaled),
        "rmsse": math.sqrt(average(scaled_squared)),
        **{f"quantile_loss_{q}": average(pinball[q]) for q in LEVELS},
        "weighted_quantile_loss": average(weighted),
        "coverage_80": average(inside),
    }


def loops(case: dict[str, np.ndarray], by: str | None) -> dict[str, list[float]]:
    if by == "series":
        groups = [lambda w, h, c, s=s: case["series"][w] == s for s in np.unique(case["series"])]
    elif by == "step":
        groups = [lambda w, h, c, k=k: h == k for k in range(H)]
    elif by == "target":
        groups = [lambda w, h, c, k=k: c == k for k in range(C)]
    else:
        groups = [lambda w, h, c: True]
    scores = [loop_scores(case, keep) for keep in groups]
    return {name: [score[name] for score in scores] for name in scores[0]}


@pytest.mark.parametrize("by", [None, "series", "step", "target"])
@pytest.mark.parametrize("block", [1, 3 * H * C, 1 << 21])
def test_score_table_equals_the_loops(case, by, block, monkeypatch):
    monkeypatch.setattr(metrics, "_BLOCK", block)
    found = score_table(**case, levels=LEVELS, by=by)
    expected = loops(case, by)
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].shape == (() if by is None else (len(values),))
        np.testing.assert_allclose(np.atleast_1d(found[name]), values, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("by", [None, "series", "step", "target"])
def test_each_function_equals_the_loops(case, by):
    y, f, seen, quantiles = (case[name] for name in ("actual", "forecast", "observed", "quantiles"))
    how = {"by": by, "series": case["series"]}
    found = {
        "mae": mae(y, f, seen, **how),
        "mse": mse(y, f, seen, **how),
        "rmse": rmse(y, f, seen, **how),
        "smape": smape(y, f, seen, **how),
        "mase": mase(y, f, case["scale_mae"], seen, **how),
        "rmsse": rmsse(y, f, case["scale_mse"], seen, **how),
        **{f"quantile_loss_{q}": quantile_loss(y, quantiles[..., k], q, seen, **how) for k, q in enumerate(LEVELS)},
        "weighted_quantile_loss": weighted_quantile_loss(y, quantiles, LEVELS, seen, **how),
        "coverage_80": coverage(y, quantiles[..., 0], quantiles[..., 2], seen, **how),
    }
    expected = loops(case, by)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert isinstance(found[name], np.ndarray)
        np.testing.assert_allclose(np.atleast_1d(found[name]), values, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("season", [1, 3, 12])
def test_seasonal_scale_equals_a_loop(season):
    rng = np.random.default_rng(season)
    lengths = [0, 1, 20, 5, 0, 33]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    values = rng.normal(size=(indptr[-1], C)).astype(np.float32)
    values[rng.random(values.shape) < 0.2] = np.nan
    observed = rng.random(values.shape) < 0.9
    ends = np.array([0, 1, 14, 5, 0, 30])
    found = seasonal_scale(values, observed, season, indptr=indptr, ends=ends)
    for s, first in enumerate(indptr[:-1]):
        for c in range(C):
            steps = []
            for t in range(season, ends[s]):
                now, then = first + t, first + t - season
                pair = float(values[now, c]), float(values[then, c])
                if observed[now, c] and observed[then, c] and not any(map(math.isnan, pair)):
                    steps.append(pair[0] - pair[1])
            expected = average([abs(step) for step in steps]), average([step**2 for step in steps])
            assert (found[0][s, c], found[1][s, c]) == pytest.approx(expected, nan_ok=True)
    alone = seasonal_scale(values[indptr[2] : indptr[3]], observed[indptr[2] : indptr[3]], season, ends=ends[2:3])
    np.testing.assert_allclose(alone, [found[0][2], found[1][2]])


# ---------------------------------------------------------------- edges


@pytest.mark.parametrize("windows", [0, 3])
@pytest.mark.parametrize("by", [None, "series", "step", "target"])
def test_nothing_observed_is_nan_without_a_warning(windows, by):
    actual, series = np.full((windows, H, C), np.nan), np.arange(windows)
    quantiles, scale = np.zeros((windows, H, C, 3)), np.ones((3, C))
    found = score_table(actual, np.zeros_like(actual), quantiles, LEVELS, series, scale, scale, by=by)
    assert len(found) == 11
    shape = {None: (), "series": (windows,), "step": (H,), "target": (C,)}[by]
    for values in found.values():
        assert values.shape == shape
        assert np.isnan(values).all()


def test_what_is_unobserved_never_matters(case):
    hidden = ~case["observed"] | np.isnan(case["actual"])
    before = score_table(**case, levels=LEVELS)
    for poison in (1e30, np.inf, np.nan):
        changed = {name: case[name].copy() for name in ("actual", "forecast", "quantiles")}
        for values in changed.values():
            values[hidden] = poison
        after = score_table(**(case | changed | {"observed": ~hidden}), levels=LEVELS)
        assert {k: float(v) for k, v in after.items()} == {k: float(v) for k, v in before.items()}


def test_a_nan_forecast_of_an_observed_step_shows():
    forecast = column(1, NAN)
    assert np.isnan(mae(column(1, 2), forecast))
    assert np.isnan(coverage(column(1, 2), forecast, column(3, 3)))
    assert np.isnan(smape(column(1, 2), column(1, np.inf)))
    assert mae(column(1, 2), forecast, by="step").tolist() == pytest.approx([0, NAN], nan_ok=True)


def test_zero_actuals_give_no_weighted_loss():
    assert np.isnan(weighted_quantile_loss(column(0, 0), column(1, 1)[..., None], [0.5]))


def test_float32_is_summed_in_float64():
    actual = np.full((1000, 100, 1), 16_777_216, dtype=np.float32)
    assert mae(actual, actual - 1) == 1.0


def test_lower_dimensions_are_fine_without_by():
    assert mae(np.array([1.0, 2.0]), np.array([1.0, 4.0])) == 1.0
    with pytest.raises(DataError, match=r"by='step' needs arrays \[windows, horizon, targets\]"):
        mae(np.array([1.0, 2.0]), np.array([1.0, 4.0]), by="step")


def test_only_pairs_of_levels_have_a_coverage():
    quantiles = np.zeros((1, 2, 1, 4))
    found = score_table(column(0, 1), column(0, 1), quantiles, [0.025, 0.1, 0.5, 0.975])
    assert [name for name in found if name.startswith("coverage")] == ["coverage_95"]
    assert "mase" not in found


def test_wrong_arguments_say_what_is_wrong(case):
    y, f = case["actual"], case["forecast"]
    with pytest.raises(DataError, match=r"forecast has shape \(13, 4, 1\), but actual has \(13, 4, 2\)"):
        mae(y, f[..., :1])
    with pytest.raises(DataError, match=r"forecast has shape \(12, 4, 2\)"):
        score_table(y, f[:12])
    with pytest.raises(DataError, match="observed has shape"):
        mse(y, f, case["observed"][:2])
    with pytest.raises(DataError, match="quantiles has shape"):
        score_table(y, f, case["quantiles"][:2], LEVELS)
    with pytest.raises(ConfigError, match=r"Unknown grouping of scores 'steps'. Did you mean 'step'"):
        mae(y, f, by="steps")
    with pytest.raises(ConfigError, match="needs series="):
        mae(y, f, by="series")
    with pytest.raises(DataError, match=r"series has shape \(3,\), but there are 13 windows"):
        mae(y, f, by="series", series=np.arange(3))
    with pytest.raises(ConfigError, match="needs series="):
        mase(y, f, case["scale_mae"])
    with pytest.raises(ConfigError, match="between 0 and 1"):
        quantile_loss(y, f, 90)
    with pytest.raises(DataError, match="quantiles hold 3 levels on the last axis, but levels has 2"):
        weighted_quantile_loss(y, case["quantiles"], [0.1, 0.9])
    with pytest.raises(ConfigError, match="at least 1"):
        seasonal_scale(y[0], None, 0)
