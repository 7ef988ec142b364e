"""The answer of ``check_attention``: a verdict, why, and every number it rests on."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tsattn.inspection.diagnose import Finding
from tsattn.inspection.verdict import Evidence, Thresholds, percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Check:
    """One number with its 95 % interval and its limit."""

    check: str
    value: float
    low: float
    high: float
    threshold: float
    passed: bool


@dataclass(frozen=True, eq=False)
class TrustReport:
    """Whether a map can be believed. ``print(report)`` is five lines; ``table`` and ``curves`` have the numbers.

    ``curves`` holds, for each replacement and order of removal, the share of the past removed, the mean move of the
    forecast in units of the seasonal naive error with its 95 % interval, and the way it went (``path``).
    """

    verdict: str  # "supported", "partly", "not used", "not supported" or "inconclusive"
    reasons: tuple[str, ...]
    model: str
    method: str
    windows: int
    checks: tuple[Check, ...]
    curves: pd.DataFrame
    diagnosis: tuple[Finding, ...]
    thresholds: Thresholds
    evidence: Evidence

    @property
    def table(self) -> pd.DataFrame:
        """One row per check: check, value, low, high, threshold, passed."""
        import pandas as pd

        return pd.DataFrame([asdict(check) for check in self.checks])

    def __str__(self) -> str:
        """Five lines: the verdict, skill, use, deletion, what else is known."""
        limits, evidence = self.thresholds, self.evidence
        ratios = []
        for how, scores in evidence.scores.items():
            rivals = ", ".join(f"{name} {scores[name]:.2f}" for name in ("random", "recency", "profile"))
            ratios.append(f"{how} {scores['attention']:.2f} ({rivals})")
        other = [f"windows differ by {evidence.static:.2f}"]
        if evidence.random_maps is not None:
            other.append(f"likeness to random networks {evidence.random_maps:.2f} (limit {limits.random})")
        if evidence.seeds is not None:
            other.append(f"agreement of seeds {evidence.seeds:.2f} (limit {limits.seeds})")
        names = Counter(finding.name for finding in self.diagnosis)
        other += [f"{name} in {count} heads" if count > 1 else f"{name} in a head" for name, count in names.items()]
        return "\n".join(
            [
                f"{self.verdict}: {self.method} of {self.model}, {self.windows} windows. {' '.join(self.reasons)}",
                f"skill     {percent(evidence.skill)} better than the level of the window (limit {limits.skill:.0%})",
                f"use       an even spread adds {percent(evidence.use)} to the error (limit {limits.use:.0%})",
                f"deletion  move of the forecast in naive errors: {'; '.join(ratios)}",
                f"map       {'; '.join(other)}",
            ]
        )

    __repr__ = __str__

    def plot(self, *, replace: str | None = None, ax: Axes | None = None) -> Any:
        """The deletion curves, one panel per replacement, the verdict above them.

        ``replace`` picks one replacement, ``ax`` are axes for one panel. Returns Axes, or a Figure of several panels.
        """
        from tsattn.inspection.pictures.trust import plot_trust

        return plot_trust(self, replace=replace, ax=ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "model": self.model,
            "method": self.method,
            "windows": self.windows,
            "checks": [asdict(check) for check in self.checks],
            "curves": self.curves.to_dict(orient="list"),
            "diagnosis": [asdict(finding) for finding in self.diagnosis],
            "thresholds": asdict(self.thresholds),
        }
