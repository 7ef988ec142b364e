"""An LSTM that can begin late: left padding leaves its state as it was.

Legend: ``T`` steps, ``W`` width of a token and of the state; ``...`` any batch dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class LSTMState(NamedTuple):
    """What an LSTM remembers."""

    hidden: Tensor  # [..., W]
    cell: Tensor  # [..., W]


class LSTM(nn.Module):
    """One layer of long short-term memory (Hochreiter and Schmidhuber, 1997). The state is passed, not kept."""

    def __init__(self, width: int) -> None:
        """For tokens of ``width``."""
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(
        self, tokens: Tensor, state: LSTMState | None = None, skip: Tensor | None = None
    ) -> tuple[Tensor, LSTMState]:
        """Read ``tokens [..., T, W]`` from ``state`` on (zeros when None).

        ``skip [...]`` int64 is how many first steps to leave out, at most ``T``: the state passes through them and
        their outputs are 0. Returns the outputs ``[..., T, W]`` and the last state. Runs in the dtype of the
        parameters, under autocast as well: its errors would add up from step to step.
        """
        lead, dtype = tokens.shape[:-2], self.lstm.all_weights[0][0].dtype
        if state is None:
            zeros = tokens.new_zeros(*lead, tokens.shape[-1])
            state = LSTMState(zeros, zeros)
        with torch.autocast(tokens.device.type, enabled=False):
            flat = tokens.to(dtype).flatten(0, -3)  # [B, T, W]
            hidden, cell = (part.to(dtype).expand(*lead, -1).reshape(1, -1, part.shape[-1]) for part in state)
            if skip is None:
                outputs, (hidden, cell) = self.lstm(flat, (hidden, cell))
            else:
                outputs, hidden, cell = self._skipping(flat, hidden, cell, skip.flatten())
        return outputs.unflatten(0, lead), LSTMState(hidden[0].unflatten(0, lead), cell[0].unflatten(0, lead))

    def _skipping(self, tokens: Tensor, hidden: Tensor, cell: Tensor, skip: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``tokens [B, T, W]``, states ``[1, B, W]``, ``skip [B]``."""
        length = tokens.shape[1]
        counts = (length - skip).cpu()
        if bool((counts == length).all()):
            outputs, (hidden, cell) = self.lstm(tokens, (hidden, cell))
            return outputs, hidden, cell
        step = torch.arange(length, device=tokens.device)
        begun = _along(tokens, (step + skip[:, None]) % length)  # skipped steps go to the end: packing drops them
        packed = pack_padded_sequence(begun, counts.clamp(min=1), batch_first=True, enforce_sorted=False)
        read, (last_hidden, last_cell) = self.lstm(packed, (hidden, cell))
        outputs = _along(
            pad_packed_sequence(read, batch_first=True, total_length=length)[0], (step - skip[:, None]) % length
        )
        outputs = outputs.masked_fill((step < skip[:, None])[..., None], 0.0)
        nothing = (skip == length)[:, None]
        return outputs, torch.where(nothing, hidden, last_hidden), torch.where(nothing, cell, last_cell)


def leading(observed: Tensor) -> Tensor:
    """How many steps stand before the first observed one: ``[..., T]`` bool ``-> [...]`` int64, ``T`` where none is."""
    return (observed.cumsum(dim=-1) == 0).sum(dim=-1)


def _along(tokens: Tensor, step: Tensor) -> Tensor:
    """``tokens [B, T, W]`` in the order ``step [B, T]``."""
    return tokens.gather(1, step[..., None].expand_as(tokens))
