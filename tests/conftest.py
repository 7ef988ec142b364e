"""Small tables and quick settings shared by the suites."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch

mpl.use("Agg")
torch.set_num_threads(1)  # tiny networks: more threads only wait for each other

QUICK = {"epochs": 1, "verbose": False}


@pytest.fixture
def waves() -> pd.DataFrame:
    """Three hourly series of 300 steps with a daily wave, at levels 1, 100 and 10,000; some values are missing."""
    return make_waves()


def make_waves(series: int = 3, steps: int = 300, seed: int = 0) -> pd.DataFrame:
    """Daily waves with noise; every 37th value is missing."""
    rng = np.random.default_rng(seed)
    parts = []
    for number in range(series):
        wave = np.sin(np.arange(steps) * 2 * np.pi / 24 + number) + 0.1 * rng.normal(size=steps) + 3
        wave = wave * 100.0**number
        wave[::37] = np.nan
        parts.append(
            pd.DataFrame(
                {
                    "unique_id": f"s{number}",
                    "ds": pd.date_range("2024-01-01", periods=steps, freq="h"),
                    "y": wave,
                    "price": rng.normal(size=steps),
                    "load": rng.normal(size=steps),
                    "kind": f"k{number % 2}",
                }
            )
        )
    return pd.concat(parts, ignore_index=True)
