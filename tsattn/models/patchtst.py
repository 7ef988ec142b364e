"""PatchTST: a transformer encoder over patches of each series, and one linear layer from all patches to the forecast.

Nie, Nguyen, Sinthong and Kalagnanam, "A time series is worth 64 words", ICLR 2023.

Legend: ``B`` windows, ``C`` targets, ``L`` context, ``H`` horizon; ``I`` patches of ``P`` steps, ``S`` steps apart;
``W`` width of a token, ``N`` heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tsattn.attention.masks import seen_patches
from tsattn.attention.positions import LearntPositions
from tsattn.data.batch import Batch
from tsattn.heads import QuantileSpread, spread_around
from tsattn.layers.norm import WindowScale, normalise
from tsattn.layers.transformer import EncoderBlock
from tsattn.models.base import (
    AttentionRecord,
    Axis,
    InputSpec,
    Network,
    Output,
    TokenContributions,
    check_shares,
    check_sizes,
)


class PatchTST(Network):
    """Patches attend to one another within their series; the targets share all weights and do not see one another.

    The attention has no horizon: its rows are patches. What the forecast reads from each patch is in
    ``Output.token_contributions``, signed and exact, but a patch has read other patches before. With
    ``residual_scores`` (as published) the weights of a layer come from the scores of all layers up to it.

    The end of the window is continued by ``S`` copies of its last value, as published; a patch's support ends at the
    origin. Departures from the published code: dropout of the head falls on the tokens, and gaps are 0 after
    normalisation, with patches that hold no value hidden from all others.
    """

    has_attention = True

    def __init__(
        self,
        spec: InputSpec,
        *,
        patch: int = 16,
        stride: int = 8,
        width: int = 16,
        heads: int = 4,
        hidden: int = 128,
        layers: int = 3,
        dropout: float = 0.3,
        head_dropout: float = 0.0,
        norm: str = "batch",
        residual_scores: bool = True,
    ) -> None:
        """``patch`` and ``stride`` in steps, clipped to the window; ``hidden``: width of the feed-forward networks."""
        super().__init__(spec)
        check_sizes(patch=patch, stride=stride, width=width, heads=heads, hidden=hidden, layers=layers)
        check_shares(dropout=dropout, head_dropout=head_dropout)
        self.size = min(patch, spec.context)
        self.stride = min(stride, self.size)
        self.count = (spec.context - self.size) // self.stride + 2
        self.embed = nn.Linear(self.size, width)
        self.position = LearntPositions(self.count, width)
        self.dropout, self.head_dropout = nn.Dropout(dropout), nn.Dropout(head_dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(width, heads, hidden, dropout=dropout, norm=norm) for _ in range(layers)
        )
        self.residual_scores = residual_scores
        self.head = nn.Linear(self.count * width, spec.horizon)
        self.spread = QuantileSpread(width, spec.horizon, spec.quantiles) if spec.quantiles else None

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; the same numbers with and without ``need_weights``."""
        z, window = normalise(batch.past, batch.past_observed)
        patches = self._patches(z.to(self.head.weight.dtype).transpose(1, 2))  # [B, C, I, P]
        seen = seen_patches(self._patches(batch.past_observed.transpose(1, 2)))  # [B, C, I]
        tokens = self.dropout(self.position(self.embed(patches)))
        mask = None if seen.device.type == "cpu" and bool(seen.all()) else seen[:, :, None, None]
        records, scores = [], None
        for number, block in enumerate(self.blocks):
            step = block(tokens, mask=mask, weights=need_weights, residual_scores=self.residual_scores, scores=scores)
            tokens, scores = step.tokens, step.scores
            if step.weights is not None:
                records.append(AttentionRecord(step.weights, self._axis(), self._axis(), f"encoder {number + 1}"))
        with torch.autocast(tokens.device.type, enabled=False):  # the linear layer stays exact in half precision
            return self._forecast(tokens.to(self.head.weight.dtype), window, tuple(records), need_weights)

    def _forecast(
        self, tokens: Tensor, window: WindowScale, records: tuple[AttentionRecord, ...], need_weights: bool
    ) -> Output:
        """From the tokens ``[B, C, I, W]`` to data units."""
        read = self.head_dropout(tokens)
        point = window.undo(self.head(read.flatten(2)).transpose(1, 2))  # [B, H, C]
        quantiles = None
        if self.spread is not None:
            quantiles = spread_around(point, window.scale, self.spread(tokens.mean(dim=2)))
        if not need_weights:
            return Output(point, quantiles)
        scale = window.scale[:, :, None]
        weight = self.head.weight.unflatten(1, (self.count, -1))  # [H, I, W]
        parts = torch.einsum("bciw,hiw->bchi", read, weight) * scale[..., None]
        rest = self.head.bias * scale + window.loc[:, :, None]
        return Output(point, quantiles, records, token_contributions=TokenContributions(parts, rest, self._axis()))

    def _patches(self, values: Tensor) -> Tensor:
        """``[B, C, L] -> [B, C, I, P]``, the end continued by its last entry."""
        ending = values[..., -1:].expand(*values.shape[:-1], self.stride)
        return torch.cat((values, ending), dim=-1).unfold(-1, self.size, self.stride)

    def _axis(self) -> Axis:
        start = tuple(range(0, self.count * self.stride, self.stride))
        return Axis("patch", start, tuple(min(step + self.size, self.spec.context) for step in start))
