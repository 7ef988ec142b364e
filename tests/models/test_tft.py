"""tft: exact head mean, causality, padding, selections, and each role of covariates with and without the others."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import chain, combinations

import pytest
import torch

from tests.layers.test_recurrent import cell_by_cell
from tsattn import heads
from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.layers.gated import GatedResidual, GatedSkip, VariableSelection
from tsattn.models import AttentionRecord, InputSpec, Output, build
from tsattn.models.tft import TFT

from .model_windows import FULL, random_batch, shaken, spec_for

ROLES = ("past", "known", "static")
SUBSETS = list(chain.from_iterable(combinations(ROLES, count) for count in range(4)))
every_subset = pytest.mark.parametrize("roles", SUBSETS, ids=["+".join(roles) or "none" for roles in SUBSETS])


def network_for(roles: tuple[str, ...] = ROLES, **sizes: object) -> tuple[InputSpec, TFT]:
    torch.manual_seed(0)
    spec = InputSpec(**{"horizon": 5, "context": 12, "targets": 2, **sizes})
    for role in roles:
        spec = replace(spec, **{role: FULL[role], f"{role}_categories": FULL[f"{role}_categories"]})
    return spec, shaken(build("tft", spec, width=8, heads=2), 0.1)


def residual(network: GatedResidual, tokens: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
    """Equations 2 to 5 from the raw parameters: ``[W] -> [O]``."""
    hidden = network.first.weight @ tokens + network.first.bias
    if context is not None and network.context is not None:
        hidden = hidden + network.context.weight @ context
    hidden = torch.where(hidden > 0, hidden, hidden.exp() - 1)
    hidden = network.second.weight @ hidden + network.second.bias
    skip = network.resize(tokens)
    return skip_through(network.gated, hidden, skip)


def skip_through(gated: GatedSkip, tokens: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
    value, gate = (gated.gate.linear.weight @ tokens + gated.gate.linear.bias).chunk(2)
    total = skip + value * gate.sigmoid()
    if isinstance(gated.norm, torch.nn.Identity):
        return total
    centred = total - total.mean()
    return gated.norm.weight * centred / (centred.square().mean() + 1e-5).sqrt() + gated.norm.bias


def selected(network: VariableSelection, tokens: list, context: torch.Tensor | None = None) -> torch.Tensor:
    """Equations 6 to 8."""
    shares = residual(network.choose, torch.cat(tokens), context).exp()
    own = [residual(each, token) for each, token in zip(network.each, tokens, strict=True)]
    return sum(share * token for share, token in zip(shares / shares.sum(), own, strict=True))


def oracle(network: TFT, batch: Batch, b: int, c: int) -> torch.Tensor:
    """The point forecast ``[H]`` of one window and target, step by step and head by head, as the paper has it."""
    length, horizon = network.spec.context, network.spec.horizon
    seen = batch.past_observed[b, :, c]
    mean, deviation = batch.past[b, seen, c].mean(), batch.past[b, seen, c].std(correction=0)
    z = torch.where(seen, (batch.past[b, :, c] - mean) / deviation, 0.0)

    def columns(part: torch.nn.Module, numeric: torch.Tensor, codes: torch.Tensor) -> list[torch.Tensor]:
        vector = part.vector(numeric, codes)  # [E]
        return [linear(vector[places]) for linear, places in zip(part.embed, part.places, strict=True)]

    about = network.static
    static = selected(about.choose, columns(about.columns, batch.static[b], batch.static_codes[b]))
    choosing, enriching = residual(about.selection, static), residual(about.enrichment, static)
    chosen = []
    for t in range(length + horizon):
        tokens = columns(network.known, batch.known[b, t], batch.known_codes[b, t])
        if t < length:
            own = network.target(torch.stack((z[t], seen[t].float())))
            past = columns(network.past, batch.past_cov[b, t], batch.past_codes[b, t])
            chosen.append(selected(network.past_selection, [own, *past, *tokens], choosing))
        else:
            chosen.append(selected(network.future_selection, tokens, choosing))
    first = int(seen.nonzero()[0])
    state = residual(about.hidden, static), residual(about.cell, static)
    encoded, *state = cell_by_cell(network.encoder, torch.stack(chosen[first:length]), *state)
    decoded, *_ = cell_by_cell(network.decoder, torch.stack(chosen[length:]), *state)
    read = [*[torch.zeros(8)] * first, *encoded, *decoded]
    tokens = [skip_through(network.recurrent_gate, token, skip) for token, skip in zip(read, chosen, strict=True)]
    enriched = [residual(network.enrichment, token, enriching) for token in tokens]
    attention = network.attention
    forecast = []
    for h in range(horizon):
        visible = [t for t in range(length + h + 1) if t >= length or seen[t]]
        mixed = torch.zeros(4)
        for head in (slice(0, 4), slice(4, 8)):
            query = (attention.query.weight @ enriched[length + h])[head]
            shares = torch.stack([(query @ (attention.key.weight @ enriched[t])[head] / 2.0).exp() for t in visible])
            for share, t in zip(shares / shares.sum(), visible, strict=True):
                mixed = mixed + share * (attention.value.weight @ enriched[t]) / 2.0  # mean of two heads
        looked = skip_through(network.attention_gate, attention.out.weight @ mixed, enriched[length + h])
        features = skip_through(network.last_gate, residual(network.feedforward, looked), tokens[length + h])
        forecast.append(mean + deviation * network.head(features).squeeze())
    return torch.stack(forecast)


def test_a_slow_oracle_agrees():
    spec, network = network_for()
    batch = random_batch(spec, 3)
    assert not batch.past_observed[1, 0].any()  # one window begins with padding
    with torch.no_grad():
        point = network(batch).point
        for b in range(3):
            for c in range(2):
                torch.testing.assert_close(point[b, :, c], oracle(network, batch, b, c), atol=1e-5, rtol=0)


def by_layer(output: Output) -> dict[str, AttentionRecord]:
    return {record.layer: record for record in output.attention}


def test_the_head_mean_is_how_the_values_were_mixed():
    """What the attention layer returned is the mean map times the one value of each step, through the last matrix."""
    spec, network = network_for()
    seen = {}
    network.attention.register_forward_hook(
        lambda layer, args, read: seen.update(tokens=args[1], output=read.output, weights=read.weights)
    )
    record = network(random_batch(spec), need_weights=True).attention[-1]
    assert torch.equal(record.weights, seen["weights"])
    layer = network.attention
    values = layer.value(seen["tokens"])  # [B, C, L + H, D]: no head dimension
    again = layer.out(record.weights.mean(dim=2) @ values)
    torch.testing.assert_close(again, seen["output"], atol=1e-6, rtol=0)
    assert values.shape[-1] == 4  # the width of one head


def test_keys_are_past_steps_and_forecast_steps_up_to_the_own_one():
    spec, network = network_for()
    batch = random_batch(spec, missing=0.3)
    record = network(batch, need_weights=True).attention[-1]
    assert (record.layer, record.query.kind, record.key.kind, record.key.ahead) == ("attention", "horizon", "time", 5)
    assert (record.key.start, record.key.end) == (tuple(range(17)), tuple(range(1, 18)))
    torch.testing.assert_close(record.weights.sum(-1), torch.ones_like(record.weights[..., 0]))
    past, ahead = record.weights.split((12, 5), dim=-1)
    observed = batch.past_observed.transpose(1, 2)[:, :, None, None].expand_as(past)
    assert (past[~observed] == 0).all()
    assert (past[observed] > 0).all()
    own = torch.ones(5, 5).tril().bool().expand_as(ahead)
    assert (ahead[~own] == 0).all()
    assert (ahead[own] > 0).all()


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_step_sees_nothing_known_of_later_steps(need_weights):
    spec, network = network_for()
    batch = random_batch(spec)
    point = network(batch, need_weights).point
    for step in (1, 2, 4):
        known, codes = batch.known.clone(), batch.known_codes.clone()
        known[:, spec.context + step] += 5.0
        codes[:, spec.context + step] = 1
        changed = network(replace(batch, known=known, known_codes=codes), need_weights).point
        assert torch.equal(changed[:, :step], point[:, :step])
        assert (changed[:, step:] != point[:, step:]).all()


def cut(batch: Batch, first: int) -> Batch:
    """The window without its first steps."""
    by_step = ("past", "past_observed", "past_cov", "past_codes", "known", "known_codes")
    parts = {f.name: getattr(batch, f.name) for f in fields(batch)}
    return Batch(**{name: part[:, first:] if name in by_step else part for name, part in parts.items()})


@every_subset
def test_a_padded_window_forecasts_like_the_short_one(roles):
    """Also next to windows that are whole, and with nonsense among the covariates of the padding."""
    spec, network = network_for(roles, quantiles=(0.1, 0.9))
    batch = random_batch(spec, 4, missing=0.0)
    observed = batch.past_observed.clone()
    observed[1, :7] = observed[3, :7] = False
    known, past_cov = batch.known.clone(), batch.past_cov.clone()
    known[1, :7], past_cov[1, :7] = 1e3, -1e3
    padded = replace(batch, past_observed=observed, known=known, past_cov=past_cov)
    found = network(padded, need_weights=True)
    short = build("tft", replace(spec, context=5), width=8, heads=2).eval()
    short.load_state_dict(network.state_dict())
    expected = short(cut(batch, 7), need_weights=True)
    for which in (1, 3):
        torch.testing.assert_close(found.point[which], expected.point[which], atol=1e-5, rtol=0)
        torch.testing.assert_close(found.quantiles[which], expected.quantiles[which], atol=1e-5, rtol=0)
        weights = found.attention[-1].weights[which]
        torch.testing.assert_close(weights[..., 7:], expected.attention[-1].weights[which], atol=1e-5, rtol=0)
        assert (weights[..., :7] == 0).all()
    alone = network(batch.select(slice(0, 1)))
    torch.testing.assert_close(found.point[:1], alone.point, atol=1e-5, rtol=0)


@every_subset
def test_records_name_every_variable_that_was_chosen_from(roles):
    spec, network = network_for(roles)
    records = by_layer(network(random_batch(spec), need_weights=True))
    columns = {role: [f"{role} {k}" for k in range(FULL[role] + len(FULL[f"{role}_categories"]))] for role in roles}
    past, known, static = (columns.get(role, []) for role in ROLES)
    expected = {"static selection": static, "past selection": ["target", *past, *known], "future selection": known}
    expected = {layer: names for layer, names in expected.items() if names}
    assert list(records) == [*expected, "attention"]
    for layer, names in expected.items():
        record = records[layer]
        assert record.key.names == tuple(names)
        assert record.key.kind == "variable"
        assert record.weights.dtype == torch.float32
        assert record.weights.shape[2:] == (1, len(record.query), len(names))
        torch.testing.assert_close(record.weights.sum(-1), torch.ones_like(record.weights[..., 0]))
        assert (record.weights > 0).all()  # nothing is excluded
        assert not record.weights.requires_grad
    if static:
        axis = records["static selection"].query
        assert (axis.start, axis.end) == ((0,), (12,))  # one choice for the whole window
    assert records["past selection"].query.end == tuple(range(1, 13))
    assert records["past selection"].weights.shape[:2] == (5, 2)  # each target has its own
    if known:
        assert records["future selection"].query.kind == "horizon"
        assert records["future selection"].weights.shape[1] == 1  # nothing in it depends on the target


@every_subset
def test_every_parameter_learns_whatever_is_absent(roles):
    spec, network = network_for(roles, quantiles=(0.1, 0.5))
    batch = random_batch(spec, 16)
    heads.loss(network.train()(batch), batch, "pinball", spec.quantiles).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("categorical", [False, True])
def test_a_single_column_is_enough(role, categorical):
    """With one known or static column there is nothing to choose among; the column is read all the same."""
    sizes = {f"{role}_categories": (4,)} if categorical else {role: 1}
    spec, network = network_for((), **sizes)
    batch = random_batch(spec)
    name = f"{role}_codes" if categorical else {"past": "past_cov"}.get(role, role)
    part = getattr(batch, name)
    changed = replace(batch, **{name: (part + 1) % 4 if categorical else part + 1})
    assert (network(changed).point != network(batch).point).all()
    batch = random_batch(spec, 16)
    heads.loss(network.train()(batch), batch, "mse").backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in network.parameters())


def test_static_columns_steer_every_part_they_should():
    spec, network = network_for()
    batch = random_batch(spec)
    other = replace(batch, static=batch.static + 2.0)
    before, after = by_layer(network(batch, True)), by_layer(network(other, True))
    for layer in before:
        assert not torch.equal(before[layer].weights, after[layer].weights), layer
    contexts = network.static(batch, torch.float32)
    past, future = network._select(network.target(torch.ones(5, 2, 12, 2)), batch, contexts)
    moved, ahead = network._select(network.target(torch.ones(5, 2, 12, 2)), batch, network.static(other, torch.float32))
    assert (moved.weights != past.weights).any()  # c_s
    assert (ahead.weights != future.weights).any()
    point = network(batch).point
    for part in ("hidden", "cell", "enrichment"):
        with pytest.MonkeyPatch.context() as patch:
            still = contexts._replace(**{part: torch.zeros_like(getattr(contexts, part))})
            patch.setattr(network.static, "forward", lambda *_, still=still: still)
            assert (network(batch).point != point).all(), part


def test_targets_do_not_see_one_another_and_share_their_weights():
    spec, network = network_for()
    batch = random_batch(spec)
    past, observed = batch.past.clone(), batch.past_observed.clone()
    past[..., 1] += torch.randn(past.shape[:2])
    observed[:, 3:6, 1] = ~observed[:, 3:6, 1]
    changed = network(replace(batch, past=past, past_observed=observed))
    torch.testing.assert_close(changed.point[..., 0], network(batch).point[..., 0], atol=1e-5, rtol=0)
    swapped = network(replace(batch, past=batch.past.flip(2), past_observed=batch.past_observed.flip(2)))
    torch.testing.assert_close(swapped.point.flip(2), network(batch).point, atol=1e-5, rtol=0)


def test_a_gap_is_told_from_a_value():
    spec, network = network_for((), targets=1)
    batch = random_batch(spec, missing=0.4)
    entered = []
    network.target.register_forward_pre_hook(lambda _, args: entered.append(args[0]))
    network(batch)
    value, flag = entered[0].unbind(dim=-1)  # [B, 1, L]
    assert torch.equal(flag.transpose(1, 2).bool(), batch.past_observed)
    assert (value[flag == 0] == 0).all()


def test_forecast_steps_differ_without_anything_known():
    spec, network = network_for(())
    point = network(random_batch(spec)).point
    assert (point.diff(dim=1).abs() > 1e-5).all()


def test_options_that_cannot_be():
    spec = spec_for(TFT)
    with pytest.raises(ConfigError, match="3 heads do not divide a width of 32"):
        build("tft", spec, heads=3)
    with pytest.raises(ConfigError, match="width is a whole number of at least 1; got 0"):
        build("tft", spec, width=0)
    with pytest.raises(ConfigError, match=r"dropout is a share .* got 1\.5"):
        build("tft", spec, dropout=1.5)
