"""Windows out of a panel: one indexed read of a flat tensor per batch. Legend as in ``tsattn.data.batch``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsattn.data.batch import Batch
from tsattn.data.panel import Panel
from tsattn.data.shuffle import shuffled
from tsattn.data.split import Origins
from tsattn.data.statistics import Scaling
from tsattn.errors import ConfigError

_LONG_SHUFFLE = 1 << 24  # windows from which on the order of an epoch is computed batch by batch, not kept (128 MB)
_BLOCK = 1 << 20  # rows that are read at once


class WindowSource:
    """The flat tensors of a panel on one device, and the gather that reads batches from them.

    ``scale`` is the unit of the loss ``[S, C]`` (ones when nothing is trained). The tensors are made once; on an
    accelerator the gather runs there.
    """

    def __init__(
        self,
        panel: Panel,
        context: int,
        horizon: int,
        scaling: Scaling,
        scale: np.ndarray | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Standardise the covariates: at once, or in each batch when the panel lies on disk."""
        self.context, self.horizon = context, horizon
        self.targets = len(panel.schema.roles.target)
        self.past, self.past_codes = len(panel.schema.numeric("past")), len(panel.schema.categorical("past"))
        self.rows = len(panel.values)
        self._late = panel.on_disk and panel.values.shape[1] > self.targets  # standardise in each batch
        values = panel.values if self._late else _standard_rows(panel.values, self.targets, scaling)
        static = _standard(panel.static_values, scaling.static_mean, scaling.static_deviation)
        scale = np.ones((len(panel), self.targets), dtype=np.float32) if scale is None else scale
        outside = np.full(values.shape[1], np.nan, dtype=np.float32)  # what is read of steps that no series has
        if not self._late:
            outside[self.targets :] = 0.0
        tensors = {
            "values": values if self.rows else outside[None],
            "codes": panel.codes if self.rows else np.zeros((1, panel.codes.shape[1]), dtype=np.int32),
            "outside": outside,
            "mean": np.asarray(scaling.mean, dtype=np.float64),
            "deviation": np.asarray(scaling.deviation, dtype=np.float64),
            "static": static,
            "static_codes": panel.static_codes.astype(np.int64),
            "scale": np.asarray(scale, dtype=np.float32),
            "begin": panel.indptr[:-1],
            "length": panel.lengths,
        }
        self._tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()}
        self._tensors["offsets"] = torch.arange(-context, horizon)
        self.complete = _complete(panel.targets)
        self.to(device)

    def to(self, device: torch.device | str) -> WindowSource:
        """Move the flat tensors to ``device``."""
        self._tensors = {name: tensor.to(device) for name, tensor in self._tensors.items()}
        return self

    @property
    def nbytes(self) -> int:
        """Memory of the flat tensors."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def gather(self, series: Tensor, origin: Tensor) -> Batch:
        """The windows with keys ``(series [B], origin [B])``. Steps outside a series are unobserved."""
        t = self._tensors
        series, origin = series.to(t["begin"].device), origin.to(t["begin"].device)
        start = origin - self.context
        length_of = t["length"].index_select(0, series)
        within = (start >= 0) & (origin + self.horizon <= length_of)
        whole = start.device.type == "cpu" and len(start) > 0 and bool(within.all())  # asking a GPU would wait for it
        if whole:  # the usual batch of training windows: B blocks of neighbouring rows
            start = start + t["begin"].index_select(0, series)
            values, codes = self._blocks(t["values"], start), self._blocks(t["codes"], start)
        else:
            position = origin[:, None] + t["offsets"]  # [B, L + H]
            inside = (position >= 0) & (position < length_of[:, None])
            row = (position + t["begin"][series, None]).clamp_(0, max(self.rows - 1, 0))
            inside = inside[..., None]
            values = torch.where(inside, t["values"][row], t["outside"])
            codes = torch.where(inside, t["codes"][row], 0)
        length, targets, past = self.context, self.targets, self.targets + self.past
        target = values[..., :targets]
        if self._late:
            values[..., targets:] = _standard_late(values[..., targets:], t["mean"], t["deviation"])
        if whole and self.complete:
            observed = torch.ones_like(target, dtype=torch.bool)
        else:
            observed = ~torch.isnan(target)
            target = torch.nan_to_num(target)
        codes = codes.long()
        return Batch(
            past=target[:, :length],
            past_observed=observed[:, :length],
            future=target[:, length:],
            future_observed=observed[:, length:],
            past_cov=values[:, :length, targets:past],
            past_codes=codes[:, :length, : self.past_codes],
            known=values[..., past:],
            known_codes=codes[..., self.past_codes :],
            static=t["static"].index_select(0, series),
            static_codes=t["static_codes"].index_select(0, series),
            scale=t["scale"].index_select(0, series),
            series=series,
            origin=origin,
        )

    def _blocks(self, flat: Tensor, start: Tensor) -> Tensor:
        """Rows ``start[b]`` to ``start[b] + L + H - 1`` of ``flat [rows, K]``, ``[B, L + H, K]``.

        A view in which windows overlap is indexed once per window rather than once per step.
        """
        steps, width = self.context + self.horizon, flat.shape[1]
        if not width:
            return flat.new_zeros(len(start), steps, 0)
        view = flat.as_strided((max(len(flat) - steps + 1, 0), steps, width), (width, width, 1))
        return view.index_select(0, start)


def check_seed(seed: Any) -> int:
    """``seed`` as an integer; raises ConfigError for what is none from 0 to 2**32 - 1 (as in numpy and Lightning)."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ConfigError(f"seed must be a whole number from 0 to 2**32 - 1, found {seed!r}.")
    return int(seed)


class EpochSampler:
    """Batches of window numbers; a seeded shuffle per epoch that knows its position.

    Restoring ``state_dict`` continues in the middle of an epoch with exactly the batches that were still to come. A
    loop that was left early (a limit on batches, a sanity check) is not continued: the next one starts an epoch of
    its own. With several processes, each takes its contiguous share of every global batch, so that together they read
    what one process would. ``batch_size`` is the global one.
    """

    def __init__(
        self,
        windows: int,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        most: int | None = None,
        read: int | None = None,
    ) -> None:
        """Number ``windows`` windows from 0; nothing is dropped, the last batch may be smaller.

        ``most``: batches after which an epoch ends; the next one is shuffled anew. ``read``: windows to read in order,
        evenly spaced, instead of all.
        """
        self.windows, self.batch_size, self.shuffle, self.seed = windows, batch_size, shuffle, seed
        self.rank, self.world, self.most, self.read = rank, world, most, windows if read is None else read
        self.epoch = 0
        self.position = 0  # batches of this epoch already given out
        self._restored = False

    def __len__(self) -> int:
        """Batches in an epoch."""
        batches = -(-self.read // self.batch_size)
        return batches if self.most is None else min(batches, self.most)

    def __iter__(self) -> Iterator[Tensor]:
        """All batches of the next epoch; after ``load_state_dict``, those that remain of the epoch it stands in.

        A loop that knows the length may never ask past the last batch, so the epoch turns over here, at the start.
        """
        if self.position >= len(self) or (self.position and not self._restored):
            self.epoch, self.position = self.epoch + 1, 0
        self._restored = False
        order = self._order()
        while self.position < len(self):
            first = self.position * self.batch_size
            batch = order(first, min(first + self.batch_size, self.read))
            self.position += 1
            yield torch.tensor_split(batch, self.world)[self.rank]

    def _order(self) -> Callable[[int, int], Tensor]:
        """Places ``first`` to ``stop - 1`` of the order of this epoch."""
        if not self.shuffle:
            return lambda first, stop: torch.arange(first, stop) * self.windows // self.read
        seed = self.seed * 1_000_003 + self.epoch
        if self.windows > _LONG_SHUFFLE:
            return lambda first, stop: torch.from_numpy(shuffled(np.arange(first, stop), self.windows, seed))
        order = torch.randperm(self.windows, generator=torch.Generator().manual_seed(seed))
        return lambda first, stop: order[first:stop]

    @contextlib.contextmanager
    def one_back(self) -> Iterator[None]:
        """Inside, the sampler stands where it stood before the batch it gave out last."""
        self.position -= 1
        try:
            yield
        finally:
            self.position += 1

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler stands."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        self.epoch, self.position, self.seed = state["epoch"], state["position"], state["seed"]
        self._restored = True


class WindowLoader:
    """Iterates over batches of one part. A plain iterable: Lightning uses it as it is, workers are not needed."""

    def __init__(self, source: WindowSource, origins: Origins, sampler: EpochSampler) -> None:
        """Read the windows of ``origins`` from ``source`` in the order of ``sampler``."""
        self.source, self.batches = source, sampler
        self._offsets = torch.from_numpy(origins.offsets())
        self._first, self._step = torch.from_numpy(np.asarray(origins.first)), origins.step
        counts = np.unique(origins.counts)
        self._equal = int(counts[0]) if len(counts) == 1 and counts[0] > 0 else None  # windows of every series

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        """Gathered batches."""
        for window in self.batches:
            if self._equal:
                series = window // self._equal
            else:
                series = torch.searchsorted(self._offsets, window, right=True) - 1
            number = window - self._offsets.index_select(0, series)
            origin = self._first.index_select(0, series) + number * self._step
            yield self.source.gather(series, origin)


def _standard_rows(values: np.ndarray, targets: int, scaling: Scaling) -> np.ndarray:
    """``values [rows, C + Kp + Kk]`` with standardised covariates; not a copy when there are none."""
    if values.shape[1] == targets:
        return values
    out = values.copy()
    for place, column in enumerate(range(targets, values.shape[1])):
        out[:, column] = _standard(values[:, column], scaling.mean[place], scaling.deviation[place])
    return out


def _standard(values: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """``(values - mean) / deviation`` as float32 with 0 for NaN; float64 inside, where extremes do not overflow."""
    limit = np.finfo(np.float32).max
    scaled = (values.astype(np.float64) - mean) / deviation
    return np.clip(np.nan_to_num(scaled, copy=False), -limit, limit).astype(np.float32)


def _standard_late(values: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """The same for a gathered batch ``[..., Kp + Kk]``, to the last bit."""
    limit = torch.finfo(torch.float32).max
    return torch.nan_to_num((values.double() - mean) / deviation).clamp_(-limit, limit).float()


def _complete(targets: np.ndarray) -> bool:
    """Whether every target of every step is observed."""
    return not any(np.isnan(targets[begin : begin + _BLOCK]).any() for begin in range(0, len(targets), _BLOCK))
