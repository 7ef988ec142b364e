"""Instance normalisation: hand numbers, gaps, and values that break float32 when squared."""

from __future__ import annotations

import math

import pytest
import torch

from tsattn.layers.norm import WindowScale, from_last, last_observed, normalise, root_mean_square


def window(values: list[float], observed: list[int] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    seen = torch.ones(len(values)) if observed is None else torch.tensor(observed)
    return torch.tensor(values).view(1, -1, 1), seen.bool().view(1, -1, 1)


def test_hand_numbers():
    z, scale = normalise(*window([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]))  # mean 5, deviation 2
    assert scale.loc.item() == pytest.approx(5.0)
    assert scale.scale.item() == pytest.approx(2.0)
    torch.testing.assert_close(z.flatten(), torch.tensor([-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0]))


def test_unobserved_steps_are_zero_and_do_not_count():
    past, observed = window([0.0, 1.0, 3.0, float("nan")], [0, 1, 1, 0])
    z, scale = normalise(past, observed)
    torch.testing.assert_close(z.flatten(), torch.tensor([0.0, -1.0, 1.0, 0.0]))
    assert (scale.loc.item(), scale.scale.item()) == (2.0, 1.0)


def test_each_window_and_target_has_its_own_scale():
    past = torch.randn(4, 50, 3) * torch.rand(4, 1, 3) * 100 + torch.randn(4, 1, 3) * 1000
    z, scale = normalise(past, torch.ones_like(past, dtype=torch.bool))
    torch.testing.assert_close(scale.loc, past.mean(1), rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(scale.scale, past.std(1, correction=0), rtol=1e-4, atol=0)
    torch.testing.assert_close(scale.undo(z), past, rtol=1e-6, atol=1e-3)


@pytest.mark.parametrize("value", [0.0, 7.0, -1e-12, 1e12, 1e30])
def test_constants_are_exact(value):
    z, scale = normalise(*window([value] * 64))
    assert torch.equal(z, torch.zeros_like(z))
    assert scale.loc.item() == pytest.approx(value, rel=1e-7)
    assert 0 < scale.scale.item() <= max(1e-7 * abs(value), 1.1e-30)
    torch.testing.assert_close(
        scale.undo(torch.full((1, 5, 1), 10.0)).flatten(), torch.full((5,), value), rtol=1e-6, atol=1e-28
    )


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12, 1e30])
def test_the_unit_does_not_matter(unit):
    values = [1.0, 4.0, 2.0, 8.0, 5.0, 7.0]
    expected, _ = normalise(*window(values))
    z, scale = normalise(*window([value * unit for value in values]))
    torch.testing.assert_close(z, expected, rtol=1e-5, atol=1e-5)
    assert scale.scale.item() == pytest.approx(unit * 2.5, rel=0.05)


def test_a_high_level_keeps_the_digits_float32_has():
    noise = torch.randint(-20, 20, (1, 100, 1)).float() * 65536.0
    z, scale = normalise(1e12 + noise, torch.ones(1, 100, 1, dtype=torch.bool))
    assert scale.scale.item() == pytest.approx(noise.std(correction=0).item(), rel=1e-2)
    assert z.square().mean().item() == pytest.approx(1.0, rel=1e-4)


def test_a_spike_of_1e5_after_zeros():
    z, scale = normalise(*window([0.0] * 79 + [1e5]))
    assert z.isfinite().all()
    assert scale.scale.item() == pytest.approx(1e5 * math.sqrt(1 / 80 - 1 / 6400), rel=1e-5)
    assert z[0, -1, 0].item() == pytest.approx(math.sqrt(79), rel=1e-5)


def test_nothing_observed():
    z, scale = normalise(*window([3.0, float("nan")], [0, 0]))
    assert torch.equal(z, torch.zeros_like(z))
    assert scale.loc.item() == 0.0
    assert scale.scale.item() > 0.0


def test_half_precision_is_widened():
    past, observed = window([60000.0, 60001.0, 30000.0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z, scale = normalise(past.half(), observed)
    assert z.dtype == scale.loc.dtype == torch.float32
    assert z.isfinite().all()


@pytest.mark.parametrize("values", [[7.0, 7.0, 7.0], [3.0], [1.0, 2.0, 5.0]])
def test_gradients(values):
    past = torch.tensor(values, dtype=torch.float64).view(1, -1, 1).requires_grad_()
    observed = torch.ones_like(past, dtype=torch.bool)
    z, scale = normalise(past, observed)
    scale.loc.sum().backward(retain_graph=True)
    torch.testing.assert_close(past.grad, torch.full_like(past, 1 / len(values)))  # the slope of a mean
    z.sum().backward()
    assert past.grad.isfinite().all()
    if len(set(values)) > 1:
        assert torch.autograd.gradcheck(
            lambda x: torch.cat((normalise(x, observed)[0].flatten(), *map(torch.flatten, normalise(x, observed)[1]))),
            past,
        )


def test_undo():
    scale = WindowScale(torch.tensor([[1.0, 10.0]]), torch.tensor([[2.0, 0.5]]))
    z = torch.tensor([[[1.0, 1.0], [-1.0, 4.0]]])
    torch.testing.assert_close(scale.undo(z), torch.tensor([[[3.0, 10.5], [-1.0, 12.0]]]))


def test_last_observed():
    past, observed = window([5.0, 6.0, 7.0, 8.0], [1, 1, 0, 0])
    value, age = last_observed(past, observed)
    assert (value.item(), age.item()) == (6.0, 2)
    value, age = last_observed(past, torch.zeros_like(observed))
    assert (value.item(), age.item()) == (0.0, 4)


def test_root_mean_square():
    values, observed = window([3.0, 4.0, 100.0], [1, 1, 0])
    assert root_mean_square(values, observed).item() == pytest.approx(math.sqrt(12.5))
    assert root_mean_square(values * 1e30, observed).item() == pytest.approx(math.sqrt(12.5) * 1e30, rel=1e-5)
    assert root_mean_square(values, torch.zeros_like(observed)).item() == 0.0


def test_from_last_counts_from_the_last_observed_value():
    past = torch.tensor([[[1.0], [5.0], [3.0], [9.0]]])
    observed = torch.tensor([[[True], [True], [True], [False]]])
    z, window = normalise(past, observed)
    moved, level = from_last(z, observed, window)
    assert level.loc.item() == pytest.approx(3.0)
    assert torch.equal(level.scale, window.scale)
    back = level.undo(moved)[0, :, 0]
    torch.testing.assert_close(back[:3], past[0, :3, 0])
    assert moved[0, 3, 0] == 0  # unobserved stays 0
    nothing = torch.zeros_like(observed)
    assert from_last(*(normalise(past, nothing)[0], nothing, normalise(past, nothing)[1]))[0].abs().max() == 0
