"""The pictures of the page: history, forecast and everything that says which past step was read, packed.

Legend: ``W`` windows (one per series shown), ``C`` targets, ``N`` heads, ``H`` forecast steps, ``L`` past steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tsattn.errors import ConfigError
from tsattn.forecast import Forecast
from tsattn.inference import Record
from tsattn.inspection.drawing import _interval, short
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.support import steps_axis
from tsattn.report.pack import Detail, coarser, pack_floats, pack_map, pack_times

PER_SERIES = 92_000  # bytes of JSON: 20 series stay below 2 MB, script and tables included
FEWEST = 20
LONGEST_ID = 300  # characters


@dataclass(frozen=True)
class Layer:
    """One way to see what was read: a layer of a map from forecast steps to past steps."""

    label: str
    map: AttentionMap
    position: int

    @property
    def heads(self) -> int:
        """Number of heads ``N``."""
        return int(self.map.windows.attention[self.position].weights.shape[2])

    @property
    def ahead(self) -> bool:
        """Whether part of the weight lies on forecast steps, which the pictures do not show."""
        return self.map.windows.attention[self.position].key.ahead > 0


def layers_of(forecast: Forecast) -> list[Layer]:
    """Attention layers first, the one nearest to the forecast in front; then contributions, where they exist."""
    found = []
    if forecast.windows.attention:
        attention = forecast.attention
        found += [Layer(attention.layers[i], attention, i) for i in reversed(attention.mapped)]
    return found + list(_contributions(forecast))


def _contributions(forecast: Forecast) -> Iterator[Layer]:
    """Signed parts of the forecast in units of the target, as maps."""
    windows = forecast.windows
    horizon = windows.point.shape[1]
    query = steps_axis("horizon", np.arange(horizon))
    if windows.contributions is not None:
        parts, label = windows.contributions["history"], "contribution of each past step (exact)"
        key = steps_axis("time", np.arange(parts.shape[-1]))
    elif windows.tokens is not None and windows.tokens.key.kind == "patch":
        parts, key = windows.tokens.tokens, windows.tokens.key
        label = "contribution of each patch to the last layer, shared by its steps"
    else:
        return
    record = Record(parts[:, :, None], query, key, label)
    moved = replace(windows, attention=(record,))
    yield Layer(label, AttentionMap(forecast.panel, moved, model=forecast.model, signed=True, unit="data"), 0)


def why_no_strip(forecast: Forecast) -> str | None:
    """Why there is no attention from forecast steps to past steps; None where there is."""
    if not forecast.windows.attention:
        return f"{forecast.model} has no attention: there are no weights to show."
    try:
        forecast.attention.record()
    except ConfigError as error:
        return str(error)
    return None


def draw_series(forecast: Forecast) -> dict[str, Any]:
    """Series, stamps and maps as plain data, within ``PER_SERIES`` bytes each (of at least ``FEWEST`` series).

    Where the maps are too large, heads give way to their mean, and then forecast steps are left out; each layer says
    what was kept.
    """
    layers = layers_of(forecast)
    series = [_lines(forecast, window, _length(forecast, layers)) for window in range(len(forecast))]
    axes = pack_times([each.pop("times") for each in series], forecast.panel.schema)
    for each, axis in zip(series, axes.pop("axes"), strict=True):
        each["axis"] = axis
    schema = forecast.panel.schema
    page: dict[str, Any] = {
        "why": why_no_strip(forecast),
        "horizon": forecast.windows.point.shape[1],
        "targets": [clipped(name) for name in schema.roles.target],
        "integer": schema.integer_time,
        "time": clipped(schema.roles.time) + ("" if schema.tz is None else f" ({schema.tz})"),
        "interval": _interval(forecast.levels) if _has_band(forecast) else None,
        "point": "forecast (median)" if forecast.windows.quantiles is not None else "forecast",
        "layers": [{"label": layer.label, "unit": layer.map.unit, "ahead": layer.ahead} for layer in layers],
        "stamps": axes,
        "series": series,
    }
    budget = PER_SERIES * max(len(series), FEWEST) - len(json.dumps(page))
    details, maps = _fitting(layers, [each["past"] for each in series], budget)
    for position, each in enumerate(series):
        each["maps"] = [packed[position] for packed in maps]
    for described, detail in zip(page["layers"], details, strict=True):
        described |= asdict(detail)
    return page


def _fitting(layers: list[Layer], past: list[int], budget: int) -> tuple[list[Detail], list[list[Any]]]:
    """Maps ``[layer][window][target]`` whose text fits in ``budget`` bytes; the largest layer is made coarser first."""
    details = [Detail() for _ in layers]
    maps = [_pack_layer(layer, past, Detail()) for layer in layers]
    while True:
        sizes = [len(json.dumps(packed)) for packed in maps]
        excess = sum(sizes) / max(budget, 1)
        for k in sorted(range(len(layers)), key=lambda k: -sizes[k]) if excess > 1 else []:
            less = coarser(details[k], layers[k].map.horizon, excess, layers[k].heads)
            if less is not None:
                details[k], maps[k] = less, _pack_layer(layers[k], past, less)
                break
        else:
            return details, maps


def _pack_layer(layer: Layer, past: list[int], detail: Detail) -> list[Any]:
    """Maps of one layer ``[window][target]``, of the past steps that are shown; one where all targets share it."""
    targets = range(layer.map.windows.attention[layer.position].weights.shape[1])
    return [
        [pack_map(layer.map.step_weights(window, target, layer.position)[:, :, -shown:], detail) for target in targets]
        for window, shown in enumerate(past)
    ]


def _length(forecast: Forecast, layers: list[Layer]) -> int:
    """Past steps to show: what the maps cover, or four horizons where there are none."""
    if layers:
        return max(layer.map.length for layer in layers)
    return max(4 * forecast.windows.point.shape[1], 24)


def _lines(forecast: Forecast, window: int, length: int) -> dict[str, Any]:
    """One series: its id, stamps, history and forecast. Padding of a young series is not shown."""
    panel, windows = forecast.panel, forecast.windows
    series, origin = int(windows.series[window]), int(windows.origin[window])
    horizon = windows.point.shape[1]
    past = min(length, origin)
    steps = origin + np.arange(-past, horizon)
    stop = panel.indptr[series] + origin
    name = panel.ids[series].as_py()
    lines = {
        "id": "the series" if name is None else clipped(name),
        "past": past,
        "times": panel.times(np.full(len(steps), series), steps),
        "history": pack_floats(panel.targets[stop - past : stop].T),
        "point": pack_floats(windows.point[window].T),
        "band": None,
        "actual": None,
    }
    if _has_band(forecast) and windows.quantiles is not None:
        lines["band"] = pack_floats(windows.quantiles[window][..., [0, -1]].transpose(2, 1, 0))  # [2, C, H]
    if not np.isnan(windows.actual[window]).all():
        lines["actual"] = pack_floats(windows.actual[window].T)
    return lines


def _has_band(forecast: Forecast) -> bool:
    quantiles = forecast.windows.quantiles
    return quantiles is not None and quantiles.shape[-1] > 1


def clipped(value: object) -> str:
    """Text of an id or a name, of a length a page can bear."""
    return short(value, LONGEST_ID)
