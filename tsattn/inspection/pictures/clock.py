"""The time axis of interactive pictures: plotly knows no time zones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tsattn.data.panel import Panel
from tsattn.data.walltime import DAY, MINUTE, format_time, to_wall
from tsattn.inspection.drawing import Scene


class Clock:
    """Steps of one window as places on a plotly axis, which knows no zones, and as text, in the zone of the data.

    The axis shows the clock at the origin throughout: across a clock change every step keeps a place of its own. The
    text on hover has the true wall time.
    """

    def __init__(self, panel: Panel, scene: Scene) -> None:
        """The axis of a scene."""
        self.panel, self.scene = panel, scene
        self.schema = panel.schema
        self.name = self.schema.roles.target[scene.target]
        self.label = self.schema.roles.time
        self.offset = 0.0  # days
        if self.schema.tz == "UTC":
            self.label += " (UTC)"
        elif self.schema.tz is not None:
            origin = panel.times(np.array([scene.series]), np.array([scene.origin - 1]))
            shift = int(to_wall(origin, self.schema.tz)[0] - origin[0])
            self.offset = shift / DAY
            hours, minutes = divmod(abs(shift) // MINUTE, 60)
            sign = "-" if shift < 0 else "+"
            self.label += f" ({self.schema.tz}, clock at the origin: {sign}{hours:02d}:{minutes:02d})"

    def text(self, step: int) -> str:
        """The stamp of a step, counted from the first forecast step (0)."""
        when = self.panel.times(np.array([self.scene.series]), np.array([self.scene.origin + step]))
        return format_time(int(when[0]), self.schema.tz, integer=self.schema.integer_time)

    def axis(self, steps: Sequence[int] | np.ndarray) -> Any:
        """Places of steps."""
        return self.from_numbers(self.scene.places()[np.asarray(steps) + self.scene.back + 1])

    def edges(self) -> Any:
        """Boundaries between the steps, ``[back + H + 1]``."""
        places = self.scene.places()
        return self.from_numbers((places[1:] + places[:-1]) / 2)

    def from_numbers(self, numbers: np.ndarray) -> Any:
        """matplotlib's days, or integers, as plotly takes them."""
        if self.schema.integer_time:
            return np.asarray(numbers, dtype=float)
        return np.round((numbers + self.offset) * 86_400_000_000).astype("datetime64[us]")
