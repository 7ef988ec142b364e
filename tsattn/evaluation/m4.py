"""The hourly and weekly parts of the M4 competition under its rules, which are fixed here.

The rules (Makridakis, Spiliotis and Assimakopoulos, 2020): the last ``horizon`` steps of every series are forecast
once, from all steps before them. sMAPE is ``mean 200 |y - f| / (|y| + |f|)``; MASE divides the mean absolute error of a
series by the mean absolute error of its seasonal naive forecast inside the training steps; both are a mean over the
series. OWA is the mean of the two, each divided by the score of the competition's Naive2.

Legend: ``W`` series, ``H`` horizon.
"""

from __future__ import annotations

import csv
import datetime
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tsattn.data.catalog import dataset_card, load_dataset
from tsattn.errors import ConfigError, DataError, DatasetError, unknown_name
from tsattn.evaluation.metrics import mase, seasonal_scale, smape
from tsattn.evaluation.protocol_result import device_name, versions
from tsattn.forecaster import Forecaster
from tsattn.models import Network, find
from tsattn.training.config import TrainConfig

if TYPE_CHECKING:
    import pandas as pd

_FILE = Path(__file__).with_name("published_m4.csv")


@dataclass(frozen=True)
class M4Protocol:
    """The fixed part: how far, how long a season is, and the scores of Naive2 that OWA divides by."""

    name: str  # name of the data card
    series: int
    horizon: int  # steps
    season: int  # steps
    naive2_smape: float
    naive2_mase: float

    def score(self, actual: np.ndarray, forecast: np.ndarray, scale: np.ndarray) -> M4Score:
        """Scores of ``forecast [W, H]``; ``scale [W, 1]`` is the seasonal naive error inside each series."""
        y, f = actual[..., None], forecast[..., None]
        percent, scaled = float(smape(y, f)), float(mase(y, f, scale, series=np.arange(len(y))))
        return M4Score(percent, scaled, (percent / self.naive2_smape + scaled / self.naive2_mase) / 2)


@dataclass(frozen=True)
class M4Score:
    """Means over the series, as the competition defined them."""

    smape: float  # 0 to 200
    mase: float
    owa: float


@dataclass(frozen=True)
class M4Seed:
    """One training run."""

    seed: int
    score: M4Score
    seconds: float  # training
    epochs: int
    parameters: int


M4: dict[str, M4Protocol] = {
    "m4_hourly": M4Protocol("m4_hourly", 414, 48, 24, 18.383, 2.395),
    "m4_weekly": M4Protocol("m4_weekly", 359, 13, 1, 9.161, 2.777),
}


@dataclass(frozen=True)
class M4Result:
    """Scores of a model, one per seed, with what is needed to read and to repeat them."""

    protocol: M4Protocol
    part: str
    model: str
    context: int
    options: dict[str, Any]
    training: dict[str, Any]
    val_size: int
    seeds: tuple[M4Seed, ...]
    floors: dict[str, M4Score]
    published: tuple[tuple[str, M4Score, str], ...]  # model, score, source
    versions: dict[str, str]
    device: str
    date: str  # ISO

    def mean(self, name: str) -> float:
        """Mean over the seeds of "smape", "mase" or "owa"."""
        return statistics.fmean(getattr(seed.score, name) for seed in self.seeds)

    def spread(self, name: str) -> float | None:
        """Standard deviation over the seeds (ddof 1); None with a single seed."""
        values = [getattr(seed.score, name) for seed in self.seeds]
        return statistics.stdev(values) if len(values) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        names = ("smape", "mase", "owa")
        return {
            **asdict(self),
            "mean": {name: self.mean(name) for name in names},
            "spread": {name: self.spread(name) for name in names},
        }

    def __str__(self) -> str:
        """Our scores beside the floors and the published ones, best OWA first, then every seed."""
        ours = M4Score(*(self.mean(name) for name in ("smape", "mase", "owa")))
        deviation = self.spread("owa")
        note = f"mean of {len(self.seeds)} seeds, OWA ± {deviation:.3f}" if deviation is not None else "1 run"
        lines = [(self.model, ours, note, "*")]
        lines += [(name, score, "computed here", "*") for name, score in self.floors.items()]
        if self.part == "test":
            lines += [(name, score, source, " ") for name, score, source in self.published]
        width = max(len(name) for name, *_ in lines)
        table = [
            f"{mark} {name:<{width}}  {score.smape:7.3f}  {score.mase:7.3f}  {score.owa:6.3f}  {text}"
            for name, score, text, mark in sorted(lines, key=lambda line: line[1].owa)
        ]
        seeds = [
            f"seed {s.seed}: sMAPE {s.score.smape:.3f}, MASE {s.score.mase:.3f}, OWA {s.score.owa:.4f}; {s.epochs} "
            f"epochs, {s.parameters} parameters, trained in {s.seconds:.1f} s"
            for s in self.seeds
        ]
        rules = self.protocol
        scored = "the test steps" if self.part == "test" else "the last training steps (validation)"
        return "\n".join(
            [
                f"{rules.name}: {rules.series} series, {scored}, horizon {rules.horizon}, context {self.context}",
                "",
                f"  {'model':<{width}}    sMAPE     MASE     OWA  (* computed here)",
                *table,
                "",
                *seeds,
                f"{self.date}, {self.device}, {', '.join(f'{k} {v}' for k, v in self.versions.items())}",
            ]
        )


def find_m4(dataset: str) -> M4Protocol | None:
    """The rules of an M4 data set, by any name its card knows; None for another data set."""
    try:
        return M4.get(dataset_card(dataset).name)
    except DatasetError:
        return None


def run_m4(
    dataset: str = "m4_hourly",
    *,
    model: str | type[Network] = "lucid",
    context: int = 336,
    seeds: Sequence[int] = (0, 1, 2),
    options: dict[str, Any] | None = None,
    training: TrainConfig | dict[str, Any] | None = None,
    val_size: int = 0,
    part: Literal["test", "validation"] = "test",
    data_dir: str | None = None,
    verbose: bool = True,
) -> M4Result:
    """Train a model once per seed on all series together and score its forecast of the last steps of each.

    Args:
        dataset: "m4_hourly" or "m4_weekly".
        model: Name of a model, or a ``Network`` subclass. Its forecast is a point forecast.
        context: Past steps the model reads.
        seeds: One run each; a model with nothing to train is scored once.
        options: Keywords of the model.
        training: Fields of ``TrainConfig``; the loss is "mae" unless given, since both scores are absolute errors.
        val_size: Steps at the end of the training part held out to choose the epoch; 0 trains on all of them.
        part: "validation" scores the last ``horizon`` training steps, trained on what is before: for choosing settings
            without a look at the test.
        data_dir: Folder that holds the files of the data set.
        verbose: One line per seed on standard error.

    Raises:
        ConfigError: unknown data set, model, option or part.
        DataError: the files are absent, or are not those of the competition.
    """
    rules = _rules(dataset, part, seeds)
    train, actual = _cut(load_dataset(rules.name, data_dir=data_dir), rules, part)
    scale = _seasonal_error(train, rules.season)
    config = _config(training)
    name = model if isinstance(model, str) else model.__name__
    results = []
    for seed in seeds if find(model).trainable else seeds[:1]:
        forecaster = Forecaster(
            model,
            horizon=rules.horizon,
            context=context,
            freq=1,
            output="point",
            options=options,
            training=config,
            seed=int(seed),
        )
        results.append(_run_seed(rules, forecaster, train, actual, scale, val_size))
        if verbose:
            done = results[-1]
            print(f"{rules.name}, {name}, seed {seed}: OWA {done.score.owa:.4f}, {done.seconds:.1f} s", file=sys.stderr)
    return M4Result(
        protocol=rules,
        part=part,
        model=name,
        context=int(context),
        options=dict(options or {}),
        training={k: v for k, v in asdict(config).items() if v != getattr(TrainConfig(), k) and k != "verbose"},
        val_size=val_size,
        seeds=tuple(results),
        floors=_floors(rules, train, actual, scale),
        published=_published(rules.name),
        versions=versions(),
        device=device_name(config.accelerator),
        date=datetime.date.today().isoformat(),
    )


def _config(training: TrainConfig | dict[str, Any] | None) -> TrainConfig:
    """Fields given one by one keep what is usual here; a whole config is taken as it is."""
    if isinstance(training, TrainConfig):
        return training
    return TrainConfig.of({"loss": "mae", "verbose": False, **(training or {})})


def _run_seed(
    rules: M4Protocol,
    forecaster: Forecaster,
    train: pd.DataFrame,
    actual: np.ndarray,
    scale: np.ndarray,
    val_size: int,
) -> M4Seed:
    """Fit and score once."""
    started = time.perf_counter()
    forecaster.fit(train, val_size=val_size)
    seconds = time.perf_counter() - started
    table = forecaster.predict().to_frame()
    forecast = table.pivot(index="unique_id", columns="ds", values="forecast")
    order = train["unique_id"].drop_duplicates()
    steps = [forecast.loc[key].dropna().to_numpy(np.float64) for key in order]
    summary = forecaster.summary_
    score = rules.score(actual, np.stack(steps), scale)
    return M4Seed(forecaster.seed, score, seconds, summary.epochs, summary.parameters)


def _cut(table: pd.DataFrame, rules: M4Protocol, part: str) -> tuple[pd.DataFrame, np.ndarray]:
    """What is trained on, and the ``[W, H]`` values to forecast, series in the order of the table."""
    table = table.sort_values(["unique_id", "ds"], kind="stable")
    test = table["split"] == "test"
    counts = table.loc[test, "unique_id"].value_counts()
    if len(counts) != rules.series or (counts != rules.horizon).any():
        raise DataError(
            f"{rules.name} has {rules.series} series of {rules.horizon} test steps; found {len(counts)} series with "
            f"{counts.min() if len(counts) else 0} to {counts.max() if len(counts) else 0}."
        )
    if part == "validation":
        table = table[~test]
        test = table.groupby("unique_id").cumcount(ascending=False) < rules.horizon
    actual = table.loc[test, "y"].to_numpy(np.float64).reshape(rules.series, rules.horizon)
    return table.loc[~test, ["unique_id", "ds", "y"]], actual


def _seasonal_error(train: pd.DataFrame, season: int) -> np.ndarray:
    """Mean ``|y_t - y_(t - season)|`` of each series, ``[W, 1]``, what MASE divides by."""
    ends = train.groupby("unique_id", sort=False).size().cumsum().to_numpy()
    return seasonal_scale(train[["y"]].to_numpy(), season=season, indptr=np.concatenate([[0], ends]))[0]


def _floors(rules: M4Protocol, train: pd.DataFrame, actual: np.ndarray, scale: np.ndarray) -> dict[str, M4Score]:
    """Scores of the last value and of the last season, repeated."""
    seasons = {"naive": 1, "seasonal_naive": rules.season}
    return {name: rules.score(actual, _repeated(train, m, rules.horizon), scale) for name, m in seasons.items()}


def _rules(dataset: str, part: str, seeds: Sequence[int]) -> M4Protocol:
    """The rules of ``dataset``. Raises ConfigError for what cannot be run."""
    rules = find_m4(dataset)
    if rules is None:
        raise unknown_name("M4 benchmark", dataset, M4)
    if part not in ("test", "validation"):
        raise unknown_name("part", part, ("test", "validation"))
    if not len(seeds):
        raise ConfigError("No seeds: name at least one.")
    return rules


def _repeated(train: pd.DataFrame, season: int, horizon: int) -> np.ndarray:
    """The last ``season`` values of each series over and over, ``[W, H]``."""
    last = [y.to_numpy(np.float64)[-season:] for _, y in train.groupby("unique_id", sort=False)["y"]]
    return np.stack(last)[:, np.arange(horizon) % season]


def _published(dataset: str) -> tuple[tuple[str, M4Score, str], ...]:
    with _FILE.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["dataset"] == dataset]
    return tuple(
        (row["model"], M4Score(float(row["smape"]), float(row["mase"]), float(row["owa"])), row["source"])
        for row in rows
    )
