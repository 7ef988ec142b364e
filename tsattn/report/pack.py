"""Arrays and stamps of the page, small: base64 of little-endian numbers, and no value written twice.

Legend: ``N`` heads, ``H`` forecast steps, ``L`` past steps shown.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

import numpy as np

from tsattn.data.schema import Schema
from tsattn.data.walltime import DAY, HOUR, MINUTE, SECOND, to_wall

FULL = np.iinfo(np.uint16).max


@dataclass(frozen=True)
class Detail:
    """How much of the maps a page keeps: heads apart or their mean, and every ``every``-th forecast step."""

    heads: bool = True
    every: int = 1


def coarser(detail: Detail, steps: int, excess: float, heads: int = 2) -> Detail | None:
    """The next smaller detail for maps of ``steps`` forecast steps that are ``excess`` times too large.

    Heads give way first, then so many steps as the excess asks for. None when there is nothing left to leave out.
    """
    if detail.heads and heads > 1:
        return replace(detail, heads=False)
    every = min(max(detail.every + 1, ceil(detail.every * excess)), steps)
    return replace(detail, every=every) if every > detail.every else None


def pack_floats(values: np.ndarray) -> str:
    """Values of any shape as base64 of float32, NaN where there is none."""
    return _text(np.asarray(values, dtype="<f4"))


def pack_map(weights: np.ndarray, detail: Detail = Detail()) -> dict[str, Any]:
    """Weights ``[N, H, L]`` as 16-bit numbers: ``number / 65535 * scale``, or ``number / 32767 * scale`` where signed.

    Forecast steps that read the same (they share a query token) and neighbouring past steps that were read the same
    (they share a key token) are kept once: ``row [H']`` and ``column [L]`` say which. ``step`` names the forecast
    steps kept, from 0. Where steps are left out, the last row is the mean over all of them.
    """
    weights = weights if detail.heads else weights.mean(axis=0, keepdims=True)
    step = np.arange(0, weights.shape[1], detail.every)
    kept = weights[:, step]
    if detail.every > 1:
        kept = np.concatenate([kept, weights.mean(axis=1, keepdims=True)], axis=1)
    low, high = float(kept.min(initial=0.0)), float(kept.max(initial=0.0))
    scale, signed = max(high, -low) or 1.0, low < 0
    numbers = np.rint(kept / scale * (FULL // 2 if signed else FULL)).astype("<i2" if signed else "<u2")
    rows, row = np.unique(numbers, axis=1, return_inverse=True)
    change = (rows[:, :, 1:] != rows[:, :, :-1]).any(axis=(0, 1))
    column = np.concatenate([[0], np.cumsum(change)])[: weights.shape[2]]
    numbers = rows[:, :, np.flatnonzero(np.concatenate([[True], change]))[: column.max(initial=-1) + 1]]
    return {
        "shape": list(numbers.shape),
        "scale": scale,
        "signed": signed,
        "step": step.tolist(),
        "row": row.ravel().tolist(),
        "column": _text(column.astype("<u2")),
        "numbers": _text(numbers),
    }


def pack_times(times: list[np.ndarray], schema: Schema) -> dict[str, Any]:
    """Times (int64) of several axes as text in the zone of the data, split in days and clocks that are kept once.

    ``axes`` holds one entry per element of ``times``: the positions of its days and clocks.
    """
    distinct, place = np.unique(np.concatenate(times), return_inverse=True)
    pairs = [text.partition(" ")[::2] for text in time_texts(distinct, schema)]
    days, day = np.unique([day for day, _ in pairs], return_inverse=True)
    clocks, clock = np.unique([clock for _, clock in pairs], return_inverse=True)
    parts = np.split(place.ravel(), np.cumsum([len(each) for each in times])[:-1])
    axes = [{"day": _text(day[part].astype("<u4")), "clock": _text(clock[part].astype("<u4"))} for part in parts]
    return {"days": days.tolist(), "clocks": clocks.tolist(), "axes": axes}


def time_texts(times: np.ndarray, schema: Schema) -> list[str]:
    """Text of internal times (int64): ``2024-03-31 03:00 +02:00``, no finer than they need, or the integers.

    The offset stands behind the clock where the data have a zone: the hour that autumn repeats is told apart by it.
    """
    if schema.integer_time:
        return [str(int(value)) for value in times]
    wall = to_wall(times, schema.tz)
    units: tuple[tuple[Literal["D", "m", "s", "ns"], int], ...] = (("D", DAY), ("m", MINUTE), ("s", SECOND), ("ns", 1))
    unit = next(name for name, size in units if not (wall % size).any())
    texts = [text.replace("T", " ") for text in np.datetime_as_string(wall.astype("datetime64[ns]"), unit=unit)]
    if schema.tz is None or unit == "D":
        return texts
    return [f"{text} {_offset(int(shift))}" for text, shift in zip(texts, wall - times, strict=True)]


def _offset(shift: int) -> str:
    """Nanoseconds ahead of UTC as ``+02:00``; with seconds where a zone of long ago has them."""
    sign, rest = ("-" if shift < 0 else "+"), abs(shift)
    seconds = rest // SECOND % 60
    return f"{sign}{rest // HOUR:02d}:{rest // MINUTE % 60:02d}" + (f":{seconds:02d}" if seconds else "")


def _text(array: np.ndarray) -> str:
    return b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
