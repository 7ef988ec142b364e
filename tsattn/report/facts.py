"""Where the page comes from: facts on data and model as pairs of text, and results as tables of text."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tsattn
from tsattn.data.panel import Panel
from tsattn.errors import listed
from tsattn.report.pack import time_texts
from tsattn.report.series import clipped

if TYPE_CHECKING:
    import pandas as pd

    from tsattn.forecaster import Forecaster
    from tsattn.inspection.diagnose import Finding
    from tsattn.inspection.report import TrustReport

Facts = list[tuple[str, str]]
_PACKAGES = ("torch", "pytorch-lightning", "numpy", "pandas")


def seen_text(forecaster: Forecaster, panel: Panel) -> str:
    """What the model had seen of the table whose last windows are checked."""
    ends = panel.times(np.arange(len(panel)), np.maximum(panel.lengths - 1, 0))
    until, end = time_texts(np.array([forecaster.trained_until_, ends.max()]), forecaster.schema_)
    return f"The windows are the last ones of a table that ends at {end}; the model was trained on rows up to {until}."


def about_data(panel: Panel, data: Any) -> Facts:
    """Source, series, steps, dates, frequency and missing share of a panel."""
    schema, roles, lengths = panel.schema, panel.schema.roles, panel.lengths
    longest = [s for s in range(len(panel)) if lengths[s]]
    first = min(longest, key=lambda s: panel.start[s])
    last = max(longest, key=lambda s: panel.times(np.array([s]), lengths[[s]] - 1)[0])
    span = panel.times(np.array([first, last]), np.array([0, lengths[last] - 1]))
    begin, end = time_texts(span, schema)
    facts = [
        ("source", _source(data)),
        ("series", f"{len(panel):,}" + ("" if roles.id is None else f" (column {clipped(roles.id)})")),
        ("steps", f"{lengths.sum():,} on a regular grid, {lengths.min():,} to {lengths.max():,} per series"),
        ("from", begin),
        ("to", end),
        ("frequency", f"{schema.freq.alias}, season {count(schema.freq.season(), 'step')}"),
        ("time", clipped(roles.time) + (", integers" if schema.integer_time else f", zone {schema.tz or 'none'}")),
    ]
    missing = np.isnan(panel.targets).mean(axis=0)
    facts += [
        (f"target {clipped(name)}", f"{share:.2%} of the steps missing")
        for name, share in zip(roles.target, missing, strict=True)
    ]
    for role in ("past", "known", "static"):
        names = getattr(roles, role)
        if names:
            facts.append((f"{role} covariates", listed(map(clipped, names), 12)))
    return facts


def about_model(forecaster: Forecaster) -> Facts:
    """Name, options, sizes, training and versions of a fitted forecaster."""
    spec, summary, config = forecaster.network_.spec, forecaster.summary_, forecaster._config()
    schema = forecaster.schema_
    until = time_texts(np.array([forecaster.trained_until_]), schema)[0]
    options = ", ".join(f"{name}={value!r}" for name, value in (forecaster.options or {}).items())
    facts = [
        ("model", forecaster._model_name()),
        ("options", clipped(options or "all default")),
        ("context", count(spec.context, "step")),
        ("horizon", count(spec.horizon, "step")),
        ("output", "quantiles " + ", ".join(f"{level:g}" for level in spec.quantiles) if spec.quantiles else "point"),
        ("parameters", f"{summary.parameters:,}"),
        ("trained on", f"{count(summary.windows, 'window')} up to {until}, seed {forecaster.seed}"),
        (
            "training",
            f"{count(summary.epochs, 'epoch')}, {count(summary.steps, 'optimizer step')}, {summary.seconds:.0f} s",
        ),
    ]
    if summary.best_val_loss is not None and summary.best_epoch is not None:
        loss = f"{summary.best_val_loss:.4g} after epoch {summary.best_epoch + 1}"
        facts.append(("best validation loss", f"{loss}, on {count(summary.validation_windows, 'window')}"))
    if summary.interrupted:
        facts.append(("interrupted", "the training was stopped by hand; the best weights so far were kept"))
    facts.append(("settings", f"batch {config.batch_size}, learning rate {config.learning_rate:g}, {config.schedule}"))
    packages = [f"{name} {version(name)}" for name in _PACKAGES]
    facts.append(
        ("versions", ", ".join([f"tsattn {tsattn.__version__}", f"Python {platform.python_version()}", *packages]))
    )
    facts.append(("page written", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")))
    return facts


def verdict_of(report: TrustReport) -> dict[str, Any]:
    """A trust report as plain data; curves as one list of points per replacement and order."""
    limits = report.to_dict()["thresholds"]
    curves = [
        {
            "replace": str(replace),
            "order": str(order),
            **{name: [_number(value) for value in part[name]] for name in ("removed", "effect", "low", "high")},
        }
        for (replace, order), part in report.curves.groupby(["replace", "order"], sort=False)
    ]
    return {
        "verdict": report.verdict,
        "reasons": list(report.reasons),
        "windows": report.windows,
        "method": report.method,
        "thresholds": [(name.replace("_", " "), f"{value:g}") for name, value in limits.items()],
        "table": frame_table(report.table),
        "curves": curves,
        "findings": _findings(report),
    }


def _findings(report: TrustReport) -> list[tuple[str, ...]]:
    """One row per kind of finding: where (the first places), the range of values, meaning, remedy."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for found in report.diagnosis:
        groups.setdefault((found.name, found.meaning, found.remedy), []).append(found)
    rows: list[tuple[str, ...]] = []
    for (name, meaning, remedy), members in groups.items():
        values = sorted(found.value for found in members)
        span = dict.fromkeys(f"{value:.2g}" for value in (values[0], values[-1]))
        more = f" and {len(members) - 3} more" if len(members) > 3 else ""
        places = "; ".join(found.where for found in members[:3]) + more
        rows.append((name, clipped(places), " to ".join(span), meaning, remedy))
    return rows


def frame_table(frame: pd.DataFrame) -> dict[str, Any]:
    """Column names and rows of text; numbers at four digits, an empty cell where there is none."""
    return {
        "columns": [clipped(name).replace("_", " ") for name in frame.columns],
        "rows": [[_cell(value) for value in row] for row in frame.itertuples(index=False)],
    }


def count(number: int, noun: str) -> str:
    """``1 step``, ``2,000 steps``."""
    plural = noun if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def _cell(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        return "" if np.isnan(value) else f"{value:.4g}".replace("inf", "∞")
    return "" if value is None else clipped(value)


def _number(value: Any) -> float | None:
    """A number JSON can hold: NaN becomes null."""
    return float(value) if np.isfinite(value) else None


def _source(data: Any) -> str:
    if data is None:
        return "the steps saved with the model: the last of each training series, as many as a forecast reads"
    return clipped(data) if isinstance(data, (str, Path)) else "a table in memory"
