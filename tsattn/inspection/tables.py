"""Attention maps as tables for other tools: tidy pandas, xarray. Legend as in ``tsattn.inspection.maps``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tsattn.errors import ConfigError, TsattnError

if TYPE_CHECKING:
    import pandas as pd

    from tsattn.inspection.maps import AttentionMap


def tidy(attention: AttentionMap, min_weight: float) -> pd.DataFrame:
    """See ``AttentionMap.to_frame``."""
    attention.record()  # raises with the reason where no layer has a map
    keys: list[np.ndarray] = []
    found: list[np.ndarray] = []
    for target in range(len(attention.panel.schema.roles.target)):
        for layer in attention.mapped:
            for windows, weights, _ in attention.chunks(target, layer):
                place = np.nonzero(np.abs(weights) > min_weight)  # unobserved steps weigh 0
                window, head, row, step = place
                same = np.broadcast_to(np.array([[target], [layer]]), (2, len(head)))
                keys.append(
                    np.stack([window + windows.start, *same, head, attention.steps[row], step]).astype(np.int32)
                )
                found.append(weights[place])
    joined = np.concatenate(keys, axis=1)
    order = np.lexsort(joined[::-1])  # window by window, then target, layer, head, horizon, step
    return _table(attention, joined[:, order], np.concatenate(found)[order])


def _table(attention: AttentionMap, keys: np.ndarray, weights: np.ndarray) -> pd.DataFrame:
    """The table from ``keys [6, rows]`` (window, target, layer, head, horizon, step) and ``weights [rows]``."""
    import pandas as pd

    from tsattn.forecast import id_column, time_index

    panel = attention.panel
    schema, roles = panel.schema, panel.schema.roles
    window, target, layer, head, horizon, step = keys
    series, age = attention.windows.series[window], attention.length - 1 - step
    origins = attention.windows.origin[window]
    table: dict[str, Any] = {}
    if len(roles.target) > 1:
        table["target"] = pd.Index(roles.target).take(target)
    last = panel.times(attention.windows.series, attention.windows.origin - 1)
    table["origin"] = time_index(last[window], schema)
    table["horizon"] = horizon.astype(np.int64) + 1
    table["target_time"] = time_index(panel.times(series, origins + horizon), schema)
    table["source_time"] = time_index(panel.times(series, origins - 1 - age), schema)
    table["lag"] = age.astype(np.int64) + table["horizon"]
    table["layer"] = pd.Index(attention.layers).take(layer)
    table["head"] = head.astype(np.int64)
    table["weight"] = weights
    if roles.id is None:
        return pd.DataFrame(table, copy=False)  # copying two million rows costs a second
    if roles.id in table:
        raise ConfigError(
            f"The id column is called {roles.id!r}, like a column of this table. Rename it and fit again."
        )
    return pd.DataFrame({roles.id: id_column(panel, series), **table}, copy=False)


class MissingDependencyError(TsattnError, ImportError):
    """An optional package is not installed; the message names the extra."""


def dataset(attention: AttentionMap, target: int | str) -> Any:
    """See ``AttentionMap.to_xarray``."""
    try:
        import xarray
    except ImportError:
        raise MissingDependencyError('to_xarray needs xarray: pip install "tsattn[xarray]".') from None
    from tsattn.forecast import id_column, time_index

    panel, everything = attention.panel, slice(0, len(attention))

    def stamps(times: np.ndarray) -> np.ndarray:
        """Integers, or stamps in UTC where there is a zone: xarray knows none."""
        found = time_index(times.ravel(), panel.schema)
        if panel.schema.integer_time:
            return np.asarray(found).reshape(times.shape)
        return found.tz_localize(None).to_numpy().reshape(times.shape) if found.tz is None else _utc(found, times.shape)

    attention.record()
    dims = ("window", "head", "horizon", "age")
    ages = np.arange(attention.length - 1, -1, -1)
    layers = {attention.layers[i]: (dims, attention.to_numpy(target, i)) for i in attention.mapped}
    heads = {weights.shape[1] for _, weights in layers.values()}
    if len(heads) > 1:
        raise ConfigError(f"The layers have {sorted(heads)} heads: choose one with sel(layer=...) first.")
    coordinates = {
        "horizon": attention.steps + 1,
        "age": ages,
        "series": ("window", np.asarray(id_column(panel, attention.windows.series), dtype=object)),
        "origin": ("window", stamps(panel.times(attention.windows.series, attention.windows.origin - 1))),
        "target_time": (("window", "horizon"), stamps(attention.all_target_times(everything))),
        "source_time": (("window", "age"), stamps(attention.all_source_times(everything))),
    }
    about = {
        "method": attention.method,
        "model": attention.model or "",
        "unit": attention.unit,
        "signed": int(attention.signed),
        "time_zone": panel.schema.tz or "",
        "notes": "; ".join(attention.notes),
    }
    return xarray.Dataset(layers, coords=coordinates, attrs=about)


def _utc(stamps: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(stamps.tz_convert("UTC").tz_localize(None).to_numpy()).reshape(shape)
