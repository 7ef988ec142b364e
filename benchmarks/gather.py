"""Random training windows per second: tsattn beside pytorch-forecasting and darts, same panel, same windows, one run.

    pip install tsattn pytorch-forecasting darts
    python benchmarks/gather.py

A panel of 10,000 series with 500 hourly rows each, context 96, horizon 24, batches of 1,024 shuffled windows. Each
library's own training loader is iterated in one process with its default settings; normalisation, static columns and
covariates are switched off where a library has them. The first batch of each repeat is not timed: there every library
shuffles all window numbers. The libraries take turns, so that a busy moment does not fall on one alone. torch has one
thread (``--threads``): this is the speed of one core.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import torch
from common import PEERS, heading, make_table, present, quiet, spread

CONTEXT, HORIZON, BATCH = 96, 24, 1024
BATCHES = {"tsattn": 400, "pytorch-forecasting": 6, "darts": 40}  # timed in one repeat


def tsattn_loader(table: pd.DataFrame) -> Iterable[Any]:
    """``ForecastDataModule.train_dataloader``."""
    from tsattn import ForecastDataModule

    data = ForecastDataModule(table, horizon=HORIZON, context=CONTEXT, batch_size=BATCH, val_size=0)
    return data.train_dataloader()


def pytorch_forecasting_loader(table: pd.DataFrame) -> Iterable[Any]:
    """``TimeSeriesDataSet.to_dataloader``."""
    from pytorch_forecasting import TimeSeriesDataSet

    dataset = TimeSeriesDataSet(
        table.drop(columns="ds"),
        time_idx="step",
        target="y",
        group_ids=["unique_id"],
        min_encoder_length=CONTEXT,
        max_encoder_length=CONTEXT,
        min_prediction_length=HORIZON,
        max_prediction_length=HORIZON,
        time_varying_unknown_reals=["y"],
        target_normalizer=None,
    )
    return dataset.to_dataloader(train=True, batch_size=BATCH, num_workers=0)


def darts_loader(table: pd.DataFrame) -> Iterable[Any]:
    """The data module that every torch model of darts trains with."""
    from darts import TimeSeries
    from darts.utils.data import SequentialTorchTrainingDataset
    from darts.utils.data.torch_datasets._data_module import TorchDataModule
    from darts.utils.data.torch_datasets.utils import _batch_collate_fn_train

    series = TimeSeries.from_group_dataframe(
        table, group_cols="unique_id", time_col="ds", value_cols="y", freq="h", drop_group_cols="unique_id"
    )
    dataset = SequentialTorchTrainingDataset(
        series, input_chunk_length=CONTEXT, output_chunk_length=HORIZON, use_static_covariates=False
    )
    return TorchDataModule(dataset, batch_size=BATCH, collate_fn=_batch_collate_fn_train).train_dataloader()


LOADERS: dict[str, Callable[[pd.DataFrame], Iterable[Any]]] = {
    "tsattn": tsattn_loader,
    "pytorch-forecasting": pytorch_forecasting_loader,
    "darts": darts_loader,
}


def windows_per_second(loader: Iterable[Any], batches: int) -> float:
    """Speed over ``batches`` batches after the first."""
    iterator = iter(loader)
    next(iterator)
    started = time.perf_counter()
    for _ in range(batches):
        next(iterator)
    return batches * BATCH / (time.perf_counter() - started)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    args = parser.parse_args()
    quiet()
    torch.set_num_threads(args.threads)
    table = make_table(args.series, args.rows)
    loaders = {name: LOADERS[name](table) for name in ("tsattn", *PEERS) if present(name)}
    speeds: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(args.repeats):
        for name, loader in loaders.items():
            speeds[name].append(windows_per_second(loader, BATCHES[name]))
    print(heading())
    print(
        f"{args.series:,} series x {args.rows} rows, context {CONTEXT}, horizon {HORIZON}, batch {BATCH}, "
        f"{args.threads} thread(s), {args.repeats} repeats\n"
    )
    print("| library | windows/s (min / median / max) | tsattn is faster by |\n|---|---|---|")
    for name, values in speeds.items():
        ratio = statistics.median(speeds["tsattn"]) / statistics.median(values)
        print(f"| {name} | {spread(values)} | {'' if name == 'tsattn' else f'{ratio:,.0f} times'} |")


if __name__ == "__main__":
    main()
