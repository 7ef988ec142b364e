"""seq2seq: step by step against the papers' equations, padding that leaves no trace, and when the truth is fed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tsattn import heads
from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.layers.patch import count
from tsattn.models import MODELS, InputSpec, Network, build
from tsattn.models.seq2seq import ATTENTIONS, Seq2Seq, _Memory

from .model_windows import FULL, random_batch, shaken, spec_for

SCORED = tuple(name for name in ATTENTIONS if name != "none")
every_attention = pytest.mark.parametrize("attention", ATTENTIONS)
every_score = pytest.mark.parametrize("attention", SCORED)
every_cell = pytest.mark.parametrize("cell", ["lstm", "gru"])


def network_for(spec: InputSpec, size: float = 0.3, **options: object) -> Seq2Seq:
    torch.manual_seed(0)
    network = shaken(build("seq2seq", spec, **{"width": 4, "dropout": 0.0, **options}), size)
    assert isinstance(network, Seq2Seq)
    return network


def plain(horizon: int = 7, context: int = 9, targets: int = 1) -> InputSpec:
    return InputSpec(horizon=horizon, context=context, targets=targets)


def torchs_own(network: nn.Module) -> nn.LSTM | nn.GRU:
    """A fresh network of torch with the same weights."""
    inner = network.rnn
    copy = type(inner)(inner.input_size, inner.hidden_size, inner.num_layers, batch_first=True)
    copy.load_state_dict(inner.state_dict())
    return copy


def score_by_hand(network: Seq2Seq, query: Tensor, keys: Tensor) -> Tensor:
    """One score for each key, pair by pair."""
    score, name = network.score, network.attention
    if name == "location":
        return query @ score.weight
    if name == "additive":
        return torch.stack(
            [score.vector @ torch.tanh(query @ score.query_weight + key @ score.key_weight) for key in keys]
        )
    if name == "general":
        return torch.stack([query @ score.weight @ key for key in keys])
    unit = math.sqrt(len(query)) if name == "scaled_dot" else 1.0
    return torch.stack([query @ key / unit for key in keys])


def by_hand(network: Seq2Seq, past: Tensor, truth: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The forecast ``[H]`` and weights ``[J, I]`` of one fully observed window ``[L]`` of whole patches, no covariates.

    ``truth [H]``: fed in place of the forecast, after every step.
    """
    size, ahead = network.size, network.ahead
    mean, deviation = past.mean(), past.std(correction=0)
    z = (past - mean) / deviation
    patches = [torch.stack((z[i : i + size], torch.ones(size)), dim=-1).flatten() for i in range(0, len(z), size)]
    tokens = torch.stack([network.embed.weight @ patch + network.embed.bias for patch in patches])
    keys, state = torchs_own(network.encoder)(tokens[None])
    keys, decoder = keys[0], torchs_own(network.decoder)
    top = (state[0] if isinstance(state, tuple) else state)[-1, 0]
    fed, vector = z[-ahead:], torch.zeros(network.width)
    written, maps = [], []

    def look(query: Tensor) -> Tensor:
        shares = score_by_hand(network, query, keys).exp()
        maps.append(shares / shares.sum())
        return sum(share * key for share, key in zip(maps[-1], keys, strict=True))

    for step in range(count(network.spec.horizon, ahead)):
        parts, context = [fed], None
        if network.attention == "additive":
            context = look(top)
            parts.append(context)
        if network.input_feeding:
            parts.append(vector)
        out, state = decoder(torch.cat(parts)[None, None], state)
        top = out[0, 0]
        if context is None and network.attention != "none":
            context = look(top)
        joined = top if context is None else torch.cat((context, top))
        vector = torch.tanh(network.join.weight @ joined + network.join.bias)
        fed = network.head.weight @ vector + network.head.bias
        written.append(fed)
        if truth is not None:
            fed = ((truth - mean) / deviation)[step * ahead : (step + 1) * ahead]
    forecast = torch.cat(written)[: network.spec.horizon] * deviation + mean
    return forecast, torch.stack(maps) if maps else torch.zeros(0)


@every_cell
@every_attention
@pytest.mark.parametrize("feeding", [False, True], ids=["plain", "input feeding"])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 2)], ids=["classic", "patches"])
def test_agrees_with_the_equations(cell, attention, feeding, sizes):
    if feeding and attention == "none":
        return
    options = {"cell": cell, "attention": attention, "input_feeding": feeding, "layers": 2}
    network = network_for(plain(), patch=sizes[0], horizon_patch=sizes[1], **options)
    batch = random_batch(plain(), 3, missing=0.0)
    batch = replace(batch, past=torch.randn(3, 9, 1) * 5 + 2, past_observed=torch.ones(3, 9, 1, dtype=torch.bool))
    output = network(batch, need_weights=True)
    for window in range(3):
        forecast, weights = by_hand(network, batch.past[window, :, 0])
        torch.testing.assert_close(output.point[window, :, 0], forecast, rtol=1e-5, atol=1e-5)
        if attention == "none":
            assert output.attention == ()
        else:
            torch.testing.assert_close(output.attention[0].weights[window, 0, 0], weights, rtol=1e-5, atol=1e-6)


def looked(network: Seq2Seq, query: list[float], keys: list[list[float]]) -> tuple[Tensor, Tensor]:
    memory = _Memory(torch.tensor([keys]), None, ())
    context, weights = network._look(torch.tensor([query]), memory, need_weights=True)
    return context[0], weights[0, 0]


@pytest.mark.parametrize(
    ("attention", "query"), [("dot", [math.log(2.0), 0.0]), ("scaled_dot", [math.sqrt(2.0) * math.log(2.0), 0.0])]
)
def test_dot_attention_by_hand(attention, query):
    """Scores ln 2 and 0: weights two thirds and one third."""
    network = network_for(plain(horizon=1, context=2), width=2, patch=1, attention=attention)
    context, weights = looked(network, query, [[1.0, 4.0], [0.0, 10.0]])
    torch.testing.assert_close(weights, torch.tensor([2 / 3, 1 / 3]))
    torch.testing.assert_close(context, torch.tensor([2 / 3, 6.0]))


def test_additive_attention_by_hand():
    """tanh is 1/2 at atanh(1/2): scores ln 3 and 0, weights three quarters and one quarter."""
    network = network_for(plain(horizon=1, context=2), width=2, patch=1, attention="additive")
    half = math.atanh(0.5)
    with torch.no_grad():
        network.score.query_weight.copy_(torch.eye(2))
        network.score.key_weight.copy_(2 * torch.eye(2))
        network.score.vector.copy_(torch.tensor([2 * math.log(3.0), 0.0]))
    context, weights = looked(network, [half, 5.0], [[0.0, 8.0], [-half / 2, 4.0]])
    torch.testing.assert_close(weights, torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(context, torch.tensor([-half / 8, 7.0]))


@every_score
def test_additive_looks_before_the_step_and_the_others_after_it(attention):
    """Another decoder: the first look of Bahdanau's order has not met it yet."""
    network, batch = network_for(plain(), patch=1, attention=attention), random_batch(plain(), 3)
    first = network(batch, need_weights=True).attention[0].weights[..., 0, :]
    with torch.no_grad():
        for parameter in network.decoder.parameters():
            parameter.mul_(-2.0)
    second = network(batch, need_weights=True).attention[0].weights[..., 0, :]
    assert torch.equal(first, second) == (attention == "additive")


def test_without_attention_it_says_so():
    assert MODELS["seq2seq"].has_attention
    network = network_for(plain(), attention="none")
    assert not network.has_attention
    assert network(random_batch(plain()), need_weights=True).attention == ()
    assert network_for(plain()).has_attention


def test_axes_of_the_record():
    network = network_for(plain(horizon=7, context=9), patch=4, horizon_patch=3)
    record = network(random_batch(plain()), need_weights=True).attention[0]
    assert record.weights.shape == (5, 1, 1, 3, 3)
    assert (record.query.kind, record.query.start, record.query.end) == ("horizon", (0, 3, 6), (3, 6, 7))
    assert (record.key.kind, record.key.start, record.key.end) == ("patch", (-3, 1, 5), (1, 5, 9))
    classic = network_for(plain(), patch=1)(random_batch(plain()), need_weights=True).attention[0]
    assert classic.key.kind == "time"
    assert classic.weights.shape == (5, 1, 1, 7, 9)


def last_steps(batch: Batch, steps: int) -> Batch:
    """The same windows with a shorter context."""
    parts = {name: getattr(batch, name)[:, -steps:] for name in ("past", "past_observed", "past_cov", "past_codes")}
    first = batch.past.shape[1] - steps
    return replace(batch, **parts, known=batch.known[:, first:], known_codes=batch.known_codes[:, first:])


@every_cell
@every_attention
@pytest.mark.parametrize(("patch", "short"), [(1, 7), (4, 8), (4, 6)])
def test_a_padded_window_is_forecast_like_the_short_one(cell, attention, patch, short):
    """Whatever stands in the padding, numbers of covariates included; and no gap is at the start of the short one."""
    spec = spec_for(Seq2Seq, context=16, horizon=5)
    options = {"cell": cell, "attention": attention, "patch": patch, "horizon_patch": 2, "layers": 2}
    network = network_for(spec, **options)
    brief = network_for(replace(spec, context=short), **options)
    state = network.state_dict()
    if attention == "location":
        state["score.weight"] = state["score.weight"][:, -count(short, patch) :]
    brief.load_state_dict(state)
    batch = random_batch(spec, 4)
    observed = batch.past_observed.clone()
    observed[:, :-short] = False
    observed[:, -short] = True
    batch = replace(batch, past_observed=observed, past=torch.where(observed, batch.past, 0.0))
    output = network(batch, need_weights=True)
    expected = brief(last_steps(batch, short), need_weights=True)
    torch.testing.assert_close(output.point, expected.point, rtol=1e-5, atol=1e-5)
    for record, other in zip(output.attention, expected.attention, strict=True):
        hidden = len(record.key) - len(other.key)
        assert (record.weights[..., :hidden] == 0).all()
        torch.testing.assert_close(record.weights[..., hidden:], other.weights)


def test_a_gap_is_read_as_time_that_went_by():
    """Neither skipped nor mistaken for the mean of the window, which has the same value 0."""
    spec, network = plain(), network_for(plain(), size=1.0, patch=1, attention="none")
    batch = spec.example(3)
    past = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    batch.past[:, :, 0] = past
    batch.past_observed[1, 7] = False  # a gap in the place of the mean
    batch.past[1, 7] = 0.0
    batch.past[2, 1:8, 0] = past[:7]  # the same values without the gap, one step later
    batch.past_observed[2, 0] = False
    first, gap, closed = network(batch).point
    assert (first - gap).abs().max() > 1e-2
    assert (closed - gap).abs().max() > 1e-2


def test_the_first_step_is_fed_the_newest_values():
    network, seen = network_for(plain(), patch=1, horizon_patch=3), []
    network.decoder.register_forward_pre_hook(lambda _, given: seen.append(given[0][:, 0]))
    batch = plain().example(2)
    batch.past[0, :, 0] = torch.arange(9.0)
    batch.past[1, :, 0] = torch.arange(9.0)
    batch.past_observed[1, 8] = False
    network(batch)
    z = (torch.arange(9.0) - 4) / torch.arange(9.0).std(correction=0)
    torch.testing.assert_close(seen[0][0], z[6:])
    short = (torch.arange(8.0) - 3.5) / torch.arange(8.0).std(correction=0)
    torch.testing.assert_close(seen[0][1], torch.stack((short[6], short[7], short[7])))


def test_the_context_may_be_shorter_than_a_step_of_the_decoder():
    spec, seen = plain(horizon=6, context=2), []
    network = network_for(spec, horizon_patch=4)
    network.decoder.register_forward_pre_hook(lambda _, given: seen.append(given[0][:, 0]))
    batch = spec.example(1)
    batch.past[0, :, 0] = torch.tensor([1.0, 3.0])
    assert network(batch).point.isfinite().all()
    assert seen[0][0].tolist() == [0.0, 0.0, -1.0, 1.0]


@pytest.mark.parametrize("role", ["past", "known", "static"])
def test_covariates_of_every_role_count(role):
    spec = replace(plain(), **{role: FULL[role], f"{role}_categories": FULL[f"{role}_categories"]})
    network, batch = network_for(spec, patch=1), random_batch(spec)
    numbers, codes = {"past": "past_cov"}.get(role, role), f"{role}_codes"
    batch = replace(batch, **{codes: torch.ones_like(getattr(batch, codes))})
    point = network(batch).point
    for changed in ({numbers: getattr(batch, numbers) + 1.0}, {codes: getattr(batch, codes) + 1}):
        assert ((network(replace(batch, **changed)).point - point).abs().amax(dim=(1, 2)) > 1e-4).all()


def test_what_is_known_of_a_step_reaches_that_step_and_later_ones():
    spec = replace(plain(horizon=6), known=1)
    network, batch = network_for(spec, horizon_patch=2), random_batch(spec)
    known = batch.known.clone()
    known[:, spec.context + 2] += 1.0
    moved = (network(replace(batch, known=known)).point - network(batch).point).abs()[..., 0]
    assert (moved[:, :2] == 0).all()
    assert (moved[:, 2:] > 1e-6).all()


def test_targets_do_not_see_one_another():
    spec = plain(targets=2)
    network, batch = network_for(spec, patch=1), random_batch(spec)
    other = batch.past.clone()
    other[..., 1] = 7.0 - 2 * other[..., 1]
    point = network(replace(batch, past=other)).point
    assert torch.equal(point[..., 0], network(batch).point[..., 0])
    swapped = replace(batch, past=batch.past.flip(2), past_observed=batch.past_observed.flip(2))
    torch.testing.assert_close(network(swapped).point, network(batch).point.flip(2))


def test_the_share_of_truth_falls_in_a_line():
    network = network_for(plain(), teacher_forcing=0.8, teacher_forcing_until=0.5)
    shares = []
    for progress in (0.0, 0.125, 0.25, 0.5, 1.0):
        network.progress = progress
        shares.append(network.forcing())
    assert shares == pytest.approx([0.8, 0.6, 0.4, 0.0, 0.0])


@every_attention
def test_with_all_the_truth_every_step_begins_at_it(attention):
    network = network_for(plain(), attention=attention, patch=3, horizon_patch=2, teacher_forcing=1.0).train()
    batch = random_batch(plain(), 3, missing=0.0)
    batch = replace(batch, past=batch.past.clone(), past_observed=torch.ones_like(batch.past_observed))
    batch.past[1] = torch.randn(9, 1)
    point = network(batch).point
    for window in range(3):
        forecast, _ = by_hand(network, batch.past[window, :, 0], batch.future[window, :, 0])
        torch.testing.assert_close(point[window, :, 0], forecast, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reason", ["eval mode", "training done", "no truth", "never", "far away"])
def test_when_the_decoder_reads_its_own_forecast(reason):
    network = network_for(plain(), horizon_patch=2, teacher_forcing=0.0 if reason == "never" else 1.0)
    batch = random_batch(plain(), 4, missing=0.0)
    alone = network(batch.without_future()).point
    assert (network.train()(batch).point - alone).abs().max() > 1e-3 or reason == "never"
    network.train(reason != "eval mode")
    network.progress = float(reason == "training done")
    if reason == "no truth":
        batch = replace(batch, future_observed=torch.zeros_like(batch.future_observed))
    if reason == "far away":
        batch = replace(batch, future=torch.full_like(batch.future, 1e4))
    assert torch.equal(network(batch).point, alone)


def test_a_missing_truth_is_the_forecast():
    network = network_for(plain(), patch=1, horizon_patch=2, teacher_forcing=1.0).train()
    batch, fed = random_batch(plain(), 1, missing=0.0), []
    batch.future_observed[0, 1] = False
    batch.future[0, 1] = float("nan")
    network.decoder.register_forward_pre_hook(lambda _, given: fed.append(given[0][0, 0]))
    point = network(batch).point
    window = network.inputs(batch).window
    first = torch.stack((batch.future[0, 0, 0], point[0, 1, 0]))
    torch.testing.assert_close(fed[1], (first - window.loc[0]) / window.scale[0])


def test_a_constant_that_begins_to_move_harms_no_training():
    spec = plain()
    network, batch = network_for(spec, horizon_patch=1, teacher_forcing=1.0).train(), random_batch(spec)
    for level in (0.0, 1e3):
        still = replace(batch, past=torch.full_like(batch.past, level), past_observed=batch.past_observed | True)
        network.zero_grad()
        heads.loss(network(still), still, "mse").backward()
        assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_truth_is_drawn_for_each_sequence_and_step():
    spec = plain(horizon=6)
    network, fed = network_for(spec, horizon_patch=1, teacher_forcing=0.5).train(), []
    network.decoder.register_forward_pre_hook(lambda _, given: fed.append(given[0][:, 0, 0]))
    batch = random_batch(spec, 400, missing=0.0)
    network.progress = 0.2
    torch.manual_seed(1)
    network(batch)
    window = network.inputs(batch).window
    truth = ((batch.future - window.loc[:, None]) / window.scale[:, None])[..., 0]
    given = torch.stack([fed[step] == truth[:, step - 1] for step in range(1, 6)], dim=1).double()
    assert given.mean().item() == pytest.approx(0.4, abs=0.04)  # 2,000 draws: 0.04 is 3.6 deviations
    assert torch.corrcoef(given.T).triu(1).abs().max() < 0.2
    assert 0.2 < given.mean(dim=1).std() < 0.25  # of 5 draws each: 0.219


def test_the_forecast_is_the_same_under_autocast():
    spec = spec_for(Seq2Seq)
    network, batch = network_for(spec, horizon_patch=3), random_batch(spec)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = network(batch).point
    assert torch.equal(half, network(batch).point)


def test_dropout_falls_in_training_alone():
    network, batch = network_for(plain(), layers=2, dropout=0.5, teacher_forcing=0.0), random_batch(plain())
    assert torch.equal(network(batch).point, network(batch).point)
    assert not torch.equal(network.train()(batch).point, network(batch).point)


@pytest.mark.parametrize("options", [{"patch": 1, "horizon_patch": 1}, {"patch": 5, "horizon_patch": 3}])
@every_attention
def test_quantiles_of_every_step(attention, options):
    spec = replace(spec_for(Seq2Seq), quantiles=(0.1, 0.5, 0.9))
    network = network_for(spec, attention=attention, **options)
    output = network(random_batch(spec))
    spread = output.quantiles[..., 2] - output.quantiles[..., 0]
    assert (spread > 0).all()
    assert spread.std(dim=1).min() > 1e-4  # each step its own
    assert torch.equal(output.quantiles[..., 1], output.point)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "adaptive"}, r"Unknown attention 'adaptive'.*Known: .*additive"),
        ({"cell": "rnn"}, r"Unknown cell 'rnn'"),
        ({"attention": "none", "input_feeding": True}, r"input_feeding .* leave input_feeding out"),
        ({"teacher_forcing": 1.5}, r"teacher_forcing is a probability from 0 to 1; got 1.5"),
        ({"teacher_forcing": "half"}, r"teacher_forcing is a probability"),
        ({"teacher_forcing_until": 0.0}, r"teacher_forcing_until is a share .* got 0.0"),
        ({"horizon_patch": 0}, r"horizon_patch is a whole number of at least 1; got 0"),
        ({"dropout": 1.0}, r"dropout is a share"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ConfigError, match=message):
        build("seq2seq", plain(), **options)


def loss_after(network: Network, steps: int = 120) -> float:
    """Trained to answer with the value at a marked step of noise; the loss of 64 new windows."""

    def windows(seed: int) -> Batch:
        make = torch.Generator().manual_seed(seed)
        values, place = torch.randn(64, 12, generator=make), torch.randint(0, 12, (64,), generator=make)
        batch, rows = network.spec.example(64), torch.arange(64)
        batch.past[..., 0] = values
        batch.past_cov[rows, place, 0] = 3.0
        batch.future[:, 0, 0] = values[rows, place]
        return batch

    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    network.train()
    for step in range(steps):
        optimizer.zero_grad()
        batch = windows(step + 1)
        heads.loss(network(batch), batch, "mse").backward()
        optimizer.step()
    batch = windows(0)
    with torch.no_grad():
        return float(heads.loss(network.eval()(batch), batch, "mse"))


def test_it_learns_to_fetch_a_marked_value():
    torch.manual_seed(0)
    spec = InputSpec(horizon=1, context=12, past=1)
    loss = loss_after(build("seq2seq", spec, width=16, patch=1, dropout=0.0, attention="general"))
    assert loss < 0.35  # 1 for the mean
