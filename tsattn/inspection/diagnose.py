"""Known ailments of attention maps, found in the numbers, each with what it means and what helps.

Thresholds follow the literature named with each; they are parameters and are printed. Legend as in
``tsattn.inspection.maps``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tsattn.errors import ConfigError, listed
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.support import even_spread


@dataclass(frozen=True)
class Finding:
    """One ailment of one head."""

    name: str  # "uniform", "collapsed", "saturated", "static", "sink" or "broadcast"
    where: str  # layer and head
    value: float  # what was measured
    threshold: float
    meaning: str
    remedy: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.name} ({self.where}, {self.value:.2f}): {self.meaning} {self.remedy}"


class Findings(tuple[Finding, ...]):
    """The findings, head by head; an empty one is good news. Prints a line for each kind."""

    def __str__(self) -> str:
        """Each kind once, with the heads that have it, what it means and what helps."""
        if not self:
            return "No finding: heads are neither uniform, collapsed, static nor saturated, and no key is a sink."
        lines = []
        for name in dict.fromkeys(found.name for found in self):
            same = [found for found in self if found.name == name]
            values = sorted({f"{found.value:.2f}" for found in (min(same, key=_value), max(same, key=_value))})
            layers, heads = zip(*(found.where.split(", head ", 1) for found in same), strict=True)
            where = f"{listed(dict.fromkeys(layers))}, head{'s' * (len(same) > 1)} {listed(heads, 8)}"
            limit = f"limit {same[0].threshold:g}"
            lines.append(f"{name} ({where}; {' to '.join(values)}, {limit}): {same[0].meaning} {same[0].remedy}")
        return "\n".join(lines)


def _value(found: Finding) -> float:
    return found.value


_MEANINGS = {
    "uniform": (
        "Nearly every row spreads evenly: the head averages, and its map points at nothing.",
        "Check with check_attention whether the attention is used; try fewer heads, a sharper score, sparsemax.",
    ),
    "collapsed": (
        "All forecast steps read the same past steps.",
        "Right when one event decides the whole horizon; otherwise give the queries positions or known covariates.",
    ),
    "static": (
        "All windows are read alike: a fixed filter over lags.",
        "Read it as a lag profile (by_lag); a linear model may do as well.",
    ),
    "saturated": (
        "Nearly every row sits on one step: the choice is frozen and its gradient is gone.",
        "Ask method='knockout', not gradients; train with normalised queries and keys, or a lower learning rate.",
    ),
    "sink": (
        "One key draws weight nearly everywhere and brings in next to nothing: it stands for reading nothing.",
        "Read method='value_norm' instead of the weights, or give the heads a null key.",
    ),
    "broadcast": (
        "One key draws weight nearly everywhere and brings in much: it summarises the window.",
        "Its weight says nothing about that step; look at 'occlusion'.",
    ),
}


def diagnose(
    attention: AttentionMap,
    *,
    value_norm: AttentionMap | None = None,
    target: int | str = 0,
    uniform: float = 0.9,
    alike: float = 0.05,
    saturated: float = 0.99,
    sink: float = 3.0,
    rows: float = 0.9,
) -> Findings:
    """What is wrong, or only noteworthy, with the heads of the last mapped layer.

    Args:
        attention: The map, of several windows.
        value_norm: The same windows by ``attribute(..., "value_norm")``: tells a sink from a summary.
        target: Target by position or name.
        uniform: A row is uniform when its effective steps are more than this share of the readable ones.
        alike: Rows (or windows) are the same when their mean total variation from the mean row is below this.
        saturated: A row is saturated when one step has more than this.
        sink: A key draws weight in a row when it has more than this many times its even share.
        rows: Share of rows for which something must hold.

    Returns:
        The findings, head by head; none is good news. ``print`` gives a line for each kind.

    Raises:
        ConfigError: a signed map, or no map from forecast steps to past steps.
    """
    if attention.signed:
        raise ConfigError(f"diagnose looks at shares; {attention.method!r} is signed.")
    layer = attention.layers[attention.layer_position(None)]
    weights = attention.to_numpy(target)  # [W, N, H', L]
    read = np.concatenate([part for _, _, part in attention.chunks(target)])
    norms = None if value_norm is None else value_norm.mean("head").to_numpy(target)[:, 0]
    found = []
    for head in range(weights.shape[1]):
        measured = _measures(weights[:, head], read, saturated)
        limits = {"uniform": uniform, "collapsed": alike, "static": alike, "saturated": saturated}
        checks = {
            "uniform": (measured["spread"] > uniform).mean() > rows,
            "collapsed": weights.shape[2] > 1 and measured["between_rows"] < alike,
            "static": len(weights) > 1 and measured["between_windows"] < alike,
            "saturated": (measured["largest"] > saturated).mean() > rows,
        }
        values = {
            "uniform": float(np.mean(measured["spread"])),
            "collapsed": float(measured["between_rows"]),
            "static": float(measured["between_windows"]),
            "saturated": float(np.mean(measured["largest"])),
        }
        where = f"{layer}, head {head}"
        found += [Finding(n, where, values[n], limits[n], *_MEANINGS[n]) for n, there in checks.items() if there]
        if norms is not None and not checks["uniform"]:
            found += _sinks(weights[:, head], norms, even_spread(attention.record().key, read), sink, rows, where)
    return Findings(found)


def _measures(weights: np.ndarray, read: np.ndarray, saturated: float) -> dict[str, np.ndarray]:
    """Of one head ``[W, H', L]``: effective steps as a share, largest weight, and how far rows and windows differ."""
    from tsattn.inspection.views import row_entropy

    steps = np.exp(row_entropy(weights)) / np.maximum(read.sum(axis=1), 1)[:, None]
    return {
        "spread": steps[np.isfinite(steps)],
        "largest": weights.max(axis=2),
        "between_rows": variation(weights, axis=1),
        "between_windows": variation(weights, axis=0),
    }


def variation(weights: np.ndarray, axis: int) -> np.ndarray:
    """Mean total variation of rows ``[..., L]`` from their mean along ``axis``: 0 when all are the same."""
    return np.asarray(0.5 * np.abs(weights - weights.mean(axis=axis, keepdims=True)).sum(axis=-1).mean())


def _sinks(
    weights: np.ndarray, norms: np.ndarray, even: np.ndarray, sink: float, rows: float, where: str
) -> list[Finding]:
    """Past steps that draw weight in nearly all rows of nearly all windows, ``[W, H', L]`` by age."""
    draws = (weights > sink * even[:, None]).mean(axis=(0, 1))  # [L]
    found = []
    for step in np.flatnonzero(draws > rows):
        weight, norm = weights[..., step].mean(), norms[..., step].mean()
        name = "sink" if norm < 0.5 * weight else "broadcast"
        age = weights.shape[2] - 1 - int(step)
        found.append(Finding(name, f"{where}, age {age}", float(weight), sink, *_MEANINGS[name]))
    return found[:1]  # the strongest would do: neighbours of one patch share its weight
