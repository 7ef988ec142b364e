"""Networks whose attention is known in closed form, without training (INSPECTION: layer A)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from tsattn.attention.kernel import attend
from tsattn.data.batch import Batch
from tsattn.forecaster import Forecaster
from tsattn.layers.norm import normalise
from tsattn.models.base import AttentionRecord, Axis, InputSpec, Network, Output


class Oracle(Network):
    """Every forecast step copies the step ``lag`` before it: ``logit(h, s) = beta`` there and 0 elsewhere.

    One head, one-hot positions as queries and keys, the normalised window as values. With ``skip`` the forecast takes
    the same step by a path of its own. With ``shift`` a key holds the value of ``shift`` steps before, as keys do after
    a circular convolution: the map then points beside what is read.
    """

    has_attention = True

    def __init__(self, spec: InputSpec, *, lag: int = 6, beta: float = 5.0, skip: bool = False, shift: int = 0) -> None:
        super().__init__(spec)
        self.beta = torch.nn.Parameter(torch.tensor(float(beta)))
        sources = spec.context + torch.arange(spec.horizon) - lag
        self.register_buffer("query", torch.nn.functional.one_hot(sources, spec.context).float())  # [H, L]
        self.register_buffer("key", torch.eye(spec.context))
        self.skip, self.shift = skip, shift

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        z, window = normalise(batch.past, batch.past_observed)
        mask = batch.past_observed.transpose(1, 2)[:, :, None]  # [B, C, 1, L]
        values = z.roll(self.shift, dims=1).transpose(1, 2)[..., None]  # [B, C, L, 1]
        read = attend(self.beta * self.query, self.key, values, score="dot", mask=mask, weights=need_weights)
        future = read.output.squeeze(-1)
        if self.skip:  # the forecast takes the same step by a path of its own, and nothing from the attention
            future = 0.0 * future + (values.squeeze(-1) @ self.query.T)
        point = window.undo(future.transpose(1, 2))
        if read.weights is None:
            return Output(point)
        steps, ahead = tuple(range(self.spec.context + 1)), tuple(range(self.spec.horizon + 1))
        axes = Axis("horizon", ahead[:-1], ahead[1:]), Axis("time", steps[:-1], steps[1:])
        return Output(point, None, (AttentionRecord(read.weights[:, :, None], *axes),))


def oracle(series: int = 3, length: int = 60, *, context: int = 12, horizon: int = 4, **options: object) -> Forecaster:
    """A fitted oracle on white noise, as it was made: nothing is learnt."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "unique_id": np.repeat([f"s{i}" for i in range(series)], length),
            "ds": np.tile(pd.date_range("2024-01-01", periods=length, freq="h"), series),
            "y": 10 + 3 * rng.normal(size=series * length),
        }
    )
    forecaster = Forecaster(
        Oracle,
        horizon=horizon,
        context=context,
        output="point",
        options=options,
        training={"epochs": 1, "learning_rate": 1e-12, "verbose": False},
    )
    return forecaster.fit(table)
