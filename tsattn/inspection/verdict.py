"""The rules of the verdict: numbers in, one of five words and the reasons out. Nothing here looks at a model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tsattn.inspection.statistics import Interval, interval, needed

STATIC = 0.05  # windows whose maps differ by less are read alike
VERDICTS = ("supported", "partly", "not used", "not supported", "inconclusive")


@dataclass(frozen=True)
class Thresholds:
    """Limits of the verdict; every report prints them."""

    skill: float = 0.02  # a forecast that is surely less than this much better than the level has nothing to explain
    use: float = 0.02  # error that an even spread must add for the attention to count as used
    margin: float = (
        0.05  # share of its score that counts: to beat the newest steps by, and to fall short of the mean map by
    )
    random: float = 0.8  # rank correlation with the maps of random networks above which the training made no map
    seeds: float = 0.7  # correlation of lag profiles that models trained alike must reach


@dataclass(frozen=True)
class Evidence:
    """What the verdict rests on: shares with 95 % intervals, over windows.

    ``deletion`` has, by replacement and rival order, the gain in score of the map's order, in units of the naive error.
    """

    skill: Interval
    use: Interval
    random_maps: float | None
    seeds: float | None
    static: float  # mean total variation of the windows' maps from their mean
    deletion: dict[str, dict[str, Interval]] = field(default_factory=dict)
    scores: dict[str, dict[str, float]] = field(default_factory=dict)

    def with_deletion(self, curves: dict[str, dict[str, Any]], cluster: np.ndarray) -> Evidence:
        """With the scores of the orders, paired over windows."""
        gains, scores = {}, {}
        for how, orders in curves.items():
            own = orders["attention"].score
            gains[how] = {n: interval(own - o.score, cluster) for n, o in orders.items() if n != "attention"}
            scores[how] = {n: float(o.score.mean()) for n, o in orders.items()}
        return replace(self, deletion=gains, scores=scores)


def decide(evidence: Evidence, limits: Thresholds, windows: int) -> tuple[str, tuple[str, ...]]:
    """The first rule that holds gives the verdict; the reasons say which, with its numbers.

    1. *not supported* when the forecast is surely not ``limits.skill`` better than the level of the window: there is
       nothing to explain.
    2. *not used* when an even spread surely costs less than ``limits.use``.
    3. *not supported* when random networks have the same map, or under any replacement the map's order surely moves the
       forecast no further than a random one.
    4. *inconclusive* when an interval of 1 to 3 leaves both answers open.
    5. *supported* when it also beats the newest steps under every replacement (surely, and by ``limits.margin``), is
       not surely worse than the mean map by as much, and seeds (where given) agree; *partly* otherwise.
    """
    refusal = _refusal(evidence, limits)
    if refusal is not None:
        return refusal[0], (refusal[1],)
    unclear = _unclear(evidence)
    if unclear:
        most = max(needed(found, windows) for found in unclear.values())
        reasons = [f"The interval of {name} holds 0 ({f.low:.3g} to {f.high:.3g})." for name, f in unclear.items()]
        return "inconclusive", (*reasons, f"About {most} windows would settle it.")
    return _rank(evidence, limits)


def _refusal(evidence: Evidence, limits: Thresholds) -> tuple[str, str] | None:
    """Rules 1 to 3: the word and the sentence of the first that holds."""
    if evidence.skill.high < limits.skill:
        than = f"The forecast is no better than the level of the window ({percent(evidence.skill)})"
        return "not supported", f"{than}: there is nothing to explain."
    if evidence.use.high < limits.use:
        cost = f"Spread evenly, the attention costs {percent(evidence.use)} of error, less than {limits.use:.0%}"
        return "not used", f"{cost}: the forecast does without it."
    if evidence.random_maps is not None and evidence.random_maps > limits.random:
        alike = f"rank correlation {evidence.random_maps:.2f} > {limits.random}"
        return "not supported", f"Networks with random weights have the same map ({alike})."
    for how, gains in evidence.deletion.items():
        if gains["random"].high <= 0:
            gain = _gain(gains["random"])
            return (
                "not supported",
                f"Removing what the map points at ({how}) moves the forecast no further than anything else ({gain}).",
            )
    return None


def _unclear(evidence: Evidence) -> dict[str, Interval]:
    """What may still go either way."""
    found = {"skill": evidence.skill, "the use of the attention": evidence.use}
    found |= {f"deletion ({how}) against random": gains["random"] for how, gains in evidence.deletion.items()}
    return {name: one for name, one in found.items() if one.low <= 0}


def _rank(evidence: Evidence, limits: Thresholds) -> tuple[str, tuple[str, ...]]:
    """Rule 5: used and better than chance, but how much better?"""
    beaten = [f"{how}: {_times(scores, 'random')} as far as random" for how, scores in evidence.scores.items()]
    reasons = [f"Removing what the map points at moves the forecast further than chance ({'; '.join(beaten)})."]
    if evidence.static < STATIC:
        reasons.append(f"All windows have nearly the same map (they differ by {evidence.static:.2f}): a lag profile.")
    worse = []
    for how, gains in evidence.deletion.items():
        least = limits.margin * evidence.scores[how]["attention"]
        if gains["recency"].low <= 0 or gains["recency"].value < least:
            worse.append(
                f"Removing the newest steps moves it as far or further ({how}, {_gain(gains['recency'])}): the map "
                f"says little beyond that."
            )
        if gains["profile"].high < -least:
            worse.append(
                f"The mean map moves it further ({how}, {_gain(gains['profile'])}): read the lag profile, not single "
                f"windows."
            )
    if evidence.seeds is not None and evidence.seeds < limits.seeds:
        worse.append(f"Models of other seeds disagree (lag profiles {evidence.seeds:.2f} < {limits.seeds}).")
    return ("partly", (*reasons, *worse)) if worse else ("supported", tuple(reasons))


def _times(scores: dict[str, float], rival: str) -> str:
    return f"{scores['attention'] / max(scores[rival], 1e-12):.1f}x"


def percent(found: Interval) -> str:
    """A share with its interval, in per cent."""
    return f"{100 * found.value:.1f} % [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def _gain(found: Interval) -> str:
    return f"{found.value:.3g} [{found.low:.3g}, {found.high:.3g}] naive errors"
