"""Windows out of a panel: one indexed read of a flat tensor per batch. Legend as in ``tsattn.data.batch``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsattn.data.batch import Batch
from tsattn.data.panel import Panel
from tsattn.data.split import Origins
from tsattn.errors import ConfigError
from tsattn.typed import typed

_TINY = float(np.finfo(np.float32).tiny)  # a deviation below this is none: dividing by it would overflow


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and deviation of the numeric covariates in the training part; missing ones enter as the mean (0)."""

    mean: np.ndarray  # [Kp + Kk] float32
    deviation: np.ndarray  # [Kp + Kk] float32, 1 where a column is constant
    static_mean: np.ndarray  # [Ks] float32
    static_deviation: np.ndarray  # [Ks] float32

    @classmethod
    def fit(cls, panel: Panel, end: np.ndarray) -> Scaling:
        """Statistics of the steps before ``end[s]`` of each series, in float64."""
        rows = _rows_before(panel, end)
        covariates = panel.values[:, len(panel.schema.roles.target) :]
        covariates = covariates if rows is None else covariates[rows]
        return cls(*_moments(covariates), *_moments(panel.static_values))

    def to_dict(self) -> dict[str, list[float]]:
        """Plain data for JSON."""
        return {name: [float(x) for x in getattr(self, name)] for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, data: dict[str, list[float]]) -> Scaling:
        """Inverse of ``to_dict``; raises TypeError for what is no list of numbers."""
        lists = typed(dict[str, tuple[float, ...]], data, "scaling")
        return cls(**{name: np.asarray(values, dtype=np.float32) for name, values in lists.items()})


def target_scale(panel: Panel, end: np.ndarray) -> np.ndarray:
    """Deviation of each target of each series over the steps before ``end[s]``, ``[S, C]`` float32.

    The unit of the training loss, so that large and small series count alike. A constant series takes the deviation
    of the others (their median), or 1.
    """
    rows = _rows_before(panel, end)
    values = (panel.targets if rows is None else panel.targets[rows]).astype(np.float64)
    lengths = np.minimum(end, panel.lengths)
    there = ~np.isnan(values)
    count, total = _sum_by_series(there, lengths), _sum_by_series(np.where(there, values, 0.0), lengths)
    mean = total / np.maximum(count, 1)
    centred = np.where(there, values - np.repeat(mean, lengths, axis=0), 0.0)
    deviation = np.sqrt(_sum_by_series(centred**2, lengths) / np.maximum(count, 1))
    flat = deviation <= np.maximum(1e-6 * np.abs(mean), _TINY)
    for target in range(values.shape[1]):
        good = deviation[~flat[:, target], target]
        deviation[flat[:, target], target] = np.median(good) if len(good) else 1.0
    return deviation.astype(np.float32)


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
        """Standardise the covariates and append the row that stands for every step outside a series."""
        self.context, self.horizon = context, horizon
        self.targets = len(panel.schema.roles.target)
        self.past, self.past_codes = len(panel.schema.numeric("past")), len(panel.schema.categorical("past"))
        self.rows = len(panel.values)
        values = np.empty((self.rows + 1, panel.values.shape[1]), dtype=np.float32)
        values[:-1] = panel.values
        values[-1] = np.nan
        for column in range(self.targets, values.shape[1]):
            place = column - self.targets
            values[:, column] = _standard(values[:, column], scaling.mean[place], scaling.deviation[place])
        static = _standard(panel.static_values, scaling.static_mean, scaling.static_deviation)
        scale = np.ones((len(panel), self.targets), dtype=np.float32) if scale is None else scale
        tensors = {
            "values": values,
            "codes": np.concatenate([panel.codes, np.zeros_like(panel.codes, shape=(1, panel.codes.shape[1]))]),
            "static": static,
            "static_codes": panel.static_codes.astype(np.int64),
            "scale": np.asarray(scale, dtype=np.float32),
            "begin": panel.indptr[:-1],
            "length": panel.lengths,
        }
        self._tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in tensors.items()}
        self._tensors["offsets"] = torch.arange(-context, horizon)
        self.complete = not np.isnan(values[:-1, : self.targets]).any()  # every target of every step is observed
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
            row = torch.where(inside, position + t["begin"][series, None], self.rows)
            values, codes = t["values"][row], t["codes"][row]
        length, targets, past = self.context, self.targets, self.targets + self.past
        target = values[..., :targets]
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
        """Rows ``start[b]`` to ``start[b] + L + H - 1`` of ``flat [rows + 1, K]``, ``[B, L + H, K]``.

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

    def __init__(self, windows: int, batch_size: int, *, shuffle: bool, seed: int = 0, rank: int = 0, world: int = 1):
        """Number ``windows`` windows from 0; nothing is dropped, the last batch may be smaller."""
        self.windows, self.batch_size, self.shuffle, self.seed = windows, batch_size, shuffle, seed
        self.rank, self.world = rank, world
        self.epoch = 0
        self.position = 0  # batches of this epoch already given out
        self._restored = False

    def __len__(self) -> int:
        """Batches in an epoch."""
        return -(-self.windows // self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        """All batches of the next epoch; after ``load_state_dict``, those that remain of the epoch it stands in.

        A loop that knows the length may never ask past the last batch, so the epoch turns over here, at the start.
        """
        if self.position >= len(self) or (self.position and not self._restored):
            self.epoch, self.position = self.epoch + 1, 0
        self._restored = False
        order = self._order()
        while self.position < len(self):
            batch = order[self.position * self.batch_size : (self.position + 1) * self.batch_size]
            self.position += 1
            yield torch.tensor_split(batch, self.world)[self.rank]

    def _order(self) -> Tensor:
        if not self.shuffle:
            return torch.arange(self.windows)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        return torch.randperm(self.windows, generator=generator)

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


def _standard(values: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """``(values - mean) / deviation`` as float32 with 0 for NaN; float64 inside, where extremes do not overflow."""
    limit = np.finfo(np.float32).max
    scaled = (values.astype(np.float64) - mean) / deviation
    return np.clip(np.nan_to_num(scaled, copy=False), -limit, limit).astype(np.float32)


def _rows_before(panel: Panel, end: np.ndarray) -> np.ndarray | None:
    """Mask of the rows with a step before ``end[s]``; None when that is all of them."""
    if np.all(end >= panel.lengths):
        return None
    step = np.arange(len(panel.values)) - np.repeat(panel.indptr[:-1], panel.lengths)
    return step < np.repeat(end, panel.lengths)


def _sum_by_series(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Sums ``[S, C]`` of rows ``[rows, C]`` laid out series by series; 0 for a series without rows."""
    total = np.zeros((len(lengths), values.shape[1]))
    filled = lengths > 0
    if filled.any():
        starts = (np.cumsum(lengths) - lengths)[filled]
        total[filled] = np.add.reduceat(values, starts, axis=0, dtype=np.float64)
    return total


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Column means and deviations, missing entries aside; 0 and 1 for a column without any."""
    mean, deviation = np.zeros(values.shape[1]), np.ones(values.shape[1])
    for column in range(values.shape[1]):
        present = values[:, column]
        present = present[~np.isnan(present)].astype(np.float64)
        if len(present):
            mean[column] = present.mean()
            spread = present.std()
            deviation[column] = spread if spread > max(1e-6 * abs(mean[column]), _TINY) else 1.0
    return mean.astype(np.float32), deviation.astype(np.float32)
