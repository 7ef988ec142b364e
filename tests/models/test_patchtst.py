"""patchtst: parity with the published model, what a patch covers, and what the head reads from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tsattn.errors import ConfigError
from tsattn.models import Axis, InputSpec, build
from tsattn.models.patchtst import PatchTST

from .model_windows import random_batch, shaken, spec_for
from .parity import FIXTURES, load

both_scores = pytest.mark.parametrize("residual_scores", [False, True], ids=["own", "residual"])
both_heads = pytest.mark.parametrize("extra", [{}, {"affine": True, "individual": True}], ids=["shared", "individual"])


def network_for(sizes: dict | None = None, **options: object) -> tuple[InputSpec, PatchTST]:
    torch.manual_seed(0)
    spec = spec_for(PatchTST, **{"context": 22, "horizon": 6, **(sizes or {})})
    small = {"patch": 6, "stride": 3, "width": 8, "heads": 2, "hidden": 12}
    return spec, shaken(build("patchtst", spec, **{**small, **options}), 0.2)


@pytest.mark.parametrize("fixture", ["patchtst", "patchtst_affine"])
def test_agrees_with_the_published_model(fixture):
    """Everywhere: padding by replication, 7 patches of 22 steps, batch normalisation after the sum, learnt positions.

    "patchtst" adds scores from layer to layer; "patchtst_affine" does not, and has RevIN's gain and shift and a head
    for each target. The published deviation has 1e-5 added to a variance of about 1e4: what float64 still sees.
    """
    exact = load("patchtst", fixture, torch.float64)
    assert exact.error(exact.network(exact.batch).point) < 1e-8
    parity = load("patchtst", fixture, torch.float32)
    point = parity.network(parity.batch).point
    assert parity.error(point) < 1e-5
    assert parity.versions["neuralforecast"] == "3.3.0"
    for part in (0, 1):  # in company of a window with gaps, a whole window still is the published computation
        observed = torch.ones_like(parity.batch.past_observed)
        observed[part, :9] = False
        others = [w for w in range(3) if w != part]
        mixed = parity.network(replace(parity.batch, past_observed=observed)).point
        torch.testing.assert_close(mixed[others], point[others], rtol=1e-6, atol=0)
        assert (mixed[part] != point[part]).all()


def test_the_weights_are_the_published_ones():
    parity = load("patchtst", "patchtst", torch.float32)
    records = parity.network(parity.batch, need_weights=True).attention
    assert parity.attention.shape[0] == len(records) == 3
    for record, published in zip(records, parity.attention, strict=True):
        torch.testing.assert_close(record.weights.double(), published, atol=1e-5, rtol=0)


def test_fixtures_are_small():
    assert all(path.stat().st_size < 200_000 for path in FIXTURES.iterdir())


@pytest.mark.parametrize(
    ("context", "patch", "stride", "start", "end"),
    [
        (22, 6, 3, (0, 3, 6, 9, 12, 15, 18), (6, 9, 12, 15, 18, 21, 22)),  # the last two steps of the last are copies
        (21, 6, 3, (0, 3, 6, 9, 12, 15, 18), (6, 9, 12, 15, 18, 21, 21)),
        (12, 4, 4, (0, 4, 8, 11), (4, 8, 12, 12)),  # the last patch holds four copies of step 11
        (5, 16, 8, (0, 4), (5, 5)),  # clipped to the window: one patch of 5 steps, one of copies of step 4
        (3, 2, 1, (0, 1, 2), (2, 3, 3)),
    ],
)
def test_what_a_patch_covers(context, patch, stride, start, end):
    """By hand, and by turning each step: the tokens before any attention that move are those that cover it."""
    _, network = network_for({"context": context, "targets": 1}, patch=patch, stride=stride)
    batch = random_batch(network.spec, 1, missing=0.0)
    record = network(batch, need_weights=True).attention[0]
    assert record.query == record.key == Axis("patch", start, end)
    for step in range(context):
        turned = batch.past.clone()
        turned[0, step] += 1.0
        moved = (network._patches(turned) != network._patches(batch.past)).any(dim=-1)[0, 0]
        assert moved.tolist() == [first <= step < last for first, last in zip(start, end, strict=True)]


def test_the_published_sizes():
    """Section 4.1: PatchTST/42 has 42 patches of 336 steps, PatchTST/64 has 64 of 512."""
    for context in (336, 512):
        network = build("patchtst", InputSpec(horizon=96, context=context), patch=16, stride=8)
        assert network.count == {336: 42, 512: 64}[context]
    assert build("patchtst", InputSpec(horizon=96, context=336), patch=12).stride == 12  # side by side unless given


@both_heads
@both_scores
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_token_contributions_sum_to_the_point(mode, residual_scores, extra):
    spec, network = network_for(residual_scores=residual_scores, head_dropout=0.4, **extra)
    network.train(mode == "train")
    batch = random_batch(spec)
    output = network(replace(batch, past=1e3 * batch.past), need_weights=True)
    split = output.token_contributions
    assert split.tokens.shape == (5, 2, 6, 7)
    assert split.key == output.attention[0].key
    total = split.tokens.sum(-1) + split.rest
    deviation = 1e3 * batch.past.std(dim=1)[:, None]
    assert ((total.transpose(1, 2) - output.point) / deviation).abs().max() < 1e-5
    assert (split.tokens < 0).any()
    assert network(batch).token_contributions is None


def test_a_patch_without_an_observed_step_adds_to_the_rest():
    """Its token reaches the head all the same; a map of past steps must not show it, nor lose it."""
    _, network = network_for()
    batch = random_batch(network.spec, missing=0.0)
    observed = batch.past_observed.clone()
    observed[:, 3:12, 0] = False  # patches 1 and 2 of six steps, three apart, see nothing
    batch = replace(batch, past=torch.where(observed, batch.past, 0.0), past_observed=observed)
    output = network(batch, need_weights=True)
    split = output.token_contributions
    assert (split.tokens[:, 0, :, 1:3] == 0).all()
    assert (split.tokens[:, 1, :, 1:3] != 0).any()
    torch.testing.assert_close((split.tokens.sum(-1) + split.rest).transpose(1, 2), output.point, atol=1e-5, rtol=1e-5)


@both_heads
def test_a_tokens_contribution_is_what_the_head_loses_without_it(extra):
    spec, network = network_for(**extra)
    batch = random_batch(spec)
    whole = network(batch, need_weights=True)
    network.head_dropout.forward = lambda tokens: tokens * (torch.arange(7) != 4)[:, None]
    without = network(batch).point
    lost = (whole.point - without).transpose(1, 2)
    torch.testing.assert_close(whole.token_contributions.tokens[..., 4], lost, atol=1e-4, rtol=0)


def test_unobserved_patches_are_hidden_from_every_layer():
    spec, network = network_for({"targets": 1})
    batch = random_batch(spec, 1, missing=0.0)
    observed = batch.past_observed.clone()
    observed[:, 6:15] = False  # patches 2 and 3 whole, 1 and 4 in part
    past = torch.where(observed, batch.past, 0.0)
    for record in network(replace(batch, past=past, past_observed=observed), need_weights=True).attention:
        hidden = (record.weights == 0).all(dim=3)[:, 0].all(dim=1)  # [B, I]
        assert hidden.tolist() == [[False, False, True, True, False, False, False]]
        torch.testing.assert_close(record.weights.sum(-1), torch.ones_like(record.weights[..., 0]))


def test_added_scores_make_the_weights():
    """The softmax of layer 2 is that of its own scores plus those of layer 1; the name of the record says so."""
    spec, network = network_for({"targets": 1}, layers=2)
    batch = random_batch(spec, 1, missing=0.0)
    scores, inputs = [], []
    for block in network.blocks:
        block.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    first, second = network(batch, need_weights=True).attention
    for block, tokens in zip(network.blocks, inputs, strict=True):
        query, key = (
            side(tokens).unflatten(-1, (2, 4)).transpose(2, 3) for side in (block.attention.query, block.attention.key)
        )
        scores.append(query @ key.transpose(-2, -1) / 2.0)
    torch.testing.assert_close(first.weights, scores[0].softmax(-1))
    torch.testing.assert_close(second.weights, (scores[0] + scores[1]).softmax(-1))
    assert (first.layer, second.layer) == ("encoder 1", "encoder 2, scores of 1 to 2")
    own = network_for(layers=2, residual_scores=False)[1](random_batch(spec_for(PatchTST, context=22, horizon=6)), True)
    assert [record.layer for record in own.attention] == ["encoder 1", "encoder 2"]


@both_heads
@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_targets_do_not_see_one_another(norm, extra):
    spec, network = network_for(norm=norm, **extra)
    batch = random_batch(spec)
    turned = batch.past.clone()
    turned[..., 1] = 5.0 * turned[..., 1].flip(0)
    before, after = network(batch).point, network(replace(batch, past=turned)).point
    assert torch.equal(before[..., 0], after[..., 0])
    assert (before[..., 1] != after[..., 1]).any()


def test_the_affine_part_and_the_heads_belong_to_their_target():
    """Swapped columns give the swapped forecast only where everything is shared."""
    for extra, same in (({}, True), ({"affine": True}, False), ({"individual": True}, False)):
        spec, network = network_for(**extra)
        batch = random_batch(spec)
        swapped = replace(batch, past=batch.past.flip(-1), past_observed=batch.past_observed.flip(-1))
        distance = (network(swapped).point.flip(-1) - network(batch).point).abs().max()
        assert (distance < 1e-5) == same, extra


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_gain_of_either_sign_keeps_what_every_network_promises(dtype):
    """The affine part turns the sign of what the head gives, but neither constants nor the order of quantiles."""
    spec = replace(spec_for(PatchTST, context=22, horizon=6), quantiles=(0.1, 0.5, 0.9))
    network = shaken(build("patchtst", spec, width=16, affine=True, individual=True), 0.2)
    with torch.no_grad():
        network.affine.gain.copy_(torch.tensor([-0.8, 1.3]))
    batch = random_batch(spec)
    output = network.to(dtype)(batch)
    assert (output.quantiles.diff(dim=-1) >= 0).all()
    assert (output.quantiles[..., 2] > output.quantiles[..., 0]).float().mean() > 0.9
    flat = network(replace(batch, past=torch.where(batch.past_observed, -7.0, 0.0))).point
    torch.testing.assert_close(flat, torch.full_like(flat, -7.0), rtol=1e-5, atol=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = network(batch).point
    assert half.dtype == torch.float32
    assert half.isfinite().all()


def test_each_dropout_falls_where_it_should():
    spec, network = network_for({"targets": 1}, dropout=0.0, attention_dropout=0.0, norm="layer")
    batch = random_batch(spec)
    assert torch.equal(network.train()(batch).point, network.eval()(batch).point)
    for option in ("dropout", "attention_dropout", "head_dropout"):
        rates = {"dropout": 0.0, "attention_dropout": 0.0, "head_dropout": 0.0, option: 0.5}
        spec, network = network_for({"targets": 1}, norm="layer", **rates)
        still = network.eval()(batch, need_weights=True)
        moved = network.train()(batch, need_weights=True)
        assert (still.point != moved.point).any(), option
        assert torch.equal(still.attention[0].weights, moved.attention[0].weights) == (option != "dropout")
        assert torch.equal(still.attention[1].weights, moved.attention[1].weights) == (option == "head_dropout")


def test_options_that_cannot_be():
    spec = InputSpec(horizon=2, context=40)
    with pytest.raises(ConfigError, match="stride of 9 skips steps between patches of 8"):
        build("patchtst", spec, patch=8, stride=9)
    with pytest.raises(ConfigError, match=r"Unknown norm 'batchs'\. Did you mean 'batch'\?"):
        build("patchtst", spec, norm="batchs")
    with pytest.raises(ConfigError, match="3 heads do not divide a width of 32"):
        build("patchtst", spec, heads=3)
    with pytest.raises(ConfigError, match="attention_dropout is a share"):
        build("patchtst", spec, attention_dropout=1.0)
    with pytest.raises(ConfigError, match="PatchTST does not read known or past covariates"):
        build("patchtst", InputSpec(horizon=2, context=40, past=1, known=1))
