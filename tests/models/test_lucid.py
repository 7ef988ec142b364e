"""lucid: hand numbers, a slow oracle, and the exactness of what it says about itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from tsattn.errors import ConfigError
from tsattn.models import InputSpec, build
from tsattn.models.lucid import Lucid

from .model_windows import FULL, random_batch, shaken, spec_for


def lucid_for(seed: int = 0, options: dict | None = None, **sizes: object) -> tuple[InputSpec, Lucid]:
    torch.manual_seed(seed)
    spec = spec_for(Lucid, **sizes)
    return spec, shaken(build("lucid", spec, **(options or {})), 0.1)


def plain(spec: InputSpec, **options: object) -> Lucid:
    return build("lucid", spec, dropout=0.0, **options).eval()


def set_by_hand(network: Lucid) -> None:
    with torch.no_grad():
        network.query.zero_()
        network.bias.copy_(torch.tensor([[[math.log(3.0), 0.0]]]))  # attention 3/4 and 1/4
        network.gain.fill_(2.0)
        network.value.copy_(torch.tensor([[[1.0, 0.0], [1.0, 1.0]]]))


def four_values():
    batch = InputSpec(horizon=2, context=4).example(1)
    return replace(batch, past=torch.tensor([1.0, 2.0, 3.0, 6.0]).view(1, 4, 1))


def test_hand_numbers_from_the_last_value():
    """The same weights, counted from the last value 6: distances (-5, -4) and (-3, 0), read (-4.5, -3)."""
    network = plain(InputSpec(horizon=2, context=4), patch=2, heads=1, head_width=1, summary=False, level="last")
    set_by_hand(network)
    output = network(four_values(), need_weights=True)
    # step 0: 6 + 2 * -4.5; step 1: 6 + 2 * (-4.5 - 3)
    torch.testing.assert_close(output.point.flatten(), torch.tensor([-3.0, -9.0]), atol=1e-5, rtol=0)
    assert output.contributions.level.flatten().tolist() == pytest.approx([6.0, 6.0])
    assert (output.contributions.history[..., -1] == 0).all()
    torch.testing.assert_close(output.contributions.total(), output.point)


def test_hand_numbers():
    """Two patches of two steps, one head, weights set by hand: 3 and 1 parts of the patches (1, 2) and (3, 6)."""
    network = plain(InputSpec(horizon=2, context=4), patch=2, heads=1, head_width=1, summary=False)
    set_by_hand(network)
    batch = four_values()
    # mean 3, so z * deviation = (-2, -1), (0, 3); read: 3/4 (-2, -1) + 1/4 (0, 3) = (-1.5, 0)
    # step 0: 2 * -1.5 = -3; step 1: 2 * (-1.5 + 0) = -3; plus the mean 3
    output = network(batch, need_weights=True)
    torch.testing.assert_close(output.point.flatten(), torch.tensor([0.0, 0.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(output.attention[0].weights.flatten(), torch.tensor([0.75, 0.25]))
    history = output.contributions.history[0, 0]
    # step 0 reads the first step of each patch; step 1 both
    expected = [[2 * 0.75 * -2, 0.0, 0.0, 0.0], [2 * 0.75 * -2, 2 * 0.75 * -1, 0.0, 2 * 0.25 * 3]]
    torch.testing.assert_close(history, torch.tensor(expected), atol=1e-6, rtol=0)
    assert output.contributions.level.flatten().tolist() == [3.0, 3.0]


def oracle(network: Lucid, batch, b: int, c: int) -> list[float]:
    """The forecast of one window and target, with loops over heads, patches and steps. Point, in data units."""
    spec, size, ahead = network.spec, network.size, network.ahead
    seen = batch.past_observed[b, :, c]
    values = batch.past[b, :, c].double()
    mean = values[seen].mean()
    deviation = values[seen].std(correction=0)
    mean = values[seen][-1] if network.level == "last" else mean
    z = torch.where(seen, (values - mean) / deviation, 0.0)
    past = network.past_vector(batch.past_cov[b], batch.past_codes[b])
    known = network.known_vector(batch.known[b], batch.known_codes[b])
    static = network.static_vector(batch.static[b], batch.static_codes[b])
    gelu = torch.nn.functional.gelu

    def effect(t: int) -> torch.Tensor:
        hidden = network.effect.known(known[t]) + network.effect.static(static)
        return network.effect.out(gelu(hidden))[c]

    patches = math.ceil(spec.context / size)
    pad = patches * size - spec.context
    tokens, offered = [], []
    for i in range(patches):
        steps = [i * size + p - pad for p in range(size)]
        inside = [t for t in steps if t >= 0]
        lead = size - len(inside)
        own = torch.tensor([0.0] * lead + [z[t].item() for t in inside])
        flag = torch.tensor([0.0] * lead + [float(seen[t]) for t in inside])
        around = [torch.zeros(past.shape[-1] + known.shape[-1])] * lead + [
            torch.cat((past[t], known[t])) for t in inside
        ]
        token = network.embed(torch.cat((own, flag))) + network.embed_around(torch.cat((*around, static)))
        tokens.append(gelu(token + network.position[i]) if flag.any() else None)
        moved = [0.0] * lead + [(z[t] - effect(t)).item() if seen[t] else 0.0 for t in inside]
        read = [torch.zeros(past.shape[-1])] * lead + [past[t] * network.past_gain[c] for t in inside]
        offered.append(torch.cat((torch.tensor(moved), *read)))
    pooled = sum(gelu(network.pool(token)) for token in tokens if token is not None)
    shape = (network.heads, network.head_width)
    forecast = []
    for h in range(spec.horizon):
        j, q = divmod(h, ahead)
        steps = [spec.context + j * ahead + k for k in range(ahead)]
        ahead_known = [known[t] if t < len(known) else torch.zeros(known.shape[-1]) for t in steps]
        shift = network.query_ahead(torch.cat((*ahead_known, static))) + network.query_pool(pooled)
        total = effect(spec.context + h).double()
        for n in range(network.heads):
            query = network.query[n, j] + shift.view(shape)[n]
            exps = []
            for i, token in enumerate(tokens):
                if token is None:
                    exps.append(0.0)
                    continue
                key = network.key(token).view(shape)[n]
                exps.append(
                    math.exp((query @ key).item() / math.sqrt(network.head_width) + network.bias[n, j, i].item())
                )
            table = torch.cat((network.value[n, q], network.value_past[n, q]))
            for i in range(patches):
                total = total + network.gain[n, j] * exps[i] / sum(exps) * (table @ offered[i])
        forecast.append((mean + deviation * total).item())
    return forecast


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({"context": 13, "horizon": 5}, {"patch": 4, "heads": 2, "width": 5, "head_width": 3}),
        ({"context": 6, "horizon": 7}, {"patch": 3, "horizon_patch": 2, "heads": 3}),
        ({"context": 6, "horizon": 7}, {"patch": 3, "level": "last"}),
    ],
)
def test_a_slow_oracle_agrees(sizes, options):
    spec, network = lucid_for(options=options, **sizes)
    batch = random_batch(spec, 3)
    with torch.no_grad():
        point = network(batch).point
        for b in range(3):
            for c in range(spec.targets):
                torch.testing.assert_close(
                    point[b, :, c], torch.tensor(oracle(network, batch, b, c)), atol=2e-4, rtol=1e-4
                )


ROLES = [(), ("past",), ("known",), ("static",), ("past", "known", "static")]


@pytest.mark.parametrize("roles", ROLES, ids=["none", "past", "known", "static", "all"])
@pytest.mark.parametrize(
    ("context", "horizon", "patch"), [(33, 10, 24), (30, 10, 5), (100, 24, 24), (1, 3, 24), (6, 12, 4)]
)
@pytest.mark.parametrize("levels", [(), (0.1, 0.5, 0.9)], ids=["point", "quantiles"])
@pytest.mark.parametrize("level", ["mean", "last"])
def test_contributions_sum_to_the_point(roles, context, horizon, patch, levels, level):
    spec = InputSpec(horizon=horizon, context=context, targets=3, quantiles=levels)
    for role in roles:
        spec = replace(spec, **{role: FULL[role], f"{role}_categories": FULL[f"{role}_categories"]})
    torch.manual_seed(0)
    network = shaken(build("lucid", spec, patch=patch, level=level), 0.02)
    batch = random_batch(spec, 20)
    batch = replace(batch, past=(batch.past - 3.0) * batch.past_observed)
    with torch.no_grad():
        output = network(batch, need_weights=True)
    parts = output.contributions
    columns = spec.past + len(spec.past_categories)
    assert parts.history.shape == (20, 3, horizon, context)
    assert parts.past.shape == (20, 3, horizon, context, columns)
    assert parts.known.shape == parts.level.shape == (20, 3, horizon)
    assert (parts.total() - output.point).abs().max() <= 1e-5
    missing = ~batch.past_observed.transpose(1, 2)[:, :, None].expand_as(parts.history)
    assert (parts.history[missing] == 0).all()
    if context == 1:  # one value is a constant: the level is the forecast
        return
    assert parts.history.abs().max() > 0
    assert (parts.past.abs().sum() > 0) == ("past" in roles)
    assert (parts.known.abs().sum() > 0) == ("known" in roles or "static" in roles)


def test_each_contribution_is_what_the_step_adds():
    """With attention frozen, moving one step by d moves the forecast by its weight times d, here read off twice."""
    spec = InputSpec(horizon=6, context=20)
    torch.manual_seed(0)
    network = shaken(build("lucid", spec, patch=5), 0.1)
    batch = random_batch(spec, 1, missing=0.0)
    with torch.no_grad():
        inputs = network._inputs(batch)
        output = network(batch, need_weights=True)
        weights = output.attention[0].weights
        for t in (0, 7, 19):
            moved = inputs.z.clone()
            moved[0, t, 0] = 0.0
            changed = network._read(weights, network._offered(inputs._replace(z=moved)), network._values())
            drop = output.point[0, :, 0] - (inputs.window.loc + inputs.window.scale * changed[0, 0])
            torch.testing.assert_close(output.contributions.history[0, 0, :, t], drop[0], atol=1e-5, rtol=1e-4)


def test_each_past_covariate_has_its_own_contribution():
    spec = InputSpec(horizon=4, context=12, past=2, past_categories=(5,))
    torch.manual_seed(0)
    network = shaken(build("lucid", spec, patch=4), 0.1)
    batch = random_batch(spec, 3)
    with torch.no_grad():
        network.embed_around.weight.zero_()  # attention no longer depends on the covariates
        before = network(batch, need_weights=True)
        silent = replace(batch, past_codes=torch.zeros_like(batch.past_codes))
        after = network(silent, need_weights=True)
        parts = before.contributions.past
        torch.testing.assert_close(
            (before.point - after.point)[..., 0], parts[:, 0, ..., 2].sum(-1), atol=1e-5, rtol=1e-4
        )
        one = batch.past_cov.clone()
        one[..., 1] = 0.0
        after = network(replace(batch, past_cov=one))
        torch.testing.assert_close(
            (before.point - after.point)[..., 0], parts[:, 0, ..., 1].sum(-1), atol=1e-5, rtol=1e-4
        )


def test_patches_without_an_observed_step_get_exactly_zero():
    spec, network = lucid_for(context=100, horizon=24)
    batch = random_batch(spec, 4, missing=0.0)
    observed = batch.past_observed.clone()
    observed[0, 28:52] = False  # the third patch, of steps 28 to 51
    observed[2] = False
    record = network(replace(batch, past_observed=observed), need_weights=True).attention[0]
    assert (record.key.start, record.key.end) == ((-20, 4, 28, 52, 76), (4, 28, 52, 76, 100))
    assert (record.weights[0, ..., 2] == 0).all()
    assert (record.weights[0, ..., [0, 1, 3, 4]] > 0).all()
    assert (record.weights[2] == 0).all()
    torch.testing.assert_close(record.weights[[0, 1, 3]].sum(-1), torch.ones_like(record.weights[[0, 1, 3], ..., 0]))


def test_axes_name_the_steps():
    spec, network = lucid_for(context=50, horizon=30, targets=1)
    record = network(spec.example(2), need_weights=True).attention[0]
    assert record.weights.shape == (2, 1, 8, 2, 3)
    assert (record.query.kind, record.query.start, record.query.end) == ("horizon", (0, 24), (24, 30))
    assert (record.key.kind, record.key.start, record.key.end) == ("patch", (-22, 2, 26), (2, 26, 50))


@pytest.mark.parametrize(("context", "horizon"), [(1, 1), (5, 3), (5, 60), (60, 5)])
def test_patches_are_clipped_to_the_window(context, horizon):
    spec = InputSpec(horizon=horizon, context=context)
    output = plain(spec)(spec.example(2), need_weights=True)
    assert output.point.shape == (2, horizon, 1)
    assert output.attention[0].query.end[-1] == horizon
    assert output.attention[0].key.end[-1] == context


def test_targets_do_not_see_one_another():
    spec, network = lucid_for(targets=3)
    batch = random_batch(spec)
    other = batch.past.clone()
    other[..., 1] = torch.where(batch.past_observed[..., 1], 99.0 * torch.rand(other.shape[:2]), 0.0)
    before, after = network(batch).point, network(replace(batch, past=other)).point
    assert torch.equal(before[..., [0, 2]], after[..., [0, 2]])
    assert (before[..., 1] != after[..., 1]).any()


def test_dropout_never_touches_the_sum():
    spec = InputSpec(horizon=6, context=20)
    network = build("lucid", spec, dropout=0.5, patch=5).train()
    batch = random_batch(spec, 4)
    output = network(batch, need_weights=True)
    torch.testing.assert_close(output.contributions.total(), output.point, atol=1e-5, rtol=1e-5)
    assert not torch.equal(output.point, network(batch).point)
    network.eval()
    assert torch.equal(network(batch).point, network(batch).point)


def test_attention_depends_on_the_content_of_the_window():
    spec, network = lucid_for(context=96, horizon=24, targets=1)
    weights = network(random_batch(spec, 8, missing=0.0), need_weights=True).attention[0].weights
    assert (weights.std(dim=0) > 0).all()


def test_contributions_are_exact_in_half_precision():
    spec = InputSpec(horizon=12, context=48, known=1, past=1)
    torch.manual_seed(0)
    network = shaken(build("lucid", spec, patch=12), 0.02)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = network(random_batch(spec, 6), need_weights=True)
    torch.testing.assert_close(output.contributions.total(), output.point, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 0}, "patch is a whole number of at least 1; got 0"),
        ({"heads": 2.5}, "heads is a whole number"),
        ({"horizon_patch": 0}, "horizon_patch is a whole number"),
        ({"width": True}, "width is a whole number"),
        ({"dropout": 1.0}, "dropout is a share"),
        ({"level": "median"}, "Unknown level 'median'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ConfigError, match=message):
        build("lucid", InputSpec(horizon=2, context=4), **options)
