"""What a worker of the cluster does with one part of a table; the model is loaded once per worker."""

from __future__ import annotations

import hashlib
import io
import pickle
import platform
import tempfile
import warnings
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tsattn.data.build import build_panel
from tsattn.errors import ClusterError, ConfigError, TsattnError, TsattnWarning
from tsattn.evaluation.backtest import run_backtest
from tsattn.writing import write_whole

if TYPE_CHECKING:
    from tsattn.data.panel import Panel
    from tsattn.evaluation.metrics import By
    from tsattn.forecaster import Forecaster
    from tsattn.inspection.summary import AttentionSummary
    from tsattn.models import Network

TRIES = 3  # of one part: the worker may have been killed for no fault of the part
Sums = dict[tuple[str, str], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Job:
    """What every worker is told."""

    files: dict[str, bytes]  # of the folder of the saved model
    model: type[Network] | None  # of a model that is no name
    folder: str  # where to write
    known: pa.Table | None = None
    backtest: dict[str, Any] | None = None  # arguments of run_backtest; None is a prediction

    def load(self) -> Forecaster:
        """The model."""
        from tsattn.artifact import load

        with tempfile.TemporaryDirectory() as folder:
            for name, data in self.files.items():
                (Path(folder) / name).write_bytes(data)
            return load(Path(folder), model=self.model)


@dataclass(frozen=True)
class Report:
    """What there is to say of one part."""

    name: str  # of the part: the same series have the same name
    rows: int
    error: TsattnError | None = None
    file: str | None = None  # None where every series was skipped
    ids: pa.Array | None = None  # of the series in the file
    skipped: dict[Any, str] = field(default_factory=dict)
    longest: int = 0  # steps of the longest series
    spacing: list[tuple[int, int]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    in_sample: bool = False
    trained_until: tuple[str, ...] = ()
    sums: dict[By, Sums] = field(default_factory=dict)
    summary: AttentionSummary | None = None

    def packed(self) -> pa.Table:
        """One row, as Ray Data carries it."""
        return pa.table({"report": pa.array([zlib.compress(pickle.dumps(self), 1)], type=pa.large_binary())})


def unpacked(data: bytes) -> Report:
    """Inverse of ``Report.packed``."""
    report = pickle.loads(zlib.decompress(data))
    assert isinstance(report, Report)
    return report


class Worker:
    """An actor of the pool: called with one part after the other."""

    def __init__(self, job: Any) -> None:
        """``job``: a reference to a ``Job``, which each machine fetches once."""
        import ray

        self._job: Job = ray.get(job)
        self._forecaster = self._job.load()

    def __call__(self, table: pa.Table) -> pa.Table:
        """The report on a part, which may be empty; its forecasts are in a file by then."""
        if not len(table):
            return pa.table({"report": pa.array([], type=pa.large_binary())})
        return done(self._forecaster, self._job, table).packed()


def done(forecaster: Forecaster, job: Job, table: pa.Table) -> Report:
    """Forecast or backtest the series of ``table`` and write the file of this part.

    Its name is made of the ids, so that a part that is done again, after its worker was killed, replaces its file.
    """
    name, folder = _name_of(table[forecaster.schema_.roles.id]), Path(job.folder)
    report = Report(name, len(table))
    try:
        if not folder.is_dir():
            raise ConfigError(
                f"The folder {folder.parent} is not there on the machine {platform.node()!r}, where a worker runs: "
                f"out= must be on a file system that all machines share."
            )
        tries = _count_try(folder / "_tries", name)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", TsattnWarning)
            found = _predicted(forecaster, job, table, report) if job.backtest is None else None
            found = found or _backtested(forecaster, job, table, report)
        for mark in tries:
            mark.unlink(missing_ok=True)
        return replace(found, warnings=[str(w.message) for w in caught if issubclass(w.category, TsattnWarning)])
    except TsattnError as error:
        # As a value: Ray would wrap it in pages of its own.
        return replace(report, error=error)


def _predicted(forecaster: Forecaster, job: Job, table: pa.Table, report: Report) -> Report:
    spacing: list[tuple[int, int]] = []
    schema = forecaster.schema_
    panel = build_panel(table, schema.roles, schema=schema, spacing=spacing)
    forecast = forecaster._predict_panel(panel, _known_of(job.known, panel), False, part=True)
    ids = panel.ids.take(pa.array(forecast.windows.series))
    file = _write(forecast.to_frame(), panel, job, report) if len(forecast) else None
    return replace(report, file=file, ids=ids, skipped=forecast.skipped, spacing=spacing)


def _backtested(forecaster: Forecaster, job: Job, table: pa.Table, report: Report) -> Report:
    spacing: list[tuple[int, int]] = []
    assert job.backtest is not None
    result = run_backtest(forecaster, table, **job.backtest, part=spacing)
    series = np.unique(result.windows.series)
    return replace(
        report,
        file=_write(result.to_frame(), result.panel, job, report) if len(series) else None,
        ids=result.panel.ids.take(pa.array(series)),
        skipped=result.skipped,
        longest=int(result.panel.lengths.max()),
        spacing=spacing,
        in_sample=result.in_sample,
        trained_until=result.trained_until,
        sums={by: result.sums(by) for by in ("series", "step")} if len(series) else {},
        summary=None if result.summary is None else result.summary.part(),
    )


def _known_of(known: pa.Table | None, panel: Panel) -> pa.Table | None:
    """The rows of the known table for the series of a panel."""
    if known is None or panel.schema.roles.id is None:
        return known
    try:
        mine = pc.is_in(known[panel.schema.roles.id], value_set=panel.ids.cast(known[panel.schema.roles.id].type))
    except pa.ArrowException:  # ids of another kind: the complaint about them is made where they are read
        return known
    return known.filter(mine) if pc.any(mine).as_py() else known


def _write(frame: Any, panel: Panel, job: Job, report: Report) -> str:
    """The file of a part, its ids in the type they were read in."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    place = table.schema.get_field_index(panel.schema.roles.id)
    table = table.set_column(place, panel.schema.roles.id, table.column(place).cast(panel.ids.type))
    stream = io.BytesIO()
    pq.write_table(table, stream)
    file = f"part-{report.name}.parquet"
    write_whole(Path(job.folder) / file, stream.getvalue())
    return file


def _name_of(ids: pa.ChunkedArray) -> str:
    names = sorted(repr(value) for value in ids.unique().to_pylist())
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:20]


def _count_try(folder: Path, name: str) -> list[Path]:
    """Marks of this try and those before it; raises ClusterError when there were ``TRIES``.

    Ray itself would try without an end: a part that needs more memory than there is would kill workers for ever.
    """
    folder.mkdir(exist_ok=True)
    marks = [folder / f"{name}-{number}" for number in range(TRIES)]
    for number, mark in enumerate(marks):
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            continue
        return marks[: number + 1]
    raise ClusterError(
        f"The worker was killed {TRIES} times while it worked on one part of the table, most likely because the "
        f"machine {platform.node()!r} ran out of memory. Use fewer workers, or series that are shorter."
    )
