"""Attribution by gradients: of the forecast by its attention weights, and by the past along a line.

Legend as in ``tsattn.inspection.attribute``; ``S`` points of a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tsattn.attention.intervention import Call
from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.inspection.options import Attribution, Options
from tsattn.inspection.probe import Probe, horizon_steps, repeat
from tsattn.layers.norm import FixedStatistics, fixed_statistics, normalise
from tsattn.models.base import AttentionRecord, Axis


def attention_x_grad(probe: Probe, options: Options) -> Attribution:
    """Each weight times the slope of the forecast in it: ``sum_j A[n, j, i] dy_h / dA[n, j, i]`` over the queries.

    After Chefer et al., ICCV 2021, who keep positive values alone: for a forecast that would throw away half of what
    was read, so the sign stays.
    """
    layers = probe.layers()
    chosen = layers.chosen(options.layer)[-1]
    example = layers.records[chosen]
    parts = []
    with _gradients():
        for _, batch in probe.batches():
            kept: list[Tensor] = []

            def keep(call: Call, kept: list[Tensor] = kept) -> Tensor:
                if layers.of(call.number) != chosen:
                    return call.weights
                kept.append(call.weights.detach().requires_grad_())
                return kept[-1]

            point = probe.run(batch, keep).point  # [B, H, C]
            parts.append(_slopes(point, kept, example, len(batch)))
    query = horizon_steps(probe.network.spec.horizon)
    return Attribution(np.concatenate(parts), query, example.key, example.layer)


def _slopes(point: Tensor, kept: list[Tensor], example: AttentionRecord, windows: int) -> np.ndarray:
    """``[B, C, N, H, I]``: weight times slope for each forecast step of each target."""
    _, targets, heads, _, keys = example.weights.shape
    found = point.new_zeros(windows, point.shape[2], heads, point.shape[1], keys)
    for target in range(point.shape[2]):
        for step in range(point.shape[1]):
            slopes = torch.autograd.grad(point[:, step, target].sum(), kept, retain_graph=True, allow_unused=True)
            for weights, slope in zip(kept, slopes, strict=True):
                if slope is not None:
                    product = (weights.detach() * slope).reshape(windows, targets, heads, -1, keys)
                    found[:, target, :, step] += product.sum(dim=(1, 3))  # other targets have no slope, unless shared
    return np.asarray(found.cpu().numpy())


def integrated_gradients(probe: Probe, options: Options) -> Attribution:
    """The gradient of the forecast along the straight line from the mean of the window to the window.

    Sundararajan, Taly and Yan, ICML 2017, by Gauss-Legendre points. With every column added up, a row sums to ``y``
    minus the forecast of a window that stays at its mean, up to the error of the sum over ``steps`` points. Past-only
    covariates start at their mean in the training part; categories stay as they are.
    """
    spec = probe.network.spec
    columns = _columns(probe, options.variable)
    nodes, shares = np.polynomial.legendre.leggauss(options.steps)
    where = torch.from_numpy((nodes + 1) / 2).to(probe.device, torch.float32)  # in (0, 1)
    share = torch.from_numpy(shares / 2).to(probe.device, torch.float32)
    parts = []
    with _gradients():
        for _, batch in probe.batches(copies=options.steps):
            level = normalise(batch.past, batch.past_observed)[1].loc[:, None]
            start = torch.where(batch.past_observed, level, torch.zeros_like(batch.past))
            line = _Line(batch, start, where)
            point = line.forecast(probe, options.statistics == "fixed")  # [S * B, H, C]
            parts.append(_integrated(point, line, share, columns))
    axis = Axis("time", tuple(range(spec.context)), tuple(range(1, spec.context + 1)))
    notes = (f"statistics {options.statistics}",) + ((options.variable,) if options.variable else ())
    return Attribution(np.concatenate(parts), horizon_steps(spec.horizon), axis, "integrated_gradients", notes=notes)


class _Line:
    """Points of the lines from ``start`` to the windows of a batch, as one batch ``[S * B, ...]`` with a gradient."""

    def __init__(self, batch: Batch, start: Tensor, where: Tensor) -> None:
        self.batch, self.points = batch, len(where)
        self.moves = (batch.past - start, batch.past_cov)  # what is walked: from the mean, which is 0 for covariates
        self.past = (start + where.view(-1, 1, 1, 1) * self.moves[0]).flatten(0, 1).requires_grad_()
        self.cov = (where.view(-1, 1, 1, 1) * self.moves[1]).flatten(0, 1).requires_grad_()

    def forecast(self, probe: Probe, fixed: bool) -> Tensor:
        many = replace(repeat(self.batch, self.points), past=self.past, past_cov=self.cov)
        if not fixed:
            return probe.run(many).point
        with torch.no_grad(), fixed_statistics() as found:
            probe.run(self.batch)
        return self._given(probe, many, found)

    def _given(self, probe: Probe, many: Batch, found: FixedStatistics) -> Tensor:
        with fixed_statistics(found):
            return probe.run(many).point


def _integrated(point: Tensor, line: _Line, share: Tensor, columns: list[tuple[int, int]]) -> np.ndarray:
    """``[B, C, 1, H, L]``, summed over the columns (input 0 the targets, 1 the covariates; position)."""
    windows, length = line.batch.past.shape[:2]
    found = point.new_zeros(windows, point.shape[2], 1, point.shape[1], length)
    inputs = (line.past, line.cov)
    for target in range(point.shape[2]):
        for step in range(point.shape[1]):
            slopes = torch.autograd.grad(point[:, step, target].sum(), inputs, retain_graph=True, allow_unused=True)
            for which, column in columns:
                slope = slopes[which]
                if slope is not None:
                    mean = torch.einsum("sbl,s->bl", slope[..., column].unflatten(0, (line.points, windows)), share)
                    found[:, target, 0, step] += mean * line.moves[which][..., column]
    return np.asarray(found.detach().cpu().numpy())


def _columns(probe: Probe, variable: str | None) -> list[tuple[int, int]]:
    """Which columns are added up: (0, position among the targets) or (1, position among the numeric covariates)."""
    schema = probe.panel.schema
    names = [*((name, (0, i)) for i, name in enumerate(schema.roles.target))]
    names += [(name, (1, i)) for i, name in enumerate(schema.numeric("past"))]
    if variable is None:
        return [place for _, place in names]
    found = [place for name, place in names if name == variable]
    if not found:
        raise ConfigError(
            f"No numeric column {variable!r} whose past is read. There are {', '.join(name for name, _ in names)}."
        )
    return found


@contextmanager
def _gradients() -> Iterator[None]:
    """Gradients on; cuDNN's recurrent layers have none in eval mode, so torch's own take their place."""
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        yield
