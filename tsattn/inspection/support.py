"""From tokens to steps: which steps a token covers, and how its weight is shared among them.

Legend: ``W`` windows, ``N`` heads, ``H`` horizon steps, ``L`` past steps; ``J`` query tokens, ``I`` key tokens.
"""

from __future__ import annotations

import numpy as np

from tsattn.inference import Record
from tsattn.models.base import AttentionRecord, Axis


def over_time(axis: Axis) -> bool:
    """Whether the tokens of an axis are steps or stretches of steps."""
    return axis.kind in ("time", "patch")


def has_map(record: Record | AttentionRecord) -> bool:
    """Whether a layer goes from forecast steps to past steps."""
    return record.query.kind == "horizon" and over_time(record.key)


def overlap(axis: Axis, length: int) -> np.ndarray:
    """Which of ``length`` steps each token covers: ``[tokens, length]``, 0 or 1, float64."""
    step = np.arange(length)
    start, end = np.asarray(axis.start)[:, None], np.asarray(axis.end)[:, None]
    return ((step >= start) & (step < end)).astype(np.float64)


def to_steps(weights: np.ndarray, key: Axis, read: np.ndarray) -> np.ndarray:
    """Weights of tokens as weights of past steps: ``[W, ..., I]`` and ``read [W, L]`` bool ``-> [W, ..., L]``.

    A token's weight is divided evenly over the steps it covers that were read (observed). Where none was, its weight is
    0 in attention, but an attribution may hold what a covariate did there: that is divided over all of its steps. So
    mass is conserved.
    """
    covers = overlap(key, read.shape[1])  # [I, L]
    middle = (1,) * (weights.ndim - 2)
    if covers.sum(axis=0).max(initial=0) <= 1:  # no step belongs to two tokens: an index does
        owner = covers.argmax(axis=0)  # [L]
        count = read @ covers.T  # [W, I]
        unread = (count == 0)[:, owner]  # [W, L]
        divisor = np.where(count > 0, count, np.maximum(covers.sum(axis=1), 1))[:, owner]
        shares = (read | unread) * covers.any(axis=0) / divisor
        return weights[..., owner] * shares.reshape(len(read), *middle, -1).astype(weights.dtype)
    spread = covers * read[:, None]  # [W, I, L]
    spread = np.where(spread.any(axis=2, keepdims=True), spread, covers)
    spread /= np.maximum(spread.sum(axis=2, keepdims=True), 1)
    flat = weights.reshape(len(weights), -1, weights.shape[-1]) @ spread
    return flat.reshape(*weights.shape[:-1], -1).astype(weights.dtype)


def to_forecast_steps(weights: np.ndarray, query: Axis, steps: np.ndarray, horizon: int) -> np.ndarray:
    """The row of each forecast step: ``[W, N, J, X]`` and ``steps [H']`` (from 0) ``-> [W, N, H', X]``.

    Horizon tokens do not overlap. A step that no token answers for gets a row of zeros.
    """
    asks = overlap(query, horizon)[:, steps]  # [J, H']
    return weights[:, :, asks.argmax(axis=0)] * asks.max(axis=0)[:, None].astype(weights.dtype)


def even_spread(key: Axis, read: np.ndarray) -> np.ndarray:
    """The past steps' weights if all readable tokens of the past weighed the same: ``read [W, L] -> [W, L]``."""
    covers = overlap(key, read.shape[1])
    there = (read @ covers.T > 0).astype(np.float64)  # [W, I]
    return to_steps(there / np.maximum(there.sum(axis=1, keepdims=True), 1), key, read)


def steps_axis(kind: str, steps: np.ndarray) -> Axis:
    """An axis of single steps."""
    start = tuple(int(step) for step in steps)
    return Axis(kind, start, tuple(step + 1 for step in start))  # type: ignore[arg-type]
