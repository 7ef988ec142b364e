"""A trained network over many windows: batches in, numpy arrays out, every row with its own key.

Legend: ``W`` windows, ``H`` horizon, ``C`` targets, ``Q`` quantile levels, ``N`` heads, ``J`` query tokens, ``I`` key
tokens, ``L`` context.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsattn.data.batch import Batch
from tsattn.data.windows import WindowSource
from tsattn.models.base import Axis, InputSpec, Network, Output

_LARGEST_BATCH = 512  # windows
_MAP_ENTRIES = 1 << 24  # numbers that one batch with attention may bring back: 64 MB


@dataclass(frozen=True, eq=False)
class Record:
    """Attention of all windows in one layer: ``weights [W, C, N, J, I]`` float32 and what its axes stand for."""

    weights: np.ndarray
    query: Axis
    key: Axis
    layer: str


@dataclass(frozen=True, eq=False)
class TokenRecord:
    """``models.base.TokenContributions`` of all windows: ``tokens [W, C, H, I]``, ``rest [W, C, H]``, data units."""

    tokens: np.ndarray
    rest: np.ndarray
    key: Axis

    def take(self, rows: np.ndarray) -> TokenRecord:
        """Some windows, by position."""
        return TokenRecord(self.tokens[rows], self.rest[rows], self.key)


@dataclass(frozen=True, eq=False)
class WindowForecasts:
    """Forecasts of ``W`` windows in data units, in the order of their keys as asked for."""

    series: np.ndarray  # [W] index in the panel
    origin: np.ndarray  # [W] step of the first forecast
    point: np.ndarray  # [W, H, C] float32
    quantiles: np.ndarray | None  # [W, H, C, Q] float32
    actual: np.ndarray  # [W, H, C] float32, NaN where unobserved or beyond the end
    attention: tuple[Record, ...] = ()
    contributions: dict[str, np.ndarray] | None = None  # fields of models.base.Contributions, [W, ...]
    tokens: TokenRecord | None = None  # what the last layer read from each token, where it is linear

    @classmethod
    def none(cls, spec: InputSpec) -> WindowForecasts:
        """No windows, in the shapes of a network."""
        entries, none = (0, spec.horizon, spec.targets), np.zeros(0, dtype=np.int64)
        quantiles = np.zeros((*entries, len(spec.quantiles)), np.float32) if spec.quantiles else None
        return cls(none, none, np.zeros(entries, np.float32), quantiles, np.zeros(entries, np.float32))

    @classmethod
    def join(cls, parts: Sequence[WindowForecasts]) -> WindowForecasts:
        """The windows of all parts, one after the other; all of one network."""
        first = parts[0]
        if len(parts) == 1:
            return first

        def joined(arrays: list[np.ndarray | None]) -> Any:
            return None if arrays[0] is None else np.concatenate([array for array in arrays if array is not None])

        tokens = None
        if first.tokens is not None:
            found = [part.tokens for part in parts if part.tokens is not None]
            sides = joined([one.tokens for one in found]), joined([one.rest for one in found])
            tokens = TokenRecord(*sides, first.tokens.key)
        contributions = None
        if first.contributions is not None:
            splits = [part.contributions for part in parts if part.contributions is not None]
            contributions = {name: joined([split[name] for split in splits]) for name in first.contributions}
        return cls(
            series=joined([part.series for part in parts]),
            origin=joined([part.origin for part in parts]),
            point=joined([part.point for part in parts]),
            quantiles=joined([part.quantiles for part in parts]),
            actual=joined([part.actual for part in parts]),
            attention=tuple(
                replace(record, weights=joined([part.attention[i].weights for part in parts]))
                for i, record in enumerate(first.attention)
            ),
            contributions=contributions,
            tokens=tokens,
        )

    def with_attention(self, *records: Record) -> WindowForecasts:
        """The same windows with other maps."""
        return replace(self, attention=records)

    def take(self, rows: np.ndarray) -> WindowForecasts:
        """Some windows, by position."""
        parts = None if self.contributions is None else {name: part[rows] for name, part in self.contributions.items()}
        tokens = None if self.tokens is None else self.tokens.take(rows)
        return WindowForecasts(
            series=self.series[rows],
            origin=self.origin[rows],
            point=self.point[rows],
            quantiles=None if self.quantiles is None else self.quantiles[rows],
            actual=self.actual[rows],
            attention=tuple(replace(record, weights=record.weights[rows]) for record in self.attention),
            contributions=parts,
            tokens=tokens,
        )


def best_device(accelerator: str = "auto") -> torch.device:
    """Where to forecast: the first accelerator unless "cpu" is asked for."""
    if accelerator != "cpu" and torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def forecast_windows(
    network: Network,
    source: WindowSource,
    series: np.ndarray,
    origin: np.ndarray,
    *,
    attention: bool = False,
    contributions: bool = False,
    collect: Callable[[WindowForecasts], None] | None = None,
    device: torch.device | str = "cpu",
    progress: str | None = None,
) -> WindowForecasts:
    """Forecast the windows with keys ``(series [W], origin [W])``.

    The network is in eval mode and sees nothing after the origin. Asking for attention does not change a bit of a
    forecast: the batches are the same. ``contributions`` keeps the exact split as well, where there is one. ``collect``
    is given the maps of each batch, which are then dropped. Results go to memory batch by batch, so the device holds
    one batch at a time. ``progress`` names a progress line.
    """
    network.to(device).eval()
    if not len(series):
        return WindowForecasts.none(network.spec)

    def gather(start: int, count: int) -> Batch:
        rows = slice(start, start + count)
        return source.gather(torch.from_numpy(series[rows]), torch.from_numpy(origin[rows])).to(device)

    parts: list[WindowForecasts] = []
    with torch.inference_mode():
        batch_size = _fitting_batch(network, gather(0, 1)) if network.has_attention else _LARGEST_BATCH
        for start in range(0, len(series), batch_size):
            batch = gather(start, batch_size)
            output = _to_memory(network(batch.without_future(), need_weights=attention), contributions)
            output = _hide_unread(output, batch.past_observed.any(dim=1).cpu())
            actual = torch.where(batch.future_observed, batch.future, torch.nan).cpu().numpy()
            rows = slice(start, start + batch_size)
            part = _windows_of(output, series[rows], origin[rows], actual)
            if collect is not None:
                collect(part)
                part = part.with_attention()
            parts.append(part)
            _show_progress(progress, min(start + batch_size, len(series)), len(series))
    if progress and sys.stderr.isatty():
        print(file=sys.stderr)
    return WindowForecasts.join(parts)


def _show_progress(name: str | None, done: int, total: int) -> None:
    if name and sys.stderr.isatty():
        print(f"\r{name}: {done} of {total} windows", end="", file=sys.stderr)


def _fitting_batch(network: Network, window: Batch) -> int:
    """How many windows to forecast at once, from the numbers that come back for one when maps are asked for."""
    output = network(window.without_future(), need_weights=True)
    entries = sum(record.weights.numel() for record in output.attention)
    for split in (output.contributions, output.token_contributions):
        if split is not None:
            parts = (getattr(split, f.name) for f in fields(split))
            entries += sum(part.numel() for part in parts if isinstance(part, Tensor))
    return max(1, min(_LARGEST_BATCH, _MAP_ENTRIES // max(entries, 1)))


def _to_memory(output: Output, contributions: bool) -> Output:
    """The same output on the CPU, without the contributions unless they are wanted."""
    attention = tuple(replace(record, weights=record.weights.float().cpu()) for record in output.attention)
    parts = output.contributions if contributions else None
    if parts is not None:
        parts = type(parts)(**{f.name: getattr(parts, f.name).cpu() for f in fields(parts)})
    tokens = output.token_contributions if contributions else None
    if tokens is not None:
        tokens = replace(tokens, tokens=tokens.tokens.float().cpu(), rest=tokens.rest.float().cpu())
    quantiles = None if output.quantiles is None else output.quantiles.float().cpu()
    return Output(output.point.float().cpu(), quantiles, attention, parts, tokens)


def _hide_unread(output: Output, read: Tensor) -> Output:
    """NaN where a target had no observed past step: ``read [B, C]``. There was nothing to forecast from."""
    if read.all():
        return output
    point = torch.where(read[:, None], output.point, torch.nan)
    quantiles = output.quantiles
    if quantiles is not None:
        quantiles = torch.where(read[:, None, :, None], quantiles, torch.nan)
    return replace(output, point=point, quantiles=quantiles)


def _windows_of(output: Output, series: np.ndarray, origin: np.ndarray, actual: np.ndarray) -> WindowForecasts:
    """The output of one batch as arrays."""
    split, tokens = output.contributions, output.token_contributions
    return WindowForecasts(
        series=series,
        origin=origin,
        point=output.point.numpy(),
        quantiles=None if output.quantiles is None else output.quantiles.numpy(),
        actual=actual,
        attention=tuple(Record(r.weights.numpy(), r.query, r.key, r.layer) for r in output.attention),
        contributions=None if split is None else {f.name: getattr(split, f.name).numpy() for f in fields(split)},
        tokens=None if tokens is None else TokenRecord(tokens.tokens.numpy(), tokens.rest.numpy(), tokens.key),
    )
