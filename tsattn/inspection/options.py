"""What attribution methods are asked, and what they give back. Legend as in ``tsattn.inspection.attribute``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tsattn.errors import ConfigError, unknown_name
from tsattn.models.base import Axis

STATISTICS = ("fixed", "recomputed")


@dataclass(frozen=True)
class Options:
    """How the methods that need more than a map go about it; see ``attribute``."""

    layer: int | str | None = None
    variable: str | None = None
    statistics: str = "fixed"
    attention: str = "free"
    replace: str = "mean"
    block: int | str = "auto"
    steps: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ConfigError for an unknown choice."""
        if self.statistics not in STATISTICS:
            raise unknown_name("statistics", self.statistics, STATISTICS)
        if self.attention not in ("free", "frozen"):
            raise unknown_name("attention", self.attention, ("free", "frozen"))
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise ConfigError(f"steps is a whole number of at least 1; got {self.steps!r}.")


@dataclass(frozen=True, eq=False)
class Attribution:
    """What a method gives back: ``weights [W, C, N, J, I]`` and its axes."""

    weights: np.ndarray
    query: Axis
    key: Axis
    layer: str
    signed: bool = True
    unit: str = "data"
    notes: tuple[str, ...] = ()
