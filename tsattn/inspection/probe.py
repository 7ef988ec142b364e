"""A fitted network run again over the same windows, with one thing changed: what every intervention is made of.

Legend: ``B`` windows of a batch, ``C`` targets, ``H`` horizon, ``L`` context, ``J`` query tokens, ``I`` key tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tsattn.attention.intervention import Call, Change, changed_weights
from tsattn.data.batch import Batch
from tsattn.data.windows import WindowSource
from tsattn.errors import ConfigError, unknown_name
from tsattn.inference import Record, WindowForecasts, best_device
from tsattn.inspection.support import has_map
from tsattn.models.base import AttentionRecord, Axis, Network, Output

if TYPE_CHECKING:
    from tsattn.data.panel import Panel
    from tsattn.forecaster import Forecaster

BATCH = 256  # windows, copies of a window counted


@dataclass(frozen=True, eq=False)
class Probe:
    """A network, its windows, and where they come from."""

    network: Network
    source: WindowSource
    panel: Panel
    windows: WindowForecasts
    levels: tuple[float, ...]
    model: str
    device: torch.device

    @classmethod
    def of(
        cls,
        forecaster: Forecaster,
        data: Any = None,
        *,
        known: Any = None,
        windows: int | None = None,
        step: Any = None,
    ) -> Probe:
        """The windows ``predict`` forecasts, or with ``windows`` the last origins of each series, as ``backtest`` does.

        Nothing is trained: the forecaster is looked at as it stands. Raises DataError and ConfigError as they do.
        """
        if windows is None:
            found: Any = forecaster.predict(data, known=known)
        elif data is None:
            raise ConfigError("Past origins need a table: pass it as data, or leave windows out to look at predict().")
        else:
            found = forecaster.backtest(data, windows=windows, step=step, refit="never")
        spec = forecaster.network_.spec
        source = WindowSource(found.panel, spec.context, spec.horizon, forecaster.scaling_)
        device = best_device(forecaster._config().accelerator)
        network = forecaster.network_.to(device).eval()
        return cls(network, source, found.panel, found.windows, spec.quantiles, forecaster._model_name(), device)

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.windows.series)

    def take(self, rows: np.ndarray) -> Probe:
        """Some windows, by position."""
        return replace(self, windows=self.windows.take(rows))

    def batches(self, copies: int = 1) -> Iterator[tuple[slice, Batch]]:
        """The windows, in batches small enough for ``copies`` of each; the answer is not in them."""
        size = max(1, BATCH // copies)
        series, origin = (torch.from_numpy(np.asarray(part)) for part in (self.windows.series, self.windows.origin))
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            yield rows, self.source.gather(series[rows], origin[rows]).to(self.device).without_future()

    def run(self, batch: Batch, change: Change | None = None, *, need_weights: bool = False) -> Output:
        """One forward pass, with the attention changed where that is asked for."""
        around: AbstractContextManager[None] = nullcontext() if change is None else changed_weights(change)
        with around:
            return self.network(batch, need_weights=need_weights)

    def point(self, batch: Batch, change: Change | None = None) -> Tensor:
        """The point forecast ``[B, H, C]``, without a gradient."""
        with torch.inference_mode():
            return self.run(batch, change).point

    def layers(self) -> Layers:
        """The attention layers, and which calls of the kernel each of them makes.

        Raises ConfigError for a model without attention, and where calls and maps cannot be matched.
        """
        _, batch = next(self.take(np.arange(1)).batches())
        calls = 0

        def count(call: Call) -> Tensor:
            nonlocal calls
            calls += 1
            return call.weights

        with torch.inference_mode():
            records = [r for r in self.run(batch, count, need_weights=True).attention if not is_selection(r)]
        if not records:
            raise ConfigError(
                f"{self.model} has no attention to look into: use method='occlusion' or 'integrated_gradients', which "
                f"ask what the forecast depends on."
            )
        if calls % len(records) or (len(records) > 1 and calls != len(records)):
            raise ConfigError(
                f"{self.model} returns {len(records)} attention maps but attends {calls} times through "
                f"tsattn.attention, so it is unknown which call made which map. Return one map for each call."
            )
        return Layers(tuple(records), calls)


@dataclass(frozen=True, eq=False)
class Layers:
    """The attention layers of a network, by example records of one window, and the kernel calls of a forward pass."""

    records: tuple[AttentionRecord, ...]
    calls: int

    def of(self, call: int) -> int:
        """Which layer a kernel call belongs to."""
        return call if len(self.records) > 1 else 0

    @property
    def names(self) -> list[str]:
        return [record.layer for record in self.records]

    def chosen(self, layer: int | str | None) -> list[int]:
        """Positions of the layers to change: the one asked for.

        None is the last one that goes from forecast steps to past steps; where there is none, all layers that have the
        key tokens of the last one (patchtst: every encoder layer; itransformer: every layer over variables).
        """
        if layer is not None:
            return [self._position(layer)]
        mapped = [i for i, record in enumerate(self.records) if has_map(record)]
        if mapped:
            return mapped[-1:]
        return [i for i, record in enumerate(self.records) if record.key == self.records[-1].key]

    def _position(self, layer: int | str) -> int:
        names = self.names
        if isinstance(layer, str):
            if layer not in names:
                raise unknown_name("layer", layer, names)
            return names.index(layer)
        if not -len(names) <= layer < len(names):
            raise IndexError(f"layer {layer} does not exist: there are {len(names)}, from 0 to {len(names) - 1}.")
        return layer % len(names)


def is_selection(record: AttentionRecord | Record) -> bool:
    """Whether a record is a choice among variables, which no kernel made: steps ask, variables answer."""
    return record.key.kind == "variable" and record.query.kind != "variable"


def repeat(batch: Batch, copies: int) -> Batch:
    """``copies`` of the batch one after the other, ``[copies * B, ...]``."""
    return batch.select(torch.arange(len(batch), device=batch.past.device).repeat(copies))


def horizon_steps(horizon: int) -> Axis:
    """One token per forecast step."""
    steps = tuple(range(horizon + 1))
    return Axis("horizon", steps[:-1], steps[1:])
