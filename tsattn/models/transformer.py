"""transformer: an encoder over single past steps and a causal decoder over the forecast steps.

Vaswani et al., "Attention is all you need", 2017, with a learnt query for each forecast step in place of the shifted
output: the whole horizon is forecast at once.

Legend: ``B`` windows, ``C`` targets, ``L`` context, ``H`` horizon, ``W`` width of a token, ``N`` heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tsattn.attention.masks import causal_mask
from tsattn.attention.positions import LearntPositions, sinusoidal
from tsattn.data.batch import Batch
from tsattn.errors import unknown_name
from tsattn.heads import QuantileSpread, spread_around
from tsattn.layers.steps import StepInputsLayer
from tsattn.layers.transformer import DecoderBlock, EncoderBlock
from tsattn.models.base import AttentionRecord, Axis, InputSpec, Network, Output, check_shares, check_sizes

POSITIONS = ("learnt", "sinusoidal", "rotary")


class Transformer(Network):
    """Each past step is a token; a forecast step reads the past, the steps before it, and what is known of itself.

    The targets share all weights and do not see one another. Unobserved steps are hidden from every attention. Its
    work grows with the square of the context.
    """

    uses = frozenset({"past", "known", "static"})
    has_attention = True

    def __init__(
        self,
        spec: InputSpec,
        *,
        width: int = 32,
        heads: int = 4,
        hidden: int = 64,
        encoder_layers: int = 2,
        decoder_layers: int = 1,
        dropout: float = 0.1,
        positions: str = "learnt",
        pre_norm: bool = True,
        score: str = "scaled_dot",
        normaliser: str = "softmax",
        qk_norm: bool = False,
    ) -> None:
        """``hidden``: width of the feed-forward networks; ``positions``: "learnt", "sinusoidal" or "rotary"."""
        super().__init__(spec)
        check_sizes(
            width=width, heads=heads, hidden=hidden, encoder_layers=encoder_layers, decoder_layers=decoder_layers
        )
        check_shares(dropout=dropout)
        if positions not in POSITIONS:
            raise unknown_name("positions", positions, POSITIONS)
        self.inputs = StepInputsLayer(spec)
        self.embed = nn.Linear(self.inputs.past_width, width)
        self.embed_ahead = nn.Linear(self.inputs.future_width, width, bias=False) if self.inputs.future_width else None
        self.query = nn.Parameter(0.02 * torch.randn(spec.horizon, width))
        self.positions = positions
        self.past_position = LearntPositions(spec.context, width) if positions == "learnt" else None
        shared = {
            "dropout": dropout,
            "pre_norm": pre_norm,
            "score": score,
            "normaliser": normaliser,
            "rotary": positions == "rotary",
            "qk_norm": qk_norm,
        }
        self.encoder = nn.ModuleList(
            EncoderBlock(width, heads, hidden, keys=spec.context, **shared)  # type: ignore[arg-type]
            for _ in range(encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderBlock(width, heads, hidden, queries=spec.horizon, keys=spec.context, **shared)  # type: ignore[arg-type]
            for _ in range(decoder_layers)
        )
        self.encoder_norm = nn.LayerNorm(width) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(width) if pre_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, 1)
        self.spread = QuantileSpread(width, 1, spec.quantiles) if spec.quantiles else None

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; the same numbers with and without ``need_weights``."""
        inputs = self.inputs(batch, self.head.weight.dtype)
        seen = inputs.observed  # [B, C, L]
        mask = None if seen.device.type == "cpu" and bool(seen.all()) else seen[:, :, None, None]
        memory, records = self._encode(inputs.past, mask, need_weights)
        queries, more = self._decode(inputs.future, memory, mask, need_weights)
        with torch.autocast(queries.device.type, enabled=False):
            queries = queries.to(self.head.weight.dtype)
            point = inputs.window.undo(self.head(queries).squeeze(-1).transpose(1, 2))
            quantiles = None
            if self.spread is not None:
                quantiles = spread_around(point, inputs.window.scale, self.spread(queries).squeeze(-2))
            return Output(point, quantiles, (*records, *more))

    def _encode(self, past: Tensor, mask: Tensor | None, need_weights: bool) -> tuple[Tensor, list[AttentionRecord]]:
        """``[B, C, L, Fp] -> [B, C, L, W]``."""
        tokens = self.embed(past)
        if self.past_position is not None:
            tokens = self.past_position(tokens)
        elif self.positions == "sinusoidal":
            tokens = tokens + sinusoidal(*tokens.shape[-2:], device=tokens.device).to(tokens.dtype)
        tokens, records = self.dropout(tokens), []
        for number, block in enumerate(self.encoder):
            step = block(tokens, mask=mask, weights=need_weights)
            tokens = step.tokens
            if step.weights is not None:
                records.append(AttentionRecord(step.weights, self._past(), self._past(), f"encoder {number + 1}"))
        return self.encoder_norm(tokens), records

    def _decode(
        self, future: Tensor, memory: Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, list[AttentionRecord]]:
        """``[B, C, H, Ff]`` and the encoder's tokens -> ``[B, C, H, W]``."""
        queries = self.query.expand(*memory.shape[:2], -1, -1)
        if self.positions == "sinusoidal":
            context = memory.shape[-2]
            places = sinusoidal(context + queries.shape[-2], queries.shape[-1], device=queries.device)[context:]
            queries = queries + places.to(queries.dtype)
        if self.embed_ahead is not None:
            queries = queries + self.embed_ahead(future)
        causal, records = causal_mask(queries.shape[-2], device=queries.device), []
        for number, block in enumerate(self.decoder):
            step = block(queries, memory, own_mask=causal, mask=mask, weights=need_weights)
            queries = step.tokens
            if step.own is not None and step.cross is not None:
                ahead = self._ahead()
                records.append(AttentionRecord(step.own, ahead, ahead, f"decoder {number + 1}"))
                records.append(AttentionRecord(step.cross, ahead, self._past(), f"cross {number + 1}"))
        return self.decoder_norm(queries), records

    def _past(self) -> Axis:
        return Axis("time", tuple(range(self.spec.context)), tuple(range(1, self.spec.context + 1)))

    def _ahead(self) -> Axis:
        return Axis("horizon", tuple(range(self.spec.horizon)), tuple(range(1, self.spec.horizon + 1)))
