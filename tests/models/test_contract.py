"""What every network in MODELS promises, whatever its idea is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tsattn import heads
from tsattn.errors import ConfigError
from tsattn.models import MODELS, InputSpec, Network, build, options_of

from .model_windows import random_batch, shaken, spec_for

LEVELS = (0.1, 0.5, 0.9)
every_model = pytest.mark.parametrize("name", sorted(MODELS))
both_outputs = pytest.mark.parametrize("levels", [(), LEVELS], ids=["point", "quantiles"])


def network_for(
    name: str, levels: tuple[float, ...] = (), size: float = 0.3, **sizes: object
) -> tuple[InputSpec, Network]:
    torch.manual_seed(0)
    spec = replace(spec_for(MODELS[name], **sizes), quantiles=levels)
    return spec, shaken(build(name, spec), size)


def numbers(output) -> torch.Tensor:
    """Everything forecast, as one tensor."""
    parts = [output.point] if output.quantiles is None else [output.point, output.quantiles.flatten(2)]
    return torch.cat(parts, dim=-1)


@every_model
@both_outputs
def test_finite_on_zeros_in_the_announced_shape(name, levels):
    spec, network = network_for(name, levels)
    output = network(spec.example(3))
    assert output.point.shape == (3, spec.horizon, spec.targets)
    assert output.point.dtype == torch.float32
    assert output.point.isfinite().all()
    if levels:
        assert output.quantiles.shape == (3, spec.horizon, spec.targets, len(levels))
        assert output.quantiles.isfinite().all()
    else:
        assert output.quantiles is None


@every_model
@both_outputs
def test_every_parameter_gets_a_gradient(name, levels):
    spec, network = network_for(name, levels)
    if not network.trainable:
        assert not list(network.parameters())
        return
    batch = random_batch(spec, 16)
    kind = heads.check_loss(None, levels)
    heads.loss(network.train()(batch), batch, kind, levels).backward()
    for parameter_name, parameter in network.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@every_model
@both_outputs
@pytest.mark.parametrize("poison", [1e6, float("nan"), "noise"])
def test_nothing_after_the_origin_is_read(name, levels, poison):
    spec, network = network_for(name, levels)
    batch = random_batch(spec)
    value = torch.randn(batch.future.shape) if poison == "noise" else torch.full(batch.future.shape, poison)
    for observed in (torch.ones_like(batch.future_observed), torch.zeros_like(batch.future_observed)):
        poisoned = replace(batch, future=value, future_observed=observed)
        assert torch.equal(numbers(network(batch)), numbers(network(poisoned)))


@every_model
def test_values_under_the_mask_are_not_read(name):
    spec, network = network_for(name, LEVELS)
    batch = random_batch(spec)
    poisoned = replace(batch, past=torch.where(batch.past_observed, batch.past, float("nan")))
    assert torch.equal(numbers(network(batch)), numbers(network(poisoned)))


@every_model
def test_batch_size_changes_nothing(name):
    spec, network = network_for(name, LEVELS, size=0.02)
    batch = random_batch(spec, 130)
    with torch.no_grad():
        whole = numbers(network(batch))
        for size in (1, 7, 64):
            parts = [numbers(network(batch.select(slice(i, i + size)))) for i in range(0, 130, size)]
            torch.testing.assert_close(torch.cat(parts), whole, atol=2e-6, rtol=1e-6)
        shuffled = torch.randperm(130)
        torch.testing.assert_close(numbers(network(batch.select(shuffled))), whole[shuffled], atol=2e-6, rtol=1e-6)


@every_model
@both_outputs
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_asking_for_weights_changes_nothing(name, levels, mode):
    spec, network = network_for(name, levels)
    network.train(mode == "train")
    batch = random_batch(spec)
    torch.manual_seed(3)
    without = network(batch)
    torch.manual_seed(3)
    asked = network(batch, need_weights=True)
    assert torch.equal(numbers(without), numbers(asked))
    assert without.attention == ()
    assert without.contributions is None
    assert bool(asked.attention) == network.has_attention


@every_model
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_rows_sum_to_one_and_missing_steps_weigh_nothing(name, mode):
    spec, network = network_for(name)
    network.train(mode == "train")
    batch = random_batch(spec, missing=0.5)
    observed = batch.past_observed.clone()
    observed[2] = False
    observed[3, :, 0] = False
    output = network(replace(batch, past_observed=observed), need_weights=True)
    for record in output.attention:
        weights, targets = record.weights, record.weights.shape[1]
        assert weights.dtype == torch.float32
        assert weights.shape[0] == len(observed)
        assert targets in (1, spec.targets)
        assert weights.shape[3:] == (len(record.query), len(record.key))
        sums = weights.sum(dim=-1)
        assert ((sums - 1).abs().lt(1e-5) | sums.eq(0)).all()
        if record.key.kind not in ("time", "patch"):
            continue
        seen = observed.any(dim=2, keepdim=True) if targets == 1 else observed  # [B, L, C]
        hidden = 0
        for token, (start, end) in enumerate(zip(record.key.start, record.key.end, strict=True)):
            if start >= spec.context:
                continue  # a forecast step, read through what is known of it
            blind = ~seen[:, max(start, 0) : end].any(dim=1)  # [B, C]
            assert (weights[..., token][blind] == 0).all()
            hidden += int(blind.sum())
        assert hidden > len(record.key)  # whole windows and single tokens were hidden


@every_model
@pytest.mark.parametrize("value", [0.0, 7.0, -1e-12, 1e12])
def test_constants_are_continued(name, value):
    spec, network = network_for(name, LEVELS, size=0.1)
    batch = random_batch(spec)
    batch = replace(batch, past=torch.where(batch.past_observed, value, 0.0))
    output = network(batch)
    expected = torch.full_like(output.point, value)
    torch.testing.assert_close(output.point, expected, rtol=1e-5, atol=1e-20)
    torch.testing.assert_close(output.quantiles[..., 1], expected, rtol=1e-5, atol=1e-20)


@every_model
@pytest.mark.parametrize("level", [1e12, 1e30, 1e-12])
def test_any_unit_gives_finite_numbers(name, level):
    spec, network = network_for(name, LEVELS)
    batch = random_batch(spec)
    output = network(replace(batch, past=batch.past * level, scale=batch.scale * level))
    assert output.point.isfinite().all()
    assert output.quantiles.isfinite().all()
    assert (output.quantiles.diff(dim=-1) >= 0).all()


@every_model
def test_a_spike_after_zeros(name):
    spec, network = network_for(name, LEVELS)
    batch = spec.example(2)
    batch.past[:, -3] = 1e5
    output = network(batch)
    loss = heads.loss(output, batch, "pinball", LEVELS)
    assert loss.isfinite()
    if network.trainable:
        loss.backward()
        assert all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)


@every_model
def test_nothing_observed_in_one_window_harms_no_other(name):
    spec, network = network_for(name, LEVELS)
    batch = random_batch(spec)
    observed = batch.past_observed.clone()
    observed[0] = False
    empty = replace(batch, past_observed=observed)
    output = network(empty)
    assert output.point.isfinite().all()
    assert output.quantiles.isfinite().all()
    torch.testing.assert_close(output.point[1:], network(batch).point[1:])
    if not network.trainable:
        return
    total = output.point.sum() + output.quantiles.sum()
    total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


@every_model
@pytest.mark.parametrize("context", [1, 2, 6, 12, 15, 16, 17, 96, 100])
def test_every_observed_input_matters(name, context):
    spec, network = network_for(name, (), context=context, horizon=12, targets=1)
    batch = random_batch(spec, 1, missing=0.0)
    past = batch.past.clone().requires_grad_()
    output = network(replace(batch, past=past))
    assert output.point.isfinite().all()
    if not network.trainable:
        return
    weight = torch.randn(output.point.shape, generator=torch.Generator().manual_seed(5))
    (output.point * weight).sum().backward()
    assert past.grad.isfinite().all()
    assert (past.grad[0, :, 0] != 0).all()


@every_model
def test_quantiles_never_cross(name):
    for seed in range(5):
        levels = (0.01, 0.2, 0.25, 0.5, 0.7, 0.99)
        spec = replace(spec_for(MODELS[name]), quantiles=levels)
        network = shaken(build(name, spec), size=2.0, seed=seed)
        batch = random_batch(spec, 20, seed=seed)
        output = network(replace(batch, past=batch.past * 1e3 + 1e6))
        assert (output.quantiles.diff(dim=-1) >= 0).all()
        assert torch.equal(output.quantiles[..., 3], output.point)


@every_model
@pytest.mark.parametrize("levels", [(0.9,), (0.1, 0.8, 0.9)])
def test_levels_without_the_median(name, levels):
    spec, network = network_for(name, levels)
    batch = random_batch(spec)
    output = network(batch)
    assert (output.quantiles.diff(dim=-1) >= 0).all()
    assert heads.loss(output, batch, "pinball", levels).isfinite()


@every_model
@both_outputs
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(name, levels, dtype):
    spec, network = network_for(name, levels, size=0.1)
    batch = random_batch(spec)
    with torch.autocast("cpu", dtype=dtype):
        output = network(batch, need_weights=True)
    assert output.point.dtype == torch.float32
    assert numbers(output).isfinite().all()
    for record in output.attention:
        assert record.weights.dtype == torch.float32
    if network.trainable:
        heads.loss(output, batch, heads.check_loss(None, levels), levels).backward()
        assert all(p.grad.isfinite().all() for p in network.parameters() if p.grad is not None)


@every_model
def test_parameters_in_other_precisions(name):
    for dtype in (torch.float64, torch.bfloat16):
        spec, network = network_for(name, LEVELS)
        assert numbers(network.to(dtype)(random_batch(spec))).isfinite().all()


@every_model
def test_state_goes_through_a_dict(name):
    spec, network = network_for(name, LEVELS)
    other = build(name, spec)
    other.load_state_dict(network.state_dict())
    batch = random_batch(spec)
    assert torch.equal(numbers(other.eval()(batch)), numbers(network(batch)))


def test_unknown_names_say_the_nearest():
    spec = InputSpec(horizon=2, context=4)
    with pytest.raises(ConfigError, match=r"Unknown model 'lucidd'. Did you mean 'lucid'\?"):
        build("lucidd", spec)
    with pytest.raises(ConfigError, match=r"Unknown option of lucid 'head'. Did you mean 'heads'\? Known: .*patch"):
        build("lucid", spec, head=3)
    with pytest.raises(ConfigError, match="subclass of Network"):
        build(torch.nn.Linear, spec)


def test_a_class_may_stand_for_its_name():
    class Mine(Network):
        def __init__(self, spec: InputSpec, *, width: int = 3) -> None:
            super().__init__(spec)
            self.width = width

    spec = InputSpec(horizon=2, context=4)
    assert build(Mine, spec, width=5).width == 5
    assert options_of(Mine) == {"width": 3}
    assert options_of("naive") == {}
    with pytest.raises(ConfigError, match="option of Mine"):
        build(Mine, spec, depth=2)


@every_model
def test_covariates_that_would_be_ignored_are_refused(name):
    spec = InputSpec(horizon=2, context=4, past=1, known=1, static=1)
    if MODELS[name].uses == {"past", "known", "static"}:
        build(name, spec)
    else:
        with pytest.raises(ConfigError, match="does not read"):
            build(name, spec)
