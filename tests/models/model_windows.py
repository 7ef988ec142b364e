"""Random windows for the tests of the networks."""

from __future__ import annotations

from dataclasses import replace

import torch

from tsattn.data.batch import Batch
from tsattn.models import InputSpec, Network

FULL = {
    "past": 2,
    "known": 2,
    "static": 1,
    "past_categories": (4,),
    "known_categories": (25, 3),
    "static_categories": (5,),
}


def spec_for(network: type[Network], **sizes: object) -> InputSpec:
    """A spec with every covariate role the network reads."""
    spec = InputSpec(**{"horizon": 10, "context": 33, "targets": 2, "season": 7, **sizes})
    for role in network.uses:
        spec = replace(spec, **{role: FULL[role], f"{role}_categories": FULL[f"{role}_categories"]})
    return spec


def random_batch(spec: InputSpec, windows: int = 5, *, missing: float = 0.2, seed: int = 0) -> Batch:
    """Random values with gaps; the first third of window 1 is left padding."""
    make = torch.Generator().manual_seed(seed)

    def normal(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=make)

    def codes(like: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        columns = [torch.randint(0, size, like.shape[:-1], generator=make) for size in sizes]
        return torch.stack(columns, dim=-1) if columns else like

    empty = spec.example(windows)
    observed = torch.rand(empty.past.shape, generator=make) >= missing
    if windows > 1:
        observed[1, : spec.context // 3] = False
    future_observed = torch.rand(empty.future.shape, generator=make) >= missing
    return replace(
        empty,
        past=torch.where(observed, normal(empty.past) + 3.0, 0.0),
        past_observed=observed,
        future=torch.where(future_observed, normal(empty.future) + 3.0, 0.0),
        future_observed=future_observed,
        past_cov=normal(empty.past_cov),
        past_codes=codes(empty.past_codes, spec.past_categories),
        known=normal(empty.known),
        known_codes=codes(empty.known_codes, spec.known_categories),
        static=normal(empty.static),
        static_codes=codes(empty.static_codes, spec.static_categories),
        scale=torch.rand(empty.scale.shape, generator=make) + 0.5,
        series=torch.arange(windows),
    )


def shaken(network: Network, size: float = 0.3, seed: int = 1) -> Network:
    """The network with noise added to every parameter, so that layers that start at zero matter; eval mode."""
    make = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=make))
        for module in network.modules():
            if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0.0
    return network.eval()
