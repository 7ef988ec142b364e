"""The search space: what may vary, read from a plain mapping such as a YAML file holds.

context: {low: 96, high: 336, step: 24}
training.learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}
model: {choices: [lucid, patchtst]}
lucid.options.heads: {choices: [4, 8]}     # only in trials where model is lucid
patchtst.options.norm: layer               # a plain value is fixed, for that model
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tsattn.errors import ConfigError, listed, unknown_name
from tsattn.models import MODELS, find, options_of
from tsattn.training.config import TrainConfig

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.distributions import BaseDistribution

    from tsattn.forecaster import Forecaster

_NUMERIC_KEYS = ("low", "high", "step", "log")
# They say where training runs and what it shows, not what is learnt.
NOT_TUNED = (
    "verbose", "logger", "accelerator", "devices", "strategy", "num_nodes", "checkpoint_minutes", "checkpoint_steps",
)  # fmt: skip
_DEFAULTS = {f.name: f.default for f in fields(TrainConfig)}


@dataclass(frozen=True)
class Dimension:
    """One entry of a space. ``distribution`` None: ``value`` is fixed wherever the branch applies."""

    key: str  # as written, and the name of the Optuna parameter
    model: str | None  # the branch; None: every model
    field: str  # "model", "context", "options.NAME" or "training.NAME"
    distribution: BaseDistribution | None
    value: Any = None


@dataclass(frozen=True)
class Space:
    """A validated search space; ``models`` are the names ``model`` can take."""

    dimensions: tuple[Dimension, ...]
    models: tuple[str, ...]

    @classmethod
    def of(cls, space: Mapping[str, Any], forecaster: Forecaster) -> Space:
        """Read ``space`` beside the fixed parameters of ``forecaster``.

        Raises ConfigError for an unknown key (naming the nearest), a distribution that cannot be, and an option that a
        model of the space does not have.
        """
        if not isinstance(space, Mapping) or not space:
            raise ConfigError("The space is empty: name at least one key, such as options.patch: {choices: [12, 24]}.")
        models = _models(space, forecaster)
        found = [_dimension(str(key), value, models, forecaster) for key, value in space.items()]
        made = cls(tuple(sorted(found, key=lambda d: d.field != "model")), models)
        made._check_options(forecaster)
        if not any(d.distribution is not None for d in found):
            raise ConfigError("Nothing varies in the space: every key has one fixed value.")
        return made

    def sample(self, trial: Trial) -> dict[str, Any]:
        """Field -> value of one trial; a branch is sampled only when its model was."""
        values: dict[str, Any] = {}
        model = None if len(self.models) > 1 else self.models[0]
        for dimension in self.dimensions:
            if dimension.model is not None and dimension.model != model:
                continue
            chosen = dimension.distribution
            value = dimension.value if chosen is None else _suggest(trial, dimension.key, chosen)
            values[dimension.field] = value
            if dimension.field == "model":
                model = value
        return values

    def start(self, forecaster: Forecaster) -> dict[str, Any]:
        """The parameters that ``forecaster`` has as it stands, where the space can give them: the first trial."""
        name = forecaster._model_name()
        if name not in self.models:
            return {}
        defaults = options_of(forecaster.model)
        training = forecaster._config()
        found = {}
        for dimension in self.dimensions:
            if dimension.distribution is None or dimension.model not in (None, name):
                continue
            kind, _, option = dimension.field.partition(".")
            if kind == "options":
                value = (forecaster.options or {}).get(option, defaults[option])
            else:
                value = {"model": name, "context": forecaster.context}.get(kind, getattr(training, option, None))
            if _holds(dimension.distribution, value):
                found[dimension.key] = value
        return found

    def _check_options(self, forecaster: Forecaster) -> None:
        """Refuse options that some model of the space does not have, and two entries for one field of a model."""
        for model in self.models:
            known = options_of(forecaster.model if model == forecaster._model_name() else model)
            for option in forecaster.options or {}:
                if option not in known:
                    raise ConfigError(
                        f"options.{option} is fixed for every model of the space, and {model} has no such option. "
                        f"Write it in the space, as {forecaster._model_name()}.options.{option}."
                    )
            mine = [d for d in self.dimensions if d.model in (None, model)]
            for dimension in mine:
                twice = [d.key for d in mine if d.field == dimension.field]
                if len(twice) > 1:
                    raise ConfigError(f"The space names one field of {model} more than once: {listed(twice)}.")


def apply(values: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a Forecaster with the sampled ``values`` in place; ``parameters`` stay as they are."""
    changed = dict(parameters)
    changed["options"] = dict(parameters.get("options") or {})
    changed["training"] = dict(parameters.get("training") or {})
    for field, value in values.items():
        kind, _, name = field.partition(".")
        if name:
            changed[kind][name] = value
        else:
            changed[kind] = value
    return changed


def _models(space: Mapping[str, Any], forecaster: Forecaster) -> tuple[str, ...]:
    own = forecaster._model_name()
    value = space.get("model")
    if value is None:
        find(forecaster.model)
        return (own,)
    names = value.get("choices") if isinstance(value, Mapping) else [value]
    if not isinstance(names, (list, tuple)) or not names:
        raise ConfigError("model must be a list of names: model: {choices: [lucid, patchtst]}.")
    for name in names:
        if name != own:
            find(name)
    return tuple(names)


def _dimension(key: str, value: Any, models: tuple[str, ...], forecaster: Forecaster) -> Dimension:
    """One entry, its key and its distribution checked."""
    branch, _, rest = key.partition(".")
    named = branch in models and rest != ""
    if branch in MODELS and rest and not named:
        raise ConfigError(f"{key!r} is a branch of {branch}, which the space cannot choose: its models are {models}.")
    field = rest if named else key
    affected = (branch,) if named else models
    defaults = [_default(key, field, model, forecaster) for model in affected]
    fractional = any(isinstance(default, float) for default in defaults)  # low: 0, high: 1 of a dropout means floats
    model = branch if named else None
    if isinstance(value, Mapping):
        return Dimension(key, model, field, _distribution(key, value, fractional))
    if isinstance(value, (list, tuple)):
        raise ConfigError(f"{key} must be one value or a distribution, found a list. Write {{choices: {list(value)}}}.")
    return Dimension(key, model, field, None, value)


def _default(key: str, field: str, model: str, forecaster: Forecaster) -> Any:
    """The default of a field for one model. Raises ConfigError when there is no such field."""
    options = options_of(forecaster.model if model == forecaster._model_name() else model)
    training = [name for name in _DEFAULTS if name not in NOT_TUNED]
    kind, _, name = field.partition(".")
    if field in ("model", "context"):
        return None
    if kind == "options" and name in options:
        return options[name]
    if kind == "training" and name in training:
        return _DEFAULTS[name]
    known = ["model", "context", *(f"options.{n}" for n in options), *(f"training.{n}" for n in training)]
    prefix = key[: len(key) - len(field)]
    raise unknown_name(f"key of the space for {model}", key, [prefix + each for each in known])


def _distribution(key: str, given: Mapping[str, Any], fractional: bool) -> BaseDistribution:
    """An Optuna distribution from ``choices`` or from ``low``, ``high``, ``step`` and ``log``."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    known = ("choices", *_NUMERIC_KEYS)
    for name in given:
        if name not in known:
            raise unknown_name(f"part of {key}", name, known)
    if "choices" in given:
        return CategoricalDistribution(_choices(key, given))
    if "low" not in given or "high" not in given:
        raise ConfigError(f"{key} needs choices, or low and high; found {dict(given)}.")
    low, high, step = (_number(key, name, given.get(name)) for name in ("low", "high", "step"))
    log = given.get("log", False)
    if not isinstance(log, bool):
        raise ConfigError(f"{key}: log must be true or false, found {log!r}.")
    assert low is not None
    assert high is not None  # only step may be absent
    if low > high:
        raise ConfigError(f"{key}: low {low!r} is above high {high!r}.")
    if log and (low <= 0 or step is not None):
        raise ConfigError(f"{key}: log needs a low above 0 and no step; found low {low!r}, step {step!r}.")
    if step is not None:
        steps = (high - low) / step if step > 0 else math.nan
        if not math.isclose(steps, round(steps) if math.isfinite(steps) else math.nan, abs_tol=1e-9):
            raise ConfigError(f"{key}: from low {low!r} to high {high!r} must be a whole number of steps of {step!r}.")
    if not fractional and all(isinstance(v, int) for v in (low, high) if v is not None) and not isinstance(step, float):
        return IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return FloatDistribution(float(low), float(high), log=log, step=None if step is None else float(step))


def _suggest(trial: Trial, key: str, distribution: Any) -> Any:
    if hasattr(distribution, "choices"):
        return trial.suggest_categorical(key, distribution.choices)
    suggest: Any = trial.suggest_int if isinstance(distribution.low, int) else trial.suggest_float
    return suggest(key, distribution.low, distribution.high, step=distribution.step, log=distribution.log)


def _choices(key: str, given: Mapping[str, Any]) -> list[Any]:
    choices = given["choices"]
    if len(given) > 1:
        raise ConfigError(f"{key}: choices stand alone; found also {listed(n for n in given if n != 'choices')}.")
    if not isinstance(choices, (list, tuple)) or not choices:
        raise ConfigError(f"{key}: choices must be a list with at least one value, found {choices!r}.")
    for value in choices:
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise ConfigError(f"{key}: a choice is a number, a text, true, false or null; found {value!r}.")
    if len({(type(v), v) for v in choices}) < len(choices):
        raise ConfigError(f"{key}: a choice is listed twice in {list(choices)}.")
    return list(choices)


def _number(key: str, name: str, value: Any) -> int | float | None:
    if value is None and name == "step":
        return None
    if isinstance(value, str):  # YAML reads 1e-4, without a point, as text
        try:
            value = float(value)
        except ValueError:
            value = math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{key}: {name} must be a finite number, found {value!r}.")
    return value


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    """Whether ``value`` is one the distribution can give."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return any(type(value) is type(choice) and value == choice for choice in distribution.choices)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    assert isinstance(distribution, (IntDistribution, FloatDistribution))
    if isinstance(distribution, IntDistribution) and not isinstance(value, int):
        return False
    steps = 0.0 if distribution.step is None else (value - distribution.low) / distribution.step
    return distribution.low <= value <= distribution.high and math.isclose(steps, round(steps), abs_tol=1e-9)
