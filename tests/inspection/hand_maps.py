"""Windows and attention maps made by hand, for the tests of maps and pictures."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tsattn.data.build import build_panel
from tsattn.data.panel import Panel
from tsattn.data.schema import Roles
from tsattn.inference import Record, WindowForecasts
from tsattn.models.base import Axis


def panel_of(
    values: dict[str, list], times: list | pd.DatetimeIndex, *, target: str = "y", freq: object = None
) -> Panel:
    """One series per id, all with the same times; NaN values stay in the table as unobserved."""
    parts = [pd.DataFrame({"unique_id": name, "ds": times[: len(ys)], target: ys}) for name, ys in values.items()]
    table = pd.concat(parts, ignore_index=True).astype({target: "float64"})
    return build_panel(table, Roles.of("unique_id", "ds", target), freq=freq)


def time_axis(length: int) -> Axis:
    return Axis("time", tuple(range(length)), tuple(range(1, length + 1)))


def horizon_axis(horizon: int) -> Axis:
    return Axis("horizon", tuple(range(horizon)), tuple(range(1, horizon + 1)))


def windows_of(
    panel: Panel,
    keys: list[tuple[int, int]],
    weights: np.ndarray,
    *,
    horizon: int,
    key: Axis,
    query: Axis | None = None,
    quantiles: bool = True,
) -> WindowForecasts:
    """Windows with keys (series, origin), ``weights [W, C, N, J, I]`` and the forecasts ``h + 10 c + 100 w``."""
    series, origin = np.array(keys).T
    targets = len(panel.schema.roles.target)
    w, h, c = np.meshgrid(np.arange(len(keys)), np.arange(horizon), np.arange(targets), indexing="ij")
    point = (h + 10.0 * c + 100.0 * w).astype(np.float32)
    record = Record(weights.astype(np.float32), query or horizon_axis(horizon), key, "attention")
    return WindowForecasts(
        series=series,
        origin=origin,
        point=point,
        quantiles=np.stack([point - 1, point, point + 2], axis=-1) if quantiles else None,
        actual=np.full_like(point, np.nan),
        attention=(record,),
    )


def one_hot(shape: tuple[int, int, int, int, int], hot: int) -> np.ndarray:
    """All weight on key token ``hot``."""
    weights = np.zeros(shape, dtype=np.float32)
    weights[..., hot] = 1.0
    return weights
