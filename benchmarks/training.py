"""Training and forecasting: tsattn beside neuralforecast, the same networks on the same table, in one run.

    pip install tsattn neuralforecast
    python benchmarks/training.py

100 series with 1,000 hourly rows each, context 96, horizon 24. Both libraries build the network with the same sizes and
take the same number of optimizer steps of the same number of windows, through their public ``fit``: the table is read,
windows are drawn, Lightning runs the loop. Seconds per step are the difference between a long and a short fit, divided
by the difference of their steps, so what is done once falls out; it is in the column of the short fit. Then both
forecast the step after the table for every series, with ``predict``. The libraries take turns, so that a busy moment
does not fall on one alone. No validation, no early stopping, no logging. torch has one thread (``--threads``).

What is not the same: for ``itransformer``, which reads all series as one window, a table of seven series is used;
neuralforecast's TFT makes queries for past steps too and shares no values with ours beyond the paper; its optimizer is
Adam, ours AdamW.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
import torch
from common import heading, make_table, present, quiet, spread

CONTEXT, HORIZON = 96, 24
SHORT, LONG = 5, 45  # optimizer steps
SIZES: dict[str, dict[str, Any]] = {
    "patchtst": {"width": 16, "heads": 4, "hidden": 128, "layers": 3, "dropout": 0.2},
    "itransformer": {"width": 128, "heads": 8, "hidden": 128, "layers": 2, "dropout": 0.1},
    "tft": {"width": 32, "heads": 4, "dropout": 0.1},
    "nlinear": {},
    "dlinear": {},
}
WINDOWS = {"patchtst": 256, "itransformer": 32, "tft": 256, "nlinear": 1024, "dlinear": 1024}  # in an optimizer step
ALL_SERIES = ("itransformer",)


def wide(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table with a column for each series, as tsattn takes several targets of one series."""
    columns = table.pivot(index="ds", columns="unique_id", values="y")
    return columns.reset_index().assign(unique_id="all"), list(columns)


def ours(name: str, table: pd.DataFrame, steps: int) -> Callable[[], Any]:
    """Fit tsattn for ``steps``; what comes back forecasts."""
    from tsattn import Forecaster

    target: str | list[str] = "y"
    if name in ALL_SERIES:
        table, target = wide(table)
    options = SIZES[name] | ({"patch": 16, "stride": 8} if name == "patchtst" else {})
    training = {"epochs": 1, "epoch_steps": steps, "batch_size": WINDOWS[name], "patience": None, "verbose": False}
    forecaster = Forecaster(
        name, horizon=HORIZON, context=CONTEXT, target=target, output="point", options=options, training=training
    )
    forecaster.fit(table, val_size=0)
    return lambda: forecaster.predict(table)


def neuralforecast(name: str, table: pd.DataFrame, steps: int) -> Callable[[], Any]:
    """Fit neuralforecast for ``steps``; what comes back forecasts."""
    from neuralforecast import NeuralForecast, models
    from neuralforecast.losses.pytorch import MSE

    size = SIZES[name]
    shared = {
        "h": HORIZON,
        "input_size": CONTEXT,
        "max_steps": steps,
        "loss": MSE(),
        "scaler_type": "identity",
        "windows_batch_size": WINDOWS[name],
        "batch_size": table["unique_id"].nunique(),
        "learning_rate": 1e-3,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
    }
    if name == "patchtst":
        model = models.PatchTST(
            **shared,
            hidden_size=size["width"],
            n_heads=size["heads"],
            linear_hidden_size=size["hidden"],
            encoder_layers=size["layers"],
            dropout=size["dropout"],
            fc_dropout=size["dropout"],
            patch_len=16,
            stride=8,
            revin_subtract_last=False,
            batch_normalization=True,
        )
    elif name == "itransformer":
        model = models.iTransformer(
            **shared,
            n_series=table["unique_id"].nunique(),
            hidden_size=size["width"],
            n_heads=size["heads"],
            d_ff=size["hidden"],
            e_layers=size["layers"],
            dropout=size["dropout"],
        )
    elif name == "tft":
        model = models.TFT(**shared, hidden_size=size["width"], n_head=size["heads"], dropout=size["dropout"])
    else:
        model = {"nlinear": models.NLinear, "dlinear": models.DLinear}[name](**shared)
    forecaster = NeuralForecast(models=[model], freq="h")
    forecaster.fit(table, val_size=0)
    return lambda: forecaster.predict(verbose=False)


LIBRARIES = {"tsattn": ours, "neuralforecast": neuralforecast}


def measure(fit: Callable[..., Callable[[], Any]], name: str, table: pd.DataFrame) -> tuple[float, float, float]:
    """Milliseconds per step, seconds of the short fit, seconds of a forecast."""
    started = time.perf_counter()
    fit(name, table, SHORT)
    short = time.perf_counter() - started
    started = time.perf_counter()
    predict = fit(name, table, LONG)
    long = time.perf_counter() - started
    started = time.perf_counter()
    predict()
    return 1e3 * (long - short) / (LONG - SHORT), short, time.perf_counter() - started


def middle(values: list[tuple[float, float, float]]) -> list[float]:
    """The median of each column."""
    return [statistics.median(column) for column in zip(*values, strict=True)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    args = parser.parse_args()
    quiet()
    torch.set_num_threads(args.threads)
    libraries = {name: fit for name, fit in LIBRARIES.items() if present(name)}
    print(heading())
    print(f"context {CONTEXT}, horizon {HORIZON}, {args.threads} thread(s), {args.repeats} repeats after one\n")
    print("| model | library | ms per step (min / median / max) | ratio | fit of 5 steps, s | forecast, s | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name in args.models:
        table = make_table(7 if name in ALL_SERIES else 100, 1000).drop(columns="step")
        found: dict[str, list[tuple[float, float, float]]] = {library: [] for library in libraries}
        for repeat in range(args.repeats + 1):
            for library, fit in libraries.items():
                measured = measure(fit, name, table)
                if repeat:  # the first one imports and warms up
                    found[library].append(measured)
        base = middle(found["tsattn"])
        for library, values in found.items():
            step, short, forecast = zip(*values, strict=True)
            own = middle(values)
            print(
                f"| {name} | {library} | {spread(step, 1)} | {own[0] / base[0]:.1f} | {spread(short, 2)} | "
                f"{spread(forecast, 3)} | {own[2] / base[2]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
