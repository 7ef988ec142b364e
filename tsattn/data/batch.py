"""The one object that travels from the windows to a network.

Legend, used in every file behind this one:

    B  windows in the batch     L  context: past steps     H  horizon: steps to forecast     C  targets
    Kp past-only covariates     Kk known covariates        Ks static covariates              (K..c: categorical twins)
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass(eq=False)  # not frozen: Lightning's precision plugins set the fields of a copy
class Batch:
    """``B`` windows, each with its own key, in data units. Unobserved entries are 0 and flagged.

    Targets stay in the units of the table: a network normalises its own window. Numeric covariates are standardised by
    the statistics of the training part. Category codes are integers; 0 is "unknown".
    """

    past: Tensor  # [B, L, C] float32, left padded; 0 where unobserved
    past_observed: Tensor  # [B, L, C] bool
    future: Tensor  # [B, H, C] float32: the answer. All zeros unless the loss (or teacher forcing) needs it
    future_observed: Tensor  # [B, H, C] bool
    past_cov: Tensor  # [B, L, Kp] float32
    past_codes: Tensor  # [B, L, Kpc] int64
    known: Tensor  # [B, L + H, Kk] float32
    known_codes: Tensor  # [B, L + H, Kkc] int64
    static: Tensor  # [B, Ks] float32
    static_codes: Tensor  # [B, Ksc] int64
    scale: Tensor  # [B, C] float32: the unit of the training loss (the training part's deviation of the series)
    series: Tensor  # [B] int64: index of the series in its panel
    origin: Tensor  # [B] int64: step in the series of the first forecast; the window key is (series, origin)

    def __len__(self) -> int:
        """Number of windows ``B``."""
        return int(self.past.shape[0])

    @property
    def scored(self) -> Tensor:
        """``[B, H, C]`` bool: future entries that enter the loss; none where the past has nothing to forecast from."""
        return self.future_observed & self.past_observed.any(dim=1, keepdim=True)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The same batch on ``device``; Lightning calls this."""
        moved = {f.name: getattr(self, f.name).to(device, non_blocking=non_blocking) for f in fields(self)}
        return Batch(**moved)

    def without_future(self) -> Batch:
        """The same windows with the answer removed: what a network may see outside training."""
        return replace(
            self, future=torch.zeros_like(self.future), future_observed=torch.zeros_like(self.future_observed)
        )

    def select(self, rows: Tensor | slice) -> Batch:
        """Some windows of the batch, by index along ``B``."""
        return Batch(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})
