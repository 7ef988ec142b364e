"""itransformer: parity with the published model, variables in any order, and a map that says it has no time axis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import tsattn
from tests.conftest import QUICK, make_waves
from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.models import InputSpec, build
from tsattn.models.itransformer import ITransformer

from .model_windows import random_batch, shaken, spec_for
from .parity import load

NAMES = (
    *("target 0", "target 1", "target 2"),
    *("past 0", "past 1", "past 2"),  # two columns of numbers, one category
    *("known 0", "known 1", "known 2", "known 3"),
    *("static 0", "static 1"),
)


def network_for(**sizes: object) -> tuple[InputSpec, ITransformer]:
    torch.manual_seed(0)
    spec = spec_for(ITransformer, **{"context": 22, "horizon": 6, "targets": 3, **sizes})
    return spec, shaken(build("itransformer", spec, width=8, heads=2, hidden=12), 0.2)


def whole(spec: InputSpec, windows: int = 3) -> Batch:
    """Random windows with every step observed."""
    batch = random_batch(spec, windows, missing=0.0)
    return replace(batch, past=torch.randn(batch.past.shape) + 3.0, past_observed=torch.ones_like(batch.past_observed))


def test_agrees_with_the_published_model():
    """Forecast and weights, with known covariates as tokens over past and horizon.

    The published deviation has 1e-5 added to a variance of about 1e4: what float64 still sees.
    """
    exact = load("itransformer", "itransformer", torch.float64)
    assert exact.error(exact.network(exact.batch).point) < 1e-8
    parity = load("itransformer", "itransformer", torch.float32)
    output = parity.network(parity.batch, need_weights=True)
    assert parity.error(output.point) < 1e-5
    assert len(output.attention) == len(parity.attention) == 3
    for record, published in zip(output.attention, parity.attention, strict=True):
        assert record.weights.shape == (3, 1, 2, 4, 4)
        torch.testing.assert_close(record.weights.double(), published, atol=1e-5, rtol=0)
    assert parity.versions["neuralforecast"] == "3.3.0"


def test_the_record_names_the_variables():
    spec, network = network_for()
    first, second = network(random_batch(spec), need_weights=True).attention
    assert (first.layer, second.layer) == ("encoder 1", "encoder 2")
    assert first.weights.shape == (5, 1, 2, 12, 12)
    assert first.query == first.key == second.key
    assert (first.key.kind, first.key.names) == ("variable", NAMES)
    assert set(first.key.start) == {0}
    assert set(first.key.end) == {22}


def test_another_order_of_the_targets_turns_forecast_and_map():
    spec, network = network_for()
    batch, order = random_batch(spec), [2, 0, 1]
    turned = replace(batch, past=batch.past[..., order], past_observed=batch.past_observed[..., order])
    before, after = network(batch, need_weights=True), network(turned, need_weights=True)
    torch.testing.assert_close(after.point, before.point[..., order], atol=1e-5, rtol=0)
    assert (before.point - before.point[..., order]).abs().min() > 1e-4
    rows = [*order, *range(3, 12)]
    for here, there in zip(before.attention, after.attention, strict=True):
        expected = here.weights[..., rows, :][..., rows]
        torch.testing.assert_close(there.weights, expected, atol=1e-5, rtol=0)
        assert (here.weights - expected).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("field", "column", "name"),
    [
        ("past", 1, "target 1"),
        ("past_cov", 1, "past 1"),
        ("past_codes", 0, "past 2"),
        ("known", 0, "known 0"),
        ("known_codes", 1, "known 3"),
        ("static", 0, "static 0"),
        ("static_codes", 0, "static 1"),
    ],
)
def test_every_variable_is_its_own_token_and_is_read(field, column, name):
    """Turning one column changes every target's forecast and, before any attention, exactly the token of that name."""
    spec, network = network_for()
    batch = whole(spec)
    value = getattr(batch, field).clone()
    value[..., column] = (value[..., column] + 1) % 3 if "codes" in field else value[..., column].flip(0)
    turned = replace(batch, **{field: value})
    seen = []
    network.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    moved = network(batch).point != network(turned).point
    assert moved.any(dim=1)[0].all()  # the first window, every target
    changed = (seen[0] != seen[1]).any(dim=-1).any(dim=0)
    assert [NAMES[token] for token in changed.nonzero().flatten()] == [name]


def test_known_values_of_the_horizon_are_read():
    spec, network = network_for()
    batch = whole(spec)
    known = batch.known.clone()
    known[:, -1, 0] += 1.0
    assert (network(replace(batch, known=known)).point != network(batch).point).all()


def test_a_target_with_nothing_observed_is_hidden():
    spec, network = network_for()
    batch = whole(spec)
    observed = batch.past_observed.clone()
    observed[0, :, 1] = False
    output = network(replace(batch, past_observed=observed, past=torch.where(observed, batch.past, 0.0)), True)
    for record in output.attention:
        assert (record.weights[0, ..., 1] == 0).all()
        assert (record.weights[1:] > 0).all()
        torch.testing.assert_close(record.weights.sum(-1), torch.ones_like(record.weights[..., 0]))
    alone, seen = network(batch, need_weights=True), output
    assert torch.equal(alone.point[1:], seen.point[1:])
    assert (alone.point[0] != seen.point[0]).all()


def test_gaps_are_marked_by_an_embedding_that_starts_at_zero():
    spec = InputSpec(horizon=4, context=20, targets=2)
    network = build("itransformer", spec, width=8, heads=2, hidden=12).eval()
    assert (network.embed_missing.weight == 0).all()
    batch = whole(spec)
    full, gap = network(batch).point, batch.past_observed.clone()
    gap[:, 5:8] = False
    with_gaps = replace(batch, past=torch.where(gap, batch.past, 0.0), past_observed=gap)
    unmarked = network(with_gaps).point
    with torch.no_grad():
        network.embed_missing.weight.normal_()
    assert torch.equal(network(batch).point, full)  # nothing missing, nothing added
    assert (network(with_gaps).point != unmarked).all()


def test_one_target_alone_reads_itself():
    spec = InputSpec(horizon=4, context=20)
    record = build("itransformer", spec).eval()(whole(spec), need_weights=True).attention[0]
    assert record.key.names == ("target 0",)
    assert (record.weights == 1.0).all()


def test_there_is_no_map_over_time():
    """The maps of a forecast refuse by name and say where the weights by variable are."""
    model = tsattn.Forecaster(
        model="itransformer",
        horizon=6,
        context=24,
        target=["y", "load"],
        known=["price"],
        options={"width": 8, "heads": 2, "hidden": 8},
        training=QUICK,
    )
    table = make_waves(series=2)
    future = make_waves(series=2, steps=306).groupby("unique_id").tail(6)[["unique_id", "ds", "price"]]
    attention = model.fit(table).predict(known=future, attention=True).attention
    message = "variable x variable: itransformer attends over variables, not over time, so it has no map from forecast"
    for refuse in (attention.to_frame, attention.plot, lambda: attention.step_weights(0)):
        with pytest.raises(ConfigError, match=message):
            refuse()
    assert attention.length == 24  # the horizon of a known variable is no past
    assert np.isfinite(attention.history(0)[-1])
    record = attention.windows.attention[0]
    assert record.key.names == ("target 0", "target 1", "known 0")
    np.testing.assert_allclose(record.weights.sum(-1), 1.0, rtol=1e-5)


def test_options_that_cannot_be():
    spec = InputSpec(horizon=2, context=4, targets=2)
    with pytest.raises(ConfigError, match="5 heads do not divide a width of 128"):
        build("itransformer", spec, heads=5)
    with pytest.raises(ConfigError, match="layers is a whole number of at least 1; got 0"):
        build("itransformer", spec, layers=0)
    with pytest.raises(ConfigError, match="dropout is a share"):
        build("itransformer", spec, dropout=-0.1)
