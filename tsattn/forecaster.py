"""The estimator a user holds: fit, predict, backtest, save, load."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from tsattn import heads
from tsattn.data.build import build_panel
from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.future import extend
from tsattn.data.panel import Panel
from tsattn.data.schema import Roles
from tsattn.data.split import Split, chronological
from tsattn.data.windows import WindowSource, check_seed
from tsattn.errors import ConfigError, DataError, TsattnError, listed, unknown_name, warn
from tsattn.forecast import Forecast
from tsattn.inference import WindowForecasts, best_device, forecast_windows
from tsattn.models import InputSpec, Network, build, find
from tsattn.training.checkpoint import Checkpoints, run_of
from tsattn.training.config import TrainConfig
from tsattn.training.run import seeded, train

if TYPE_CHECKING:
    from pytorch_lightning import Callback

    from tsattn.cluster import PartitionedBacktest, PartitionedForecast
    from tsattn.evaluation.backtest import Backtest

DEFAULT_LEVELS = (0.1, 0.5, 0.9)


class UnfittedError(TsattnError, NotFittedError):
    """predict, backtest or save was called before fit; also a scikit-learn ``NotFittedError``."""


class Forecaster(BaseEstimator):
    """Forecasts the next ``horizon`` steps of every series of a long table, and shows what it read.

    Args:
        model: Name of a model (``tsattn.models.MODELS``), or a ``Network`` subclass of your own.
        horizon: Steps to forecast.
        context: Past steps a forecast reads; a shorter series is padded and masked.
        id: Id column. A table without the default column ``unique_id`` is one series.
        time: Time column: stamps (with or without a zone) or integers.
        target: Column or columns to forecast.
        known: Covariates known in the future; ``calendar.hour`` and the like are computed from the stamps.
        past: Covariates observed up to the origin only.
        static: Columns with one value per series.
        freq: Frequency (old or new pandas alias, offset, integer step); None infers it.
        output: "quantiles" (levels 0.1, 0.5, 0.9), "point", or a list of levels.
        options: Keywords of the model, such as ``{"patch": 24}``.
        training: Fields of ``TrainConfig``, such as ``{"epochs": 20}``.
        seed: Seed of initial weights, dropout and shuffle.
    """

    def __init__(
        self,
        model: str | type[Network] = "lucid",
        *,
        horizon: int,
        context: int,
        id: str | None = "unique_id",
        time: str = "ds",
        target: str | Sequence[str] = "y",
        known: Sequence[str] = (),
        past: Sequence[str] = (),
        static: Sequence[str] = (),
        freq: str | int | None = None,
        output: str | Sequence[float] = "quantiles",
        options: dict[str, Any] | None = None,
        training: TrainConfig | dict[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        """Keep the parameters as they are; ``fit`` checks them."""
        self.model = model
        self.horizon = horizon
        self.context = context
        self.id = id
        self.time = time
        self.target = target
        self.known = known
        self.past = past
        self.static = static
        self.freq = freq
        self.output = output
        self.options = options
        self.training = training
        self.seed = seed

    _finished: Checkpoints | None = None  # of a fit that ended and was not saved yet

    def fit(
        self,
        data: Any,
        *,
        val_size: int | float | None = None,
        checkpoints: str | Path | None = None,
        resume: bool = False,
    ) -> Forecaster:
        """Train on ``data``, a table or a path; the weights of the best validation are kept.

        ``val_size``: steps (or fraction) at the end of each series held out for early stopping; 0 none; None a tenth of
        each series, at least one horizon. Raises DataError or ConfigError naming what is wrong. After Ctrl-C the
        forecaster holds the best weights so far and KeyboardInterrupt goes on.

        ``checkpoints``: a folder in which the training is kept every ``training.checkpoint_minutes`` (or ``_steps``);
        ``save`` removes them. ``resume=True`` goes on from the newest one, if there is any, and ends with the weights
        of a fit that was never stopped (to the last bit on one device). SIGTERM writes one and raises SystemExit(143).
        """
        self._check()
        if resume and checkpoints is None:
            raise ConfigError("resume=True needs checkpoints=FOLDER: where the fit that stopped kept them.")
        panel = build_panel(data, self._roles(), freq=self.freq)
        split = chronological(panel, self.context, self.horizon, val_size)
        return self._fit_panel(panel, split, checkpoints=checkpoints, resume=resume)

    @overload
    def predict(
        self, data: Any = None, *, known: Any = None, attention: bool = False, engine: None = None
    ) -> Forecast: ...
    @overload
    def predict(
        self, data: Any, *, known: Any = None, engine: str, out: str | Path, workers: int | None = None
    ) -> PartitionedForecast: ...
    def predict(
        self,
        data: Any = None,
        *,
        known: Any = None,
        attention: bool = False,
        engine: str | None = None,
        out: str | Path | None = None,
        workers: int | None = None,
    ) -> Forecast | PartitionedForecast:
        """Forecast the ``horizon`` steps after the last row of every series.

        ``data``: a table with any series, also unseen ones; None forecasts the training series. ``known``: a table with
        the known columns over the horizon. ``attention=True`` adds the attention maps and, for models with an exact
        split, the contributions; it does not change the forecast. Series with no observed value among their last
        ``context`` steps are listed in ``Forecast.skipped`` with one warning.

        ``engine="ray"``: ``data`` is the path of a Parquet file or folder, and the forecasts are written as a folder of
        Parquet files, ``out``, by ``workers`` processes of a Ray cluster (``tsattn.cluster.predict_folder``).
        """
        if _is_cluster(engine, out, workers):
            from tsattn.cluster import predict_folder

            if attention:
                raise ConfigError("engine='ray' keeps no maps: ask backtest(attention='summary', engine='ray').")
            return predict_folder(self, data, out, known=known, workers=workers)
        self._require_fit()
        panel = self.history_ if data is None else build_panel(data, self.schema_.roles, schema=self.schema_)
        if panel is None:
            raise DataError("This model was saved without its history: pass predict(data).")
        return self._predict_panel(panel, known, attention)

    @overload
    def backtest(
        self,
        data: Any,
        *,
        windows: int,
        step: int | None = None,
        refit: bool | str = False,
        attention: bool | str = False,
        engine: None = None,
    ) -> Backtest: ...
    @overload
    def backtest(
        self,
        data: Any,
        *,
        windows: int,
        step: int | None = None,
        refit: bool | str = False,
        attention: bool | str = False,
        engine: str,
        out: str | Path,
        workers: int | None = None,
    ) -> PartitionedBacktest: ...
    def backtest(
        self,
        data: Any,
        *,
        windows: int,
        step: int | None = None,
        refit: bool | str = False,
        attention: bool | str = False,
        engine: str | None = None,
        out: str | Path | None = None,
        workers: int | None = None,
    ) -> Backtest | PartitionedBacktest:
        """Forecast from ``windows`` past origins per series, ``step`` steps apart (default: the horizon), and score.

        ``refit=False``: one model serves all origins, and it has seen nothing after the first: this one when its
        training data end before it, otherwise a fresh copy trained on the rows before the first origin.
        ``refit=True``: a fresh copy for every origin. ``refit="never"``: this model as it stands, even if it was
        trained on the steps it is scored on; the result says so. Fresh copies hold out a tenth of their rows for early
        stopping, as ``fit`` does by default. A fitted forecaster is backtested with the parameters of its fit, fresh
        copies too; a warning names those that ``set_params`` changed since. ``attention=True`` keeps the maps of all
        windows, ``attention="summary"`` what can be said of them in memory that does not grow with their number.

        ``engine="ray"``, ``out`` and ``workers`` as in ``predict``: a fitted model is scored on a cluster, which trains
        nothing (``tsattn.cluster.backtest_folder``).
        """
        from tsattn.evaluation.backtest import run_backtest

        forecaster = self
        if self.__sklearn_is_fitted__():
            forecaster = self._as_fitted()
            self._mention_changes()
        forecaster._check()
        if _is_cluster(engine, out, workers):
            from tsattn.cluster import backtest_folder

            return backtest_folder(
                forecaster, data, out, windows=windows, step=step, refit=refit, attention=attention, workers=workers
            )
        return run_backtest(forecaster, data, windows=windows, step=step, refit=refit, attention=attention)

    def report(
        self,
        path: str | Path,
        data: Any = None,
        *,
        known: Any = None,
        series: int = 20,
        check: bool = True,
        windows: int = 10,
        refit: bool | str = False,
    ) -> Path:
        """Write one HTML page: forecasts, what they read, whether to believe it, scores, and where all this comes from.

        The file needs nothing beside it and asks for nothing from the network. ``data``: a table; None takes the steps
        that the model was saved with, and leaves the check and the scores out. ``known``: as in ``predict``; where a
        model reads known columns and none are given, the last steps of the table are forecast.

        Args:
            path: File to write; its folder is made.
            data: Table or path.
            known: The known covariates over the horizon.
            series: Most series to show.
            check: Whether to ask ``check_attention`` if the map can be believed.
            windows: Origins per series of the backtest; 0 leaves it out.
            refit: As in ``backtest``: False trains a fresh copy where this model has seen the steps it is scored on;
                "never" scores this model as it stands, and the page says so.

        Raises:
            ConfigError: a number that cannot be, or a path that cannot be written.
            DataError: the table cannot be read, or no series can be forecast.
        """
        from tsattn.report.collect import collect
        from tsattn.report.page import write_page

        page = collect(self, data, known=known, series=series, check=check, windows=windows, refit=refit)
        return write_page(page, path)

    def save(self, path: str | Path, *, history: bool = True) -> Path:
        """Write what was fitted to the folder ``path``: weights as safetensors, the rest as JSON.

        ``history=False`` leaves the last steps of the training series out; ``predict`` then needs data.
        """
        from tsattn.artifact import save

        written = save(self._as_fitted(), Path(path), history=history)
        if self._finished is not None:
            self._finished.clear()
            self._finished = None
        return written

    @classmethod
    def load(cls, path: str | Path, *, model: type[Network] | None = None) -> Forecaster:
        """Read a saved model. No code is run from the file: a model of your own class must be passed as ``model``."""
        from tsattn.artifact import load

        return load(Path(path), model=model)

    # ------------------------------------------------------------------ inside

    def _fit_panel(
        self,
        panel: Panel,
        split: Split,
        callbacks: Sequence[Callback] = (),
        checkpoints: str | Path | None = None,
        resume: bool = False,
        stop: np.ndarray | None = None,
    ) -> Forecaster:
        """Train on a panel that is cut already; ``callbacks`` are given to the Trainer.

        ``stop [S]``: the step from which on the panel counts as unknown, as it does in ``split``; None is its end.
        """
        config, levels = self._config(), self._levels()
        data = ForecastDataModule.from_panel(
            panel,
            split,
            horizon=self.horizon,
            context=self.context,
            **config.reading(),
            quantiles=levels,
            seed=self.seed,
        )
        with seeded(self.seed):
            network = build(self.model, data.spec, **(self.options or {}))
        keep = None if checkpoints is None else self._checkpoints(Path(checkpoints), data, resume)
        summary = train(network, data, config, self.seed, callbacks, keep)
        # Only now, and all together: a fit that failed leaves the forecaster as it was.
        self.network_, self.summary_ = network, summary
        self.parameters_ = self._plain_parameters()
        self.schema_, self.scaling_ = panel.schema, data.scaling
        lengths = panel.lengths if stop is None else stop
        self.history_: Panel | None = panel.span(np.maximum(lengths - self.context, 0), lengths)
        used = np.flatnonzero(lengths > 0)
        self.trained_until_ = int(panel.times(used, lengths[used] - 1).max())
        self._finished = None if summary.interrupted else keep  # removed when what they led to is saved
        if summary.interrupted:
            raise KeyboardInterrupt
        return self

    def _checkpoints(self, folder: Path, data: ForecastDataModule, resume: bool) -> Checkpoints:
        """The checkpoints of this fit; what only says how it is watched does not make it another run."""
        parameters = self._plain_parameters()
        config = replace(parameters.pop("training"), verbose=True, checkpoint_minutes=5.0, checkpoint_steps=None)
        asked, run = self._config(), run_of({**parameters, "training": config}, data, self.seed)
        return Checkpoints(folder, run, minutes=asked.checkpoint_minutes, steps=asked.checkpoint_steps, resume=resume)

    def _predict_panel(self, panel: Panel, known: Any, attention: bool, *, part: bool = False) -> Forecast:
        """Forecast the steps after the end of every series of a panel.

        ``part``: it is one of several, and what is skipped is said of all of them together, elsewhere.
        """
        spec = self.network_.spec
        tail = extend(panel, spec.context, spec.horizon, known)
        origin = np.minimum(panel.lengths, spec.context)
        series, skipped = _usable(tail, origin, spec.context)
        if not part:
            mention_skipped(skipped, len(tail), spec.context)
        windows = forecast_windows(
            self.network_,
            WindowSource(tail, spec.context, spec.horizon, self.scaling_),
            series,
            origin[series],
            attention=attention,
            contributions=attention,
            device=best_device(self._config().accelerator),  # where to compute is no part of what was fitted
        )
        _mention_unread(tail, windows)
        return Forecast(tail, windows, spec.quantiles, self._as_fitted()._model_name(), skipped)

    def _plain_parameters(self) -> dict[str, Any]:
        """The parameters as they are now: a copy that later changes, in place too, do not reach."""
        parameters = self.get_params(deep=False)
        # A logger is a live object of this machine and of the fit it was given for.
        training = replace(self._config(), logger=None)
        return {**copy.deepcopy({k: v for k, v in parameters.items() if k != "training"}), "training": training}

    def _as_fitted(self) -> Forecaster:
        """This forecaster with the parameters of its fit, whatever ``set_params`` changed since."""
        self._require_fit()
        fitted = type(self)(**self.parameters_)
        fitted.__dict__.update({name: value for name, value in vars(self).items() if name.endswith("_")})
        return fitted

    def _mention_changes(self) -> None:
        now = self._plain_parameters()
        # By their text: a list of names or levels may be an array, which has no truth.
        changed = [name for name, value in self.parameters_.items() if repr(now[name]) != repr(value)]
        if changed:
            warn(
                f"{len(changed)} parameters were changed since fit ({listed(changed)}): the backtest uses those of the "
                f"fit. For the new ones call fit again, or backtest sklearn.base.clone(forecaster)."
            )

    def _check(self) -> None:
        """Refuse parameters that no table could make right."""
        find(self.model)
        if not isinstance(self.options, (Mapping, type(None))):
            raise ConfigError(f"options must hold options by name, such as {{'patch': 24}}; found {self.options!r}.")
        self._roles(), self._config(), check_seed(self.seed)
        InputSpec(self.horizon, self.context, quantiles=self._levels())

    def _roles(self) -> Roles:
        return Roles.of(self.id, self.time, self.target, self.known, self.past, self.static)

    def _config(self) -> TrainConfig:
        return TrainConfig.of(self.training)

    def _levels(self) -> tuple[float, ...]:
        if isinstance(self.output, str):
            if self.output not in ("quantiles", "point"):
                raise unknown_name("output", self.output, ("quantiles", "point"))
            return DEFAULT_LEVELS if self.output == "quantiles" else ()
        return heads.check_levels(self.output)

    def _model_name(self) -> str:
        return self.model if isinstance(self.model, str) else self.model.__name__

    def __sklearn_is_fitted__(self) -> bool:
        """Whether ``fit`` has run."""
        return hasattr(self, "network_")

    def _require_fit(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise UnfittedError("This forecaster is not fitted yet: call fit(table) first.")


def _is_cluster(engine: str | None, out: str | Path | None, workers: int | None) -> bool:
    """Whether the work is for a cluster; raises ConfigError for another engine, and for options without one."""
    if engine not in (None, "ray"):
        raise unknown_name("engine", engine, ("ray",))
    if engine is None and (out is not None or workers is not None):
        raise ConfigError(f"{'workers' if out is None else 'out'}= goes with engine='ray': add it, or leave both out.")
    return engine is not None


def _mention_unread(tail: Panel, windows: WindowForecasts) -> None:
    """One warning for targets that are NaN in the forecast, since their context holds no observed value."""
    row, target = np.nonzero(np.isnan(windows.point).all(axis=1))
    if len(row):
        names = tail.schema.roles.target
        where = [f"{names[c]} of {tail.name(int(windows.series[w]))}" for w, c in zip(row, target, strict=True)]
        warn(f"{len(where)} forecasts are NaN, since nothing of the target was observed before them: {listed(where)}.")


def _usable(tail: Panel, origin: np.ndarray, context: int) -> tuple[np.ndarray, dict[Any, str]]:
    """Series with an observed target before their origin, and the others with the reason."""
    owner = np.repeat(np.arange(len(tail)), tail.lengths)
    there = ~np.isnan(tail.targets).all(axis=1)
    seen = np.bincount(owner[there], minlength=len(tail)) > 0
    skipped = {
        tail.ids[int(s)].as_py(): f"no observed value in its last {context} steps (it has {int(origin[s])})"
        for s in np.flatnonzero(~seen)
    }
    return np.flatnonzero(seen), skipped


def mention_skipped(skipped: Mapping[Any, str], total: int, context: int) -> None:
    """One warning for the series that cannot be forecast; raises DataError when that is all of them."""
    if len(skipped) == total:
        raise DataError(
            f"No series can be forecast: none of {total} has an observed target in its last {context} steps."
        )
    if skipped:
        warn(
            f"{len(skipped)} of {total} series cannot be forecast and are skipped, since they have no observed "
            f"value in their last {context} steps: {listed(map(repr, skipped))}. See Forecast.skipped."
        )
