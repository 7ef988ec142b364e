"""What a planted data set is: a table, its rule, and which part of it may be fitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from tsattn.forecaster import Forecaster


@dataclass(frozen=True, eq=False)
class Planted:
    """A made table with its rule.

    ``truth`` has one row per source of a target step: the id, ``target_time``, ``target``, ``source`` (a column of the
    table), ``source_time`` and ``contribution`` (what the source adds to the target, signed, in its unit). A target
    step without a row has no source.
    """

    name: str
    table: pd.DataFrame  # unique_id, ds, the targets and covariates
    truth: pd.DataFrame
    horizon: int  # H, steps
    context: int  # L, steps
    attainable_r2: float  # share of the variance of a target step that its sources explain
    target: tuple[str, ...] = ("y",)
    past: tuple[str, ...] = ()
    freq: str | int = 1
    windows: bool = False  # each series is one window: its forecast starts after ``context`` steps, nowhere else
    settings: dict[str, Any] = field(default_factory=dict)  # what the table was made with

    def fit(
        self,
        model: Any = "lucid",
        *,
        options: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        output: Any = "point",
        seed: int = 0,
    ) -> Forecaster:
        """A forecaster trained on the first three quarters (of the steps, or of the series when each is one window).

        The rest is for looking: ``held_out`` gives it. A fifth of the training part chooses the epoch.
        """
        from tsattn.data.build import build_panel
        from tsattn.data.split import Origins, Split, chronological
        from tsattn.forecaster import Forecaster

        forecaster = Forecaster(
            model,
            horizon=self.horizon,
            context=self.context,
            target=list(self.target),
            past=list(self.past),
            freq=self.freq,
            output=output,
            options=options,
            training=training,
            seed=seed,
        )
        panel = build_panel(self._part(held_out=False), forecaster._roles(), freq=self.freq)
        if not self.windows:
            return forecaster._fit_panel(panel, chronological(panel, self.context, self.horizon, 0.2))
        first = np.full(len(panel), self.context)
        validates = np.arange(len(panel)) % 5 == 4
        return forecaster._fit_panel(
            panel,
            Split(
                Origins(first, np.where(validates, first - 1, first)),
                Origins(first, np.where(validates, first, first - 1)),
                first,
            ),
        )

    def held_out(self) -> pd.DataFrame:
        """The rows no fit has seen: the last quarter of the series, or of the steps of each (with their context)."""
        return self._part(held_out=True)

    def _part(self, held_out: bool) -> pd.DataFrame:
        ids = self.table["unique_id"]
        if self.windows:
            names = ids.drop_duplicates()
            kept = ids.isin(names.iloc[len(names) * 3 // 4 :])
            return self.table[kept if held_out else ~kept]
        place = self.table.groupby("unique_id", sort=False).cumcount()
        size = ids.map(ids.value_counts())
        cut = size * 3 // 4
        return self.table[place >= cut - self.context] if held_out else self.table[place < cut]
