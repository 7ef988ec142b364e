"""What a run on a cluster leaves: a folder of Parquet files, and what can be said of all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tsattn.data.schema import Schema
from tsattn.errors import ConfigError, unknown_name
from tsattn.evaluation.backtest import metric_table

if TYPE_CHECKING:
    import pandas as pd

    from tsattn.cluster.gather import Reports
    from tsattn.evaluation.metrics import By
    from tsattn.inspection.summary import AttentionSummary

SKIPPED = "_skipped"  # readers of Parquet folders leave out names that begin with _


@dataclass(frozen=True, eq=False)
class PartitionedForecast:
    """Forecasts in a folder of Parquet files, every series whole and in one of them.

    ``skipped`` maps the ids that could not be forecast to the reason (``_skipped/part.parquet`` in the folder holds
    them, too); ids in = ids out + skipped.
    """

    path: Path
    schema: Schema
    model: str
    series: int
    skipped: dict[Any, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of series forecast."""
        return self.series

    def to_frame(self) -> pd.DataFrame:
        """All files as the table that one process would have returned; it must fit into memory."""
        return read_parts(self.path, self.schema)

    def __repr__(self) -> str:
        """One line."""
        lost = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"{type(self).__name__}({self.model!r}, {len(self)} series{lost}, in {self.path})"


@dataclass(frozen=True, eq=False, repr=False)
class PartitionedBacktest(PartitionedForecast):
    """Forecasts from past origins beside the truth and the baselines, in a folder of Parquet files.

    ``in_sample`` and ``trained_until`` as in ``Backtest``.
    """

    reports: Reports | None = None
    levels: tuple[float, ...] = ()
    trained_until: tuple[str, ...] = ()
    in_sample: bool = False

    def metrics(self, by: By = None) -> pd.DataFrame:
        """As ``Backtest.metrics``: sums are added series by series, so they differ by rounding only (1e-12)."""
        if by not in (None, "series", "step"):
            raise unknown_name("grouping of scores", by, ("series", "step"))
        assert self.reports is not None
        sums, ids = self.reports.sums(by)
        return metric_table(sums, self.levels, self.schema.roles, by, ids.to_pandas() if by == "series" else None)

    @property
    def attention(self) -> AttentionSummary:
        """The summary of all windows. Raises ConfigError when it was not asked for or the model has no attention."""
        if self.reports is None or self.reports.summary is None:
            raise ConfigError("No attention in this backtest: ask with backtest(attention='summary').")
        return self.reports.summary.checked()


def read_parts(path: Path, schema: Schema) -> pd.DataFrame:
    """The files of a folder as one table, sorted by id, origin (if there is one) and time."""
    table = pa.concat_tables([pq.read_table(file) for file in sorted(path.glob("part-*.parquet"))])
    assert schema.roles.id is not None
    keys = [schema.roles.id, *(["origin"] if "origin" in table.column_names else []), schema.roles.time]
    encoded = {str(n): pc.rank(table[name], tiebreaker="dense") for n, name in enumerate(keys)}
    order = np.lexsort([encoded[str(n)].to_numpy() for n in reversed(range(len(keys)))])
    frame = table.take(pa.array(order)).to_pandas()
    if not schema.integer_time:  # Parquet has no stamps in seconds
        for name in keys[1:]:
            frame[name] = frame[name].dt.as_unit(schema.time_unit)
    return frame
