"""The same fits in one process and in several: what each of them says. Run as a script by ``torchrun``."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning as pl

import tsattn
from tsattn.data.build import build_panel
from tsattn.data.split import chronological

HORIZON, CONTEXT = 4, 12
CASES = {  # windows to train on, batch size
    "1 window": (1, 4), "2 windows": (2, 4), "3 windows": (3, 2), "7 windows": (7, 3), "499 windows": (499, 64),
}  # fmt: skip
MODELS = {
    "lucid": {"patch": 4, "dropout": 0.0},
    "seq2seq": {"attention": "additive", "patch": 4, "dropout": 0.0},
    "transformer": {"width": 16, "hidden": 32, "dropout": 0.0},
    "patchtst": {"patch": 4, "stride": 4, "width": 16, "hidden": 32, "heads": 4, "dropout": 0.0, "norm": "layer"},
    "tft": {"width": 16, "heads": 2, "dropout": 0.0},
    "dlinear": {},
}


def table(windows: int) -> pd.DataFrame:
    """One series with gaps whose training part has ``windows`` windows, and a validation part of some more."""
    rng = np.random.default_rng(windows)
    steps = windows + HORIZON + 2 * HORIZON
    y = np.sin(np.arange(steps) / 3) + 0.1 * rng.standard_normal(steps)
    y[rng.random(steps) < 0.1] = np.nan
    y[[0, -1]] = 1.0
    return pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=steps, freq="h"), "y": y})


class Gradients(pl.Callback):
    """Keeps the gradient of every step, as the optimizer gets it (before it is clipped)."""

    def __init__(self) -> None:
        self.kept: dict[str, np.ndarray] = {}

    def on_before_optimizer_step(self, trainer, module, optimizer):
        for name, weight in module.network.named_parameters():
            self.kept[f"gradient {trainer.global_step} {name}"] = weight.grad.numpy().copy()


def run(model: str, windows: int, size: int, gradients: bool = False, **training: Any) -> dict[str, np.ndarray]:
    """Everything a user would read after one fit, as arrays by name; ``gradients`` too, where they are whole."""
    made = tsattn.Forecaster(
        model, horizon=HORIZON, context=CONTEXT, id=None, options=MODELS[model],
        training={"epochs": 2, "batch_size": size, "verbose": False, "accelerator": "cpu", **training},
    )  # fmt: skip
    frame = table(windows)
    panel, kept = build_panel(frame, made._roles()), Gradients()
    split = chronological(panel, CONTEXT, HORIZON, 2 * HORIZON)
    made._fit_panel(panel, split, (kept,) if gradients else ())
    told = kept.kept | {f"weight {name}": tensor.numpy() for name, tensor in made.network_.state_dict().items()}
    summary = made.summary_
    told["numbers"] = np.array([summary.best_val_loss, summary.best_epoch, summary.steps, summary.windows])
    forecast = made.predict(attention=model not in ("dlinear",))
    told |= {"forecast": forecast.windows.point, "quantiles": forecast.windows.quantiles}
    for record in forecast.windows.attention:
        told[f"attention {record.layer}"] = record.weights
    scored = made.backtest(frame, windows=5, step=1, refit="never")
    told |= {"backtest": scored.windows.point, "origins": scored.windows.origin}
    told["metrics"] = scored.metrics().set_index("model").loc[model].to_numpy(dtype=float)
    return told


def all_cases(**training: Any) -> dict[str, dict[str, np.ndarray]]:
    """lucid with every number of windows, and every other model with one."""
    others = [model for model in MODELS if model != "lucid"]
    found = {f"lucid, {name}": run("lucid", *case, gradients=True, **training) for name, case in CASES.items()}
    return found | {f"{model}, 7 windows": run(model, 7, 3, gradients=True, **training) for model in others}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import os

    out, world = Path(sys.argv[1]), int(os.environ["WORLD_SIZE"])
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for name, told in all_cases(devices=world // nodes, num_nodes=nodes, strategy="ddp").items():
        np.savez(out / f"{name} rank {os.environ['RANK']}.npz", **{k: v for k, v in told.items() if v is not None})
