"""Recurrent networks that can begin late: parity with torch's, and padding that leaves no trace."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tsattn.layers.recurrent import Recurrent, State, leading


def cell_by_cell(lstm: Recurrent, tokens: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hochreiter and Schmidhuber's equations, one step of one window at a time: ``tokens [T, W]``."""
    inner = lstm.rnn
    outputs = []
    for token in tokens:
        gates = (inner.weight_ih_l0 @ token + inner.bias_ih_l0 + inner.weight_hh_l0 @ hidden + inner.bias_hh_l0).chunk(
            4
        )
        enter, forget, write, show = gates[0].sigmoid(), gates[1].sigmoid(), gates[2].tanh(), gates[3].sigmoid()
        cell = forget * cell + enter * write
        hidden = show * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs) if outputs else tokens, hidden, cell


def example() -> tuple[Recurrent, Tensor, State]:
    torch.manual_seed(0)
    return Recurrent(3, 3), torch.randn(2, 4, 6, 3), (torch.randn(1, 2, 1, 3), torch.randn(1, 2, 1, 3))


def test_agrees_with_torch_and_with_the_equations():
    lstm, tokens, state = example()
    outputs, last = lstm(tokens, state)
    start = tuple(part.expand(1, 2, 4, 3).reshape(1, 8, 3) for part in state)
    other, (hidden, cell) = lstm.rnn(tokens.reshape(8, 6, 3), start)
    assert torch.equal(outputs, other.reshape(2, 4, 6, 3))
    assert torch.equal(last[0].reshape(1, 8, 3), hidden)
    assert torch.equal(last[1].reshape(1, 8, 3), cell)
    by_hand = cell_by_cell(lstm, tokens[1, 2], state[0][0, 1, 0], state[1][0, 1, 0])
    for found, expected in zip((outputs[1, 2], last[0][0, 1, 2], last[1][0, 1, 2]), by_hand, strict=True):
        torch.testing.assert_close(found, expected)


def test_no_state_is_a_state_of_zeros():
    lstm, tokens, _ = example()
    zeros = torch.zeros(1, 2, 4, 3)
    assert torch.equal(lstm(tokens)[0], lstm(tokens, (zeros, zeros))[0])


def test_skipped_steps_leave_no_trace():
    """Every window as if it began at its first step that counts; a window that never begins hands its state on."""
    lstm, tokens, state = example()
    skip = torch.tensor([[0, 1, 5, 6], [3, 0, 6, 2]])
    outputs, last = lstm(tokens, state, skip)
    poisoned = tokens.masked_fill((torch.arange(6) < skip[..., None])[..., None], 1e3)
    again, last_again = lstm(poisoned, state, skip)
    torch.testing.assert_close(again, outputs)
    torch.testing.assert_close(last_again, last)
    for b in range(2):
        for c in range(4):
            first = int(skip[b, c])
            read, hidden, cell = cell_by_cell(lstm, tokens[b, c, first:], state[0][0, b, 0], state[1][0, b, 0])
            torch.testing.assert_close(outputs[b, c, first:], read)
            assert (outputs[b, c, :first] == 0).all()
            torch.testing.assert_close(last[0][0, b, c], hidden)
            torch.testing.assert_close(last[1][0, b, c], cell)


def test_nothing_to_skip_is_the_plain_way():
    lstm, tokens, state = example()
    assert torch.equal(lstm(tokens, state, torch.zeros(2, 4, dtype=torch.int64))[0], lstm(tokens, state)[0])


def test_gradients_of_skipped_windows():
    lstm, tokens, state = example()
    tokens.requires_grad_()
    skip = torch.tensor([[0, 1, 5, 6], [3, 0, 6, 2]])
    outputs, last = lstm(tokens, state, skip)
    (outputs.square().sum() + last[0].sum() + last[1].sum()).backward()
    read = (torch.arange(6) >= skip[..., None])[..., None].expand_as(tokens)
    assert (tokens.grad[read] != 0).all()
    assert (tokens.grad[~read] == 0).all()


def test_precision_is_that_of_the_parameters():
    lstm, tokens, state = example()
    skip = torch.tensor([[0, 1, 5, 6], [3, 0, 6, 2]])
    whole = lstm(tokens, state, skip)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(lstm(tokens, state, skip)[0], whole)
    double = lstm.double()(tokens, state, skip)[0]
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), whole)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_layers_and_cells_agree_with_torch_on_the_steps_that_count(cell):
    torch.manual_seed(0)
    network = Recurrent(3, 5, cell=cell, layers=2)
    kind = nn.LSTM if cell == "lstm" else nn.GRU
    other = kind(3, 5, num_layers=2, batch_first=True)
    other.load_state_dict(network.rnn.state_dict())
    steps, skip = torch.randn(4, 6, 3), torch.tensor([0, 2, 5, 6])
    outputs, last = network(steps, skip=skip)
    assert len(last) == (2 if cell == "lstm" else 1)
    for row, first in enumerate(skip.tolist()):
        if first == 6:
            assert (last[0][:, row] == 0).all()
            continue
        alone, state = other(steps[row : row + 1, first:])
        torch.testing.assert_close(outputs[row, first:], alone[0])
        torch.testing.assert_close(last[0][:, row], (state[0] if cell == "lstm" else state)[:, 0])


def test_leading_steps_are_those_before_the_first_observed_one():
    observed = torch.tensor([[False, False, True, False], [True, False, False, True], [False] * 4, [True] * 4])
    assert leading(observed).tolist() == [2, 0, 4, 0]
