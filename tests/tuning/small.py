"""A study of a second: a linear model on three short series."""

from __future__ import annotations

from typing import Any

import tsattn
from tests.conftest import make_waves

TRAINING = {"epochs": 2, "verbose": False, "accelerator": "cpu", "learning_rate": 1e-2}
SPACE = {"training.learning_rate": {"choices": [1e-2, 3e-2, 1e-3]}}


def forecaster(model: str = "nlinear", **changes: Any) -> tsattn.Forecaster:
    """Horizon 6 from 24 steps; ``training`` adds to the quick settings."""
    training = {**TRAINING, **changes.pop("training", {})}
    return tsattn.Forecaster(model, **{"horizon": 6, "context": 24, "training": training, **changes})


def tune(folder: Any, space: dict[str, Any] | None = None, **settings: Any) -> tsattn.TuneResult:
    """A study in ``folder/study.journal``, unless ``storage`` says otherwise."""
    given = {"trials": 3, "storage": str(folder / "study.journal"), "verbose": False, **settings}
    data = given.pop("data", None)
    base = given.pop("base", None) or forecaster()
    return tsattn.tune(base, make_waves(steps=200) if data is None else data, space or SPACE, **given)


def states(result: tsattn.TuneResult) -> list[str]:
    """The state of every trial."""
    return [trial.state.name for trial in result.study.trials]
