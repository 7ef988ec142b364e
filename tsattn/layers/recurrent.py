"""Recurrent networks that can begin late: left padding leaves their state as it was.

Legend: ``T`` steps, ``F`` features of a step, ``W`` width of the state, ``Y`` layers; ``...`` any batch dimensions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tsattn.errors import unknown_name

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}
State = tuple[Tensor, ...]  # hidden and, for an LSTM, cell: each [Y, ..., W]


class Recurrent(nn.Module):
    """Layers of long short-term memory (Hochreiter and Schmidhuber, 1997) or gated recurrent units (Cho et al., 2014).

    The state is passed, not kept.
    """

    def __init__(self, features: int, width: int, *, cell: str = "lstm", layers: int = 1, dropout: float = 0.0) -> None:
        """``dropout`` falls between the layers. Raises ConfigError unless ``cell`` is "lstm" or "gru"."""
        super().__init__()
        if cell not in CELLS:
            raise unknown_name("cell", cell, CELLS)
        self.states = 2 if cell == "lstm" else 1
        rate = dropout if layers > 1 else 0.0
        self.rnn = CELLS[cell](features, width, num_layers=layers, batch_first=True, dropout=rate)

    def forward(self, steps: Tensor, state: State | None = None, skip: Tensor | None = None) -> tuple[Tensor, State]:
        """Read ``steps [..., T, F]`` from ``state`` on (zeros when None).

        ``skip [...]`` int64 is how many first steps to leave out, at most ``T``: the state passes through them and
        their outputs are 0. Returns the outputs ``[..., T, W]`` and the last state. Runs in the dtype of the
        parameters, under autocast as well: its errors would add up from step to step.
        """
        lead, dtype = steps.shape[:-2], self.rnn.all_weights[0][0].dtype
        if state is None:
            state = (steps.new_zeros(self.rnn.num_layers, *lead, self.rnn.hidden_size),) * self.states
        with torch.autocast(steps.device.type, enabled=False):
            flat = steps.to(dtype).flatten(0, -3)  # [B, T, F]
            start = tuple(part.to(dtype).expand(-1, *lead, -1).reshape(len(part), -1, part.shape[-1]) for part in state)
            outputs, last = self._run(flat, start) if skip is None else self._skipping(flat, start, skip.flatten())
        return outputs.unflatten(0, lead), tuple(part.unflatten(1, lead) for part in last)

    def _run(self, steps: Any, state: State) -> tuple[Any, State]:
        """torch's network on ``[B, T, F]`` (or packed steps) and states ``[Y, B, W]``."""
        outputs, last = self.rnn(steps, state if self.states == 2 else state[0])
        return outputs, last if self.states == 2 else (last,)

    def _skipping(self, steps: Tensor, state: State, skip: Tensor) -> tuple[Tensor, State]:
        """``steps [B, T, F]``, states ``[Y, B, W]``, ``skip [B]``."""
        length = steps.shape[1]
        counts = (length - skip).cpu()
        if bool((counts == length).all()):
            return self._run(steps, state)
        step = torch.arange(length, device=steps.device)
        begun = _along(steps, (step + skip[:, None]) % length)  # skipped steps go to the end: packing drops them
        packed = pack_padded_sequence(begun, counts.clamp(min=1), batch_first=True, enforce_sorted=False)
        read, last = self._run(packed, state)
        whole, _ = pad_packed_sequence(read, batch_first=True, total_length=length)
        outputs = _along(whole, (step - skip[:, None]) % length)
        outputs = outputs.masked_fill((step < skip[:, None])[..., None], 0.0)
        nothing = (skip == length)[:, None]
        return outputs, tuple(torch.where(nothing, old, new) for old, new in zip(state, last, strict=True))


def leading(observed: Tensor) -> Tensor:
    """How many steps stand before the first observed one: ``[..., T]`` bool ``-> [...]`` int64, ``T`` where none is."""
    return (observed.cumsum(dim=-1) == 0).sum(dim=-1)


def _along(steps: Tensor, step: Tensor) -> Tensor:
    """``steps [B, T, F]`` in the order ``step [B, T]``."""
    return steps.gather(1, step[..., None].expand_as(steps))
