"""One trial: a forecaster trained and scored on every rolling fold of the part before the test."""

from __future__ import annotations

import inspect
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pytorch_lightning import Callback

import tsattn
from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.panel import Panel
from tsattn.data.split import rolling_folds
from tsattn.errors import ConfigError, TrainingError, unknown_name
from tsattn.forecaster import Forecaster
from tsattn.training.config import TrainConfig
from tsattn.training.run import TrainSummary
from tsattn.tuning.pruning import Watcher
from tsattn.tuning.scoring import BASELINES, Scorer, check_metric, score_baseline, score_network
from tsattn.tuning.space import NOT_TUNED, Space, apply

if TYPE_CHECKING:
    from optuna import Trial

OBJECTIVES = ("error", "seconds", "parameters")
_TICKS = 10  # reports per training where its number of epochs varies from trial to trial

Train = Callable[[Forecaster, int, Sequence[Callback]], None]  # fits on the training part of a fold


@dataclass(frozen=True)
class Plan:
    """What makes the trials of a study comparable. All of it, and the data, must be the same to continue a study."""

    forecaster: dict[str, Any]  # parameters, as plain data
    space: dict[str, Any]
    metric: str = "mae"
    objectives: tuple[str, ...] = ("error",)
    folds: int = 2
    val_size: int | float | None = None
    test_size: int | float | None = None
    seeds: int = 1
    wilcoxon: bool = False  # what is reported: scores of whole folds instead of expected scores

    def __post_init__(self) -> None:
        """Refuse objectives and numbers of seeds that cannot be."""
        for name in self.objectives:
            if name not in OBJECTIVES:
                raise unknown_name("objective", name, OBJECTIVES)
        if not self.objectives or len(set(self.objectives)) < len(self.objectives):
            raise ConfigError(f"objectives must be one or more of {', '.join(OBJECTIVES)}, each once.")
        if isinstance(self.seeds, bool) or not isinstance(self.seeds, int) or self.seeds < 1:
            raise ConfigError(f"seeds must be a whole number of at least 1, found {self.seeds!r}.")

    def fingerprint(self, panel: Panel) -> dict[str, Any]:
        """The plan and a checksum of the data, as JSON data."""
        plan = {**asdict(self), "objectives": list(self.objectives), "data": panel.checksum()}
        training = {k: v for k, v in (self.forecaster.get("training") or {}).items() if k not in NOT_TUNED}
        plan["forecaster"] = {**self.forecaster, "training": training}
        return json.loads(json.dumps(plan))


class Objective:
    """Scores trials of one plan on one panel; made once per worker, the panel is shared by all its trials."""

    def __init__(self, plan: Plan, panel: Panel, base: Forecaster, space: Space) -> None:
        """``panel`` has no test part any more; ``base`` gives the model when it is a class of the user's own."""
        self.plan, self.panel, self.base, self.space = plan, panel, base, space
        self.folds = rolling_folds(panel, base.horizon, plan.folds, plan.val_size)
        self.levels = base._levels()
        check_metric(plan.metric, self.levels)
        self.baselines: dict[str, list[float]] = {}
        self.train: Train = self.train_here
        self.keep: Path | None = None  # folder for the models of complete trials
        self.device: str | None = None  # recorded with every trial

    @property
    def ticks(self) -> int:
        """Reports that one training can make: its epochs when they are fixed."""
        epochs = self.base._config().epochs
        varies = any(d.field == "training.epochs" for d in self.space.dimensions)
        return _TICKS if varies or epochs is None else epochs

    @property
    def steps(self) -> int:
        """Reports that a whole trial can make."""
        return self.plan.folds if self.plan.wilcoxon else self.ticks * self.plan.folds * self.plan.seeds

    def measure_baselines(self) -> dict[str, list[float]]:
        """The metric of the untrained models on every fold; reports are relative to the seasonal naive."""
        context = max(self.base.context, self.panel.schema.freq.season())
        for name in BASELINES:
            scores = []
            for fold in range(len(self.folds)):
                split = self.folds.split(fold, context)
                data = ForecastDataModule.from_panel(
                    self.panel,
                    split,
                    horizon=self.base.horizon,
                    context=context,
                    quantiles=self.levels,
                    **self.base._config().reading(),
                )
                scores.append(score_baseline(name, data, self.scorer(fold)))
            self.baselines[name] = scores
        return self.baselines

    def __call__(self, trial: Trial) -> tuple[float, ...]:
        """Train and score one trial. Raises ``optuna.TrialPruned``, or TsattnError with the reason it cannot be."""
        from optuna import TrialPruned

        parameters = apply(self.space.sample(trial), self.plan.forecaster)
        seeds = [int(self.base.seed) + number for number in range(self.plan.seeds)]
        self._note(trial, config=plain_config(parameters), seeds=seeds, versions=_versions())
        if self.device is not None:
            self._note(trial, device=self.device)
        course = Course(self, trial)
        started = time.monotonic()
        try:
            for fold in range(len(self.folds)):
                for seed in seeds:
                    forecaster = self.forecaster(parameters, seed)
                    summary = self._run(forecaster, fold, course)
                    if course.pruned:
                        raise TrialPruned(f"in fold {fold + 1}, epoch {course.last_epoch}")
        finally:
            seconds = time.monotonic() - started
            self._note(trial, metric_by_fold=course.by_fold(), epochs=course.epochs, seconds=seconds)
        self._note(trial, parameters=summary.parameters, best_epochs=course.best_epochs)
        if self.keep is not None:
            self._note(trial, checkpoint=str(forecaster.save(self.keep / f"{trial.number:04d}")))
        values = {"error": course.mean(), "seconds": seconds, "parameters": float(summary.parameters)}
        return tuple(values[name] for name in self.plan.objectives)

    def forecaster(self, parameters: dict[str, Any], seed: int) -> Forecaster:
        """The unfitted forecaster of a trial."""
        model = parameters["model"]
        if model == self.base._model_name():
            model = self.base.model
        return Forecaster(**{**parameters, "model": model, "seed": seed})

    def train_here(self, forecaster: Forecaster, fold: int, callbacks: Sequence[Callback]) -> None:
        """Fit on the training part of ``fold``, in this process."""
        forecaster._check()
        forecaster._fit_panel(self.panel, self.folds.split(fold, forecaster.context), callbacks)

    def _run(self, forecaster: Forecaster, fold: int, course: Course) -> TrainSummary:
        scorer = self.scorer(fold)
        watcher = Watcher(scorer, course.decide if len(self.plan.objectives) == 1 else None)
        course.begin(fold)
        self.train(forecaster, fold, [watcher])
        summary = forecaster.summary_
        score = watcher.score
        if summary.epochs == 0:  # a model that is not trained has no validation either
            split = self.folds.split(fold, forecaster.context)
            data = ForecastDataModule.from_panel(
                self.panel,
                split,
                horizon=forecaster.horizon,
                context=forecaster.context,
                quantiles=self.levels,
                **forecaster._config().reading(),
            )
            score = score_network(forecaster.network_, data, scorer)
        if score is None or not np.isfinite(score):
            raise TrainingError(f"The {self.plan.metric} of fold {fold + 1} is {score}: nothing to compare trials by.")
        course.end(score, watcher.epochs, summary.best_epoch, pruned=watcher.pruned)
        return summary

    def scorer(self, fold: int) -> Scorer:
        """Fresh sums for the validation part of ``fold``."""
        return Scorer(self.plan.metric, self.panel, self.folds.ends[fold], self.levels)

    def _note(self, trial: Trial, **attributes: Any) -> None:
        for name, value in attributes.items():
            trial.set_user_attr(name, value)


class Course:
    """What one trial has scored so far, and what it may expect to score in the end.

    Folds differ in difficulty, so a plain mean over the folds so far would jump from one to the next, and a pruner
    would compare hard folds with easy ones. The value reported is the expected final mean: what is still to come is
    taken to be as much better than the seasonal naive forecast as what was seen. At the end it is the mean itself.
    """

    def __init__(self, objective: Objective, trial: Trial) -> None:
        """``trial`` has no scores yet."""
        self.objective, self.trial = objective, trial
        plan = objective.plan
        naive = np.repeat(objective.baselines["seasonal_naive"], plan.seeds)
        self.unit = naive if np.isfinite(naive).all() and (naive > 0).all() else np.ones_like(naive)
        self.scores: list[float] = []
        self.epochs = 0
        self.best_epochs: list[int] = []
        self.pruned = False
        self.last_epoch = 0
        self._tick = 0

    def begin(self, fold: int) -> None:
        """A new training starts."""
        self._tick = 0

    def decide(self, share: float, score: float) -> bool:
        """Report after ``share`` of a training; True to prune."""
        ticks = self.objective.ticks
        tick = int(share * ticks + 1e-9)
        if self.objective.plan.wilcoxon or tick <= self._tick or not np.isfinite(score):
            return False
        self._tick = tick
        self.trial.report(self.expected(score), len(self.scores) * ticks + tick)
        return self.trial.should_prune()

    def end(self, score: float, epochs: int, best_epoch: int | None, *, pruned: bool) -> None:
        """A training is over."""
        self.epochs += epochs
        self.last_epoch = epochs
        self.pruned = pruned
        if pruned:
            return
        self.scores.append(score)
        self.best_epochs.append((best_epoch or 0) + 1)
        seeds = self.objective.plan.seeds
        if self.objective.plan.wilcoxon and len(self.scores) % seeds == 0:
            self.trial.report(float(np.mean(self.scores[-seeds:])), len(self.scores) // seeds)
            self.pruned = len(self.scores) < len(self.unit) and self.trial.should_prune()

    def expected(self, score: float) -> float:
        """The final mean to expect when the training under way ends with ``score``."""
        seen = np.array([*self.scores, score])
        ratio = (seen / self.unit[: len(seen)]).mean()
        return float(np.concatenate([seen, ratio * self.unit[len(seen) :]]).mean())

    def mean(self) -> float:
        """The mean over folds and seeds."""
        return float(np.mean(self.scores))

    def by_fold(self) -> list[list[float]]:
        """Scores so far: a list of seeds for each fold."""
        seeds = self.objective.plan.seeds
        return [self.scores[i : i + seeds] for i in range(0, len(self.scores), seeds)]


def plain_parameters(forecaster: Forecaster) -> dict[str, Any]:
    """The parameters of a forecaster as JSON data; training fields at their defaults are left out."""
    parameters = forecaster.get_params(deep=False)
    config = forecaster._config()
    defaults = TrainConfig()
    training = {f.name: getattr(config, f.name) for f in fields(config) if f.name != "logger"}
    parameters["training"] = {n: v for n, v in training.items() if v != getattr(defaults, n)}
    parameters["model"] = forecaster._model_name()
    parameters["options"] = dict(parameters["options"] or {})
    for name in ("known", "past", "static"):
        parameters[name] = list(parameters[name])
    for name in ("target", "output"):
        if not isinstance(parameters[name], str):
            parameters[name] = list(parameters[name])
    if not isinstance(parameters["freq"], (str, int, type(None))):
        parameters["freq"] = getattr(parameters["freq"], "freqstr", str(parameters["freq"]))
    return json.loads(json.dumps(parameters))


def plain_config(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as ``tsattn fit`` reads them from YAML, in the order of ``Forecaster``; empty entries left out."""
    names = inspect.signature(Forecaster.__init__).parameters
    return {name: parameters[name] for name in names if name in parameters and parameters[name] not in ([], {})}


def _versions() -> dict[str, str]:
    packages = ("torch", "pytorch-lightning", "numpy", "pandas", "optuna")
    return {"tsattn": tsattn.__version__, "python": platform.python_version(), **{p: version(p) for p in packages}}
