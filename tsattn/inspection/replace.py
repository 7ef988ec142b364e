"""What stands in for a past step that is taken away. There is no neutral value: each answers another question.

    mean         the mean of the window (covariates: of the training part): does the forecast use this stretch at all?
    donor        the same stretch of another window of the same season, in the unit of this one: does it use what is
                 particular to it? Realistic, since the calendar stays; effects are averaged over several donors
    seasonal     the values one season earlier (or later)
    interpolate  a line between the neighbours: does it use more than its surroundings tell?
    noise        white noise with the deviation of the window: far from any real window

Legend: ``B`` windows, ``L`` past steps, ``C`` targets, ``K`` covariates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tsattn.data.batch import Batch
from tsattn.errors import unknown_name
from tsattn.layers.norm import WindowScale, normalise

if TYPE_CHECKING:
    from tsattn.inspection.probe import Probe

REPLACEMENTS = ("mean", "donor", "seasonal", "interpolate", "noise")
DRAWS = {"donor": 5, "noise": 5}  # how many effects are averaged


class Replacement:
    """Takes past steps out of windows of a probe and puts something in their place. Observed stays observed."""

    def __init__(self, probe: Probe, how: str, seed: int = 0) -> None:
        """Raises ConfigError for an unknown ``how``. Without another window to borrow from, a donor is "seasonal"."""
        if how not in REPLACEMENTS:
            raise unknown_name("replacement", how, REPLACEMENTS)
        self.probe, self.how = probe, how
        self.season = probe.panel.schema.freq.season()
        self._random = np.random.default_rng(seed)
        self._donors = self._find_donors() if how == "donor" else None
        if how == "donor" and self._donors is None:
            self.how = "seasonal"
        self.draws = DRAWS.get(self.how, 1)

    def __call__(self, batch: Batch, rows: slice, hidden: Tensor, draw: int = 0) -> Batch:
        """``batch`` (windows ``rows`` of the probe) with the steps ``hidden [B, L]`` replaced; ``draw`` from 0."""
        z, window = normalise(batch.past, batch.past_observed)
        cov, codes = torch.zeros_like(batch.past_cov), torch.zeros_like(batch.past_codes)
        if self.how == "mean":
            fill = torch.zeros_like(z)
        elif self.how == "donor":
            fill, cov, codes = self._borrow(rows, draw, batch)
        elif self.how == "noise":
            fill = self._noise(rows, draw, z)
        elif self.how == "seasonal":
            fill, cov, codes = (_season_before(part, self.season) for part in (z, batch.past_cov, batch.past_codes))
        else:
            fill = _line(z, hidden[..., None] | ~batch.past_observed)
            cov = _line(batch.past_cov, hidden[..., None].expand_as(batch.past_cov))
        return _put(batch, window, hidden, fill, cov, codes)

    def _borrow(self, rows: slice, draw: int, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The windows of the donors: targets in their own units, covariates as they are."""
        assert self._donors is not None
        chosen = self._donors[rows, draw]
        windows, device = self.probe.windows, batch.past.device
        series, origin = (torch.from_numpy(np.asarray(part[chosen])) for part in (windows.series, windows.origin))
        found = self.probe.source.gather(series, origin).to(device)
        return normalise(found.past, found.past_observed)[0], found.past_cov, found.past_codes

    def _find_donors(self) -> np.ndarray | None:
        """For each window the positions of ``draws`` others in the same phase of the season, ``[W, draws]``."""
        windows, panel = self.probe.windows, self.probe.panel
        offset, _ = panel.schema.freq.index(np.full(len(panel), panel.start.min()), panel.start)
        phase = (np.asarray(offset)[windows.series] + windows.origin) % self.season
        found = np.empty((len(windows.series), DRAWS["donor"]), dtype=np.int64)
        for one in np.unique(phase):
            members = np.flatnonzero(phase == one)
            if len(members) < 2:
                return None
            for place, window in enumerate(members):
                others = np.delete(members, place)
                found[window] = self._random.choice(others, DRAWS["donor"], replace=len(others) < DRAWS["donor"])
        return found

    def _noise(self, rows: slice, draw: int, z: Tensor) -> Tensor:
        """The same noise for the same window and draw, whatever the batch."""
        seeds = np.arange(rows.start, rows.start + len(z))
        noise = [np.random.default_rng([draw, seed]).standard_normal(tuple(z.shape[1:])) for seed in seeds]
        return torch.from_numpy(np.stack(noise)).to(z)


def _put(batch: Batch, window: WindowScale, hidden: Tensor, z: Tensor, cov: Tensor, codes: Tensor) -> Batch:
    """``z [B, L, C]`` and covariates in the place of the hidden steps that were observed."""
    there = hidden[..., None] & batch.past_observed
    past = torch.where(there, window.undo(z).to(batch.past.dtype), batch.past)
    return replace(
        batch,
        past=past,
        past_cov=torch.where(hidden[..., None], cov, batch.past_cov),
        past_codes=torch.where(hidden[..., None], codes, batch.past_codes),
    )


def _season_before(values: Tensor, season: int) -> Tensor:
    """The values one season earlier; of the first season, one season later; where there is neither, the mean (0)."""
    length = values.shape[1]
    if season >= length:
        return torch.zeros_like(values)
    return torch.cat((values[:, season : 2 * season], values[:, : length - season]), dim=1)[:, :length]


def _line(values: Tensor, hidden: Tensor) -> Tensor:
    """Straight lines over the hidden entries along dim 1, flat at the ends; the mean (0) where all are hidden."""
    filled = values.detach().cpu().numpy().astype(np.float64).copy()
    gaps = hidden.cpu().numpy()
    step = np.arange(filled.shape[1])
    for window, column in zip(*np.nonzero(gaps.any(axis=1)), strict=True):
        known = ~gaps[window, :, column]
        line = np.interp(step, step[known], filled[window, known, column]) if known.any() else 0.0
        filled[window, :, column] = line
    return torch.from_numpy(filled).to(values)
