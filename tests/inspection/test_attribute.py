"""Attributions: closed forms on the oracle, what must add up on real models, and what must be refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import tsattn
from tsattn.attention.intervention import changed_weights, changing
from tsattn.errors import ConfigError
from tsattn.forecaster import Forecaster
from tsattn.inspection.attribute import METHODS, attribute
from tsattn.inspection.interventions import Occluder
from tsattn.inspection.probe import Probe, repeat

from .oracle import oracle

QUICK = {"epochs": 1, "verbose": False, "batch_size": 64}
SIZES = {
    "lucid": {"patch": 6},
    "seq2seq": {"patch": 4, "width": 8},
    "transformer": {"width": 8, "heads": 2, "hidden": 8},
    "patchtst": {"patch": 6, "width": 8, "heads": 2, "hidden": 8, "layers": 2},
    "itransformer": {"width": 8, "heads": 2, "hidden": 8, "layers": 2},
    "tft": {"width": 8, "heads": 2},
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    steps = np.arange(150)
    frames = [
        pd.DataFrame(
            {
                "unique_id": name,
                "ds": pd.date_range("2024-01-01", periods=150, freq="h"),
                "y": 20 + np.sin(steps * 2 * np.pi / 24) + 0.3 * rng.normal(size=150),
            }
        )
        for name in ("a", "b")
    ]
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="module")
def fitted(table) -> dict[str, Forecaster]:
    made: dict[str, Forecaster] = {}
    for model, options in SIZES.items():
        made[model] = Forecaster(model, horizon=5, context=24, options=options, training=QUICK).fit(table)
    return made


# --------------------------------------------------------------------------------------------------- the oracle


@pytest.fixture(scope="module")
def known() -> Forecaster:
    return oracle()


def expected_weights(beta: float = 5.0, context: int = 12) -> tuple[float, float]:
    """Weight of the source and of any other step."""
    total = np.exp(beta) + context - 1
    return np.exp(beta) / total, 1 / total


def test_oracle_map_is_the_closed_form(known):
    weights = attribute(known, method="attention").to_numpy()[:, 0]  # [W, H, L]
    source, other = expected_weights()
    for horizon in range(1, 5):
        row = weights[:, horizon - 1]
        np.testing.assert_allclose(row[:, 12 - 1 - (6 - horizon)], source, atol=1e-6)
        np.testing.assert_allclose(np.delete(row, 12 - 1 - (6 - horizon), axis=1), other, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("integrated_gradients", {"steps": 2}),
        ("occlusion", {"block": 1}),
        ("attention_x_grad", {}),
        ("value_zeroing", {}),
    ],
)
def test_on_a_linear_model_every_method_is_weight_times_deviation(known, method, options):
    found = attribute(known, method=method, **options)
    weights = attribute(known, method="attention").to_numpy()
    values = np.stack([found.history(window) for window in range(len(found))])
    deviation = values - values.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found.to_numpy(), weights * deviation[:, None, None], atol=2e-5)
    assert found.signed
    assert found.unit == "data"


def test_knockout_renormalises(known):
    found = attribute(known, method="knockout").to_numpy()[:, 0]
    base = attribute(known, method="attention")
    weights = base.to_numpy()[:, 0]
    values = np.stack([base.history(window) for window in range(3)])
    for step in (0, 7, 11):
        rest = np.delete(weights, step, axis=2)
        without = (rest / rest.sum(axis=2, keepdims=True) * np.delete(values, step, axis=1)[:, None]).sum(axis=2)
        whole = (weights * values[:, None]).sum(axis=2)
        np.testing.assert_allclose(found[:, :, step], whole - without, atol=2e-5)


def test_recomputed_statistics_give_another_answer(known, fitted):
    def both(model):
        return (attribute(model, method="occlusion", block=6, statistics=s).to_numpy() for s in ("fixed", "recomputed"))

    fixed, moved = both(known)
    np.testing.assert_allclose(fixed, moved, atol=1e-5)  # linear, rows sum to 1: level and unit cancel
    fixed, moved = both(fitted["seq2seq"])
    assert np.abs(fixed - moved).max() > 1e-3
    assert "statistics recomputed" in attribute(known, method="occlusion", statistics="recomputed").notes


# --------------------------------------------------------------------------------------------------- real models


@pytest.mark.parametrize("model", SIZES)
def test_weights_left_as_they_are_leave_the_forecast_as_it_is(fitted, table, model):
    probe = Probe.of(fitted[model], table, windows=3)
    for _, batch in probe.batches():
        free, open_ = probe.point(batch), probe.point(batch, lambda call: call.weights)
        torch.testing.assert_close(open_, free, atol=1e-5, rtol=1e-5)
    assert not changing()


@pytest.mark.parametrize("model", SIZES)
def test_integrated_gradients_add_up(fitted, model):
    """The sum is the forecast minus the forecast of a window that stays at its mean."""
    found = attribute(fitted[model], method="integrated_gradients", steps=64)
    probe = Probe.of(fitted[model])
    _, batch = next(probe.batches())
    flat = found.to_numpy().sum(axis=-1)[:, 0]  # [W, H]
    runner = Occluder(probe, batch, fixed=True)
    level = batch.past.mean(dim=1, keepdim=True).expand_as(batch.past)
    change = (runner.point - runner.run(replace(batch, past=level)))[..., 0].numpy()
    assert np.abs(flat - change).max() <= 0.01 * np.abs(change).max() + 1e-4


@pytest.mark.parametrize("model", ["lucid", "seq2seq", "tft"])
def test_integrated_gradients_are_those_of_captum(fitted, model):
    """The same line and points by another library, with the statistics left free: it sees the network as it is."""
    captum = pytest.importorskip("captum.attr")
    found = attribute(fitted[model], method="integrated_gradients", statistics="recomputed", steps=16)
    probe = Probe.of(fitted[model])
    _, batch = next(probe.batches())

    def point(past: torch.Tensor) -> torch.Tensor:
        return probe.run(replace(repeat(batch, len(past) // len(batch)), past=past)).point[..., 0]  # [B, H]

    level = batch.past.mean(dim=1, keepdim=True).expand_as(batch.past)
    method = captum.IntegratedGradients(point)
    for step in (0, 4):
        past = method.attribute(batch.past, level, target=step, n_steps=16)
        np.testing.assert_allclose(found.to_numpy()[:, 0, step], past[..., 0].detach().numpy(), atol=2e-4)


def test_contributions_of_lucid_are_occlusion_with_everything_else_held(fitted, table):
    """With level, unit and weights held the forecast is a linear map of the window, and each term is a contribution."""
    exact = attribute(fitted["lucid"], table, "contribution", windows=4)
    taken = attribute(fitted["lucid"], table, "occlusion", windows=4, block=1, attention="frozen")
    np.testing.assert_allclose(exact.to_numpy(), taken.to_numpy(), atol=1e-4)
    free = attribute(fitted["lucid"], table, "occlusion", windows=4, block=1)
    assert np.abs(free.to_numpy() - taken.to_numpy()).max() > 1e-4  # the weights do depend on the window
    np.testing.assert_allclose(
        exact.to_numpy().sum(axis=-1)[:, 0] + np.nanmean([exact.history(w) for w in range(8)], axis=1)[:, None],
        exact.windows.point[..., 0],
        atol=1e-3,
    )


def test_patchtst_contributions_go_by_patch(fitted):
    found = attribute(fitted["patchtst"], method="contribution")
    forecast = fitted["patchtst"].predict(attention=True)
    tokens = forecast.token_contributions
    assert tokens is not None
    np.testing.assert_allclose(
        tokens.tokens.sum(axis=-1) + tokens.rest, forecast.windows.point.transpose(0, 2, 1), atol=1e-4
    )
    assert found.windows.attention[0].key.kind == "patch"
    np.testing.assert_array_equal(found.windows.attention[0].weights[:, :, 0], tokens.tokens)


@pytest.mark.parametrize("model", ["seq2seq", "transformer", "tft", "lucid"])
@pytest.mark.parametrize("method", ["value_norm", "rollout"])
def test_shares_add_up_and_leave_the_maps_axes(fitted, table, model, method):
    found = attribute(fitted[model], table, method, windows=2)
    record = found.windows.attention[0]
    np.testing.assert_allclose(record.weights.sum(axis=-1), 1.0, atol=1e-5)
    assert (found.method, found.signed, found.unit) == (method, False, "share")
    assert found.to_numpy().shape == (4, 1, 5, 24)


def test_value_norm_is_the_length_of_what_each_key_brings(fitted):
    """Against the plain definition, with [J, I, W] formed."""
    model = fitted["transformer"]
    found = attribute(model, method="value_norm", layer="cross 1").windows.attention[0].weights[:, 0, 0]
    probe = Probe.of(model)
    _, batch = next(probe.batches())
    cross = model.network_.decoder[0].cross if hasattr(model.network_, "decoder") else None
    assert cross is not None
    seen = {}
    hook = cross.register_forward_pre_hook(lambda _, inputs: seen.update(query=inputs[0], key=inputs[1]))
    with torch.inference_mode():
        weights = probe.run(batch, need_weights=True).attention[-1].weights[:, 0]  # [B, N, J, I]
        hook.remove()
        values = cross._project(seen["query"], seen["key"], 24)[2]
        values = values.reshape(len(batch), cross.heads, 24, cross.head_width)
        per_head = cross.out.weight.unflatten(1, (cross.heads, cross.head_width))  # [W, N, D]
        brought = torch.einsum("bnji,bnid,wnd->bjiw", weights, values, per_head).norm(dim=-1)
    expected = (brought / brought.sum(dim=-1, keepdim=True)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_rollout_is_the_matrix_product(fitted):
    maps = fitted["transformer"].predict(attention=True).attention
    by_name = {record.layer: record.weights.mean(axis=2) for record in maps.windows.attention}
    product = np.eye(24)
    for layer in ("encoder 1", "encoder 2"):
        product = (0.5 * by_name[layer] + 0.5 * np.eye(24)) @ product
    expected = by_name["cross 1"] @ product
    found = attribute(fitted["transformer"], method="rollout").windows.attention[0].weights[:, :, 0]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("model", SIZES)
def test_gradient_times_weight_is_the_slope(fitted, model):
    """Against the difference of two forecasts with one weight moved."""
    probe = Probe.of(fitted[model])
    layers = probe.layers()
    chosen = layers.chosen(None)[-1]
    found = attribute(fitted[model], method="attention_x_grad").windows.attention[0].weights  # [W, C, N, H, I]
    token = found.shape[-1] // 2
    _, batch = next(probe.batches())

    def moved(size: float):
        def change(call):
            if layers.of(call.number) != chosen:
                return call.weights
            weights = call.weights.clone()
            weights[..., token] *= 1 + size
            return weights

        return probe.point(batch, change)

    slope = ((moved(1e-2) - moved(-1e-2)) / 2e-2)[..., 0].numpy()  # [B, H]
    np.testing.assert_allclose(found[:, 0, :, :, token].sum(axis=1), slope, atol=2e-3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", SIZES)
def test_every_method_answers_or_says_why_not(fitted, model, method):
    refused = {("contribution", m) for m in SIZES if m not in ("lucid", "patchtst")}
    if (method, model) in refused:
        with pytest.raises(ConfigError, match=f"{model} has no exact split.*knockout"):
            attribute(fitted[model], method=method)
        return
    before = fitted[model].predict(attention=True)
    found = attribute(fitted[model], method=method)
    for record in found.windows.attention:
        assert np.isfinite(record.weights).all()
        assert record.weights.shape[3:] == (len(record.query), len(record.key))
    after = fitted[model].predict(attention=True)
    np.testing.assert_array_equal(before.windows.point, after.windows.point)  # nothing stays behind
    if found.mapped:
        assert len(found.to_frame(min_weight=1e-9))
    elif model == "itransformer":
        assert list(found.variables().columns) == ["y"] if found.layers[-1] != "occlusion" else True


def test_models_without_attention_can_be_occluded(table):
    model = Forecaster("dlinear", horizon=5, context=24, options={"kernel": 5}, training=QUICK).fit(table)
    assert attribute(model, method="occlusion", block=6).to_numpy().shape == (2, 1, 5, 24)
    attribute(model, method="integrated_gradients", steps=4)
    with pytest.raises(ConfigError, match=r"dlinear has no attention.*occlusion"):
        attribute(model, method="knockout")
    with pytest.raises(ConfigError, match="dlinear has no attention"):
        attribute(model, method="attention")


def test_covariates_are_told_apart():
    rng = np.random.default_rng(1)
    z = rng.normal(size=400)
    y = np.concatenate([np.zeros(8), z[:-8]]) + 0.01 * rng.normal(size=400)
    frame = pd.DataFrame({"ds": range(400), "y": y, "z": z})
    model = Forecaster(
        "lucid", horizon=4, context=12, id=None, past=["z"], output="point",
        options={"patch": 4}, training={"epochs": 3, "verbose": False},
    ).fit(frame)  # fmt: skip
    everything, own, other = (attribute(model, method="contribution", variable=v) for v in (None, "y", "z"))
    np.testing.assert_allclose(everything.to_numpy(), own.to_numpy() + other.to_numpy(), atol=1e-5)
    assert np.abs(other.to_numpy()).max() > 0
    total = attribute(model, method="integrated_gradients").to_numpy()
    parts = [attribute(model, method="integrated_gradients", variable=v).to_numpy() for v in ("y", "z")]
    np.testing.assert_allclose(total, sum(parts), atol=1e-5)
    with pytest.raises(ConfigError, match=r"No column 'x'.*y, z"):
        attribute(model, method="contribution", variable="x")


def test_what_a_covariate_adds_where_the_target_has_a_gap_is_kept():
    """The split is exact through the public tables as well: their sums and the level are the forecast."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=200)
    y = 5 + np.concatenate([np.zeros(6), z[:-6]]) + 0.1 * rng.normal(size=200)
    y[rng.random(200) < 0.3] = np.nan
    y[-3] = np.nan
    model = Forecaster(
        "lucid", horizon=6, context=24, id=None, past=["z"], output="point",
        options={"patch": 6, "dropout": 0.0}, training={"epochs": 3, "learning_rate": 5e-3, "verbose": False},
    ).fit(pd.DataFrame({"ds": range(200), "y": y, "z": z}))  # fmt: skip
    found = attribute(model, method="contribution")
    exact = found.windows.attention[0].weights[0, 0, 0].sum(axis=-1)
    np.testing.assert_allclose(found.step_weights(0)[0].sum(axis=-1), exact, atol=1e-5)
    np.testing.assert_allclose(found.to_frame().groupby("horizon")["weight"].sum(), exact, atol=1e-5)
    for method in ("contribution", "integrated_gradients", "occlusion"):
        rest = {"block": 1} if method == "occlusion" else {"variable": "z"}
        part = attribute(model, method=method, **rest)
        assert np.abs(part.step_weights(0)[0, :, -3]).max() > 1e-3
        np.testing.assert_array_equal(part.step_weights(0)[0, :, -3], part.windows.attention[0].weights[0, 0, 0, :, -3])


@pytest.mark.parametrize("how", ["mean", "donor", "seasonal", "interpolate", "noise"])
def test_replacements_touch_the_hidden_steps_alone(fitted, table, how):
    from tsattn.inspection.replace import Replacement

    probe = Probe.of(fitted["lucid"], table, windows=4, step=3)
    fill = Replacement(probe, how)
    rows, batch = next(probe.batches())
    hidden = torch.zeros(len(batch), 24, dtype=torch.bool)
    hidden[:, 6:12] = True
    changed = fill(batch, rows, hidden)
    assert torch.equal(changed.past[~hidden], batch.past[~hidden])
    assert (changed.past[hidden] != batch.past[hidden]).float().mean() > 0.9
    assert torch.equal(changed.past_observed, batch.past_observed)
    if how == "mean":
        torch.testing.assert_close(changed.past[hidden], batch.past.mean(1, keepdim=True).expand_as(batch.past)[hidden])
    if how == "interpolate":
        left, right = batch.past[:, 5, 0], batch.past[:, 12, 0]
        torch.testing.assert_close(changed.past[:, 8, 0], left + (right - left) * 3 / 7, atol=1e-4, rtol=1e-4)
    again = fill(batch, rows, hidden)
    assert torch.equal(again.past, changed.past)  # nothing is drawn anew


def test_wrong_options_name_the_right_ones(fitted):
    model = fitted["lucid"]
    for options, message in [
        ({"method": "gradient"}, "Unknown method 'gradient'"),
        ({"method": "occlusion", "replace": "zero"}, "Unknown replacement 'zero'"),
        ({"method": "occlusion", "statistics": "frozen"}, "Unknown statistics 'frozen'"),
        ({"method": "occlusion", "block": 25}, "block is 'auto' or a number of steps from 1 to the context of 24"),
        ({"method": "integrated_gradients", "steps": 0}, "steps is a whole number"),
        ({"method": "knockout", "layer": "cross"}, "Unknown layer 'cross'"),
        ({"method": "knockout", "windows": 3}, "Past origins need a table"),
    ]:
        with pytest.raises(ConfigError, match=message):
            attribute(model, **options)
    assert tsattn.attribute is attribute


def test_changed_weights_end_with_the_block_even_after_an_error():
    with pytest.raises(ZeroDivisionError), changed_weights(lambda call: call.weights):
        raise ZeroDivisionError
    assert not changing()
