"""Gates and variable selection: numbers by hand, and what the weights promise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tsattn.layers.gated import GatedLinearUnit, GatedResidual, GatedSkip, VariableSelection


def filled(module: nn.Module, **values: list) -> nn.Module:
    """Every parameter 0 but those named (with ``_`` for a dot)."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            given = values.pop(name.replace(".", "_"), 0.0)
            parameter.copy_(torch.tensor(given).expand_as(parameter))
    assert not values
    return module.eval()


def test_gated_linear_unit_by_hand():
    """Values 3 x and 1 (the bias), gates sigmoid(ln 3) = 3/4 and sigmoid(-ln 3) = 1/4."""
    log3 = math.log(3.0)
    unit = filled(
        GatedLinearUnit(1, 2), linear_weight=[[3.0], [0.0], [0.0], [0.0]], linear_bias=[0.0, 1.0, log3, -log3]
    )
    torch.testing.assert_close(unit(torch.tensor([2.0])), torch.tensor([0.75 * 6.0, 0.25]))


def test_gated_skip_by_hand():
    """Skip (1, 3) plus value 2 through a half open gate: (2, 4), normalised to (-1, 1)."""
    skip = filled(GatedSkip(1, 2), gate_linear_bias=[2.0, 2.0, 0.0, 0.0], norm_weight=[1.0, 5.0], norm_bias=[0.0, 1.0])
    found = skip(torch.zeros(1), torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(found, torch.tensor([-1.0, 6.0]), atol=1e-4, rtol=0)  # 1e-5 is added to the variance
    plain = filled(GatedSkip(1, 2, norm=False), gate_linear_bias=[2.0, 2.0, 0.0, 0.0])
    torch.testing.assert_close(plain(torch.zeros(1), torch.tensor([1.0, 3.0])), torch.tensor([2.0, 4.0]))


def test_gated_residual_by_hand():
    """a = 2, c = 1: first 2 * -1 + 1 * 0.5 - 0.5 = -2; elu = e^-2 - 1; second twice that plus 1; gate 1/2; skip 2."""
    network = filled(
        GatedResidual(1, context=1, norm=False),
        first_weight=[[-1.0]],
        first_bias=[-0.5],
        context_weight=[[0.5]],
        second_weight=[[2.0]],
        second_bias=[1.0],
        gated_gate_linear_weight=[[1.0], [0.0]],
    )
    expected = 2.0 + 0.5 * (2.0 * (math.exp(-2.0) - 1.0) + 1.0)
    torch.testing.assert_close(network(torch.tensor([2.0]), torch.tensor([1.0])), torch.tensor([expected]))


def test_gated_residual_resizes_its_skip():
    """A closed network adds nothing: what is left is the linear skip, or the input itself, normalised."""
    resized = filled(GatedResidual(2, out=1, norm=False), resize_weight=[[1.0, 10.0]], resize_bias=[100.0])
    torch.testing.assert_close(resized(torch.tensor([2.0, 3.0])), torch.tensor([132.0]))
    same = filled(GatedResidual(2), gated_norm_weight=[1.0, 1.0])
    torch.testing.assert_close(same(torch.tensor([4.0, 8.0])), torch.tensor([-1.0, 1.0]), atol=1e-5, rtol=0)


def test_dropout_falls_before_the_gate_and_never_in_eval():
    network = GatedResidual(8, dropout=0.5)
    tokens = torch.randn(5, 8)
    assert torch.equal(network.eval()(tokens), network(tokens))
    network.train()
    assert not torch.equal(network(tokens), network(tokens))


def test_variable_selection_by_hand():
    """Scores ln 1 and ln 3 from the bias of the skip: the variables, normalised to (-1, 1) and (1, -1), 1 to 3."""
    network = VariableSelection(2, 2)
    filled(network, choose_resize_bias=[0.0, math.log(3.0)])
    with torch.no_grad():
        for own in network.each:
            own.gated.norm.weight.fill_(1.0)
    found = network([torch.tensor([[1.0, 5.0]]), torch.tensor([[7.0, 3.0]])])
    torch.testing.assert_close(found.weights, torch.tensor([[0.25, 0.75]]))
    torch.testing.assert_close(found.tokens, torch.tensor([[0.5, -0.5]]), atol=1e-5, rtol=0)


def selection(variables: int, *, context: bool = False) -> tuple[VariableSelection, list[Tensor]]:
    torch.manual_seed(0)
    tokens = [torch.randn(2, 3, 5, 4), *(torch.randn(2, 1, 5, 4) for _ in range(variables - 1))]
    return VariableSelection(variables, 4, context=context).eval(), tokens


@pytest.mark.parametrize("variables", [2, 3, 7])
def test_weights_sum_to_one_and_exclude_nothing(variables):
    network, tokens = selection(variables)
    with torch.no_grad():
        found = network(tokens)
        assert found.weights.shape == (2, 3, 5, variables)  # shared variables are broadcast over the targets
        assert found.weights.dtype == torch.float32
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(2, 3, 5))
        assert (found.weights > 0).all()
        again = sum(
            found.weights[..., k : k + 1] * network.each[k](tokens[k].expand(2, 3, 5, 4)) for k in range(variables)
        )
        torch.testing.assert_close(found.tokens, again)


def test_the_choice_sees_every_variable_and_the_context():
    network, tokens = selection(3, context=True)
    context = torch.randn(2, 1, 1, 4)
    weights = network(tokens, context).weights
    for k in range(3):
        changed = [token + (k == number) for number, token in enumerate(tokens)]
        assert (network(changed, context).weights - weights).abs().max() > 1e-3
    assert (network(tokens, context + 1).weights - weights).abs().max() > 1e-3
    # a step is chosen for by itself
    later = [torch.cat((token[..., :4, :], token[..., 4:, :] + 1), dim=-2) for token in tokens]
    torch.testing.assert_close(network(later, context).weights[..., :4, :], weights[..., :4, :])


def test_two_variables_can_be_weighed_in_any_proportion():
    """Layer-normalised scores of two variables would be a sign: the weights would take two values only."""
    network, tokens = selection(2)
    first = network(tokens).weights[..., 0].flatten()
    assert len(first.mul(100).round().unique()) > 10


def test_one_variable_is_chosen_without_a_choice():
    network, tokens = selection(1, context=True)
    found = network(tokens, torch.randn(2, 1, 1, 4))
    assert torch.equal(found.weights, torch.ones(2, 3, 5, 1))
    assert torch.equal(found.tokens, network.each[0](tokens[0]))
    assert {name.split(".")[0] for name, _ in network.named_parameters()} == {"each"}  # nothing that cannot learn
