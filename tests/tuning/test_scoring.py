"""The metric of a study equals the functions of the evaluation, however the windows are batched."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.conftest import make_waves
from tests.tuning.small import forecaster
from tsattn.data.build import build_panel
from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.split import rolling_folds, without_test
from tsattn.errors import ConfigError
from tsattn.evaluation import metrics
from tsattn.models import build
from tsattn.tuning.scoring import METRICS, Scorer, check_metric, score_baseline, score_network

LEVELS = (0.1, 0.5, 0.9)


@pytest.fixture(scope="module")
def fold():
    panel = build_panel(make_waves(steps=150), forecaster()._roles())
    split = rolling_folds(panel, 6, 2).split(1, 24)
    data = ForecastDataModule.from_panel(panel, split, horizon=6, context=24, quantiles=LEVELS, batch_size=7)
    torch.manual_seed(0)
    return panel, split, data, build("nlinear", data.spec)


def windows(data, network):
    """Every validation window at once: truth, forecast, quantiles ``[W, H, C(, Q)]`` and series."""
    batches = [(batch, network(batch.without_future())) for batch in data.val_dataloader()]
    actual = torch.cat([torch.where(b.scored, b.future, torch.nan) for b, _ in batches]).double().numpy()
    point = torch.cat([o.point for _, o in batches]).detach().double().numpy()
    quantiles = torch.cat([o.quantiles for _, o in batches]).detach().double().numpy()
    return actual, point, quantiles, torch.cat([b.series for b, _ in batches]).numpy()


@pytest.mark.parametrize("metric", METRICS)
def test_the_sums_give_the_metric(fold, metric):
    panel, split, data, network = fold
    actual, point, quantiles, series = windows(data, network)
    scale, _ = metrics.seasonal_scale(panel.targets, season=24, indptr=panel.indptr, ends=split.train_end)
    expected = {
        "mae": lambda: metrics.mae(actual, point),
        "mse": lambda: metrics.mse(actual, point),
        "mase": lambda: metrics.mase(actual, point, scale, series=series),
        "weighted_quantile_loss": lambda: metrics.weighted_quantile_loss(actual, quantiles, LEVELS),
    }[metric]()
    assert np.isnan(actual).any()  # the series have holes
    found = score_network(network, data, Scorer(metric, panel, split.train_end, LEVELS))
    assert found == pytest.approx(float(expected), rel=1e-6)


def test_the_baselines_are_the_values_one_step_and_one_season_ago(fold):
    panel, split, data, _ = fold
    actual, _, _, _ = windows(data, fold[3])
    step = np.arange(6)
    first = np.repeat(split.validation.first, split.validation.counts) + np.concatenate(
        [np.arange(n) for n in split.validation.counts]
    )
    begin = np.repeat(panel.indptr[:-1], split.validation.counts)
    day_before = panel.targets[(begin + first)[:, None] + step - 24]
    known = ~np.isnan(actual) & ~np.isnan(day_before)  # a hole a day before is filled from the day before that
    error = np.abs(actual - day_before)[known].mean()
    found = score_baseline("seasonal_naive", data, Scorer("mae", panel, split.train_end, LEVELS))
    assert found == pytest.approx(error, rel=0.05)


def test_nothing_scored_is_nan():
    assert np.isnan(Scorer.value(torch.zeros(2, dtype=torch.float64)))


def test_metrics_are_checked():
    with pytest.raises(ConfigError, match=r"Unknown metric 'maee'\. Did you mean 'mae'"):
        check_metric("maee", LEVELS)
    with pytest.raises(ConfigError, match="needs quantile forecasts"):
        check_metric("weighted_quantile_loss", ())


def test_without_test_cuts_the_end_of_every_series():
    panel = build_panel(make_waves(steps=200), forecaster()._roles())
    assert without_test(panel, 6, None).lengths.tolist() == [180] * 3
    assert without_test(panel, 6, 0).lengths.tolist() == [200] * 3
    assert without_test(panel, 6, 30).lengths.tolist() == [170] * 3
    assert without_test(panel, 6, 0.25).lengths.tolist() == [150] * 3
    with pytest.raises(ConfigError, match="test_size must be a number of steps"):
        without_test(panel, 6, -1)
