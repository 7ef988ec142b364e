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
from tsattn.errors import ConfigError
from tsattn.heads import QuantileSpread, spread_around
from tsattn.layers.affine import InstanceAffine
from tsattn.layers.flatten import FlattenHead
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
    ``residual_scores`` (as published; He et al., "RealFormer", 2020) a layer adds the scores of all layers before it
    to its own, so its weights are theirs together, and the name of its record says so.

    The end of the window is continued by ``S`` copies of its last value, as published: there are
    ``(L - P) // S + 2`` patches, and the steps of the last one that stand beyond the origin are such copies. The
    support of a patch ends at the origin; one that holds nothing but copies has the last step as its support.

    With every step observed this is the published computation but for three details: the deviation of a window has
    no constant added, dropout falls once on what attention read (not twice) and, in the head, on the tokens (not on
    the forecast). Gaps are 0 after normalisation, and patches without an observed step are hidden from all others.
    """

    has_attention = True

    def __init__(
        self,
        spec: InputSpec,
        *,
        patch: int = 24,
        stride: int | None = None,
        width: int = 32,
        heads: int = 4,
        hidden: int = 64,
        layers: int = 3,
        dropout: float = 0.3,
        attention_dropout: float = 0.0,
        head_dropout: float = 0.0,
        norm: str = "batch",
        residual_scores: bool = True,
        affine: bool = False,
        individual: bool = False,
    ) -> None:
        """``patch`` and ``stride`` (``patch`` unless given) in steps, clipped to the window; ``hidden``: width of
        the feed-forward networks; ``norm``: "batch" or "layer"; ``affine``: a learnt gain and shift for each target
        around the network; ``individual``: a head for each target. The defaults are sized for a processor; those of
        the authors are in ``configs/benchmark``. Raises ConfigError for a stride that would skip steps.
        """
        super().__init__(spec)
        stride = patch if stride is None else stride
        check_sizes(patch=patch, stride=stride, width=width, heads=heads, hidden=hidden, layers=layers)
        check_shares(dropout=dropout, attention_dropout=attention_dropout, head_dropout=head_dropout)
        if stride > patch:
            raise ConfigError(f"A stride of {stride} skips steps between patches of {patch}. Use one up to {patch}.")
        self.size = min(patch, spec.context)
        self.stride = min(stride, self.size)
        self.count = (spec.context - self.size) // self.stride + 2
        self.affine = InstanceAffine(spec.targets) if affine else None
        self.embed = nn.Linear(self.size, width)
        self.position = LearntPositions(self.count, width)
        self.dropout, self.head_dropout = nn.Dropout(dropout), nn.Dropout(head_dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(width, heads, hidden, dropout=dropout, attention_dropout=attention_dropout, norm=norm)
            for _ in range(layers)
        )
        self.residual_scores = residual_scores
        self.head = FlattenHead(self.count, width, spec.horizon, targets=spec.targets if individual else 1)
        self.spread = QuantileSpread(width, spec.horizon, spec.quantiles) if spec.quantiles else None

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; the same numbers with and without ``need_weights``."""
        dtype = self.head.bias.dtype
        z, window = normalise(batch.past, batch.past_observed)
        moved, around = (z.to(dtype), window) if self.affine is None else self.affine(z.to(dtype), window)
        tokens, records = self._encode(moved, batch.past_observed, need_weights)
        with torch.autocast(tokens.device.type, enabled=False):  # the linear layer stays exact in half precision
            tokens = tokens.to(dtype)
            read = self.head_dropout(tokens)
            point = around.undo(self.head(read).transpose(1, 2))  # [B, H, C]
            quantiles = None
            if self.spread is not None:
                quantiles = spread_around(point, window.scale, self.spread(tokens.mean(dim=2)))
            if not need_weights:
                return Output(point, quantiles)
            seen = seen_patches(self._patches(batch.past_observed))
            return Output(point, quantiles, tuple(records), token_contributions=self._read(read, seen, around))

    def _encode(self, z: Tensor, observed: Tensor, need_weights: bool) -> tuple[Tensor, list[AttentionRecord]]:
        """``[B, L, C]`` twice ``-> [B, C, I, W]``."""
        seen = seen_patches(self._patches(observed))  # [B, C, I]
        mask = None if seen.device.type == "cpu" and bool(seen.all()) else seen[:, :, None, None]
        tokens = self.dropout(self.position(self.embed(self._patches(z))))
        records, scores = [], None
        for number, block in enumerate(self.blocks, start=1):
            step = block(tokens, mask=mask, weights=need_weights, residual_scores=self.residual_scores, scores=scores)
            tokens, scores = step.tokens, step.scores
            if step.weights is not None:
                records.append(AttentionRecord(step.weights, self._axis(), self._axis(), self._layer(number)))
        return tokens, records

    def _patches(self, values: Tensor) -> Tensor:
        """``[B, L, C] -> [B, C, I, P]``, the end continued by copies of its last entry."""
        values = values.transpose(1, 2)
        ending = values[..., -1:].expand(*values.shape[:-1], self.stride)
        return torch.cat((values, ending), dim=-1).unfold(-1, self.size, self.stride)

    def _read(self, tokens: Tensor, seen: Tensor, window: WindowScale) -> TokenContributions:
        """The split of the point by the tokens ``[B, C, I, W]`` that the head read.

        A patch without an observed step (``seen [B, C, I]``) is a token all the same: what it adds is in the rest.
        """
        scale = window.scale[:, :, None]  # [B, C, 1]
        parts = self.head.parts(tokens) * scale[..., None]  # [B, C, H, I]
        unread = parts.masked_fill(seen[:, :, None], 0.0).sum(dim=-1)
        rest = self.head.bias * scale + window.loc[:, :, None] + unread
        return TokenContributions(parts.masked_fill(~seen[:, :, None], 0.0), rest, self._axis())

    def _axis(self) -> Axis:
        last = self.spec.context - 1
        start = tuple(min(patch * self.stride, last) for patch in range(self.count))
        return Axis("patch", start, tuple(min(step + self.size, last + 1) for step in start))

    def _layer(self, number: int) -> str:
        together = self.residual_scores and number > 1
        return f"encoder {number}, scores of 1 to {number}" if together else f"encoder {number}"
