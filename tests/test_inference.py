"""Many windows through a network: how many at once."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from tsattn import inference
from tsattn.data.build import build_panel
from tsattn.data.datamodule import input_spec
from tsattn.data.schema import Roles
from tsattn.data.statistics import training_statistics
from tsattn.data.windows import WindowSource
from tsattn.inference import forecast_windows
from tsattn.models import MODELS, build

ORIGINS = np.arange(20, 50)


def forecasts(name: str, sizes: list[int], *, attention: bool, **options: object) -> inference.WindowForecasts:
    """Forecasts of 30 windows of one series; the size of every batch the network is given goes to ``sizes``."""
    torch.manual_seed(0)
    values = np.random.default_rng(0).normal(size=60)
    panel = build_panel(pd.DataFrame({"ds": range(60), "y": values}), Roles.of(None, "ds", "y"))
    network = build(name, input_spec(panel.schema, 6, 16, ()), **options)
    network.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0].past)))
    source = WindowSource(panel, 16, 6, training_statistics(panel, panel.lengths)[0])
    return forecast_windows(network, source, np.zeros_like(ORIGINS), ORIGINS, attention=attention)


@pytest.mark.parametrize("name", sorted(name for name in MODELS if MODELS[name].has_attention))
def test_a_batch_brings_back_no_more_than_the_bound(name, monkeypatch):
    whole = forecasts(name, [], attention=True)
    window = sum(record.weights[0].size for record in whole.attention)
    for bound in (1, 3 * window, 1 << 24):
        monkeypatch.setattr(inference, "_MAP_ENTRIES", bound)
        sizes: list[int] = []
        again = forecasts(name, sizes, attention=True)
        assert sizes[0] == 1  # measured
        assert sum(sizes[1:]) == len(ORIGINS)
        assert max(sizes) == 1 or max(sizes) * window <= bound
        np.testing.assert_allclose(again.point, whole.point, atol=1e-5)
        for record, expected in zip(again.attention, whole.attention, strict=True):
            np.testing.assert_allclose(record.weights, expected.weights, atol=1e-5)
    assert sizes == [1, 30]


def test_every_map_counts(monkeypatch):
    """The transformer's maps of past by past steps, of all heads and layers, are part of the bound."""
    each = 4 * (2 * 16 * 16 + 6 * 6 + 6 * 16)  # 4 heads; 2 encoder layers, 1 decoder layer
    monkeypatch.setattr(inference, "_MAP_ENTRIES", 4 * each)
    sizes: list[int] = []
    forecasts("transformer", sizes, attention=True, heads=4, encoder_layers=2, decoder_layers=1)
    assert sizes == [1, 4, 4, 4, 4, 4, 4, 4, 2]
    sizes.clear()
    forecasts("transformer", sizes, attention=False)
    assert sizes == [1, 4, 4, 4, 4, 4, 4, 4, 2]  # the same batches, so the same numbers to the last bit


@pytest.mark.parametrize("name", sorted(MODELS))
def test_asking_for_maps_does_not_change_a_bit_of_the_forecast(name, monkeypatch):
    monkeypatch.setattr(inference, "_MAP_ENTRIES", 20_000)  # several batches, of a size that the maps decide
    without, given = (forecasts(name, [], attention=attention) for attention in (False, True))
    np.testing.assert_array_equal(without.point, given.point)
    assert without.attention == ()
