"""How exactly lucid's contributions add up to its forecast: every test window of ETTh1, float32, standardised data.

    python benchmarks/exactness.py --data-dir DIR [--horizon 96]

Trains one model under the protocol of ``tsattn benchmark etth1`` and prints the largest
``|sum of contributions + level - forecast|``.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import heading

import tsattn
from tsattn.data.catalog import load_dataset
from tsattn.data.datamodule import ForecastDataModule
from tsattn.evaluation.protocol import find_protocol
from tsattn.inference import forecast_windows
from tsattn.training.config import TrainConfig
from tsattn.training.run import seeded, train


def largest_gap(horizon: int, context: int, data_dir: str | None) -> tuple[float, int]:
    """The largest gap over all test windows, and their number."""
    protocol = find_protocol("etth1")
    panel = protocol.panel(load_dataset("etth1", data_dir=data_dir).iloc[:, 1:].to_numpy())
    data = ForecastDataModule.from_panel(panel, protocol.split(context, horizon), horizon=horizon, context=context)
    with seeded(0):
        network = tsattn.build("lucid", data.spec)
    train(network, data, TrainConfig(verbose=False), 0)
    origins, worst = protocol.scored(horizon), 0.0
    for first in range(0, len(origins), 64):
        series, origin = origins.locate(np.arange(first, min(first + 64, len(origins))))
        windows = forecast_windows(network, data.source, series, origin, attention=True, contributions=True)
        parts = windows.contributions
        assert parts is not None
        total = parts["history"].sum(-1) + parts["past"].sum((-1, -2)) + parts["known"] + parts["level"]
        worst = max(worst, float(np.abs(total.transpose(0, 2, 1) - windows.point).max()))
    return worst, len(origins)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--horizon", type=int, default=96)
    parser.add_argument("--context", type=int, default=512)
    arguments = parser.parse_args()
    print(heading())
    gap, windows = largest_gap(arguments.horizon, arguments.context, arguments.data_dir)
    print(f"ETTh1, horizon {arguments.horizon}, {windows} test windows: largest gap {gap:.2g}")
