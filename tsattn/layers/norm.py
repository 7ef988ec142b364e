"""Instance normalisation whose state is passed, not remembered.

Legend: ``B`` windows, ``T`` steps (``L`` of the past, ``H`` of the future), ``C`` targets.

After "Reversible instance normalisation" (Kim et al., ICLR 2022) without its affine part. What differs is the
arithmetic: values are shifted by the last observed one and divided by the largest distance from it before anything is
squared, so constants give exact zeros, and levels of 1e12, spikes of 1e5, values of 1e-12 and 1e30 survive float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

FLOOR = 1e-8  # deviation given to a constant window, relative to its level: less than float32 can resolve
TINY = 1e-30  # the smallest deviation, for a window of zeros


class WindowScale(NamedTuple):
    """Location and unit of each window and target: what ``normalise`` took away."""

    loc: Tensor  # [B, C], data units
    scale: Tensor  # [B, C], data units, > 0

    def undo(self, z: Tensor) -> Tensor:
        """Back to data units: ``[B, T, C]`` in deviations of the window -> ``[B, T, C]`` float32."""
        return self.loc[:, None] + self.scale[:, None] * z.to(self.scale.dtype)


def full_precision(values: Tensor) -> Tensor:
    """``values`` in float32, or left alone when already finer."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def last_observed(values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """The newest observed entry along dim 1, and how many steps before the end it stands.

    ``[B, T, ...]`` twice -> ``[B, ...]`` value (0 where nothing is observed) and ``[B, ...]`` int64 age (0 at the
    last step; ``T`` where nothing is observed).
    """
    length = values.shape[1]
    step = torch.arange(1, length + 1, device=values.device).view(1, -1, *[1] * (values.dim() - 2))
    newest = (observed * step).amax(dim=1)  # [B, ...], 1-based; 0 = none
    value = values.gather(1, (newest - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
    return torch.where(newest > 0, value, torch.zeros_like(value)), length - newest


def root_mean_square(values: Tensor, observed: Tensor) -> Tensor:
    """Root mean square of the observed entries along dim 1, without overflow: ``[B, T, C] -> [B, C]``; 0 if none."""
    values = torch.where(observed, values, torch.zeros_like(values))
    peak = values.abs().amax(dim=1)  # [B, C]
    unit = values / torch.where(peak > 0, peak, torch.ones_like(peak))[:, None]
    mean = unit.square().sum(dim=1) / observed.sum(dim=1).clamp(min=1)
    return peak * mean.sqrt()


def from_last(z: Tensor, observed: Tensor, window: WindowScale) -> tuple[Tensor, WindowScale]:
    """The same window counted from its last observed value instead of its mean: ``z [B, L, C]`` of ``normalise``.

    For series that wander and have no level to return to. The unit stays the deviation around the mean.
    """
    last = _fixed(lambda: (last_observed(z, observed)[0],), len(z))[0]  # [B, C]
    moved = torch.where(observed, z - last[:, None], torch.zeros_like(z))
    return moved, WindowScale(window.loc + window.scale * last, window.scale)


def normalise(past: Tensor, observed: Tensor) -> tuple[Tensor, WindowScale]:
    """Each window and target to mean 0 and deviation 1 over its observed steps.

    ``past [B, L, C]`` in any unit, ``observed [B, L, C]`` bool -> ``z [B, L, C]`` float32, exactly 0 where unobserved
    and where the window is constant. A constant window gets a deviation far below its own resolution, so that every
    network forecasts the constant; a window with nothing observed gets location 0.
    """
    with torch.autocast(past.device.type, enabled=False):
        past = full_precision(past)
        if _FIXED.get() is not None:
            fixed = WindowScale(*_fixed(lambda: _normalise(past, observed)[1], len(past)))
            z = (past - fixed.loc[:, None]) / fixed.scale[:, None]
            return torch.where(observed, z, torch.zeros_like(z)), fixed
        return _normalise(past, observed)


def _normalise(past: Tensor, observed: Tensor) -> tuple[Tensor, WindowScale]:
    zero = past.new_zeros(())
    # z depends neither on the shift nor on the peak, so both may be constants to the gradient
    shift = last_observed(past.detach(), observed)[0]  # [B, C]
    moved = torch.where(observed, past - shift[:, None], zero)  # [B, L, C]
    peak = moved.detach().abs().amax(dim=1)  # [B, C]
    varies = peak > 0
    divisor = torch.where(varies, peak, torch.ones_like(peak))  # [B, C]
    unit = moved / divisor[:, None]  # in [-1, 1]
    count = observed.sum(dim=1).clamp(min=1)
    mean = unit.sum(dim=1) / count
    centred = torch.where(observed, unit - mean[:, None], zero)
    variance = centred.square().sum(dim=1) / count
    # sqrt(0) would have an infinite slope
    deviation = torch.where(varies, variance, torch.ones_like(variance)).sqrt()
    loc = shift + divisor * mean
    scale = torch.where(varies, divisor * deviation, FLOOR * loc.detach().abs()).clamp(min=TINY)
    return centred / deviation[:, None], WindowScale(loc, scale)


class FixedStatistics:
    """Statistics of windows, measured in one forward pass and used again in others; see ``fixed_statistics``."""

    def __init__(self) -> None:
        self._found: list[tuple[Tensor, ...]] = []
        self._next = 0

    def rewind(self) -> None:
        """Another forward pass begins, over the same windows or several copies of them one after the other."""
        self._next = 0

    def take(self, measure: Callable[[], tuple[Tensor, ...]], windows: int) -> tuple[Tensor, ...]:
        """The next statistics, ``[B, ...]`` each: measured if there are none yet."""
        if self._next == len(self._found):
            self._found.append(tuple(part.detach() for part in measure()))
        found = self._found[self._next]
        self._next += 1
        return tuple(part.repeat(windows // len(part), *(1,) * (part.dim() - 1)) for part in found)


_FIXED: ContextVar[FixedStatistics | None] = ContextVar("fixed_statistics", default=None)


@contextmanager
def fixed_statistics(fixed: FixedStatistics | None = None) -> Iterator[FixedStatistics]:
    """Inside, a forward pass measures level and unit of its windows, or is given those that another one measured.

    When a step is taken out of a window, its mean and deviation change with it: every output would then depend on
    every step. With the statistics fixed, what changes is what the network made of the step itself. One forward pass
    belongs in each ``with``; give what the first one yields to the later ones.
    """
    fixed = FixedStatistics() if fixed is None else fixed
    fixed.rewind()
    token = _FIXED.set(fixed)
    try:
        yield fixed
    finally:
        _FIXED.reset(token)


def _fixed(measure: Callable[[], tuple[Tensor, ...]], windows: int) -> tuple[Tensor, ...]:
    fixed = _FIXED.get()
    return measure() if fixed is None else fixed.take(measure, windows)
