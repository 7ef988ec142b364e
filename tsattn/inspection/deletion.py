"""Taking the past away in the order of a map: does what it points at move the forecast more than anything else?

Legend: ``W`` windows, ``B`` those of a batch, ``M`` stretches of the past, ``K`` of them removed one after the other,
``R`` random orders, ``L`` context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tsattn.data.batch import Batch
from tsattn.inspection.interventions import Occluder
from tsattn.inspection.probe import Probe
from tsattn.inspection.replace import Replacement
from tsattn.models.base import Axis


@dataclass(frozen=True, eq=False)
class Deletion:
    """How far the forecast moved, in units of ``scale``, when stretches were removed in an order.

    ``effect [W, K]``: mean over the horizon of ``|f(x) - f(x without the first k)|``. ``path [W, K]``: the same from
    each step to the next, added up, in which opposite effects do not cancel (Jang et al., "TIMING", ICML 2025). For
    random orders both are means over the orders.
    """

    effect: np.ndarray
    path: np.ndarray

    @property
    def score(self) -> np.ndarray:
        """Area under the curve of each window, ``[W]`` (AOPC; Samek et al., 2017)."""
        return self.effect.mean(axis=1)


def stretch_scores(rows: np.ndarray, blocks: Axis) -> np.ndarray:
    """Sizes of ``rows [W, L]`` summed over each stretch: ``[W, M]``."""
    length = rows.shape[1]
    sums = [
        np.abs(rows[:, max(s, 0) : min(e, length)]).sum(axis=1) for s, e in zip(blocks.start, blocks.end, strict=True)
    ]
    return np.stack(sums, axis=1)


def delete(
    probe: Probe, blocks: Axis, orders: dict[str, np.ndarray], how: str, *, target: int, scale: np.ndarray, seed: int
) -> dict[str, Deletion]:
    """Remove stretches in each order ``[W, R, K]`` (positions of stretches) and forecast after each.

    Level and unit of the full window are held fixed. Where a replacement is drawn, effects are averaged over its draws;
    with several orders (random ones) one draw each does.
    """
    fill = Replacement(probe, how, seed)
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in orders}
    for rows, batch in probe.batches():
        runner = Occluder(probe, batch, fixed=True)
        unit = torch.from_numpy(scale[rows]).to(runner.point)
        for name, order in orders.items():
            several = order.shape[1] > 1
            runs = [(r, d) for r in range(order.shape[1]) for d in ([r % fill.draws] if several else range(fill.draws))]
            found = [_walk(runner, fill, batch, rows, blocks, order[rows, r], d, target) for r, d in runs]
            effect, path = (torch.stack([run[i] for run in found]).mean(dim=0) / unit[:, None] for i in (0, 1))
            parts[name].append((effect.cpu().numpy(), path.cpu().numpy()))
    return {name: Deletion(*(np.concatenate(p) for p in zip(*found, strict=True))) for name, found in parts.items()}


def _walk(
    runner: Occluder,
    fill: Replacement,
    batch: Batch,
    rows: slice,
    blocks: Axis,
    order: np.ndarray,
    draw: int,
    target: int,
) -> tuple[Tensor, Tensor]:
    """One order ``[B, K]``: how far the forecast is after each removal, and the way it went, ``[B, K]`` each."""
    covers = torch.from_numpy(_covers(blocks, batch.past.shape[1])).to(batch.past.device)
    hidden = torch.zeros(batch.past.shape[:2], dtype=torch.bool, device=batch.past.device)
    before, way = runner.point, torch.zeros(len(batch), device=batch.past.device)
    far, ways = [], []
    for step in range(order.shape[1]):
        hidden = hidden | covers[torch.from_numpy(order[:, step]).to(hidden.device)]
        now = runner.run(fill(batch, rows, hidden, draw))
        far.append((now - runner.point)[..., target].abs().mean(dim=1))
        way = way + (now - before)[..., target].abs().mean(dim=1)
        ways.append(way)
        before = now
    return torch.stack(far, dim=1), torch.stack(ways, dim=1)


def _covers(blocks: Axis, length: int) -> np.ndarray:
    step = np.arange(length)
    return np.stack([(step >= s) & (step < e) for s, e in zip(blocks.start, blocks.end, strict=True)])


def random_orders(windows: int, stretches: int, removed: int, draws: int, seed: int) -> np.ndarray:
    """Random orders of the stretches for each window, ``[W, draws, removed]``."""
    random = np.random.default_rng(seed)
    base = np.broadcast_to(np.arange(stretches), (windows, draws, stretches))
    return random.permuted(base, axis=2)[:, :, :removed]
