"""Torch's own transformer layers with the weights of our blocks: the reference of the parity tests."""

from __future__ import annotations

import torch
from torch import nn

from tsattn.attention import MultiHeadAttention
from tsattn.layers.transformer import DecoderBlock, EncoderBlock, FeedForward


def torch_attention(attention: MultiHeadAttention) -> nn.MultiheadAttention:
    """``nn.MultiheadAttention`` that computes what ``attention`` does."""
    width = attention.query.in_features
    other = nn.MultiheadAttention(width, attention.heads, batch_first=True)
    projections = (attention.query, attention.key, attention.value)
    with torch.no_grad():
        other.in_proj_weight.copy_(torch.cat([projection.weight for projection in projections]))
        other.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
    other.out_proj.load_state_dict(attention.out.state_dict())
    return other


def torch_encoder(block: EncoderBlock) -> nn.TransformerEncoderLayer:
    """``nn.TransformerEncoderLayer`` that computes what ``block`` does without dropout."""
    width, heads, hidden = _sizes(block.attention, block.feedforward)
    layer = nn.TransformerEncoderLayer(width, heads, hidden, 0.0, "gelu", batch_first=True, norm_first=block.pre_norm)
    layer.self_attn = torch_attention(block.attention)
    _copy(block, layer, norms=2)
    return layer


def torch_decoder(block: DecoderBlock) -> nn.TransformerDecoderLayer:
    """``nn.TransformerDecoderLayer`` that computes what ``block`` does without dropout."""
    width, heads, hidden = _sizes(block.own, block.feedforward)
    layer = nn.TransformerDecoderLayer(width, heads, hidden, 0.0, "gelu", batch_first=True, norm_first=block.pre_norm)
    layer.self_attn, layer.multihead_attn = torch_attention(block.own), torch_attention(block.cross)
    _copy(block, layer, norms=3)
    return layer


def _sizes(attention: MultiHeadAttention, feedforward: FeedForward) -> tuple[int, int, int]:
    return attention.query.in_features, attention.heads, feedforward[0].out_features


def _copy(block: nn.Module, layer: nn.Module, norms: int) -> None:
    layer.linear1.load_state_dict(block.feedforward[0].state_dict())
    layer.linear2.load_state_dict(block.feedforward[3].state_dict())
    for number in range(1, norms + 1):
        getattr(layer, f"norm{number}").load_state_dict(getattr(block, f"norm{number}").state_dict())
