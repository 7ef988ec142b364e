"""The long-horizon benchmark (ETT, exchange, illness, weather) under its published rules, which are fixed here.

The rules, as in the data loaders of Informer, Autoformer, LTSF-Linear, PatchTST, FITS and TSLib:

- rows are taken in the order of the file; stamps are ignored, since some files have invented or repeated ones;
- fixed borders: training, validation and test are consecutive blocks of rows. The context of a validation or test
  window may reach back over the border, so their number, ``rows - horizon + 1``, does not depend on the context;
- every channel is standardised by its mean and deviation (ddof 0) over the training rows;
- stride 1, every window counts (several published scores leave out the last incomplete batch);
- MSE and MAE are one mean over windows, horizon and channels of standardised values;
- the weights of the best validation MSE are scored on the test part, once.

Legend: ``R`` rows, ``C`` channels, ``L`` context, ``H`` horizon.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from tsattn.data.build import build_panel
from tsattn.data.catalog import dataset_card, load_dataset
from tsattn.data.datamodule import ForecastDataModule, input_spec
from tsattn.data.panel import Panel
from tsattn.data.schema import Roles
from tsattn.data.split import Origins, Split
from tsattn.data.windows import WindowSource
from tsattn.errors import ConfigError, DataError, DatasetError, listed, unknown_name
from tsattn.evaluation.protocol_result import ProtocolResult, Score, SeedResult, device_name, versions
from tsattn.evaluation.published import published_rows
from tsattn.inference import best_device, forecast_windows
from tsattn.models import Network, build, find
from tsattn.training.config import TrainConfig
from tsattn.training.run import seeded, train

_BLOCK = 1 << 24  # values held at once while scoring: 64 MB for each array
_LONG, _WEEKS = (96, 192, 336, 720), (24, 36, 48, 60)


@dataclass(frozen=True)
class Protocol:
    """The fixed part of one benchmark: which rows are trained on, chosen on and scored on."""

    name: str  # name of the data card
    rows: int  # in the file; those after the test part are not used
    train: int  # rows, the first of the file
    validation: int  # rows, the next ones
    test: int  # rows, the next ones
    channels: int  # all are forecast
    season: int  # steps, for the seasonal naive floor
    horizons: tuple[int, ...]  # published ones, in steps

    def split(self, context: int, horizon: int) -> Split:
        """Origins of the training windows (full context inside the training rows) and of the validation windows."""
        training = Origins(np.array([context]), np.array([self.train - horizon]))
        return Split(training, self.scored(horizon, "validation"), np.array([self.train]))

    def scored(self, horizon: int, part: str = "test") -> Origins:
        """Origins of every window of the "test" or the "validation" part, one step apart, whatever the context is."""
        first, rows = self.train, self.validation
        if part == "test":
            first, rows = self.train + self.validation, self.test
        return Origins(np.array([first]), np.array([first + rows - horizon]))

    def panel(self, values: np.ndarray) -> Panel:
        """The used rows of ``values [R, C]``, standardised by the training rows: one series, integer time."""
        from sklearn.preprocessing import StandardScaler

        if values.shape != (self.rows, self.channels):
            raise DataError(
                f"{self.name} has {self.rows} rows of {self.channels} channels; found {values.shape[0]} rows of "
                f"{values.shape[1]}."
            )
        if not np.isfinite(values).all():
            raise DataError(f"{self.name} has no missing values; found {int((~np.isfinite(values)).sum())}.")
        used = np.asarray(values[: self.train + self.validation + self.test], np.float64)
        used = StandardScaler().fit(used[: self.train]).transform(used)
        names = [f"channel_{number}" for number in range(self.channels)]
        table = {"row": np.arange(len(used)), **dict(zip(names, used.T, strict=True))}
        return build_panel(table, Roles.of(None, "row", names), freq=1)


PROTOCOLS: dict[str, Protocol] = {
    # fixed borders: 12, 4 and 4 months of 30 days
    "ETTh1": Protocol("ETTh1", 17_420, 8_640, 2_880, 2_880, channels=7, season=24, horizons=_LONG),
    "ETTh2": Protocol("ETTh2", 17_420, 8_640, 2_880, 2_880, channels=7, season=24, horizons=_LONG),
    "ETTm1": Protocol("ETTm1", 69_680, 34_560, 11_520, 11_520, channels=7, season=96, horizons=_LONG),
    "ETTm2": Protocol("ETTm2", 69_680, 34_560, 11_520, 11_520, channels=7, season=96, horizons=_LONG),
    # int(0.7 rows) for training, int(0.2 rows) for the test, the rest between them
    "exchange": Protocol("exchange", 7_588, 5_311, 760, 1_517, channels=8, season=1, horizons=_LONG),
    "illness": Protocol("illness", 966, 676, 97, 193, channels=7, season=52, horizons=_WEEKS),
    "weather": Protocol("weather", 52_696, 36_887, 5_270, 10_539, channels=21, season=144, horizons=_LONG),
}


def find_protocol(dataset: str) -> Protocol:
    """The protocol of a data set, by any name its card knows; case does not matter. Raises ConfigError."""
    try:
        name = dataset_card(dataset).name
    except DatasetError:
        name = dataset
    if name not in PROTOCOLS:
        raise unknown_name("benchmark", dataset, PROTOCOLS)
    return PROTOCOLS[name]


def run_protocol(
    dataset: str,
    *,
    model: str | type[Network],
    horizon: int,
    context: int,
    seeds: Sequence[int] = (0, 1, 2),
    options: dict[str, Any] | None = None,
    training: TrainConfig | dict[str, Any] | None = None,
    part: str = "test",
    data_dir: str | os.PathLike[str] | None = None,
    verbose: bool = True,
    **rules: Any,
) -> ProtocolResult:
    """Train a model once per seed under the rules of a benchmark and score every test window.

    Args:
        dataset: A name of :data:`PROTOCOLS`; case does not matter.
        model: Name of a model, or a ``Network`` subclass. Its forecast is a point forecast.
        horizon: Steps to forecast, one of the published ones.
        context: Past steps the model reads; free, and printed beside the score.
        seeds: One run each; a model with nothing to train is scored once.
        options: Keywords of the model.
        training: Fields of ``TrainConfig``. With another ``loss`` than "mse" the best validation is in that loss, and
            the result says so.
        part: "validation" scores the validation part alone and never reads the test part: for choosing settings.
        data_dir: Folder that holds the file of the data set.
        verbose: One line per seed on standard error.
        rules: None. The rules of a protocol are fixed, and naming one is an error.

    Raises:
        ConfigError: unknown benchmark, model or option; a horizon that is not published; an attempt to change a rule.
        DataError: the file is absent, or is not the file of the benchmark.
    """
    protocol = find_protocol(dataset)
    _refuse(protocol, model, horizon, context, seeds, rules)
    if part not in ("test", "validation"):
        raise unknown_name("part", part, ("test", "validation"))
    card = dataset_card(protocol.name)
    values = load_dataset(protocol.name, data_dir=data_dir)[list(card.columns.target)].to_numpy(np.float64)
    return _evaluate(protocol, values, model, horizon, context, seeds, options or {}, training, verbose, part)


def _refuse(
    protocol: Protocol,
    model: str | type[Network],
    horizon: int,
    context: int,
    seeds: Sequence[int],
    rules: dict[str, Any],
) -> None:
    """Raise ConfigError for what would not be this benchmark."""
    if rules:
        raise ConfigError(
            f"The rules of a benchmark are fixed, {listed(rules)} cannot be set: scores under other rules would not "
            f"compare with the published ones. Forecaster(...).backtest scores under rules of your own."
        )
    if horizon not in protocol.horizons:
        raise ConfigError(
            f"{protocol.name} is published for the horizons {listed(protocol.horizons)}; found {horizon!r}. "
            f"Forecaster(...).backtest scores any other."
        )
    longest = protocol.train - horizon
    if isinstance(context, bool) or not isinstance(context, (int, np.integer)) or not 1 <= context <= longest:
        raise ConfigError(
            f"context must be a whole number of steps from 1 to {longest}, found {context!r}: a training window of "
            f"{protocol.name} has its context and the {horizon} steps after it inside {protocol.train} rows."
        )
    if not len(seeds):
        raise ConfigError("No seeds: name at least one.")
    find(model)


def _evaluate(
    protocol: Protocol,
    values: np.ndarray,
    model: str | type[Network],
    horizon: int,
    context: int,
    seeds: Sequence[int],
    options: dict[str, Any],
    training: TrainConfig | dict[str, Any] | None,
    verbose: bool,
    part: str = "test",
) -> ProtocolResult:
    """The benchmark on raw ``values [R, C]`` of the file."""
    config = TrainConfig.of(training)
    if config.validation_windows is not None:
        raise ConfigError("training.validation_windows would choose the weights by other windows than the rules say.")
    if not isinstance(training, TrainConfig) and "verbose" not in (training or {}):
        config = replace(config, verbose=False)
    panel = protocol.panel(values)
    floors = {name: floor_score(protocol, panel, name, horizon, part) for name in ("naive", "seasonal_naive")}
    name = model if isinstance(model, str) else model.__name__
    results = []
    for seed in seeds if find(model).trainable else seeds[:1]:
        result = _run_seed(protocol, panel, model, horizon, context, int(seed), options, config, part)
        results.append(result)
        if verbose:
            print(
                f"{protocol.name} {horizon}, {name}, seed {seed}: {result.scores(part)}, {result.epochs} epochs, "
                f"{result.seconds:.1f} s",
                file=sys.stderr,
            )
    return ProtocolResult(
        protocol=protocol,
        model=name,
        horizon=int(horizon),
        context=int(context),
        options=dict(options),
        training=_changed(config),
        chosen_by=config.loss or "mse",
        seeds=tuple(results),
        floors=floors,
        published=published_rows(protocol.name, horizon) if part == "test" else (),
        part=part,
        scored_windows=len(protocol.scored(horizon, part)),
        versions=versions(),
        device=device_name(config.accelerator),
        date=datetime.date.today().isoformat(),
    )


def _run_seed(
    protocol: Protocol,
    panel: Panel,
    model: str | type[Network],
    horizon: int,
    context: int,
    seed: int,
    options: dict[str, Any],
    config: TrainConfig,
    part: str,
) -> SeedResult:
    """Train with one seed; score the weights of the best validation on the validation part and on ``part``."""
    split = protocol.split(context, horizon)
    data = ForecastDataModule.from_panel(panel, split, horizon=horizon, context=context, seed=seed, **config.reading())
    with seeded(seed):
        network = build(model, replace(data.spec, season=protocol.season), **options)
    started = time.perf_counter()
    summary = train(network, data, config, seed)
    if summary.interrupted:
        raise KeyboardInterrupt
    trained = time.perf_counter()
    test = _score(network, data.source, protocol.scored(horizon, part), config.accelerator)
    scored = time.perf_counter()
    chosen = _score(network, data.source, split.validation, config.accelerator)
    return SeedResult(
        seed,
        chosen.mse,
        test.mse,
        test.mae,
        seconds=trained - started,
        test_seconds=scored - trained,
        epochs=summary.epochs,
        best_epoch=summary.best_epoch,
        parameters=summary.parameters,
    )


def floor_score(protocol: Protocol, panel: Panel, model: str, horizon: int, part: str = "test") -> Score:
    """The score of "naive" or "seasonal_naive" on every window of a part; their context is one step or one season."""
    context = protocol.season if model == "seasonal_naive" else 1
    data = ForecastDataModule.from_panel(panel, protocol.split(context, horizon), horizon=horizon, context=context)
    network = build(model, replace(input_spec(panel.schema, horizon, context), season=protocol.season))
    return _score(network, data.source, protocol.scored(horizon, part), "cpu")


def _score(network: Network, source: WindowSource, origins: Origins, accelerator: str) -> Score:
    """Both errors over all windows of ``origins``, summed block by block: no array holds all windows."""
    values = source.targets * (source.context + source.horizon)  # of one window
    block, device = max(1, _BLOCK // values), best_device(accelerator)
    squared = absolute = 0.0
    for first in range(0, len(origins), block):
        series, origin = origins.locate(np.arange(first, min(first + block, len(origins))))
        windows = forecast_windows(network, source, series, origin, device=device)
        error = windows.point.astype(np.float64) - windows.actual
        squared, absolute = squared + float((error**2).sum()), absolute + float(np.abs(error).sum())
    count = len(origins) * source.horizon * source.targets
    return Score(squared / count, absolute / count)


def _changed(config: TrainConfig) -> dict[str, Any]:
    """The training settings that differ from the defaults and can matter for a score."""
    values = {f.name: getattr(config, f.name) for f in fields(config) if f.name not in ("verbose", "logger")}
    return {name: value for name, value in values.items() if value != getattr(TrainConfig(), name)}
