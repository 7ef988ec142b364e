"""A whole run: read, share out, collect, and put the folder in its place."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tsattn.cluster.gather import Reports
from tsattn.cluster.reading import Source, open_source
from tsattn.cluster.result import SKIPPED, PartitionedBacktest, PartitionedForecast
from tsattn.cluster.session import check_workers, import_ray, session
from tsattn.cluster.worker import Job, Worker, unpacked
from tsattn.data.future import known_columns
from tsattn.data.table import read_columns
from tsattn.errors import ClusterError, ConfigError, TsattnError

if TYPE_CHECKING:
    from tsattn.forecaster import Forecaster


def predict_folder(
    forecaster: Forecaster, data: Any, out: str | Path | None, *, known: Any = None, workers: int | None = None
) -> PartitionedForecast:
    """``Forecaster.predict`` for every series of a Parquet file or folder, written to the folder ``out``.

    Args:
        forecaster: A fitted forecaster.
        data: Path of a Parquet file or folder that all machines see; the rows of a series may lie in several files.
        out: Folder to write, on a file system that all machines share; it must not exist, or be empty.
        known: Table or path with the known covariates over the horizon, as in ``predict``; every machine gets it.
        workers: Processes that forecast, each with the model; unset: one for each CPU.

    Raises:
        ConfigError: Ray is not installed, ``out`` holds something, or ``data`` is no path of Parquet.
        DataError: what ``predict`` raises; nothing is written then.
        ClusterError: workers were killed again and again, or the cluster lost or doubled rows.
    """
    from tsattn.forecaster import mention_skipped

    source, target = _checked(forecaster, data, out, workers)
    schema, spec = forecaster.schema_, forecaster.network_.spec
    names = known_columns(schema, spec.horizon, known)
    table = None
    if names:
        head = [name for name in (schema.roles.id, schema.roles.time) if name is not None]
        table = pa.table(read_columns(known, [*head, *names], id=schema.roles.id, covariates=names))
    with _staging(target) as folder:
        reports = _run(source, replace(_job(forecaster, folder), known=table), workers)
        reports.check(source.rows, schema)
        skipped = reports.skipped
        mention_skipped(skipped, reports.series, spec.context)
        _finish(folder, target, reports)
    reports.warn()
    return PartitionedForecast(target, schema, forecaster._as_fitted()._model_name(), len(reports.ids()), skipped)


def backtest_folder(
    forecaster: Forecaster,
    data: Any,
    out: str | Path | None,
    *,
    windows: int,
    step: int | None = None,
    refit: bool | str = False,
    attention: bool | str = False,
    workers: int | None = None,
) -> PartitionedBacktest:
    """``Forecaster.backtest`` of every series of a Parquet file or folder, written to the folder ``out``.

    Nothing is trained: with ``refit=False`` the model must have been fitted on rows before the first origin;
    ``refit="never"`` scores it as it stands. ``attention`` is False or "summary". Other arguments and errors as
    ``predict_folder``.
    """
    from tsattn.evaluation.backtest import check_backtest, mention_skipped

    check_backtest(forecaster.horizon, windows, step, refit)
    if refit not in (False, "never"):
        raise ConfigError("engine='ray' trains nothing: refit must be False or 'never', found True.")
    if attention not in (False, "summary"):
        raise ConfigError(f"With engine='ray', attention must be False or 'summary', found {attention!r}.")
    source, target = _checked(forecaster, data, out, workers)
    arguments = {"windows": windows, "step": step, "refit": refit, "attention": attention}
    with _staging(target) as folder:
        reports = _run(source, replace(_job(forecaster, folder), backtest=arguments), workers)
        reports.check(source.rows, forecaster.schema_)
        skipped = reports.skipped
        mention_skipped(skipped, reports.series, max(report.longest for report in reports.reports))
        _finish(folder, target, reports)
    reports.warn()
    reports.mention_unscored()
    fitted = forecaster._as_fitted()
    return PartitionedBacktest(
        target,
        forecaster.schema_,
        fitted._model_name(),
        len(reports.ids()),
        skipped,
        reports=reports,
        levels=fitted._levels(),
        trained_until=reports.reports[0].trained_until,
        in_sample=any(report.in_sample for report in reports.reports),
    )


def _checked(forecaster: Forecaster, data: Any, out: str | Path | None, workers: int | None) -> tuple[Source, Path]:
    """What to read and where to write; refuses what can be refused before Ray is started."""
    forecaster._require_fit()
    import_ray()
    check_workers(workers)
    if out is None:
        raise ConfigError("engine='ray' writes a folder of Parquet files: pass out=FOLDER.")
    if "://" in str(out):
        raise ConfigError(f"out must be a folder on a file system that all machines share, found {str(out)!r}.")
    target = Path(os.path.abspath(out))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        what = "is a file" if not target.is_dir() else f"already holds {sum(1 for _ in target.iterdir())} files"
        raise ConfigError(f"{target} {what}: results of two runs are not mixed. Pass another out=, or remove it first.")
    return open_source(data, forecaster.schema_), target


def _job(forecaster: Forecaster, folder: Path) -> Job:
    """The model as the files of its folder, which travel with the job: no machine needs to see the folder itself."""
    from tsattn.artifact import save

    fitted = forecaster._as_fitted()
    with tempfile.TemporaryDirectory() as saved:
        save(fitted, Path(saved), history=False)
        files = {file.name: file.read_bytes() for file in Path(saved).iterdir()}
    return Job(files, None if isinstance(fitted.model, str) else fitted.model, str(folder))


def _run(source: Source, job: Job, workers: int | None) -> Reports:
    """Every part through a pool of workers. Ray starts a killed worker again and gives it its parts again."""
    reports = Reports()
    with session(workers) as (ray, count):
        told = ray.put(job)
        try:
            parts = source.parts(ray, count).map_batches(
                Worker,
                fn_constructor_args=(told,),
                batch_size=None,  # a block as it is: whole series
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=count),
                num_cpus=1,
            )
            for row in parts.iter_rows():
                reports.add(unpacked(row["report"]))
        except ray.exceptions.RayError as error:
            if (ours := _within(error)) is not None:
                raise ours from None
            if isinstance(error, (ray.exceptions.RayTaskError, ray.exceptions.UserCodeException)):
                raise  # a fault of ours, with its traceback
            raise ClusterError(
                f"The cluster could not finish ({type(error).__name__}: {str(error).splitlines()[0]}). Nothing is "
                f"written. Look at the machines (memory, disk) and run it again."
            ) from None
    return reports


def _within(error: BaseException) -> TsattnError | None:
    """The error of ours that Ray has wrapped, as when a file cannot be read."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, TsattnError):
        seen = getattr(seen, "cause", None) or seen.__cause__
    if seen is None:
        return None
    kind = next(kind for kind in type(seen).__mro__ if kind.__module__.startswith("tsattn."))
    return kind(*seen.args[:1]) if kind is not type(seen) else seen


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A hidden folder beside ``target`` to write to, which is gone afterwards in any case."""
    folder = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"Cannot write to {str(target.parent)!r}: {error.strerror}.") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _finish(folder: Path, target: Path, reports: Reports) -> None:
    """Add what was skipped, and move the folder into place: there is a whole result or none."""
    missing = [name for name in reports.files if not (folder / name).exists()]
    if missing:
        raise ConfigError(
            f"{len(missing)} of {len(reports.files)} files that the workers wrote are not in {folder.parent}: out= "
            f"must be on a file system that all machines share."
        )
    shutil.rmtree(folder / "_tries", ignore_errors=True)
    skipped, kind = reports.skipped, reports.ids().type
    (folder / SKIPPED).mkdir()
    lost = pa.table({"id": pa.array(list(skipped), type=kind), "reason": pa.array(list(skipped.values()), pa.string())})
    pq.write_table(lost, folder / SKIPPED / "part.parquet")
    if target.exists():
        target.rmdir()  # empty; not every system can move a folder onto another
    os.replace(folder, target)
