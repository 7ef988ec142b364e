"""A forecast: ids, times, numbers, and the attention behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tsattn.data.panel import Panel
from tsattn.data.schema import Schema
from tsattn.errors import ConfigError
from tsattn.inference import TokenRecord, WindowForecasts

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from tsattn.evaluation.backtest import Backtest
    from tsattn.inspection.maps import AttentionMap


@dataclass(frozen=True, eq=False)
class Forecast:
    """Forecasts of the steps after the last row of each series, in the units of the table.

    ``skipped`` maps the ids that could not be forecast to the reason; ids in = ids out + skipped. ``contributions`` (of
    models whose split is exact, when attention was asked for) holds arrays as in ``tsattn.models.Contributions``.
    """

    panel: Panel
    windows: WindowForecasts
    levels: tuple[float, ...]
    model: str
    skipped: dict[Any, str] = field(default_factory=dict)

    @property
    def attention(self) -> AttentionMap:
        """Where each forecast looked. Raises ConfigError when it was not asked for or the model has none."""
        return attention_map(self, "predict")

    @property
    def contributions(self) -> dict[str, np.ndarray] | None:
        """What each past step added to each forecast step, in data units; None without it."""
        return self.windows.contributions

    @property
    def token_contributions(self) -> TokenRecord | None:
        """What the last layer read from each token (patchtst), signed, in data units; None without it."""
        return self.windows.tokens

    def __len__(self) -> int:
        """Number of series forecast."""
        return len(self.windows.series)

    def to_frame(self) -> pd.DataFrame:
        """Long pandas table: id, time, (target,) forecast and one column ``q<level>`` per quantile level."""
        return frame_of(self.panel, self.windows, self.levels)

    def plot(self, series: Any = None, *, max_series: int = 6, history: int | None = None) -> Figure:
        """History and forecast of each series (at most ``max_series``), with the interval and the attention strip.

        ``series`` is the id of one series, or its position where the ids are no integers.
        """
        from tsattn.inspection.plots import plot_forecast

        return plot_forecast(self, series=series, max_series=max_series, history=history)

    def __repr__(self) -> str:
        """One line: what was forecast, from where."""
        horizon = self.windows.point.shape[1]
        lost = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"Forecast({self.model!r}, {len(self)} series x {horizon} steps{lost})"

    def _repr_html_(self) -> str:
        """A notebook shows the first rows; ids and names are escaped by pandas."""
        import html

        return f"<p>{html.escape(repr(self))}</p>{self.to_frame().to_html(max_rows=10, index=False)}"


def attention_map(result: Forecast | Backtest, method: str) -> AttentionMap:
    """The attention of what ``method`` returned. Raises ConfigError when there is none; the message says how to ask."""
    from tsattn.inspection.maps import AttentionMap

    if not result.windows.attention:
        raise ConfigError(
            f"No attention in this {type(result).__name__.lower()}: ask with {method}(attention=True), for a model "
            f"that has it ({result.model!r} was used)."
        )
    return AttentionMap(result.panel, result.windows, result.levels, result.model)


def frame_of(panel: Panel, windows: WindowForecasts, levels: tuple[float, ...]) -> pd.DataFrame:
    """Long table of forecasts ``[W, H, C]``: id, time, (target,) forecast, quantiles."""
    import pandas as pd

    schema = panel.schema
    count, horizon, targets = windows.point.shape
    series = np.repeat(windows.series, horizon * targets)
    step = np.tile(np.repeat(np.arange(horizon), targets), count)
    times = panel.times(series, np.repeat(windows.origin, horizon * targets) + step)
    columns: dict[str, Any] = {}
    if schema.roles.id is not None:
        columns[schema.roles.id] = id_column(panel, series)
    columns[schema.roles.time] = time_index(times, schema)
    if targets > 1:
        columns["target"] = np.tile(np.asarray(schema.roles.target, dtype=object), count * horizon)
    columns["forecast"] = windows.point.ravel()
    for position, level in enumerate(levels if windows.quantiles is not None else ()):
        assert windows.quantiles is not None
        columns[f"q{level:g}"] = windows.quantiles[..., position].ravel()
    return pd.DataFrame(columns)


def id_column(panel: Panel, series: np.ndarray) -> Any:
    """Ids of ``series [n]`` in the type of the table's id column."""
    return panel.ids.take(pa.array(series)).to_pandas()


def time_index(times: np.ndarray, schema: Schema) -> Any:
    """Internal times int64 -> integers, or stamps in the zone and resolution of the table."""
    import pandas as pd

    if schema.integer_time:
        return times
    stamps = pd.DatetimeIndex(times.astype("datetime64[ns]"))
    if schema.tz is not None:
        stamps = stamps.tz_localize("UTC").tz_convert(schema.tz)
    return stamps.as_unit(schema.time_unit)  # type: ignore[arg-type]
