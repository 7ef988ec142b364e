"""tft: the temporal fusion transformer chooses among variables, reads them in order, then looks back with attention.

Lim, Arik, Loeff and Pfister, "Temporal fusion transformers for interpretable multi-horizon time series forecasting",
2021 (International Journal of Forecasting 37; arXiv 1912.09363). Equation numbers are those of the paper.

Legend: ``B`` windows, ``C`` targets, ``L`` context, ``H`` horizon, ``K`` variables, ``W`` width of a token, ``N``
heads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tsattn.attention.masks import causal_mask
from tsattn.attention.multihead import MultiHeadAttention
from tsattn.data.batch import Batch
from tsattn.heads import QuantileSpread, spread_around
from tsattn.layers.covariates import ColumnTokens
from tsattn.layers.gated import GatedResidual, GatedSkip, Selected, VariableSelection
from tsattn.layers.norm import normalise
from tsattn.layers.recurrent import Recurrent, leading
from tsattn.models.base import AttentionRecord, Axis, InputSpec, Network, Output, check_shares, check_sizes


class TFT(Network):
    """Variable selection at every step, an LSTM encoder and decoder, and attention whose heads share their values.

    A forecast step attends to the past steps, to the forecast steps before it and to itself: the keys of the record
    "attention" are the ``L`` past steps and then the ``H`` forecast steps, which hold what is known of them. The mean
    of its weights over heads is exactly how the values were mixed. Through the LSTM a key also carries what came before
    it: a weight says which step was read, not that this step's value alone was in it. The records "static selection",
    "past selection" and "future selection" say how much each variable counted, the last two for each step.

    The targets share all weights and do not see one another. Where a role of covariates is absent, so is its part:
    without static ones there is no context and the LSTM starts at zero; without known ones a forecast step enters as a
    learnt vector. An unobserved step is no one's key; unobserved steps at the beginning of a window are skipped by the
    LSTM, so a padded window forecasts like the short one.

    Departures from the paper: windows are normalised by themselves; the value comes with a flag where it is missing;
    quantiles are distances from the median and cannot cross; the scores of a variable selection are not
    layer-normalised (see ``VariableSelection``); queries are made for forecast steps alone, since no other is read.
    """

    uses = frozenset({"past", "known", "static"})
    has_attention = True

    def __init__(self, spec: InputSpec, *, width: int = 32, heads: int = 4, dropout: float = 0.1) -> None:
        """``width`` of every token and state; ``dropout`` before every gate and on the attention weights."""
        super().__init__(spec)
        check_sizes(width=width, heads=heads)
        check_shares(dropout=dropout)
        self.target = nn.Linear(2, width)
        self.past = ColumnTokens(spec.past, spec.past_categories, 1, width)
        self.known = ColumnTokens(spec.known, spec.known_categories, 1, width)
        self.static = None
        if static := spec.static + len(spec.static_categories):
            choice = self.past.columns + self.known.columns > 0  # otherwise there is no selection to steer
            self.static = StaticContexts(spec, width, dropout, selection=choice)
        self.past_selection = VariableSelection(
            1 + self.past.columns + self.known.columns, width, context=bool(static), dropout=dropout
        )
        known = self.known.columns
        self.future_selection = None
        if known:
            self.future_selection = VariableSelection(known, width, context=bool(static), dropout=dropout)
        self.step = None if known else nn.Parameter(0.02 * torch.randn(spec.horizon, width))
        self.encoder, self.decoder = Recurrent(width, width), Recurrent(width, width)
        self.recurrent_gate = GatedSkip(width, width, dropout=dropout)
        self.enrichment = GatedResidual(width, context=width if static else 0, dropout=dropout)
        self.attention = MultiHeadAttention(width, heads, dropout=dropout, bias=False, shared_values=True)
        self.attention_gate = GatedSkip(width, width, dropout=dropout)
        self.feedforward = GatedResidual(width, dropout=dropout)
        self.last_gate = GatedSkip(width, width)
        self.head = nn.Linear(width, 1)
        self.spread = QuantileSpread(width, 1, spec.quantiles) if spec.quantiles else None

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; the same numbers with and without ``need_weights``."""
        dtype = self.head.weight.dtype
        z, window = normalise(batch.past, batch.past_observed)
        own = torch.stack((z.to(dtype), batch.past_observed.to(dtype)), dim=-1).transpose(1, 2)  # [B, C, L, 2]
        observed = batch.past_observed.transpose(1, 2)  # [B, C, L]
        contexts = Contexts() if self.static is None else self.static(batch, dtype)
        past, future = self._select(self.target(own), batch, contexts)
        tokens = self._read_in_order(past.tokens, future.tokens, observed, contexts)  # [B, C, L + H, W]
        enriched = self.enrichment(tokens, contexts.enrichment)  # equation 18
        asking = enriched[:, :, self.spec.context :]
        read = self.attention(asking, enriched, mask=self._mask(observed), weights=need_weights)  # equation 19
        features = self.feedforward(self.attention_gate(read.output, asking))  # equations 20 and 21
        features = self.last_gate(features, tokens[:, :, self.spec.context :])  # equation 22
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(dtype)
            point = window.undo(self.head(features).squeeze(-1).transpose(1, 2))
            quantiles = None
            if self.spread is not None:
                quantiles = spread_around(point, window.scale, self.spread(features).squeeze(-2))
        if read.weights is None:
            return Output(point, quantiles)
        return Output(point, quantiles, self._records(contexts.weights, past.weights, future.weights, read.weights))

    def _select(self, target: Tensor, batch: Batch, contexts: Contexts) -> tuple[Selected, Selected]:
        """One token per past step ``[B, C, L, W]`` and per forecast step ``[B, 1, H, W]``, from all variables."""
        dtype, context = self.head.weight.dtype, self.spec.context
        past = self.past(batch.past_cov.to(dtype)[:, None, :, None], batch.past_codes[:, None, :, None])
        known = self.known(batch.known.to(dtype)[:, None, :, None], batch.known_codes[:, None, :, None])
        before, after = known[:, :, :context].unbind(dim=-2), known[:, :, context:].unbind(dim=-2)  # K of [B, 1, T, W]
        chosen = self.past_selection([target, *past.unbind(dim=-2), *before], contexts.selection)
        if self.future_selection is None:
            assert self.step is not None
            steps = self.step.expand(len(target), 1, -1, -1)
            return chosen, Selected(steps, steps.new_zeros(*steps.shape[:-1], 0, dtype=torch.float32))
        return chosen, self.future_selection(list(after), contexts.selection)

    def _read_in_order(self, past: Tensor, future: Tensor, observed: Tensor, contexts: Contexts) -> Tensor:
        """The LSTM over past and future steps, equation 17: ``[B, C, L, W]``, ``[B, 1, H, W] -> [B, C, L + H, W]``."""
        start = None
        if contexts.hidden is not None and contexts.cell is not None:
            start = (contexts.hidden.squeeze(-2)[None], contexts.cell.squeeze(-2)[None])
        future = future.expand(-1, past.shape[1], -1, -1)
        first, state = self.encoder(past, start, leading(observed))
        second, _ = self.decoder(future, state)
        return self.recurrent_gate(torch.cat((first, second), dim=-2), torch.cat((past, future), dim=-2))

    def _mask(self, observed: Tensor) -> Tensor:
        """Observed past steps and forecast steps up to the own one: ``[B, C, L] -> [B, C, 1, H, L + H]``."""
        horizon = self.spec.horizon
        past = observed[:, :, None, None].expand(-1, -1, 1, horizon, -1)
        ahead = causal_mask(horizon, device=observed.device).expand(*past.shape[:-1], -1)
        return torch.cat((past, ahead), dim=-1)

    def _records(
        self, static: Tensor | None, past: Tensor, future: Tensor, attention: Tensor
    ) -> tuple[AttentionRecord, ...]:
        """Selections ``[B, K]``, ``[B, C, L, K]``, ``[B, 1, H, K]``, attention ``[B, C, N, H, L + H]``, with axes."""
        context, horizon = self.spec.context, self.spec.horizon
        steps = tuple(range(context + horizon + 1))
        before = Axis("time", steps[:context], steps[1 : context + 1])
        after = Axis("horizon", steps[:horizon], steps[1 : horizon + 1])
        known = [f"known {k}" for k in range(self.known.columns)]
        records = []
        if static is not None:
            names = [f"static {k}" for k in range(static.shape[-1])]
            whole = Axis("time", (0,), (context,))
            records.append(_selection("static", static[:, None, None], whole, names, (0, context)))
        names = ["target", *(f"past {k}" for k in range(self.past.columns)), *known]
        records.append(_selection("past", past, before, names, (0, context)))
        if known:
            records.append(_selection("future", future, after, known, (context, context + horizon)))
        keys = Axis("time", steps[:-1], steps[1:], ahead=horizon)
        return (*records, AttentionRecord(attention, after, keys))


class Contexts(NamedTuple):
    """What the static covariates tell the other parts, ``[B, 1, 1, W]`` each; None without them, or without a use."""

    selection: Tensor | None = None  # c_s: which variables to choose
    hidden: Tensor | None = None  # c_h: where the LSTM starts
    cell: Tensor | None = None  # c_c
    enrichment: Tensor | None = None  # c_e: joins every step before the attention
    weights: Tensor | None = None  # [B, K] float32: how much each static column counted


class StaticContexts(nn.Module):
    """Static covariate encoders, section 4.3: a selection among the columns, and from it one context for each use."""

    def __init__(self, spec: InputSpec, width: int, dropout: float, *, selection: bool) -> None:
        """For the static columns of ``spec``; ``selection``: whether variables of the steps are chosen from."""
        super().__init__()
        self.columns = ColumnTokens(spec.static, spec.static_categories, 1, width)
        self.choose = VariableSelection(self.columns.columns, width, dropout=dropout)
        self.selection = GatedResidual(width, dropout=dropout) if selection else None
        self.hidden, self.cell, self.enrichment = (GatedResidual(width, dropout=dropout) for _ in range(3))

    def forward(self, batch: Batch, dtype: torch.dtype) -> Contexts:
        """The contexts of every window, computed in ``dtype``."""
        tokens = self.columns(batch.static.to(dtype)[:, None], batch.static_codes[:, None])  # [B, K, W]
        chosen = self.choose(list(tokens.unbind(dim=-2)))
        encoded = chosen.tokens[:, None, None]
        selection = None if self.selection is None else self.selection(encoded)
        return Contexts(selection, self.hidden(encoded), self.cell(encoded), self.enrichment(encoded), chosen.weights)


def _selection(part: str, weights: Tensor, query: Axis, names: list[str], support: tuple[int, int]) -> AttentionRecord:
    """The record of a variable selection: ``weights [B, C, J, K]``, the variables cover ``support`` steps."""
    start, end = ((step,) * len(names) for step in support)
    return AttentionRecord(
        weights.detach().unsqueeze(2), query, Axis("variable", start, end, tuple(names)), f"{part} selection"
    )
