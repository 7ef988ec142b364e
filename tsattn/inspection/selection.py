"""Parts of an attention map, by what a person knows of them: ids, dates, forecast steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tsattn.errors import ConfigError, listed
from tsattn.inspection.maps import AttentionMap, in_range

if TYPE_CHECKING:
    from tsattn.data.panel import Panel


def select(
    attention: AttentionMap, *, window: Any, series: Any, origin: Any, horizon: Any, layer: Any, head: Any
) -> AttentionMap:
    """See ``AttentionMap.sel``."""
    notes: list[str] = []
    keep = np.arange(len(attention))
    if window is not None:
        keep = np.array([attention.position(one) for one in _several(window)])
    if series is not None:
        keep = keep[np.isin(attention.windows.series[keep], find_series(attention.panel, series))]
        _check_left(keep, f"of series {series!r}", attention)
    if origin is not None:
        keep = keep[np.isin(_origins(attention)[keep], _times(attention.panel, origin))]
        _check_left(keep, f"with the origin {origin!r}", attention)
    windows = attention.windows
    if len(keep) != len(attention) or window is not None:
        windows = windows.take(keep)
    records = windows.attention
    if layer is not None:
        records = (records[attention.layer_position(layer)],)
    if head is not None:
        heads = [in_range(one, min(r.weights.shape[2] for r in records), "head") for one in _several(head)]
        records = tuple(replace(record, weights=record.weights[:, :, heads]) for record in records)
        notes.append(f"head {', '.join(map(str, heads))}")
    kept = attention.kept
    if horizon is not None:
        kept = tuple(in_range(one, attention.horizon, "horizon", first=1) - 1 for one in _several(horizon))
        gone = [step + 1 for step in kept if step not in attention.steps]
        if gone:
            raise IndexError(f"Forecast step {listed(gone)} is not in this map, which was cut by sel(horizon=...).")
        notes.append(f"forecast step {', '.join(str(step + 1) for step in kept)}")
    return replace(attention, windows=replace(windows, attention=records), kept=kept, notes=(*attention.notes, *notes))


def find_series(panel: Panel, series: Any) -> np.ndarray:
    """Positions in the panel of one id or several; raises ConfigError naming those that are not there."""
    names = panel.ids.to_pylist()
    place = {name: position for position, name in enumerate(names)}
    texts = {str(name): position for position, name in enumerate(names)}
    found, unknown = [], []
    for one in _several(series):
        value = one.item() if isinstance(one, np.generic) else one
        position = place.get(value, texts.get(str(value)))
        unknown.append(repr(one)) if position is None else found.append(position)
    if unknown:
        raise ConfigError(f"No series {listed(unknown)} among {len(names)}: {listed(map(repr, names))}.")
    return np.array(found)


def _origins(attention: AttentionMap) -> np.ndarray:
    """Time of the last past step of each window, int64 ``[W]``."""
    return attention.panel.times(attention.windows.series, attention.windows.origin - 1)


def _times(panel: Panel, origin: Any) -> np.ndarray:
    """Stamps in any form, or integers, as internal times."""
    values = _several(origin)
    if panel.schema.integer_time:
        return np.array([int(value) for value in values], dtype=np.int64)
    import pandas as pd

    stamps = pd.DatetimeIndex([pd.Timestamp(value) for value in values])
    if panel.schema.tz is not None and stamps.tz is None:
        stamps = stamps.tz_localize(panel.schema.tz)
    if stamps.tz is not None:
        stamps = stamps.tz_convert("UTC").tz_localize(None)
    return stamps.as_unit("ns").to_numpy().astype(np.int64)


def _check_left(keep: np.ndarray, what: str, attention: AttentionMap) -> None:
    if not len(keep):
        raise ConfigError(f"No window {what} in this map of {len(attention)} windows.")


def _several(value: Any) -> Sequence[Any]:
    """One value, or a list, array or index of them."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return [value]
    if isinstance(value, pa.Array):
        return value.to_pylist()
    return list(value)
