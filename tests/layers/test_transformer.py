"""Blocks of a transformer: parity with torch's own layers, masks, and what they return."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tsattn.attention import MultiHeadAttention, causal_mask
from tsattn.errors import ConfigError
from tsattn.layers.transformer import DecoderBlock, EncoderBlock, TokenBatchNorm

from .torch_blocks import torch_attention, torch_decoder, torch_encoder

PARITY = {"atol": 1e-5, "rtol": 0}
pre_and_post = pytest.mark.parametrize("pre_norm", [False, True], ids=["post", "pre"])


def noisy(module: nn.Module) -> nn.Module:
    """Noise on every parameter, so that biases and gains that start at 0 and 1 count."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return module


def tokens_and_gaps(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Queries ``[3, 5, 8]``, memory ``[3, 7, 8]`` and which of it was observed ``[3, 7]``."""
    torch.manual_seed(seed)
    queries, memory = torch.randn(3, 5, 8), torch.randn(3, 7, 8)
    observed = torch.rand(3, 7) > 0.4
    observed[:, 3] = True
    assert not observed.all()
    return queries, memory, observed


def test_attention_agrees_with_torch():
    queries, memory, observed = tokens_and_gaps()
    attention = noisy(MultiHeadAttention(8, 2))
    found = attention(queries, memory, mask=observed[:, None, None], weights=True)
    other = torch_attention(attention)
    output, weights = other(queries, memory, memory, key_padding_mask=~observed, average_attn_weights=False)
    torch.testing.assert_close(found.output, output, **PARITY)
    torch.testing.assert_close(found.weights, weights, **PARITY)


@pre_and_post
def test_the_encoder_block_agrees_with_torch(pre_norm):
    _, tokens, observed = tokens_and_gaps()
    block = noisy(EncoderBlock(8, 2, 12, pre_norm=pre_norm))
    found = block(tokens, mask=observed[:, None, None], weights=True)
    torch.testing.assert_close(found.tokens, torch_encoder(block)(tokens, src_key_padding_mask=~observed), **PARITY)
    asked = block.norm1(tokens) if pre_norm else tokens
    other = torch_attention(block.attention)
    torch.testing.assert_close(
        found.weights, other(asked, asked, asked, key_padding_mask=~observed, average_attn_weights=False)[1], **PARITY
    )


@pre_and_post
def test_the_decoder_block_agrees_with_torch(pre_norm):
    queries, memory, observed = tokens_and_gaps()
    block = noisy(DecoderBlock(8, 2, 12, pre_norm=pre_norm))
    found = block(queries, memory, own_mask=causal_mask(5), mask=observed[:, None, None], weights=True)
    other = torch_decoder(block)
    torch.testing.assert_close(
        found.tokens, other(queries, memory, tgt_mask=~causal_mask(5), memory_key_padding_mask=~observed), **PARITY
    )
    assert found.own.shape == (3, 2, 5, 5)
    assert found.cross.shape == (3, 2, 5, 7)
    assert (found.own.triu(1) == 0).all()
    assert (found.cross.transpose(1, 3)[~observed] == 0).all()


@pre_and_post
def test_weights_are_what_the_decoder_read_with(pre_norm):
    """Weights times values, through the output layers, gives the tokens again."""
    queries, memory, observed = tokens_and_gaps()
    block = noisy(DecoderBlock(8, 2, 12, pre_norm=pre_norm))
    found = block(queries, memory, own_mask=causal_mask(5), mask=observed[:, None, None], weights=True)

    def mixed(attention: MultiHeadAttention, weights: Tensor, read: Tensor) -> Tensor:
        values = attention.value(read).unflatten(-1, (2, 4)).transpose(1, 2)
        return attention.out((weights @ values).transpose(1, 2).flatten(2))

    tokens = queries
    if pre_norm:
        tokens = tokens + mixed(block.own, found.own, block.norm1(tokens))
        tokens = tokens + mixed(block.cross, found.cross, memory)
        tokens = tokens + block.feedforward(block.norm3(tokens))
    else:
        tokens = block.norm1(tokens + mixed(block.own, found.own, tokens))
        tokens = block.norm2(tokens + mixed(block.cross, found.cross, memory))
        tokens = block.norm3(tokens + block.feedforward(tokens))
    torch.testing.assert_close(found.tokens, tokens, **PARITY)


def test_nothing_is_returned_unless_asked_for():
    queries, memory, _ = tokens_and_gaps()
    encoded, decoded = EncoderBlock(8, 2, 12)(memory), DecoderBlock(8, 2, 12)(queries, memory)
    assert (encoded.weights, encoded.scores, decoded.own, decoded.cross) == (None,) * 4


def test_a_window_without_any_key_stays_finite():
    queries, memory, observed = tokens_and_gaps()
    observed[1] = False
    mask = observed[:, None, None]
    memory.requires_grad_()
    block, decoder = EncoderBlock(8, 2, 12), DecoderBlock(8, 2, 12)
    encoded = block(memory, mask=mask, weights=True)
    decoded = decoder(queries, encoded.tokens, mask=mask, weights=True)
    assert (encoded.weights[1] == 0).all()
    assert (decoded.cross[1] == 0).all()
    decoded.tokens.square().sum().backward()
    assert memory.grad.isfinite().all()


def test_rotary_queries_stand_after_the_memory():
    """Scores depend on distances alone: the memory cut from the left, by steps nobody sees, changes nothing."""
    queries, memory, observed = tokens_and_gaps()
    observed[:, :2] = False
    block = noisy(DecoderBlock(8, 2, 12, rotary=True))
    whole = block(queries, memory, mask=observed[:, None, None])
    cut = block(queries, memory[:, 2:], mask=observed[:, None, None, 2:])
    torch.testing.assert_close(cut.tokens, whole.tokens, **PARITY)
    moved = block(queries, memory.roll(1, dims=1), mask=observed.roll(1, dims=1)[:, None, None])
    assert (moved.tokens - whole.tokens).abs().max() > 1e-3  # the same tokens, one step nearer


def test_carried_scores_add_up():
    _, tokens, observed = tokens_and_gaps()
    mask = observed[:, None, None]
    first, second = noisy(EncoderBlock(8, 2, 12)), noisy(EncoderBlock(8, 2, 12))
    one = first(tokens, mask=mask, weights=True, residual_scores=True)
    plain = first(tokens, mask=mask, weights=True)
    torch.testing.assert_close(one.tokens, plain.tokens, **PARITY)  # nothing carried yet: the fused path says the same
    torch.testing.assert_close(one.weights, plain.weights, **PARITY)
    two = second(one.tokens, mask=mask, weights=True, residual_scores=True, scores=one.scores)
    attention = second.attention
    query = attention.query(one.tokens).unflatten(-1, (2, 4)).transpose(1, 2)
    key = attention.key(one.tokens).unflatten(-1, (2, 4)).transpose(1, 2)
    summed = one.scores + query @ key.transpose(-2, -1) / 2.0
    torch.testing.assert_close(two.scores, summed, **PARITY)
    torch.testing.assert_close(two.weights, summed.masked_fill(~mask, -torch.inf).softmax(-1), **PARITY)


def test_batch_normalisation_of_tokens():
    norm = TokenBatchNorm(3).train()
    tokens = 5 + 2 * torch.randn(4, 2, 6, 3)
    flat = norm(tokens).reshape(-1, 3)
    torch.testing.assert_close(flat.mean(dim=0), torch.zeros(3), **PARITY)
    torch.testing.assert_close(flat.std(dim=0, correction=0), torch.ones(3), **PARITY)
    assert norm(tokens[:1, :1, :1]).isfinite().all()  # one token has no spread


def test_unknown_norm():
    with pytest.raises(ConfigError, match=r"Unknown norm 'layr'\. Did you mean 'layer'\?"):
        EncoderBlock(8, 2, 12, norm="layr")
