"""iTransformer: the whole window of each variable is one token, and variables attend to one another.

Liu, Hu, Zhang, Wu, Wang, Ma and Long, "iTransformer: inverted transformers are effective for time series
forecasting", ICLR 2024.

Legend: ``B`` windows, ``C`` targets, ``L`` context, ``H`` horizon, ``K`` variables (targets, then covariates), ``W``
width of a token, ``N`` heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tsattn.data.batch import Batch
from tsattn.heads import QuantileSpread, spread_around
from tsattn.layers.covariates import ColumnTokens
from tsattn.layers.norm import normalise
from tsattn.layers.transformer import EncoderBlock
from tsattn.models.base import AttentionRecord, Axis, InputSpec, Network, Output, check_shares, check_sizes


class ITransformer(Network):
    """Variables attend to one another: targets see one another, and there is no map over time.

    Past-only covariates are tokens over the ``L`` steps of the window, known ones over ``L + H`` steps, static ones
    tokens of one value, each column with an embedding of its own (the paper has time marks only). Targets share their
    embedding, so another order of the columns gives the same forecast and the same map in that order.

    The support of every token is given up to the origin, although a known one holds its steps of the horizon as well.
    A variable keeps its own history through the residual connections: a weight says what others correct, and a
    forecast may rest on its own history whatever the row says.

    With every step observed and targets alone this is the published computation, but for the 1e-5 added there to the
    variance of a window. Gaps are 0 after normalisation and marked by a second embedding that starts at zero; a
    target with nothing observed is hidden from all others.
    """

    uses = frozenset({"past", "known", "static"})
    has_attention = True

    def __init__(
        self,
        spec: InputSpec,
        *,
        width: int = 128,
        heads: int = 8,
        hidden: int = 128,
        layers: int = 2,
        dropout: float = 0.3,
    ) -> None:
        """``hidden``: width of the feed-forward networks."""
        super().__init__(spec)
        check_sizes(width=width, heads=heads, hidden=hidden, layers=layers)
        check_shares(dropout=dropout)
        self.embed = nn.Linear(spec.context, width)
        self.embed_missing = nn.Linear(spec.context, width, bias=False)
        nn.init.zeros_(self.embed_missing.weight)
        both = spec.context + spec.horizon
        self.past = ColumnTokens(spec.past, spec.past_categories, spec.context, width)
        self.known = ColumnTokens(spec.known, spec.known_categories, both, width)
        self.static = ColumnTokens(spec.static, spec.static_categories, 1, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, hidden, dropout=dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, spec.horizon)
        self.spread = QuantileSpread(width, spec.horizon, spec.quantiles) if spec.quantiles else None

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; the same numbers with and without ``need_weights``."""
        dtype = self.head.weight.dtype
        z, window = normalise(batch.past, batch.past_observed)
        missing = (~batch.past_observed).to(dtype).transpose(1, 2)  # [B, C, L]
        own = self.embed(z.to(dtype).transpose(1, 2)) + self.embed_missing(missing)
        around = (
            self.past(batch.past_cov.to(dtype), batch.past_codes),
            self.known(batch.known.to(dtype), batch.known_codes),
            self.static(batch.static.to(dtype)[:, None], batch.static_codes[:, None]),
        )
        tokens = self.dropout(torch.cat((own, *around), dim=1))  # [B, K, W]
        mask = self._mask(batch.past_observed.any(dim=1), tokens.shape[1])
        records = []
        for number, block in enumerate(self.blocks, start=1):
            step = block(tokens, mask=mask, weights=need_weights)
            tokens = step.tokens
            if step.weights is not None:
                records.append(self._record(step.weights, number))
        with torch.autocast(tokens.device.type, enabled=False):
            tokens = self.norm(tokens[:, : self.spec.targets].to(dtype))  # [B, C, W]
            point = window.undo(self.head(tokens).transpose(1, 2))
            quantiles = None
            if self.spread is not None:
                quantiles = spread_around(point, window.scale, self.spread(tokens))
            return Output(point, quantiles, tuple(records))

    def _mask(self, seen: Tensor, variables: int) -> Tensor | None:
        """Hides targets without an observed step: ``[B, C] -> [B, 1, 1, K]``; None hides nothing."""
        if seen.device.type == "cpu" and bool(seen.all()):
            return None
        others = seen.new_ones(len(seen), variables - seen.shape[1])
        return torch.cat((seen, others), dim=1)[:, None, None]

    def _record(self, weights: Tensor, number: int) -> AttentionRecord:
        names = [f"target {c}" for c in range(self.spec.targets)]
        for role, tokens in (("past", self.past), ("known", self.known), ("static", self.static)):
            names += [f"{role} {k}" for k in range(tokens.columns)]
        axis = Axis("variable", (0,) * len(names), (self.spec.context,) * len(names), tuple(names))
        return AttentionRecord(weights[:, None], axis, axis, f"encoder {number}")
