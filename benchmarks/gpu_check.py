"""What should hold on an accelerator, checked there in a few minutes: numbers first, then speed.

    python benchmarks/gpu_check.py                  # the first CUDA device; a line per check, exits with 1 on a failure
    python benchmarks/gpu_check.py --device cpu     # the same checks without one, to see that the script works

Fused kernels against explicit weights, bfloat16 against float32, the gather on the device against the one in memory,
forecasts and maps of every model against the CPU, trainings in bf16-mixed and with weights in parts, and
windows per second.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from common import heading, make_table, quiet

import tsattn
from tsattn.attention import attend, causal_mask
from tsattn.data.build import build_panel
from tsattn.data.datamodule import ForecastDataModule
from tsattn.data.schema import Roles
from tsattn.inference import forecast_windows
from tsattn.models import MODELS

Check = Callable[[torch.device], str]  # says what it found; raises AssertionError
MODELS_WITH_WEIGHTS = [name for name in MODELS if name not in ("naive", "seasonal_naive")]


def fused_output_is_the_weighted_sum(device: torch.device) -> str:
    """Per mask and precision: the fused output against ``weights @ value``, and asking for weights changes nothing."""
    worst = {}
    for dtype, limit in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        query, key, value = torch.randn(3, 8, 4, 96, 32, generator=torch.manual_seed(0)).to(device, dtype)
        hidden = (torch.rand(8, 1, 1, 96, generator=torch.manual_seed(1)) > 0.2).to(device)
        for mask in (None, causal_mask(96).to(device), hidden, hidden & causal_mask(96).to(device)):
            plain, read = attend(query, key, value, mask=mask), attend(query, key, value, mask=mask, weights=True)
            assert torch.equal(plain.output, read.output), f"{dtype}: asking for weights changed the output"
            wrong = (read.weights.float() @ value.float() - read.output.float()).abs().max().item()
            worst[dtype] = max(worst.get(dtype, 0.0), wrong)
            assert wrong <= limit, f"{dtype}: |weights @ value - output| is {wrong:.2g}, allowed {limit:g}"
    return ", ".join(f"{dtype}: {wrong:.1g}" for dtype, wrong in worst.items())


def bfloat16_is_near_float32(device: torch.device) -> str:
    """The weights of half precision are made from scores that are not rounded to it."""
    query, key, value = 3 * torch.randn(3, 4, 4, 64, 32, generator=torch.manual_seed(0)).to(device)
    exact = attend(query, key, value, weights=True).weights
    half = attend(query.bfloat16(), key.bfloat16(), value.bfloat16(), weights=True).weights
    reference = attend(query.bfloat16().float(), key.bfloat16().float(), value, weights=True).weights
    wrong = (half - reference).abs().max().item()
    assert wrong <= 1e-4, f"weights in bfloat16 are off by {wrong:.2g}"
    return f"weights {wrong:.1g} from those of the same rounded inputs, {(half - exact).abs().max():.1g} from float32"


def gather_on_the_device_is_the_gather_in_memory(device: torch.device) -> str:
    """Every tensor of a batch, bit for bit."""
    data = _data()
    source, moved = data.source, copy.copy(_data().source)
    moved.to(device)
    series, origin = torch.arange(64) % 20, 100 + torch.arange(64)
    here, there = source.gather(series, origin), moved.gather(series.to(device), origin.to(device))
    for name in ("past", "past_observed", "future", "future_observed", "scale", "series", "origin"):
        assert torch.equal(getattr(here, name), getattr(there, name).cpu()), f"{name} differs"
    assert there.past.device.type == device.type
    return "64 windows, bit for bit"


def every_model_forecasts_what_it_does_on_the_cpu(device: torch.device) -> str:
    """Forecasts and maps, in deviations of the series."""
    worst = 0.0
    data = _data()
    for name in MODELS_WITH_WEIGHTS:
        torch.manual_seed(0)
        network = tsattn.build(name, data.spec)
        series, origin = np.arange(40) % 20, 100 + np.arange(40)
        here = forecast_windows(network, data.source, series, origin, attention=network.has_attention)
        there = forecast_windows(network, data.source, series, origin, attention=network.has_attention, device=device)
        wrong = float(np.abs(here.point - there.point).max())
        maps = [np.abs(a.weights - b.weights).max() for a, b in zip(here.attention, there.attention, strict=True)]
        wrong = max([wrong, *map(float, maps)])
        assert wrong <= 2e-3, f"{name}: {wrong:.2g} from the CPU"
        worst = max(worst, wrong)
    return f"{len(MODELS_WITH_WEIGHTS)} models, at most {worst:.1g} (TF32 off)"


def training_in_bf16_ends_where_float32_does(device: torch.device) -> str:
    """Best validation losses within a tenth of one another."""
    losses = {}
    for precision in ("32-true", "bf16-mixed"):
        losses[precision] = _train(device, precision=precision).summary_.best_val_loss
    assert abs(losses["bf16-mixed"] / losses["32-true"] - 1) <= 0.1, f"{losses}"
    return ", ".join(f"{name} {loss:.4f}" for name, loss in losses.items())


def training_in_parts_ends_where_whole_weights_do(device: torch.device) -> str:
    """Best validation losses with ``fsdp`` and without."""
    if device.type == "cpu":
        return "left out, Lightning has fsdp on GPUs alone"
    losses = [_train(device, strategy=name).summary_.best_val_loss for name in ("auto", "fsdp")]
    assert abs(losses[1] / losses[0] - 1) <= 1e-3, f"{losses}"
    return f"{losses[0]:.5f} whole, {losses[1]:.5f} in parts"


def throughput(device: torch.device) -> str:
    """Windows per second of the gather and of a training; no limit, since machines differ."""
    data = _data(rows=2_000)
    data.source.to(device)
    series = torch.randint(0, 20, (1024,), device=device)
    origin = torch.randint(100, 1_900, (1024,), device=device)
    data.source.gather(series, origin)
    _wait(device)
    started = time.perf_counter()
    for _ in range(50):
        data.source.gather(series, origin)
    _wait(device)
    gathered = 50 * 1024 / (time.perf_counter() - started)
    summary = _train(device, rows=2_000).summary_
    trained = summary.windows * summary.epochs / summary.seconds
    return f"gather {gathered:,.0f} windows/s, training {trained:,.0f} windows/s"


CHECKS: tuple[Check, ...] = (
    fused_output_is_the_weighted_sum,
    bfloat16_is_near_float32,
    gather_on_the_device_is_the_gather_in_memory,
    every_model_forecasts_what_it_does_on_the_cpu,
    training_in_bf16_ends_where_float32_does,
    training_in_parts_ends_where_whole_weights_do,
    throughput,
)


def _data(rows: int = 300) -> ForecastDataModule:
    panel = build_panel(make_table(20, rows)[["unique_id", "ds", "y"]], Roles.of("unique_id", "ds", "y"))
    return ForecastDataModule(panel, horizon=12, context=48)


def _train(device: torch.device, rows: int = 300, **training: object) -> tsattn.Forecaster:
    table = make_table(20, rows)[["unique_id", "ds", "y"]]
    table["y"] += 2 * np.sin(np.arange(len(table)) % rows * 2 * np.pi / 24)  # something to learn
    settings = {"epochs": 3, "verbose": False, "accelerator": "cpu" if device.type == "cpu" else "gpu", **training}
    return tsattn.Forecaster("lucid", horizon=12, context=48, output="point", training=settings).fit(table)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda")
    device = torch.device(parser.parse_args().device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here: nothing was checked (--device cpu runs the checks without one)")
        return 1
    quiet()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    print(heading())
    print(torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU")
    failed = 0
    for check in CHECKS:
        started = time.perf_counter()
        try:
            found = f"ok: {check(device)}"
        except AssertionError as error:
            found, failed = f"FAILED: {error}", failed + 1
        print(f"{check.__name__.replace('_', ' ')}: {found} ({time.perf_counter() - started:.1f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
