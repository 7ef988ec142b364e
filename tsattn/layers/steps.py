"""A window as one sequence of vectors per target: what networks over single steps read.

Legend: ``B`` windows, ``C`` targets, ``L`` context, ``H`` horizon; ``Fp``, ``Ff`` widths of a past and a future step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from tsattn.data.batch import Batch
from tsattn.layers.covariates import CovariateVector
from tsattn.layers.norm import WindowScale, normalise

if TYPE_CHECKING:  # the models import this file
    from tsattn.models.base import InputSpec


class StepInputs(NamedTuple):
    """The window, normalised by itself, step by step."""

    past: Tensor  # [B, C, L, Fp]: value (0 where unobserved), 1 where observed, past-only, known, static covariates
    future: Tensor  # [B, C, H, Ff]: known and static covariates
    observed: Tensor  # [B, C, L] bool
    window: WindowScale


class StepInputsLayer(nn.Module):
    """Normalises a window and joins its covariates to each step. Targets do not see one another."""

    def __init__(self, spec: InputSpec) -> None:
        """For windows of ``spec``."""
        super().__init__()
        self.past_vector = CovariateVector(spec.past, spec.past_categories)
        self.known_vector = CovariateVector(spec.known, spec.known_categories)
        self.static_vector = CovariateVector(spec.static, spec.static_categories)
        self.context = spec.context
        self.future_width = self.known_vector.width + self.static_vector.width  # Ff
        self.past_width = 2 + self.past_vector.width + self.future_width  # Fp

    def forward(self, batch: Batch, dtype: torch.dtype = torch.float32) -> StepInputs:
        """All of ``batch`` that a forecast may read, floats in ``dtype``."""
        z, window = normalise(batch.past, batch.past_observed)
        own = torch.stack((z.to(dtype), batch.past_observed.to(dtype)), dim=-1).transpose(1, 2)  # [B, C, L, 2]
        past = self.past_vector(batch.past_cov.to(dtype), batch.past_codes)
        known = self.known_vector(batch.known.to(dtype), batch.known_codes)
        static = self.static_vector(batch.static.to(dtype), batch.static_codes)
        steps = torch.cat((known, static[:, None].expand(-1, known.shape[1], -1)), dim=-1)  # [B, L + H, Ff]
        around = torch.cat((past, steps[:, : self.context]), dim=-1)
        targets = own.shape[1]
        return StepInputs(
            past=torch.cat((own, _for_each(around, targets)), dim=-1),
            future=_for_each(steps[:, self.context :], targets),
            observed=batch.past_observed.transpose(1, 2),
            window=window,
        )


def _for_each(steps: Tensor, targets: int) -> Tensor:
    """The same steps for every target: ``[B, T, F] -> [B, C, T, F]``."""
    return steps[:, None].expand(-1, targets, -1, -1)
