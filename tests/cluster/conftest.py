"""One local Ray of two workers for the whole suite, and a table that its parts must agree on."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsattn.forecaster import Forecaster

HORIZON, CONTEXT = 6, 24
QUICK = {"epochs": 1, "verbose": False, "accelerator": "cpu"}


@pytest.fixture(scope="session")
def cluster():
    """A Ray that the caller has started: it must be used, and left running."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'tsattn[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray itself, which warns about its own options on import and start
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield ray
    ray.shutdown()


def make_table(series: int = 21) -> pd.DataFrame:
    """Hourly series of unequal length over a change of the clock, with a gap, covariates of every role, and ids that
    are not to be read as numbers; series 003 has no value and 004 is shorter than a horizon."""
    rng = np.random.default_rng(0)
    parts = []
    for number in range(series):
        steps = 4 if number == 4 else int(rng.integers(40, 110))
        part = pd.DataFrame(
            {
                "shop": f"{number:03d}",
                "when": pd.date_range("2024-03-30", periods=steps, freq="h", tz="Europe/Berlin").as_unit("s"),
                "sold": rng.normal(size=steps).cumsum() + 10,
                "price": rng.normal(size=steps),
                "load": rng.normal(size=steps),
                "weather": rng.choice(["dry", "wet"], size=steps),
                "kind": f"k{number % 3}",
            }
        )
        if number == 3:
            part["sold"] = np.nan
        parts.append(part if steps < 20 else part.drop(index=[9, 10]))
    return pd.concat(parts, ignore_index=True)


def make_known(table: pd.DataFrame) -> pd.DataFrame:
    """Prices and weather of the horizon of every series."""
    rng = np.random.default_rng(1)
    parts = []
    for shop, part in table.groupby("shop"):
        when = pd.date_range(part["when"].max(), periods=HORIZON + 1, freq="h")[1:].as_unit("s")
        weather = rng.choice(["dry", "wet"], size=HORIZON)
        parts.append(pd.DataFrame({"shop": shop, "when": when, "price": rng.normal(size=HORIZON), "weather": weather}))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="session")
def table() -> pd.DataFrame:
    """See ``make_table``."""
    return make_table()


@pytest.fixture(scope="session")
def forecaster(table) -> Forecaster:
    """A fitted lucid with covariates of every role."""
    roles = {"id": "shop", "time": "when", "target": "sold", "past": ["load"], "static": ["kind"]}
    model = Forecaster(
        "lucid", horizon=HORIZON, context=CONTEXT, known=["price", "weather", "calendar.hour"], **roles,
        options={"patch": 6}, training=QUICK,
    )  # fmt: skip
    return model.fit(table)


def spread(table: pd.DataFrame, folder: Path, files: int = 5) -> Path:
    """The rows in random order, so that every series lies in every file."""
    folder.mkdir(parents=True)
    shuffled = table.sample(frac=1, random_state=0)
    for number in range(files):
        shuffled.iloc[number::files].to_parquet(folder / f"{number}.parquet", index=False)
    return folder


def by_id(table: pd.DataFrame, folder: Path) -> Path:
    """One folder for each id, as Spark writes them."""
    for shop, part in table.groupby("shop"):
        (folder / f"shop={shop}").mkdir(parents=True)
        part.drop(columns="shop").to_parquet(folder / f"shop={shop}" / "part.parquet", index=False)
    return folder


CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # float32: what a batch holds beside a window changes the last bit
SKIPS = pytest.mark.filterwarnings("ignore:. of 21 series:tsattn.errors.TsattnWarning")


def same(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    """Ids, stamps, gaps and types to the bit, forecasts to float32 rounding."""
    pd.testing.assert_frame_equal(found, wanted, **CLOSE)
