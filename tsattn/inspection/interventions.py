"""Attribution by changing something and forecasting again: keys hidden, values zeroed, stretches of the past replaced.

Legend as in ``tsattn.inspection.attribute``.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsattn.attention.intervention import Call, Change, without_keys
from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.inspection.options import Attribution, Options
from tsattn.inspection.probe import Layers, Probe, horizon_steps
from tsattn.inspection.replace import Replacement
from tsattn.layers.norm import FixedStatistics, fixed_statistics
from tsattn.models.base import Axis


def knockout(probe: Probe, options: Options) -> Attribution:
    """``y`` minus ``y`` with one key hidden from every query and head of the layer, for each key."""
    return _by_key(probe, options, renormalise=True)


def value_zeroing(probe: Probe, options: Options) -> Attribution:
    """``y`` minus ``y`` with the value of one key at zero, for each key. Mohebbi et al., EACL 2023, on the forecast."""
    return _by_key(probe, options, renormalise=False)


def _by_key(probe: Probe, options: Options, *, renormalise: bool) -> Attribution:
    layers = probe.layers()
    chosen = layers.chosen(options.layer)
    key = layers.records[chosen[-1]].key
    parts = []
    for _, batch in probe.batches():
        point = probe.point(batch)
        effects = [
            point - probe.point(batch, hide(layers, chosen, torch.tensor([token]), renormalise=renormalise))
            for token in range(len(key))
        ]
        parts.append(_joined(effects))
    names = ", ".join(layers.names[i] for i in chosen)
    return Attribution(np.concatenate(parts), horizon_steps(probe.network.spec.horizon), key, names)


def hide(layers: Layers, chosen: list[int], tokens: Tensor, *, renormalise: bool = True) -> Change:
    """A change of weights that hides key ``tokens [n]`` in the chosen layers."""

    def change(call: Call) -> Tensor:
        if layers.of(call.number) not in chosen:
            return call.weights
        hidden = torch.zeros(call.weights.shape[-1], dtype=torch.bool, device=call.weights.device)
        hidden[tokens] = True
        return without_keys(call, hidden, renormalise=renormalise)

    return change


def occlusion(probe: Probe, options: Options) -> Attribution:
    """``y`` minus ``y`` with one stretch of the past replaced, for each stretch. After Zeiler and Fergus, 2014."""
    blocks = block_axis(probe, options.block)
    fill = Replacement(probe, options.replace, options.seed)
    parts = []
    for rows, batch in probe.batches():
        runner = Occluder(probe, batch, fixed=options.statistics == "fixed", frozen=options.attention == "frozen")
        effects = []
        for start, end in zip(blocks.start, blocks.end, strict=True):
            hidden = torch.zeros(batch.past.shape[:2], dtype=torch.bool, device=batch.past.device)
            hidden[:, max(start, 0) : end] = True
            changed = [runner.run(fill(batch, rows, hidden, draw)) for draw in range(fill.draws)]
            effects.append(runner.point - torch.stack(changed).mean(dim=0))
        parts.append(_joined(effects))
    frozen = ("attention frozen",) if options.attention == "frozen" else ()
    notes = (f"replaced by {fill.how}", f"statistics {options.statistics}", *frozen)
    query = horizon_steps(probe.network.spec.horizon)
    return Attribution(np.concatenate(parts), query, blocks, "occlusion", notes=notes)


class Occluder:
    """Forecasts of changed windows of a batch, with statistics and attention of the full windows where asked for."""

    def __init__(self, probe: Probe, batch: Batch, *, fixed: bool, frozen: bool = False) -> None:
        """The first forecast, of the windows as they are, is ``point [B, H, C]``."""
        self._probe = probe
        self._fixed: FixedStatistics | None = None
        self._weights: dict[int, Tensor] = {}
        self._frozen = frozen
        if fixed:
            with fixed_statistics() as self._fixed:
                self.point = probe.point(batch, self._keep if frozen else None)
        else:
            self.point = probe.point(batch, self._keep if frozen else None)

    def run(self, batch: Batch) -> Tensor:
        """The forecast ``[n * B, H, C]`` of ``n`` changed copies of the batch, one after the other."""
        around: Any = nullcontext() if self._fixed is None else fixed_statistics(self._fixed)
        with around:
            return self._probe.point(batch, self._same if self._frozen else None)

    def _keep(self, call: Call) -> Tensor:
        self._weights[call.number] = call.weights
        return call.weights

    def _same(self, call: Call) -> Tensor:
        return self._weights[call.number]


def block_axis(probe: Probe, block: int | str) -> Axis:
    """Stretches of the past, the newest one complete.

    "auto": the patches of the attention where they do not overlap, else a quarter of a season (Turbe et al., 2023, and
    others delete stretches, since a single step can be told from its neighbours).
    """
    length = probe.network.spec.context
    if block == "auto":
        key = _attended(probe)
        if (
            key is not None
            and key.kind == "patch"
            and all(a >= b for a, b in zip(key.start[1:], key.end, strict=False))
        ):
            return Axis("patch", key.start, key.end)
        block = max(1, probe.panel.schema.freq.season() // 4)
    if isinstance(block, bool) or not isinstance(block, int) or not 1 <= block <= length:
        raise ConfigError(f"block is 'auto' or a number of steps from 1 to the context of {length}; got {block!r}.")
    start = tuple(range(length % block - block if length % block else 0, length, block))
    return Axis("patch", start, tuple(step + block for step in start))


def _attended(probe: Probe) -> Axis | None:
    """The key tokens of the attention, where the model has any."""
    try:
        layers = probe.layers()
    except ConfigError:
        return None
    return layers.records[layers.chosen(None)[-1]].key


def _joined(effects: list[Tensor]) -> np.ndarray:
    """Effects ``[B, H, C]`` of each key ``-> [B, C, 1, H, I]``."""
    return np.asarray(torch.stack(effects, dim=-1).permute(0, 2, 1, 3)[:, :, None].float().cpu().numpy())
