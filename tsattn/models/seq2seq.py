"""seq2seq: a recurrent encoder and decoder, with the attention that was invented for them, or without.

Luong, Pham and Manning, "Effective approaches to attention-based neural machine translation", 2015; Bahdanau, Cho and
Bengio, "Neural machine translation by jointly learning to align and translate", 2014.

Legend: ``B`` windows, ``C`` targets, ``M = B * C`` sequences, ``L`` context, ``H`` horizon; ``I`` past patches of ``P``
steps, ``J`` future patches of ``Q`` steps; ``W`` width of the state.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tsattn.attention.kernel import attend
from tsattn.attention.masks import seen_patches
from tsattn.attention.scores import build_score
from tsattn.data.batch import Batch
from tsattn.errors import ConfigError, unknown_name
from tsattn.heads import QuantileSpread, spread_around
from tsattn.layers.norm import WindowScale, full_precision, last_observed
from tsattn.layers.patch import count, future_support, past_support, patch_future, patch_past
from tsattn.layers.recurrent import Recurrent, State, leading
from tsattn.layers.steps import StepInputs, StepInputsLayer
from tsattn.models.base import AttentionRecord, Axis, InputSpec, Network, Output, check_shares, check_sizes

ATTENTIONS = ("none", "dot", "scaled_dot", "general", "additive", "location")
_FAR = 30.0  # deviations: no truth beyond is fed; a constant window that begins to move has any number of them


class _Memory(NamedTuple):
    """What the encoder leaves behind."""

    states: Tensor  # [M, I, W]
    mask: Tensor | None  # [M, 1, I] bool; None hides nothing
    last: State


class Seq2Seq(Network):
    """The decoder forecasts patch by patch, feeding each forecast into the next, and may look back at the encoder.

    ``attention="none"`` is the classic bottleneck: all that is known of the past is the encoder's last state. With
    "additive" the order is Bahdanau's: the state before the step asks, and what it reads enters the step. With the
    other scores it is Luong's: the state after the step asks, and what it reads joins the state on the way to the
    output. The targets share all weights and do not see one another. With ``patch`` and ``horizon_patch`` of 1 it is
    the published model; longer patches make fewer, wider steps, which trains faster and forecasts better.

    Padding before a series is skipped, so a short series is forecast as if the window were as short. Later gaps are
    read as gaps, with their covariates: the encoder can tell how much time went by. A patch without an observed step is
    no one's key. A key is a state of the encoder and holds what came before it, too: a weight says which patch was
    looked up, not that its values alone were read.

    In training the decoder is fed the truth with the probability ``teacher_forcing``, drawn for each sequence and step
    (Bengio et al., "Scheduled sampling for sequence prediction with recurrent neural networks", 2015). It falls in a
    line to 0 as ``progress``, which the training shell sets, reaches ``teacher_forcing_until``. In prediction the
    decoder always reads its own forecast, and the future is not touched.
    """

    uses = frozenset({"past", "known", "static"})
    has_attention = True

    def __init__(
        self,
        spec: InputSpec,
        *,
        cell: str = "gru",
        attention: str = "scaled_dot",
        patch: int = 24,
        horizon_patch: int | None = None,
        width: int = 64,
        layers: int = 1,
        dropout: float = 0.2,
        teacher_forcing: float = 0.5,
        teacher_forcing_until: float = 1.0,
        input_feeding: bool = False,
    ) -> None:
        """``cell``: "lstm" or "gru", ``layers`` of it with states of ``width``; ``attention``: one of ``ATTENTIONS``;
        ``patch`` steps per encoder step and ``horizon_patch`` per decoder step (the same unless given), clipped to the
        window; ``dropout`` on the encoder's inputs, between layers and before the output; ``teacher_forcing``:
        probability of the truth when training starts; ``teacher_forcing_until``: share of the training after which it
        is 0; ``input_feeding``: the vector that made a forecast enters the next step (Luong et al., section 3.3).
        """
        super().__init__(spec)
        horizon_patch = patch if horizon_patch is None else horizon_patch
        check_sizes(patch=patch, horizon_patch=horizon_patch, width=width, layers=layers)
        check_shares(dropout=dropout)
        if attention not in ATTENTIONS:
            raise unknown_name("attention", attention, ATTENTIONS)
        if input_feeding and attention == "none":
            raise ConfigError(
                "input_feeding hands on what attention found, and attention='none' finds nothing. Choose one of "
                f"{', '.join(ATTENTIONS[1:])}, or leave input_feeding out."
            )
        _check_forcing(teacher_forcing, teacher_forcing_until)
        self.has_attention = attention != "none"
        self.attention, self.input_feeding = attention, input_feeding
        self.teacher_forcing, self.teacher_forcing_until = teacher_forcing, teacher_forcing_until
        self.size, self.ahead, self.width = min(patch, spec.context), min(horizon_patch, spec.horizon), width  # P, Q
        self.inputs = StepInputsLayer(spec)
        self.embed = nn.Linear(self.size * self.inputs.past_width, width)
        self.encoder = Recurrent(width, width, cell=cell, layers=layers, dropout=dropout)
        fed = self.ahead * (1 + self.inputs.future_width) + width * (self.early + input_feeding)
        self.decoder = Recurrent(fed, width, cell=cell, layers=layers, dropout=dropout)
        self.score = None
        if self.has_attention:
            self.score = build_score(attention, width, width, keys=count(spec.context, self.size))
        self.join = nn.Linear(2 * width if self.has_attention else width, width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, self.ahead)
        self.spread = QuantileSpread(width, self.ahead, spec.quantiles) if spec.quantiles else None

    @property
    def early(self) -> bool:
        """Whether the attention comes before the step (Bahdanau) and not after it (Luong)."""
        return self.attention == "additive"

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; the same numbers with and without ``need_weights``. Only training reads the future."""
        with torch.autocast(batch.past.device.type, enabled=False):  # errors would add up from step to step
            inputs = self.inputs(batch, self.head.weight.dtype)
            memory = self._encode(inputs)
            truth = self._truth(batch, inputs.window) if self.training and self.forcing() > 0.0 else None
            outputs, weights = self._decode(inputs, memory, truth, need_weights)  # [M, J, W], [M, J, I]
            shape = inputs.past.shape[:2]
            outputs = outputs.unflatten(0, shape)  # [B, C, J, W]
            future = self.head(outputs).flatten(2)[..., : self.spec.horizon]
            point = inputs.window.undo(future.transpose(1, 2))
            quantiles = None
            if self.spread is not None:
                offsets = self.spread(outputs).flatten(2, 3)[:, :, : self.spec.horizon]  # [B, C, H, levels]
                quantiles = spread_around(point, inputs.window.scale, offsets)
        if weights is None:
            return Output(point, quantiles)
        query = Axis("horizon", *future_support(self.spec.horizon, self.ahead))
        key = Axis("patch" if self.size > 1 else "time", *past_support(self.spec.context, self.size))
        record = AttentionRecord(weights.unflatten(0, shape)[:, :, None], query, key)
        return Output(point, quantiles, (record,))

    def forcing(self) -> float:
        """Probability with which a decoder step is fed the truth, at this point of the training."""
        return self.teacher_forcing * max(0.0, 1.0 - self.progress / self.teacher_forcing_until)

    def _encode(self, inputs: StepInputs) -> _Memory:
        """Run the encoder over the past patches, from the first one with an observed step on."""
        begun = inputs.observed.cumsum(dim=-1) > 0  # [B, C, L]: steps before are padding, covariates and all
        steps = patch_past(inputs.past * begun[..., None], self.size, dim=2).flatten(3).flatten(0, 1)  # [M, I, P * Fp]
        seen = seen_patches(patch_past(inputs.observed, self.size, dim=2)).flatten(0, 1)  # [M, I]
        tokens = self.dropout(self.embed(steps))
        states, last = self.encoder(tokens, skip=leading(seen))
        mask = None if seen.device.type == "cpu" and bool(seen.all()) else seen[:, None]
        return _Memory(states, mask, last)

    def _decode(
        self, inputs: StepInputs, memory: _Memory, truth: tuple[Tensor, Tensor] | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """What each future patch is read off from, ``[M, J, W]``, and where the decoder looked, ``[M, J, I]``."""
        future = patch_future(inputs.future, self.ahead, dim=2).flatten(3).flatten(0, 1)  # [M, J, Q * Ff]
        fed = self._newest(inputs)
        state, top = memory.last, memory.last[0][-1]  # [M, W]
        vector = torch.zeros_like(top)
        outputs, maps = [], []
        for step in range(future.shape[1]):
            parts, looked = [fed, future[:, step]], None
            if self.early:
                looked = self._look(top, memory, need_weights)
                parts.append(looked[0])
            if self.input_feeding:
                parts.append(vector)
            out, state = self.decoder(torch.cat(parts, dim=-1)[:, None], state)
            top = out[:, 0]
            if looked is None and self.has_attention:
                looked = self._look(top, memory, need_weights)
            joined = top if looked is None else torch.cat((looked[0], top), dim=-1)
            vector = self.join(joined).tanh()
            outputs.append(self.dropout(vector))
            if looked is not None and looked[1] is not None:
                maps.append(looked[1])
            fed = self._next(self.head(outputs[-1]), step, truth)
        return torch.stack(outputs, dim=1), torch.cat(maps, dim=1) if maps else None

    def _look(self, top: Tensor, memory: _Memory, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """Attention of the decoder's state over the encoder's: context ``[M, W]`` and weights ``[M, 1, I]``."""
        assert self.score is not None
        states = memory.states
        read = attend(top[:, None], states, states, score=self.score, mask=memory.mask, weights=need_weights)
        return read.output[:, 0], read.weights

    def _newest(self, inputs: StepInputs) -> Tensor:
        """The last ``Q`` values of the past, ``[M, Q]``, the newest one in its gaps: what the first step is fed."""
        values, observed = inputs.past[..., 0].flatten(0, 1), inputs.observed.flatten(0, 1)  # [M, L]
        values = torch.where(observed, values, last_observed(values, observed)[0][:, None])[:, -self.ahead :]
        return nn.functional.pad(values, (self.ahead - values.shape[-1], 0))

    def _next(self, forecast: Tensor, step: int, truth: tuple[Tensor, Tensor] | None) -> Tensor:
        """What the next step is fed: the forecast ``[M, Q]``, or the truth for some sequences in training."""
        if truth is None:
            return forecast
        values, observed = truth
        forced = torch.rand(len(forecast), 1, device=forecast.device) < self.forcing()
        return torch.where(forced & observed[:, step], values[:, step], forecast)

    def _truth(self, batch: Batch, window: WindowScale) -> tuple[Tensor, Tensor]:
        """The future in deviations of the window, and where it was observed: two ``[M, J, Q]``."""
        with torch.no_grad():
            z = (full_precision(batch.future) - window.loc[:, None]) / window.scale[:, None]
            observed = batch.future_observed & (z.abs() <= _FAR)
            z = torch.where(observed, z, torch.zeros_like(z)).to(self.head.weight.dtype)
        values, seen = (patch_future(part.transpose(1, 2), self.ahead, dim=2).flatten(0, 1) for part in (z, observed))
        return values, seen


def _check_forcing(start: float, until: float) -> None:
    """Raises ConfigError for a probability outside [0, 1], or a share of the training outside (0, 1]."""
    numbers = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in (start, until)]
    if not numbers[0] or not 0.0 <= start <= 1.0:
        raise ConfigError(f"teacher_forcing is a probability from 0 to 1; got {start!r}.")
    if not numbers[1] or not 0.0 < until <= 1.0:
        raise ConfigError(f"teacher_forcing_until is a share of the training above 0 and at most 1; got {until!r}.")
