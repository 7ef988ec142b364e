"""``tsattn demo``: the main job on the shipped data, in one go."""

from __future__ import annotations

import time
from pathlib import Path


def demo(*, out: str = "tsattn_demo", epochs: int = 8) -> None:
    """Fit lucid on a year of New York weather, forecast the next day, score it, and show and check what it read.

    Writes forecast.csv, forecast.png (with the attention under the history), report.html, backtest.csv and the model.

    Args:
        out: Folder to write to.
        epochs: Passes over the training windows.
    """
    from tsattn.cli.commands import write_table
    from tsattn.data.catalog import load_dataset
    from tsattn.forecaster import Forecaster
    from tsattn.inspection.trust import check_attention

    started = time.monotonic()
    folder = Path(out)
    table = load_dataset("nyc_weather")
    model = Forecaster(
        "lucid", horizon=24, context=168, id="station", time="time", target="temp", training={"epochs": epochs}
    )
    print("Hourly temperature of three New York airports in 2013 (degrees Fahrenheit). Fitting lucid ...", flush=True)
    model.fit(table)
    forecast = model.predict(attention=True)
    write_table(forecast.to_frame(), str(folder / "forecast.csv"))
    forecast.plot().savefig(folder / "forecast.png", dpi=120)
    model.save(folder / "model")
    model.report(folder / "report.html", table, windows=0)
    print("\nForecast of the next 24 hours, first rows:")
    print(forecast.to_frame().groupby("station").head(2).to_string(index=False))
    print("\nBacktest, 20 days per station, by a model that saw none of them ...", flush=True)
    backtest = model.backtest(table, windows=20)
    write_table(backtest.to_frame(), str(folder / "backtest.csv"))
    scores = backtest.metrics()[["model", "mae", "rmse", "mase", "weighted_quantile_loss", "coverage_80"]]
    print(scores.to_string(index=False, float_format=lambda value: f"{value:.3f}"))
    print("\nCan the attention be believed? (docs/reading_attention.md says how this is tested)", flush=True)
    print(check_attention(model, table))
    files = "forecast.csv, forecast.png, report.html, backtest.csv, model/"
    print(f"\nWritten to {folder}/: {files} ({time.monotonic() - started:.0f} s)")
