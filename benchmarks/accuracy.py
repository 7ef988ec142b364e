"""The table of docs/benchmarks.md: every model on the published benchmarks, one JSON file per cell.

    python benchmarks/accuracy.py                          # all cells that have no result yet, then the page
    python benchmarks/accuracy.py --models lucid --datasets ETTh1 --contexts 512 --horizons 96 192
    python benchmarks/accuracy.py --page                   # write the page from the results there are

A cell is a data set, a model, a context and a horizon. Settings come from ``configs/benchmark/<model>_<data set>.yaml``
where there is one, else they are the defaults; they were chosen on validation parts. Results stay in
``benchmarks/results``, so a run that is stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tsattn.evaluation.m4 import run_m4
from tsattn.evaluation.protocol import PROTOCOLS, run_protocol
from tsattn.evaluation.published import published_rows
from tsattn.writing import write_whole

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
MODELS = (
    "lucid",
    "dlinear",
    "nlinear",
    "itransformer",
    "patchtst",
    "seq2seq",
    "tft",
    "transformer",
    "naive",
    "seasonal_naive",
)
CONTEXTS = {"ETTh1": (96, 336, 512), "exchange": (96, 336, 512), "illness": (36, 104)}
UNTRAINED = {"naive": 1, "seasonal_naive": None}  # their context: one step, one season


def cells(
    datasets: list[str], models: list[str], contexts: list[int] | None, horizons: list[int] | None
) -> Iterator[tuple[str, str, int, int]]:
    """Every cell asked for: data set, model, context, horizon."""
    for dataset in datasets:
        rules = PROTOCOLS[dataset]
        for model in models:
            reach: tuple[int, ...] = CONTEXTS[dataset]
            if model in UNTRAINED:
                reach = (UNTRAINED[model] or rules.season,)
            elif contexts:
                reach = tuple(c for c in reach if c in contexts)
            for context in reach:
                for horizon in rules.horizons:
                    if not horizons or horizon in horizons:
                        yield dataset, model, context, horizon


def settings(model: str, dataset: str, names: tuple[str, ...] = ("options", "training")) -> dict[str, Any]:
    """Options and training of a model on a data set, from its config; what it leaves out keeps its default."""
    path = ROOT / "configs" / "benchmark" / f"{model}_{dataset.lower()}.yaml"
    found = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: found[name] for name in names if name in found}


def result_path(dataset: str, model: str, context: int, horizon: int) -> Path:
    """Where the result of a cell is kept."""
    return RESULTS / f"{dataset}-{model}-{context}-{horizon}.json"


def write(path: Path, data: dict[str, Any]) -> None:
    """Write JSON in one step: a run that is stopped leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(data, indent=1, default=str) + "\n").encode())


def kept(data: dict[str, Any]) -> dict[str, Any]:
    """What of a result is worth keeping: the published rows stand in the package."""
    return {name: value for name, value in data.items() if name not in ("published", "floors")}


def run(
    datasets: list[str], models: list[str], contexts: list[int] | None, horizons: list[int] | None, seeds: int
) -> None:
    """Every cell without a result."""
    for dataset, model, context, horizon in cells(datasets, models, contexts, horizons):
        path = result_path(dataset, model, context, horizon)
        if path.exists():
            continue
        result = run_protocol(
            dataset, model=model, horizon=horizon, context=context, seeds=range(seeds), **settings(model, dataset)
        )
        write(path, kept(result.to_dict()))


def run_hourly(models: list[str], seeds: int) -> None:
    """M4 hourly, which has one horizon and the context of its config."""
    for model in models:
        path = RESULTS / f"m4_hourly-{model}.json"
        if path.exists() or model in UNTRAINED:
            continue
        found = settings(model, "m4_hourly", ("context", "options", "training"))
        result = run_m4("m4_hourly", model=model, seeds=range(seeds), **found)
        write(path, kept(result.to_dict()))


def page() -> str:
    """The page, from the results there are."""
    parts = [_HEAD]
    for dataset, contexts in CONTEXTS.items():
        parts.append(f"\n## {dataset}\n")
        horizons = PROTOCOLS[dataset].horizons
        parts.append("| model | context | " + " | ".join(str(h) for h in horizons) + " | seconds | parameters |")
        parts.append("|---|---|" + "---|" * (len(horizons) + 2))
        reach = sorted({1, PROTOCOLS[dataset].season, *contexts})
        lines = [line for context in reach for line in _lines(dataset, context, horizons)]
        parts += [text for _, text in sorted(lines, key=lambda line: line[0])]
        parts += ["", _best_published(dataset, horizons)]
    parts += ["\n## M4 hourly\n", "| model | sMAPE | MASE | OWA | seconds | parameters |", "|---|---|---|---|---|---|"]
    parts += _hourly()
    return "\n".join(parts) + "\n"


_HEAD = """# Benchmarks

Written by `python benchmarks/accuracy.py`, which runs every cell that has no result in `benchmarks/results` yet (each
result carries its settings, seeds, versions and date). Rules: `tsattn/evaluation/protocol.py`. Every test window
counts; values are standardised by the training part; the weights of the best validation epoch are scored once.
MSE / MAE, mean of the seeds, ± deviation of the MSE over them; `n` is the number of seeds where it is not 3. Seconds
are those of one training at the first horizon, on two CPU cores that other work shared. Contexts are fixed columns,
none was chosen by a test score; other settings are the defaults, or stand in `configs/benchmark/` and were chosen on
validation parts ([log.md](log.md)). Cells that were not run are blank.
"""


def _lines(dataset: str, context: int, horizons: tuple[int, ...]) -> Iterator[tuple[float, str]]:
    for model in MODELS:
        found = {h: _load(result_path(dataset, model, context, h)) for h in horizons}
        if not any(found.values()):
            continue
        texts, order = [], 1e9
        for horizon in horizons:
            cell = found[horizon]
            if cell is None:
                texts.append("")
                continue
            mean, spread, count = cell["mean"], cell["spread"]["mse"], len(cell["seeds"])
            text = f"{mean['mse']:.3f} / {mean['mae']:.3f}"
            text += f" ± {spread:.3f}" if spread is not None else ""
            texts.append(text + (f" (n={count})" if count != 3 and model not in UNTRAINED else ""))
            order = min(order, mean["mse"]) if horizon == horizons[0] else order
        first = next(cell for cell in found.values() if cell)
        seconds = f"{first['mean']['seconds']:.0f}" if model not in UNTRAINED else ""
        parameters = f"{first['seeds'][0]['parameters']:,}" if model not in UNTRAINED else ""
        yield order, f"| {model} | {context} | " + " | ".join(texts) + f" | {seconds} | {parameters} |"


def _best_published(dataset: str, horizons: tuple[int, ...]) -> str:
    best = []
    for horizon in horizons:
        rows = published_rows(dataset, horizon)
        lowest = min((row for row in rows if row.model != "Repeat"), key=lambda row: row.mse)
        windows = {"no": "all windows", "yes": "windows lost", "unknown": "windows unknown"}[lowest.lost_windows]
        best.append(f"{horizon}: {lowest.mse:.3f} ({lowest.model}, {windows})")
    return "Lowest published MSE known to us: " + "; ".join(best) + "."


def _hourly() -> Iterator[str]:
    from tsattn.evaluation.m4 import _published

    lines = []
    for model in MODELS:
        cell = _load(RESULTS / f"m4_hourly-{model}.json")
        if cell is None:
            continue
        mean, spread = cell["mean"], cell["spread"]["owa"]
        seconds, parameters = cell["seeds"][0]["seconds"], cell["seeds"][0]["parameters"]
        owa = f"{mean['owa']:.3f}" + (f" ± {spread:.3f}" if spread is not None else "")
        owa += "" if len(cell["seeds"]) == 3 else f" (n={len(cell['seeds'])})"
        text = f"| **{model}** | {mean['smape']:.3f} | {mean['mase']:.3f} | {owa} | {seconds:.0f} | {parameters:,} |"
        lines.append((mean["owa"], text))
    for name, score, _ in _published("m4_hourly"):
        lines.append((score.owa, f"| {name} | {score.smape:.3f} | {score.mase:.3f} | {score.owa:.3f} | | |"))
    return (text for _, text in sorted(lines))


def _load(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def main() -> None:
    """Run what is asked for, then write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--datasets", nargs="+", default=[*CONTEXTS, "m4_hourly"])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--contexts", nargs="+", type=int)
    parser.add_argument("--horizons", nargs="+", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", action="store_true", help="write the page only")
    asked = parser.parse_args()
    if not asked.page:
        run([d for d in asked.datasets if d in CONTEXTS], asked.models, asked.contexts, asked.horizons, asked.seeds)
        if "m4_hourly" in asked.datasets:
            run_hourly(asked.models, asked.seeds)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
