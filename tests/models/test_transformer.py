"""transformer: parity with a network of torch's own layers, causality, and what its records say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.layers.torch_blocks import torch_decoder, torch_encoder
from tsattn.attention import SCORES, causal_mask, sinusoidal
from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.models import InputSpec, build
from tsattn.models.transformer import POSITIONS, Transformer

from .model_windows import random_batch, shaken, spec_for

pre_and_post = pytest.mark.parametrize("pre_norm", [False, True], ids=["post", "pre"])
every_position = pytest.mark.parametrize("positions", POSITIONS)


def network_for(sizes: dict | None = None, **options: object) -> tuple[InputSpec, Transformer]:
    torch.manual_seed(0)
    spec = spec_for(Transformer, **{"context": 14, "horizon": 6, **(sizes or {})})
    return spec, shaken(build("transformer", spec, **options), 0.1)


def from_torch(network: Transformer, batch: Batch, target: int) -> torch.Tensor:
    """The point forecast of one target, ``[B, H]``, by torch's layers. Learnt or sinusoidal positions."""
    past, future, observed, window = network.inputs(batch)
    tokens, hidden = network.embed(past[:, target]), ~observed[:, target]
    queries = network.query + network.embed_ahead(future[:, target])
    if network.positions == "learnt":
        tokens = tokens + network.past_position.weight
    else:
        places = sinusoidal(tokens.shape[1] + queries.shape[1], tokens.shape[2])
        tokens, queries = tokens + places[: tokens.shape[1]], queries + places[tokens.shape[1] :]
    for block in network.encoder:
        tokens = torch_encoder(block)(tokens, src_key_padding_mask=hidden)
    tokens = network.encoder_norm(tokens)
    for block in network.decoder:
        queries = torch_decoder(block)(
            queries, tokens, tgt_mask=~causal_mask(queries.shape[1]), memory_key_padding_mask=hidden
        )
    ahead = network.head(network.decoder_norm(queries)).squeeze(-1)
    return window.loc[:, target, None] + window.scale[:, target, None] * ahead


@pre_and_post
@pytest.mark.parametrize("positions", ["learnt", "sinusoidal"])
def test_agrees_with_torch(positions, pre_norm):
    _, network = network_for(positions=positions, pre_norm=pre_norm, encoder_layers=2, decoder_layers=2)
    batch = random_batch(network.spec)
    point = network(batch).point
    for target in range(2):
        torch.testing.assert_close(point[..., target], from_torch(network, batch, target), atol=1e-5, rtol=0)


@every_position
@pre_and_post
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_step_sees_nothing_known_of_later_steps(positions, pre_norm, need_weights):
    spec, network = network_for(positions=positions, pre_norm=pre_norm, decoder_layers=2)
    batch = random_batch(spec)
    point = network(batch, need_weights).point
    for step in (1, 3, 5):
        known, codes = batch.known.clone(), batch.known_codes.clone()
        known[:, spec.context + step] += 5.0
        codes[:, spec.context + step] = 1
        changed = network(replace(batch, known=known, known_codes=codes), need_weights).point
        assert torch.equal(changed[:, :step], point[:, :step])
        assert (changed[:, step] != point[:, step]).all()
        assert (changed[:, step:] != point[:, step:]).all()  # later steps read it


@pre_and_post
def test_records_name_every_attention(pre_norm):
    spec, network = network_for(encoder_layers=2, decoder_layers=2, pre_norm=pre_norm)
    records = network(random_batch(spec), need_weights=True).attention
    kinds = [(record.layer, record.query.kind, record.key.kind) for record in records]
    assert kinds == [
        ("encoder 1", "time", "time"),
        ("encoder 2", "time", "time"),
        ("decoder 1", "horizon", "horizon"),
        ("cross 1", "horizon", "time"),
        ("decoder 2", "horizon", "horizon"),
        ("cross 2", "horizon", "time"),
    ]
    for record in records:
        assert (record.key.start[0], record.key.end[-1]) == (0, 14 if record.key.kind == "time" else 6)
        if record.key.kind == "horizon":
            assert (record.weights.triu(1) == 0).all()
            assert (record.weights.tril() > 0).sum() == record.weights[..., 0].numel() * 3.5  # 21 of 36, all of them


def test_unobserved_steps_are_hidden_from_every_attention():
    """What is known or was seen of other columns at a gap is not read either: its token is no one's key."""
    spec, network = network_for(encoder_layers=2)
    batch = random_batch(spec, missing=0.0)
    observed = batch.past_observed.clone()
    observed[:, [0, 5, 9]] = False
    batch = replace(batch, past_observed=observed, past=torch.where(observed, batch.past, 0.0))
    output = network(batch, need_weights=True)
    for record in output.attention:
        if record.key.kind == "time":
            assert (record.weights[..., [0, 5, 9]] == 0).all()
    known, past_cov = batch.known.clone(), batch.past_cov.clone()
    known[:, [0, 5, 9]], past_cov[:, [0, 5, 9]] = 7.0, -7.0
    assert torch.equal(network(replace(batch, known=known, past_cov=past_cov)).point, output.point)
    known[:, 7] = 7.0  # observed in every window
    assert (network(replace(batch, known=known, past_cov=past_cov)).point != output.point).all()


@every_position
def test_the_order_of_the_past_matters(positions):
    spec, network = network_for({"targets": 1}, positions=positions)
    batch = random_batch(spec, missing=0.0)
    turned = replace(
        batch,
        past=batch.past.flip(1),
        past_cov=batch.past_cov.flip(1),
        past_codes=batch.past_codes.flip(1),
        known=torch.cat((batch.known[:, :14].flip(1), batch.known[:, 14:]), dim=1),
        known_codes=torch.cat((batch.known_codes[:, :14].flip(1), batch.known_codes[:, 14:]), dim=1),
    )
    assert (network(turned).point - network(batch).point).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("score", "normaliser"), [*((score, "softmax") for score in SCORES), ("scaled_dot", "sparsemax")]
)
def test_scores_and_normalisers(score, normaliser):
    spec, network = network_for(score=score, normaliser=normaliser)
    batch = random_batch(spec)
    output = network(batch, need_weights=True)
    for record in output.attention:
        torch.testing.assert_close(record.weights.sum(-1), torch.ones_like(record.weights[..., 0]))
    if (score, normaliser) == ("scaled_dot", "softmax"):
        return
    plain = network_for()[1]
    plain.load_state_dict(network.state_dict(), strict=False)  # the same but for the score's own parameters
    assert (plain(batch).point - output.point).abs().max() > 1e-4


def test_options_that_cannot_be():
    spec = InputSpec(horizon=2, context=4)
    with pytest.raises(ConfigError, match=r"Unknown positions 'rotaryy'\. Did you mean 'rotary'\?"):
        build("transformer", spec, positions="rotaryy")
    with pytest.raises(ConfigError, match="5 heads do not divide a width of 32"):
        build("transformer", spec, heads=5)
    with pytest.raises(ConfigError, match="width of a head is even; got 3"):
        build("transformer", spec, width=9, heads=3, positions="rotary")
    with pytest.raises(ConfigError, match="encoder_layers is a whole number of at least 1; got 0"):
        build("transformer", spec, encoder_layers=0)
    with pytest.raises(ConfigError, match="dropout is a share"):
        build("transformer", spec, dropout=1.0)
