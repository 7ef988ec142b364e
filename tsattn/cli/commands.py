"""The commands around ``Forecaster``: ``fit``, ``predict``, ``attention``, ``backtest`` and ``datasets``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsattn.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    import pandas as pd

from tsattn.forecaster import Forecaster


def fit(
    forecaster: Forecaster,
    *,
    data: str,
    out: str,
    val_size: int | float | None = None,
    data_dir: str | None = None,
    on_disk: bool = False,
    resume: bool = False,
) -> None:
    """Train a model on a table and save it; Ctrl-C saves the best weights so far, --resume goes on after a kill.

    Args:
        forecaster: The model, its columns and its training.
        data: Name of a data set, or the path of a CSV file, a Parquet file or a folder of Parquet files.
        out: Folder the model is saved to.
        val_size: Steps (or fraction) of each series held out for early stopping; 0 none; unset a tenth.
        data_dir: Folder with the files of named data sets.
        on_disk: Keep the rows of a Parquet file or folder in memory-mapped files, as is done anyway where they would
            take more than half of the memory.
        resume: Go on from the checkpoints in OUT/checkpoints, if there are any; a run that has ended is left alone.
    """
    _make_folder(Path(out))  # before the training: a place that cannot be written must not cost its result
    checkpoints = Path(out) / "checkpoints"
    if resume and (Path(out) / "model.json").exists() and not list(checkpoints.glob("step-*.json")):
        print(f"the run in {out} has ended: there is nothing to resume", file=sys.stderr)
        return
    try:
        forecaster.fit(read_table(data, data_dir, on_disk), val_size=val_size, checkpoints=checkpoints, resume=resume)
    except KeyboardInterrupt:
        if forecaster.__sklearn_is_fitted__():
            print(f"interrupted; best weights so far saved to {forecaster.save(out)}", file=sys.stderr)
        raise
    print(f"saved to {forecaster.save(out)}", file=sys.stderr)


def predict(
    *,
    model: str,
    data: str | None = None,
    known: str | None = None,
    out: str = "forecast.csv",
    plot: str | None = None,
    attention: str | None = None,
    data_dir: str | None = None,
    on_disk: bool = False,
    engine: str | None = None,
    workers: int | None = None,
) -> None:
    """Forecast with a saved model.

    Args:
        model: Folder of a saved model.
        data: Name of a data set or path of a table; unset forecasts the series the model was trained on.
        known: Path of a table with the known covariates over the horizon.
        out: File to write, CSV or Parquet by its ending; with an engine, the folder of Parquet files to write.
        plot: Picture to write, such as forecast.png.
        attention: File for the attention as a tidy table, CSV or Parquet by its ending.
        data_dir: Folder with the files of named data sets.
        on_disk: As in fit.
        engine: "ray" forecasts a Parquet file or folder on a Ray cluster (RAY_ADDRESS), or on a Ray of this machine.
        workers: Processes of the engine; unset: one for each CPU.
    """
    if engine is not None or workers is not None:
        if plot or attention:
            raise ConfigError("--engine writes forecasts alone: leave out --plot and --attention.")
        _check_folder(out)
        found = Forecaster.load(model).predict(data, known=known, engine=engine or "", out=out, workers=workers)
        print(f"{found!r}", file=sys.stderr)
        return
    for path in (out, attention):
        if path is not None:
            _check_ending(path)
    forecaster = Forecaster.load(model)
    table = None if data is None else read_table(data, data_dir, on_disk)
    forecast = forecaster.predict(
        table, known=known, attention=bool(attention) or bool(plot and _has_attention(forecaster))
    )
    write_table(forecast.to_frame(), out)
    if plot:
        _make_folder(Path(plot).parent)
        forecast.plot().savefig(plot)
    if attention:
        write_table(forecast.attention.to_frame(), attention)
    written = ", ".join(name for name in (out, plot, attention) if name)
    print(f"{forecast!r} written to {written}", file=sys.stderr)


def attention(
    *,
    model: str,
    data: str | None = None,
    known: str | None = None,
    out: str = "report.html",
    series: int = 20,
    check: bool = True,
    windows: int = 10,
    refit: bool = False,
    data_dir: str | None = None,
    on_disk: bool = False,
) -> None:
    """Write a page on what the forecasts read and whether to believe it, as one HTML file.

    Args:
        model: Folder of a saved model.
        data: Name of a data set or path of a table; unset shows the series the model was trained on, without check.
        known: Path of a table with the known covariates over the horizon.
        out: File to write.
        series: Most series to show.
        check: Whether to check if the map can be believed.
        windows: Origins per series of the backtest; 0 leaves it out. A fresh copy is trained where the model has seen
            the steps.
        refit: Train again before every origin of the backtest.
        data_dir: Folder with the files of named data sets.
        on_disk: As in fit.
    """
    forecaster = Forecaster.load(model)
    table = None if data is None else read_table(data, data_dir, on_disk)
    path = forecaster.report(out, table, known=known, series=series, check=check, windows=windows, refit=refit)
    print(f"written to {path}", file=sys.stderr)


def backtest(
    forecaster: Forecaster,
    *,
    data: str,
    windows: int,
    step: int | None = None,
    refit: bool = False,
    by: str | None = None,
    out: str | None = None,
    data_dir: str | None = None,
    on_disk: bool = False,
) -> None:
    """Score a model on rolling origins, beside the naive and the seasonal naive forecast.

    The model is trained on the rows before the first origin, or anew before each origin with ``--refit true``.

    Args:
        forecaster: The model, its columns and its training.
        data: Name of a data set, or the path of a table.
        windows: Origins per series.
        step: Steps between two origins; unset: the horizon.
        refit: Train again before every origin.
        by: "series" or "step" (of the horizon) for one row each; unset scores everything together.
        out: File for all forecasts beside the truth, CSV or Parquet by its ending.
        data_dir: Folder with the files of named data sets.
        on_disk: As in fit.
    """
    if by not in (None, "series", "step"):
        raise ConfigError(f"--by must be series or step, found {by!r}.")
    if out:
        _check_ending(out)
    result = forecaster.backtest(read_table(data, data_dir, on_disk), windows=windows, step=step, refit=refit)
    if out:
        write_table(result.to_frame(), out)
    print(result.metrics(by=by).to_string(index=False, float_format=lambda value: f"{value:.4g}"))  # type: ignore[arg-type]


def backtest_saved(
    *,
    model: str,
    data: str,
    windows: int,
    step: int | None = None,
    refit: str = "false",
    by: str | None = None,
    out: str | None = None,
    attention: str | None = None,
    data_dir: str | None = None,
    on_disk: bool = False,
    engine: str | None = None,
    workers: int | None = None,
) -> None:
    """Score a saved model on rolling origins, beside the naive and the seasonal naive forecast.

    Args:
        model: Folder of a saved model.
        data: Name of a data set, or the path of a table.
        windows: Origins per series.
        step: Steps between two origins; unset: the horizon.
        refit: "never" scores the model as it stands, even on steps that it was trained on; "false" trains a fresh copy
            there (with an engine: refuses).
        by: "series" or "step" (of the horizon) for one row each; unset scores everything together.
        out: File for all forecasts beside the truth, CSV or Parquet by its ending; with an engine, a folder to write.
        attention: File for the mean attention by lag over all windows, CSV or Parquet by its ending.
        data_dir: Folder with the files of named data sets.
        on_disk: As in fit.
        engine: "ray" scores a Parquet file or folder on a Ray cluster (RAY_ADDRESS), or on a Ray of this machine.
        workers: Processes of the engine; unset: one for each CPU.
    """
    if by not in (None, "series", "step"):
        raise ConfigError(f"--by must be series or step, found {by!r}.")
    if refit not in ("false", "never"):
        raise ConfigError(f"--refit of a saved model must be false or never, found {refit!r}.")
    if attention:
        _check_ending(attention)
    options: dict[str, Any] = {
        "windows": windows, "step": step, "refit": refit == "never" and "never",
        "attention": "summary" if attention else False,
    }  # fmt: skip
    forecaster, result = Forecaster.load(model), None
    if engine is not None or workers is not None:
        if out is None:
            raise ConfigError("--engine writes a folder of Parquet files: pass --out FOLDER.")
        _check_folder(out)
        result = forecaster.backtest(data, **options, engine=engine or "", out=out, workers=workers)
    else:
        if out:
            _check_ending(out)
        result = forecaster.backtest(read_table(data, data_dir, on_disk), **options)
        if out:
            write_table(result.to_frame(), out)
    if attention:
        write_table(result.attention.by_lag(), attention)
    scores = result.metrics(by=by)  # type: ignore[arg-type]
    print(scores.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    if result.in_sample:
        print("in sample: the model was trained on steps that it is scored on here", file=sys.stderr)


def datasets(name: str | None = None) -> None:
    """List the data sets known by name, or show the card of one.

    Args:
        name: A data set.
    """
    from tsattn.data.catalog import dataset_card, list_datasets

    if name is None:
        for card in list_datasets():
            print(f"{card.name:<16} {'shipped ' if card.shipped else '        '} {card.title}")
        return
    card = dataset_card(name)
    print(f"{card.name}: {card.title}\n\n{card.description}\n")
    for field in ("source", "licence", "rows", "frequency", "season", "columns", "units", "files", "notes", "how"):
        value = getattr(card, field)
        if value:
            print(f"{field}: {value}")


def read_table(data: str, data_dir: str | None = None, on_disk: bool = False) -> Any:
    """A path as it is (or to be read ``on_disk``), or the data set of that name. Raises DatasetError for neither."""
    from tsattn.data.catalog import load_dataset
    from tsattn.data.ondisk import OnDisk

    if os.path.exists(data):  # False, too, for a name that no file could have
        return OnDisk(data) if on_disk else data
    if Path(data).suffix or "/" in data:
        raise DatasetError(f"No such file or folder: {data}.")
    return load_dataset(data, data_dir=data_dir)


def write_table(frame: pd.DataFrame, path: str) -> None:
    """CSV or Parquet by the ending of ``path``."""
    _make_folder(Path(path).parent)
    if Path(path).suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)


def _make_folder(folder: Path) -> None:
    """Make the folder; raises ConfigError when that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"Cannot write to {str(folder)!r}: {error.strerror}.") from None


def _check_ending(path: str) -> None:
    if Path(path).suffix not in (".csv", ".parquet"):
        raise ConfigError(f"Cannot write {path!r}: the ending must be .csv or .parquet.")


def _check_folder(path: str) -> None:
    if Path(path).suffix in (".csv", ".parquet"):
        raise ConfigError(
            f"--engine writes a folder of Parquet files, and {path!r} looks like a file: pass --out FOLDER."
        )


def _has_attention(forecaster: Forecaster) -> bool:
    return forecaster.network_.has_attention
