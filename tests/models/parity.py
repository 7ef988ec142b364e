"""Fixtures of scripts/make_parity_fixtures.py: what published implementations forecast with the same weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tsattn.data.batch import Batch
from tsattn.models import InputSpec, Network, build

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass
class Parity:
    """Our network with the published weights, the windows, and what the published model made of them."""

    network: Network
    batch: Batch
    point: Tensor  # [B, H, C] float64
    attention: Tensor  # [layer, B, C or 1, N, J, I] float64
    versions: dict[str, str]

    def error(self, point: Tensor) -> float:
        """Largest distance from the published forecast, in deviations of each window."""
        deviation = self.batch.past.double().std(dim=1, correction=0)[:, None]
        return float(((point.detach().double() - self.point) / deviation).abs().max())


def load(model: str, fixture: str, dtype: torch.dtype) -> Parity:
    """The network called ``model`` with the weights of a fixture, in ``dtype`` and eval mode."""
    with np.load(FIXTURES / f"{fixture}.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    past, point = torch.from_numpy(arrays["past"]), torch.from_numpy(arrays["point"])
    known = torch.from_numpy(arrays["known"]) if "known" in arrays else torch.zeros(len(past), 0, 0)
    spec = InputSpec(horizon=point.shape[1], context=past.shape[1], targets=past.shape[2], known=known.shape[2])
    network = build(model, spec, **json.loads(str(arrays["options"])))
    weights = {n.removeprefix("weights/"): torch.from_numpy(a) for n, a in arrays.items() if n.startswith("weights/")}
    network.load_state_dict(weights)  # strict: every parameter and buffer is in the file, and nothing else
    batch = replace(spec.example(len(past)), past=past.to(dtype))
    if spec.known:
        batch = replace(batch, known=known.to(dtype))
    attention, versions = torch.from_numpy(arrays["attention"]), json.loads(str(arrays["versions"]))
    return Parity(network.to(dtype).eval(), batch, point, attention, versions)
