"""What a study found."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from tsattn.data.panel import Panel
from tsattn.data.split import chronological
from tsattn.errors import ConfigError
from tsattn.forecaster import Forecaster
from tsattn.tuning.ledger import REASON
from tsattn.tuning.objective import Plan
from tsattn.writing import write_whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from optuna import Study
    from optuna.trial import FrozenTrial


@dataclass(eq=False)
class TuneResult:
    """The study, the winner and the table of trials.

    ``study`` is an ordinary Optuna study. ``panel`` holds the rows before the test part. ``baselines``: metric of the
    untrained models on each fold.
    """

    study: Study
    plan: Plan
    panel: Panel
    base: Forecaster
    baselines: dict[str, list[float]]

    @property
    def has_winner(self) -> bool:
        """Whether a trial was completed."""
        from optuna.trial import TrialState

        return bool(self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)))

    @property
    def best_trial(self) -> FrozenTrial:
        """The winner; with several objectives, the trial of the Pareto front with the least first objective."""
        trials = self.study.best_trials
        return min(trials, key=lambda trial: (trial.values[0], trial.number))

    @property
    def best_value(self) -> float:
        """The first objective of the winner."""
        return float(self.best_trial.values[0])

    @property
    def best_config(self) -> dict[str, Any]:
        """The parameters of the winner, as a config of ``tsattn fit`` writes them."""
        return dict(self.best_trial.user_attrs["config"])

    @cached_property
    def best_forecaster(self) -> Forecaster:
        """A Forecaster with the parameters of the winner: not fitted, unless ``refit`` was called."""
        return self._forecaster(self.best_config)

    def refit(self) -> Forecaster:
        """Train the winner on training and validation part together, and return it as ``best_forecaster``.

        Nothing is left for early stopping: it trains for as many epochs as were best in the folds, on average. The
        test part stays unseen. A model of several devices is trained on one.
        """
        trained = self.best_config
        training = dict(trained.get("training") or {})
        epochs = self.best_trial.user_attrs["best_epochs"]
        training |= {"epochs": max(1, round(float(np.mean(epochs)))), "devices": 1, "strategy": "auto"}
        forecaster = self._forecaster({**trained, "training": training})
        split = chronological(self.panel, forecaster.context, forecaster.horizon, 0)
        self.best_forecaster = forecaster._fit_panel(self.panel, split)
        return self.best_forecaster

    def trials_frame(self) -> pd.DataFrame:
        """One row per trial: number, state, objectives, metric of each fold, epochs, seconds, parameters, reason.

        The objective of a pruned trial is what was expected of it when it was stopped.
        """
        import pandas as pd

        rows = []
        names = self._names()
        for trial in self.study.get_trials(deepcopy=False):
            values = trial.values or []
            row: dict[str, Any] = {"number": trial.number, "state": trial.state.name.lower()}
            row |= {name: values[i] if i < len(values) else float("nan") for i, name in enumerate(names)}
            for number, scores in enumerate(trial.user_attrs.get("metric_by_fold", []), start=1):
                row[f"fold_{number}"] = float(np.mean(scores))
            row |= {name: trial.user_attrs.get(name) for name in ("epochs", "seconds")}
            row |= trial.params
            row["reason"] = trial.user_attrs.get(REASON)
            rows.append(row)
        frame = pd.DataFrame(rows, columns=None if rows else ["number", "state", *names, "reason"])
        return frame[[c for c in frame if c != "reason"] + ["reason"]]

    def pareto_frame(self) -> pd.DataFrame:
        """The trials that no other beats in every objective."""
        frame = self.trials_frame()
        return frame[frame["number"].isin([trial.number for trial in self.study.best_trials])]

    def baseline_frame(self) -> pd.DataFrame:
        """The metric of the untrained models on the same folds, and its mean."""
        import pandas as pd

        rows = [
            {"model": name, self.plan.metric: float(np.mean(scores)), **_by_fold(scores)}
            for name, scores in self.baselines.items()
        ]
        return pd.DataFrame(rows)

    def plot_history(self) -> Figure:
        """The best value so far, trial by trial."""
        return self._plot("plot_optimization_history")

    def plot_importances(self) -> Figure:
        """How much of the variation each parameter explains; needs at least two completed trials."""
        return self._plot("plot_param_importances")

    def plot_parallel(self) -> Figure:
        """Parallel coordinates: one line per trial."""
        return self._plot("plot_parallel_coordinate")

    def plot_intermediate(self) -> Figure:
        """The reports of every trial, where it was pruned included."""
        return self._plot("plot_intermediate_values")

    def plot_pareto(self) -> Figure:
        """The Pareto front of two or three objectives."""
        if len(self.plan.objectives) == 1:
            raise ConfigError("There is one objective and no front: see plot_history.")
        return self._plot("plot_pareto_front")

    def write(self, folder: str | Path, *, data: str | None = None) -> Path:
        """Write ``best.yaml``, ``trials.csv``, ``summary.html``, and ``model/`` after a refit.

        With ``data``, the name or path of the table, ``tsattn fit --config best.yaml`` runs as it is.
        """
        from tsattn.tuning.summary import summary_page

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        best = self.best_trial
        head = f"# Study {self.study.study_name}, trial {best.number}: {self._names()[0]} {self.best_value:.6g}\n"
        where = {} if data is None else {"data": data, "out": str(folder / "best")}
        text = yaml.safe_dump({**where, **self.best_config}, sort_keys=False, allow_unicode=True)
        write_whole(folder / "best.yaml", (head + text).encode())
        write_whole(folder / "trials.csv", self.trials_frame().to_csv(index=False).encode())
        write_whole(folder / "summary.html", summary_page(self).encode())
        if self.best_forecaster.__sklearn_is_fitted__():
            self.best_forecaster.save(folder / "model")
        return folder

    def why_no_winner(self) -> str:
        """What became of the trials of a study without a complete one, and the first reason given."""
        frame = self.trials_frame()
        if frame["state"].isin(["waiting", "running"]).all():
            return f"Study {self.study.study_name!r} has no trial yet: give it more time."
        counts = ", ".join(f"{number} {state}" for state, number in frame["state"].value_counts().items())
        reasons = frame["reason"].dropna()
        first = f" The first reason: {reasons.iloc[0]}" if len(reasons) else ""
        return f"Study {self.study.study_name!r} has no complete trial ({counts}).{first}"

    def _forecaster(self, config: dict[str, Any]) -> Forecaster:
        model = config["model"]
        return Forecaster(**{**config, "model": self.base.model if model == self.base._model_name() else model})

    def _names(self) -> list[str]:
        return [self.plan.metric if name == "error" else name for name in self.plan.objectives]

    def _plot(self, name: str, **settings: Any) -> Figure:
        import matplotlib
        from optuna.visualization import matplotlib as drawing

        # Optuna changes the style of every picture to come; and its functions count as experimental.
        with matplotlib.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # and an axis on which all trials lie at one point
            axes = getattr(drawing, name)(self.study, **settings)
        return np.ravel(axes)[0].figure

    def __repr__(self) -> str:
        """One line."""
        return (
            f"TuneResult of study {self.study.study_name!r}: {len(self.study.get_trials(deepcopy=False))} trials, "
            f"best {self._names()[0]} {self.best_value:.4g} (trial {self.best_trial.number})"
        )


def _by_fold(scores: list[float]) -> dict[str, float]:
    return {f"fold_{number}": score for number, score in enumerate(scores, start=1)}
