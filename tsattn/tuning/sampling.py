"""Optuna's samplers, seeded anew for every trial."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from tsattn.errors import unknown_name

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial, TrialState

SAMPLERS = ("tpe", "random")


class Repeatable(BaseSampler):
    """A sampler that depends on the seed, the number of the trial and the trials before it, and on nothing else.

    So a study that was stopped and continued draws what it would have drawn, and never the same points again; and two
    workers never draw alike.
    """

    def __init__(self, make: Callable[[int], BaseSampler], seed: int) -> None:
        """``make(seed)`` gives a fresh sampler."""
        self._make, self._seed = make, seed
        self._now = make(seed)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Seed for this trial."""
        self._now = self._make(int(np.random.SeedSequence([self._seed, trial.number]).generate_state(1)[0]))
        self._now.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """As the sampler of this trial does."""
        return self._now.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As the sampler of this trial does."""
        return self._now.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """As the sampler of this trial does."""
        return self._now.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Any) -> None:
        """As the sampler of this trial does."""
        self._now.after_trial(study, trial, state, values)


def make_sampler(name: str, seed: int, *, branches: bool) -> BaseSampler:
    """The sampler called ``name``; ``branches``: some parameters exist in some trials only."""
    if name not in SAMPLERS:
        raise unknown_name("sampler", name, SAMPLERS)

    def make(seed: int) -> BaseSampler:
        if name == "random":
            return RandomSampler(seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(seed=seed, multivariate=True, group=branches, constant_liar=True)

    return Repeatable(make, seed)
