"""lucid: the forecast is the attention-weighted sum of the past, so its weights are the explanation.

Legend: ``B`` windows, ``C`` targets, ``L`` context, ``H`` horizon; ``I`` past patches of ``P`` steps, ``J`` future
patches of ``Q`` steps; ``N`` heads of width ``D``; ``W`` width of the embedding of a patch; ``Ep``, ``Ek``, ``Es``
widths of past-only, known and static covariates once embedded; ``F = P + P * Ep``: what a past patch offers.

    score[n,j,i] = q[n,j] . k[n,i] / sqrt(D) + bias[n,j,i]        alpha = softmax over the past patches i
    y[j]         = sum_n g[n,j] sum_i alpha[n,j,i] V[n] x[i]      no activation after it

``x`` is the window normalised by itself. Keys and queries may depend on everything in the window; the values are
linear in it and nothing mixes patches before they are read: what each past step added to each forecast step is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tsattn.attention.kernel import attention_weights
from tsattn.attention.masks import seen_patches
from tsattn.data.batch import Batch
from tsattn.errors import unknown_name
from tsattn.heads import QuantileSpread, spread_around
from tsattn.layers.covariates import CovariateVector, StepEffect
from tsattn.layers.norm import WindowScale, from_last, normalise
from tsattn.layers.patch import count, future_support, past_support, patch_future, patch_past
from tsattn.models.base import (
    AttentionRecord,
    Axis,
    Contributions,
    InputSpec,
    Network,
    Output,
    check_shares,
    check_sizes,
)

LEVELS = ("mean", "last")


class _Inputs(NamedTuple):
    """The window as lucid sees it: normalised, embedded."""

    z: Tensor  # [B, L, C], 0 where unobserved
    observed: Tensor  # [B, L, C] bool
    window: WindowScale
    past: Tensor  # [B, L, Ep]
    known: Tensor  # [B, L + H, Ek]
    static: Tensor  # [B, Es]
    effect: Tensor | None  # [B, L + H, C], what known and static covariates add


class Lucid(Network):
    """Horizon queries read past patches; contributions are exact.

    The targets share all weights and do not see one another. Past-only covariates are read like the past itself, with
    the same attention. Known and static covariates add a term at each step that is taken out of what is read from the
    past; they, too, steer queries and keys. With quantile levels the point is the median: contributions explain the
    median, and the distance of the other quantiles from it comes from a summary of the window.
    """

    uses = frozenset({"past", "known", "static"})
    has_attention = True

    def __init__(
        self,
        spec: InputSpec,
        *,
        patch: int = 24,
        horizon_patch: int | None = None,
        heads: int = 8,
        head_width: int = 8,
        width: int = 32,
        dropout: float = 0.4,
        summary: bool = True,
        level: str = "mean",
    ) -> None:
        """``patch`` steps per past patch and ``horizon_patch`` per future patch (the same unless given), clipped to
        the window; ``heads`` of ``head_width``; ``width`` of a patch's embedding; ``dropout`` on keys and on the
        summary, never on values; ``summary``: queries also read a pooled summary of the window (for lags that
        depend on it); ``level``: what a forecast returns to when nothing is read, the "mean" of the window or its
        "last" value, which suits series that wander.
        """
        super().__init__(spec)
        horizon_patch = patch if horizon_patch is None else horizon_patch
        check_sizes(patch=patch, horizon_patch=horizon_patch, heads=heads, head_width=head_width, width=width)
        check_shares(dropout=dropout)
        if level not in LEVELS:
            raise unknown_name("level", level, LEVELS)
        self.level = level
        self.size, self.ahead = min(patch, spec.context), min(horizon_patch, spec.horizon)  # P, Q
        self.heads, self.head_width = heads, head_width
        patches, queries = count(spec.context, self.size), count(spec.horizon, self.ahead)  # I, J
        self.past_vector = CovariateVector(spec.past, spec.past_categories)
        self.known_vector = CovariateVector(spec.known, spec.known_categories)
        self.static_vector = CovariateVector(spec.static, spec.static_categories)
        past, known, static = self.past_vector.width, self.known_vector.width, self.static_vector.width
        around = self.size * (past + known) + static

        self.embed = nn.Linear(2 * self.size, width)
        self.embed_around = nn.Linear(around, width, bias=False) if around else None
        self.position = nn.Parameter(0.02 * torch.randn(patches, width))
        self.dropout = nn.Dropout(dropout)
        self.key = nn.Linear(width, heads * head_width, bias=False)  # a bias would be the same for every key: no effect
        self.query = nn.Parameter(torch.randn(heads, queries, head_width))
        self.bias = nn.Parameter(torch.zeros(heads, queries, patches))
        ahead = self.ahead * known + static
        self.query_ahead = nn.Linear(ahead, heads * head_width, bias=False) if ahead else None
        self.pool = nn.Linear(width, width) if summary or spec.quantiles else None
        self.query_pool = nn.Linear(width, heads * head_width, bias=False) if summary else None
        if self.query_pool is not None:
            nn.init.zeros_(self.query_pool.weight)

        self.gain = nn.Parameter(torch.ones(heads, queries))
        self.value = nn.Parameter(_copies(heads, self.ahead, self.size))
        self.value_past = nn.Parameter(torch.zeros(heads, self.ahead, self.size * past)) if past else None
        self.past_gain = nn.Parameter(torch.ones(spec.targets, past)) if past else None  # targets may react differently
        self.effect = StepEffect(known, static, spec.targets) if known or static else None
        self.spread = QuantileSpread(width, spec.horizon, spec.quantiles) if spec.quantiles else None

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; the same numbers with and without ``need_weights``."""
        inputs = self._inputs(batch)
        tokens, seen = self._tokens(inputs)
        pooled = self._pooled(tokens, seen)
        weights = self._weights(self._queries(inputs, pooled), tokens, seen)  # [B, C, N, J, I]
        with torch.autocast(weights.device.type, enabled=False):  # what is read stays exact in half precision
            weights = weights.to(self.value.dtype)
            future = self._read(weights, self._offered(inputs), self._values())  # [B, C, H]
            if inputs.effect is not None:
                future = future + inputs.effect[:, self.spec.context :].transpose(1, 2)
            point = inputs.window.undo(future.transpose(1, 2))  # [B, H, C]
            quantiles = None
            if self.spread is not None:
                assert pooled is not None
                quantiles = spread_around(point, inputs.window.scale, self.spread(pooled.to(self.value.dtype)))
            if not need_weights:
                return Output(point, quantiles)
            return Output(point, quantiles, (self._record(weights),), self._contributions(inputs, weights))

    def _inputs(self, batch: Batch) -> _Inputs:
        """Normalise the window and embed the covariates, in the dtype of the parameters."""
        dtype = self.value.dtype
        z, window = normalise(batch.past, batch.past_observed)
        if self.level == "last":
            z, window = from_last(z, batch.past_observed, window)
        past = self.past_vector(batch.past_cov.to(dtype), batch.past_codes)
        known = self.known_vector(batch.known.to(dtype), batch.known_codes)
        static = self.static_vector(batch.static.to(dtype), batch.static_codes)
        effect = None if self.effect is None else self.effect(known, static).to(dtype)
        return _Inputs(z.to(dtype), batch.past_observed, window, past, known, static, effect)

    def _tokens(self, inputs: _Inputs) -> tuple[Tensor, Tensor]:
        """An embedding of each past patch ``[B, C, I, W]`` and whether any of its steps is observed ``[B, C, I]``."""
        z = patch_past(inputs.z.transpose(1, 2), self.size, dim=2)  # [B, C, I, P]
        observed = patch_past(inputs.observed.transpose(1, 2), self.size, dim=2)
        tokens = self.embed(torch.cat((z, observed.to(z.dtype)), dim=-1))
        if self.embed_around is not None:
            steps = torch.cat((inputs.past, inputs.known[:, : self.spec.context]), dim=-1)  # [B, L, Ep + Ek]
            patches = patch_past(steps, self.size).flatten(2)  # [B, I, P * (Ep + Ek)]
            static = inputs.static[:, None].expand(-1, patches.shape[1], -1)
            tokens = tokens + self.embed_around(torch.cat((patches, static), dim=-1))[:, None]
        return functional.gelu(tokens + self.position), seen_patches(observed)

    def _pooled(self, tokens: Tensor, seen: Tensor) -> Tensor | None:
        """A small network per patch, summed over the observed ones: ``[B, C, W]``."""
        if self.pool is None:
            return None
        each = functional.gelu(self.pool(tokens))
        return self.dropout((each * seen[..., None]).sum(dim=2))

    def _queries(self, inputs: _Inputs, pooled: Tensor | None) -> Tensor:
        """One query per head and future patch: ``[B or 1, C or 1, N, J, D]``."""
        queries = self.query[None, None]
        shape = (self.heads, self.head_width)
        if self.query_ahead is not None:
            known = patch_future(inputs.known[:, self.spec.context :], self.ahead).flatten(2)  # [B, J, Q * Ek]
            static = inputs.static[:, None].expand(-1, known.shape[1], -1)
            ahead = self.query_ahead(torch.cat((known, static), dim=-1)).unflatten(-1, shape)  # [B, J, N, D]
            queries = queries + ahead.transpose(1, 2)[:, None]
        if self.query_pool is not None and pooled is not None:
            queries = queries + self.query_pool(pooled).unflatten(-1, shape)[:, :, :, None]
        return queries

    def _weights(self, queries: Tensor, tokens: Tensor, seen: Tensor) -> Tensor:
        """Attention of each future patch over the past patches, ``[B, C, N, J, I]`` float32."""
        keys = self.key(self.dropout(tokens)).unflatten(-1, (self.heads, self.head_width)).transpose(2, 3)
        # No mask is the same as one that hides nothing, only faster; on other devices asking would wait for them.
        mask = None if seen.device.type == "cpu" and bool(seen.all()) else seen[:, :, None, None, :]
        return attention_weights(queries, keys, mask=mask, bias=self.bias)

    def _values(self) -> Tensor:
        """What each head makes of a patch: ``[N, Q, F]``, linear."""
        return self.value if self.value_past is None else torch.cat((self.value, self.value_past), dim=-1)

    def _offered(self, inputs: _Inputs) -> Tensor:
        """What each past patch offers to be read: ``[B, C, I, F]``. The effect of the covariates is taken out."""
        z = inputs.z
        if inputs.effect is not None:
            z = z - inputs.effect[:, : self.spec.context] * inputs.observed
        patches = patch_past(z.transpose(1, 2), self.size, dim=2)  # [B, C, I, P]
        if self.past_gain is None:
            return patches
        past = inputs.past[:, None] * self.past_gain[:, None]  # [B, C, L, Ep]
        return torch.cat((patches, patch_past(past, self.size, dim=2).flatten(3)), dim=-1)

    def _read(self, weights: Tensor, offered: Tensor, values: Tensor) -> Tensor:
        """``[B, C, N, J, I]``, ``[B, C, I, F]``, ``[N, Q, F]`` -> ``[B, C, H]`` in deviations of the window."""
        mixed = weights.flatten(2, 3) @ offered  # [B, C, N * J, F]
        mixed = mixed.unflatten(2, weights.shape[2:4]).permute(3, 0, 1, 2, 4)  # [J, B, C, N, F]
        gained = self.gain.T[:, :, None, None] * values.transpose(1, 2)  # [J, N, F, Q]
        future = mixed.flatten(3).flatten(1, 2) @ gained.flatten(1, 2)  # [J, B * C, Q]
        future = future.transpose(0, 1).flatten(1)[:, : self.spec.horizon]  # [B * C, H]
        return future.unflatten(0, weights.shape[:2])

    def _step_weights(self, weights: Tensor, values: Tensor) -> Tensor:
        """Weight of each past step in each forecast step.

        ``[B, C, N, J, I]``, ``[N, Q, P * E]`` -> ``[B, C, H, L, E]``. Heads are summed first; nothing larger than the
        result is made.
        """
        gained = (weights * self.gain[..., None]).permute(0, 1, 3, 4, 2)  # [B, C, J, I, N]
        steps = (gained @ values.flatten(1)).unflatten(-1, (self.ahead, self.size, -1))  # [B, C, J, I, Q, P, E]
        steps = steps.transpose(3, 4).flatten(4, 5).flatten(2, 3)  # [B, C, J * Q, I * P, E]
        return steps[:, :, : self.spec.horizon, -self.spec.context :]

    def _contributions(self, inputs: _Inputs, weights: Tensor) -> Contributions:
        """The exact split of the point forecast, in data units."""
        scale = inputs.window.scale[:, :, None]  # [B, C, 1]
        moved = (inputs.z.transpose(1, 2) * scale)[:, :, None]  # [B, C, 1, L], distance from the level, data units
        history = self._step_weights(weights, self.value)[..., 0] * moved
        past = history.new_zeros(*history.shape, 0)
        if self.value_past is not None and self.past_gain is not None:
            read = inputs.past[:, None] * self.past_gain[:, None]  # [B, C, L, Ep]
            past = self._step_weights(weights, self.value_past) * read[:, :, None]  # [B, C, H, L, Ep]
            past = self.past_vector.by_column(past) * scale[..., None, None]
        known = history.new_zeros(history.shape[:3])
        if inputs.effect is not None:
            before, after = inputs.effect.split((self.spec.context, self.spec.horizon), dim=1)
            taken = patch_past((before * inputs.observed).transpose(1, 2), self.size, dim=2)
            known = (after.transpose(1, 2) - self._read(weights, taken, self.value)) * scale
        level = inputs.window.loc[:, :, None].expand_as(known)
        return Contributions(history, past, known, level)

    def _record(self, weights: Tensor) -> AttentionRecord:
        """The weights with their axes in steps of the window."""
        query = Axis("horizon", *future_support(self.spec.horizon, self.ahead))
        key = Axis("patch", *past_support(self.spec.context, self.size))
        return AttentionRecord(weights.detach(), query, key)


def _copies(heads: int, ahead: int, size: int) -> Tensor:
    """Values ``[N, Q, P]`` with which an untrained network copies what it attends to, step for step, plus noise.

    The heads share the copy, so the first forecast is a weighted mean of the patches. Starting there, instead of from
    noise alone, decides how well a short training ends.
    """
    step = torch.arange(ahead)
    values = 0.02 * torch.randn(heads, ahead, size)
    values[:, step, step % size] += 1.0 / heads
    return values
