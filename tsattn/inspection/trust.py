"""Can this map be believed, for this model and these data? A verdict from interventions, not from looking.

Legend: ``W`` windows, ``H`` horizon, ``L`` context, ``M`` stretches of the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tsattn.attention.intervention import Call, uniform
from tsattn.errors import ConfigError
from tsattn.evaluation.metrics import seasonal_scale
from tsattn.inspection.attribute import attribute_probe
from tsattn.inspection.deletion import Deletion, delete, random_orders, stretch_scores
from tsattn.inspection.diagnose import diagnose, variation
from tsattn.inspection.interventions import block_axis
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.options import Options
from tsattn.inspection.probe import Probe
from tsattn.inspection.report import Check, TrustReport
from tsattn.inspection.statistics import Interval, interval
from tsattn.inspection.verdict import Evidence, Thresholds, decide
from tsattn.inspection.views import as_shares, spearman
from tsattn.models.base import Network

if TYPE_CHECKING:
    import pandas as pd

    from tsattn.forecaster import Forecaster


def check_attention(
    forecaster: Forecaster,
    data: Any,
    *,
    method: str = "attention",
    windows: int = 128,
    step: int | None = None,
    target: int | str = 0,
    replace: Sequence[str] = ("mean", "donor"),
    block: int | str = "auto",
    draws: int = 20,
    networks: int = 3,
    others: Sequence[Forecaster] = (),
    thresholds: Thresholds | dict[str, float] | None = None,
    seed: int = 0,
) -> TrustReport:
    """Test whether a map says what the forecast depends on; "no" is a normal answer.

    1. *Skill*: is the forecast better than the level of the window, which reads no step in particular?
    2. *Use*: what does it cost to spread the attention evenly (paired over windows)?
    3. *Deletion*: stretches of the past are replaced in the order of the map. The forecast must move further than in
       random order, than newest first (recency), and no less than in the order of the mean map over windows (profile).
       Level and unit of the window are held fixed; every replacement must agree.
    4. *Randomisation*: the map of the same network with random weights must look different (Adebayo et al., 2018).
    5. *Seeds* (``others``): the lag profiles of models trained alike must agree.

    Args:
        forecaster: A fitted forecaster. It is not changed.
        data: Table or path. Its last windows are used; best are rows the model was not trained on.
        method: What the map shows: any method of ``attribute`` with a map from forecast steps to the past.
        windows: Windows to use, spread over the series.
        step: Steps between the origins of a series; the horizon unless given.
        target: Target by name or position.
        replace: Replacements (``tsattn.inspection.replace``); the verdict takes the worst.
        block: Steps removed together; "auto" is a patch of the attention, else a quarter season.
        draws: Random orders of each window.
        networks: Random networks whose maps are compared; 0 leaves the test out.
        others: Forecasters of the same kind trained with other seeds.
        thresholds: Limits of the verdict, as ``Thresholds`` or some of its fields.
        seed: Of random orders, replacements and networks.

    Raises:
        ConfigError: a model without a map over the past, an unknown option. DataError: no window in the data.
    """
    limits = thresholds if isinstance(thresholds, Thresholds) else Thresholds(**(thresholds or {}))
    if not replace or isinstance(replace, str):
        raise ConfigError(f"replace is a list of replacements, such as ('mean', 'donor'); got {replace!r}.")
    probe = _some_windows(forecaster, data, windows, step, seed)
    options = Options(seed=seed, block=block)
    found = attribute_probe(probe, method, options)
    place = found.target_position(target)
    rows = found.mean(("head", "horizon")).to_numpy(place)[:, 0, 0]  # [W, L]; raises where there is no map
    cluster = _clusters(probe)
    evidence = Evidence(
        skill=_skill(probe, place, cluster),
        use=_use(probe, place, cluster),
        random_maps=_random_maps(forecaster, probe, method, options, rows, place, networks, seed),
        seeds=_seeds(others, data, method, found, place, windows, step, seed),
        static=float(variation(as_shares(found.mean("head").to_numpy(place)[:, 0]), axis=0)),
    )
    blocks = block_axis(probe, block)
    scale = _scale(probe, place)
    curves = {}
    for how in replace:
        removed = max(1, (len(blocks) + 1) // 2)
        orders = _orders(stretch_scores(rows, blocks), removed, draws, seed)
        curves[how] = delete(probe, blocks, orders, how, target=place, scale=scale, seed=seed)
    evidence = evidence.with_deletion(curves, cluster)
    verdict, reasons = decide(evidence, limits, len(probe))
    return TrustReport(
        verdict=verdict,
        reasons=reasons,
        model=probe.model,
        method=method,
        windows=len(probe),
        checks=_checks(evidence, limits),
        curves=_curve_table(curves, blocks, cluster),
        diagnosis=() if found.signed else diagnose(found, value_norm=_value_norm(probe, method), target=place),
        thresholds=limits,
        evidence=evidence,
    )


def _some_windows(forecaster: Forecaster, data: Any, windows: int, step: int | None, seed: int) -> Probe:
    """About as many windows of each series, ``windows`` in all."""
    if windows < 2:
        raise ConfigError(f"A check needs at least 2 windows, found windows={windows}.")
    probe = Probe.of(forecaster, data, windows=windows, step=step)
    if len(probe) <= windows:
        return probe
    # newest first within each series, series by turns: those with few windows leave the rest to the others
    order = np.lexsort((-probe.windows.origin, probe.windows.series))
    rank = np.empty(len(order), dtype=np.int64)
    series = probe.windows.series[order]
    starts = np.flatnonzero(np.r_[True, series[1:] != series[:-1]])
    rank[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    shuffled = np.random.default_rng(seed).permutation(len(order))  # which series get one more
    chosen = shuffled[np.argsort(rank[shuffled], kind="stable")[:windows]]
    return probe.take(np.sort(chosen))


def _clusters(probe: Probe) -> np.ndarray:
    """Windows of one series that may overlap share a cluster, ``[W]``."""
    context = probe.network.spec.context + probe.network.spec.horizon
    _, place = np.unique(np.stack([probe.windows.series, probe.windows.origin // context]), axis=1, return_inverse=True)
    return np.asarray(place).ravel()


def _error(probe: Probe, point: np.ndarray, target: int) -> np.ndarray:
    """Mean absolute error of each window, ``[W]``; NaN where nothing was observed."""
    miss = np.abs(point[..., target] - probe.windows.actual[..., target])
    there = np.isfinite(miss)
    return np.where(there.any(axis=1), np.nansum(miss, axis=1) / np.maximum(there.sum(axis=1), 1), np.nan)


def _relative(difference: np.ndarray, base: np.ndarray, cluster: np.ndarray) -> Interval:
    """The mean of ``difference`` as a share of the mean of ``base``."""
    return interval(difference, cluster).scaled(1.0 / max(float(np.nanmean(base)), np.finfo(np.float64).tiny))


def _skill(probe: Probe, target: int, cluster: np.ndarray) -> Interval:
    """How much smaller the error is than that of the level of the window, as a share of the latter."""
    from tsattn.layers.norm import normalise

    levels = [normalise(b.past, b.past_observed)[1].loc.cpu().numpy() for _, b in probe.batches()]
    level = np.broadcast_to(np.concatenate(levels)[:, None], probe.windows.point.shape)
    flat, own = _error(probe, level, target), _error(probe, probe.windows.point, target)
    if not np.isfinite(own).any():
        raise ConfigError("None of the windows has an observed forecast step, so nothing can be checked on this table.")
    return _relative(flat - own, flat, cluster)


def _use(probe: Probe, target: int, cluster: np.ndarray) -> Interval:
    """What an even spread of the attention adds to the error, as a share of it."""
    layers = probe.layers()
    chosen = layers.chosen(None)

    def even(call: Call) -> torch.Tensor:
        return uniform(call) if layers.of(call.number) in chosen else call.weights

    point = np.concatenate([probe.point(batch, even).float().cpu().numpy() for _, batch in probe.batches()])
    own = _error(probe, probe.windows.point, target)
    return _relative(_error(probe, point, target) - own, own, cluster)


def _random_maps(
    forecaster: Forecaster,
    probe: Probe,
    method: str,
    options: Options,
    rows: np.ndarray,
    target: int,
    networks: int,
    seed: int,
) -> float | None:
    """Mean rank correlation of the windows' maps with those of networks whose weights are random."""
    from tsattn.models import build
    from tsattn.training.run import seeded

    found = []
    for number in range(networks):
        with seeded(seed + 1000 + number):
            network = build(forecaster.model, probe.network.spec, **(forecaster.options or {}))
        blank = attribute_probe(_with_network(probe, network), method, options)
        theirs = blank.mean(("head", "horizon")).to_numpy(target)[:, 0, 0]
        found.append(np.nan_to_num(spearman(np.abs(rows), np.abs(theirs))).mean())
    return float(np.mean(found)) if found else None


def _with_network(probe: Probe, network: Network) -> Probe:
    return replace(probe, network=network.to(probe.device).eval())


def _seeds(
    others: Sequence[Forecaster],
    data: Any,
    method: str,
    found: AttentionMap,
    target: int,
    windows: int,
    step: int | None,
    seed: int,
) -> float | None:
    """Mean correlation of lag profiles between models trained with other seeds.

    Of the weights, not of their ranks: a crisp profile leaves most lags alone, and the order among those is noise.
    """
    if not others:
        return None
    profiles = [found.by_lag(target)["weight"].abs().to_numpy()]
    for other in others:
        theirs = attribute_probe(_some_windows(other, data, windows, step, seed), method, Options(seed=seed))
        profile = theirs.by_lag(target)["weight"].abs().to_numpy()
        if len(profile) != len(profiles[0]):
            raise ConfigError("The forecasters in others have another context or horizon: their maps cannot agree.")
        profiles.append(profile)
    pairs = [(a, b) for i, a in enumerate(profiles) for b in profiles[i + 1 :]]
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs]))


def _orders(scores: np.ndarray, removed: int, draws: int, seed: int) -> dict[str, np.ndarray]:
    """Orders ``[W, R, removed]`` in which stretches are removed, from the map's ``scores [W, M]``."""
    windows, count = scores.shape

    def ranked(values: np.ndarray) -> np.ndarray:
        return np.argsort(-values, axis=1, kind="stable")[:, None, :removed]

    return {
        "attention": ranked(scores),
        "recency": np.broadcast_to(np.arange(count)[::-1][:removed], (windows, 1, removed)).copy(),
        "profile": np.repeat(ranked(scores.mean(axis=0, keepdims=True)), windows, axis=0),
        "random": random_orders(windows, count, removed, draws, seed),
    }


def _scale(probe: Probe, target: int) -> np.ndarray:
    """Error of the seasonal naive within each window's series, ``[W]``: the unit of effects."""
    panel = probe.panel
    scale, _ = seasonal_scale(panel.targets, season=panel.schema.freq.season(), indptr=panel.indptr)
    values = scale[probe.windows.series, target]
    good = np.isfinite(values) & (values > 0)
    return np.where(good, values, np.median(values[good]) if good.any() else 1.0).astype(np.float32)


def _value_norm(probe: Probe, method: str) -> AttentionMap | None:
    """Weights with what they bring in, where the values are known."""
    if method != "attention":
        return None
    try:
        return attribute_probe(probe, "value_norm", Options())
    except ConfigError:
        return None


def _checks(evidence: Evidence, limits: Thresholds) -> tuple[Check, ...]:
    """Every number of the verdict beside its limit."""
    checks = [
        Check("skill over the level of the window", *evidence.skill, limits.skill, evidence.skill.low > 0),
        Check("error added by an even spread", *evidence.use, limits.use, evidence.use.low > limits.use),
    ]
    for how, gains in evidence.deletion.items():
        for name, gain in gains.items():
            margin = limits.margin * evidence.scores[how]["attention"]
            least = {"profile": -margin, "recency": margin, "random": 0.0}[name]
            passed = gain.high >= least if name == "profile" else gain.low > 0 and gain.value >= least
            checks.append(Check(f"deletion ({how}): gain over {name}", *gain, least, passed))
    if evidence.random_maps is not None:
        found = evidence.random_maps
        checks.append(Check("likeness to random networks", found, found, found, limits.random, found <= limits.random))
    if evidence.seeds is not None:
        found = evidence.seeds
        checks.append(Check("agreement of seeds", found, found, found, limits.seeds, found >= limits.seeds))
    return tuple(checks)


def _curve_table(curves: dict[str, dict[str, Deletion]], blocks: Any, cluster: np.ndarray) -> pd.DataFrame:
    """Columns replace, order, removed, effect, low, high, path: from nothing removed to the last stretch."""
    import pandas as pd

    rows: list[tuple[Any, ...]] = []
    for how, orders in curves.items():
        for name, found in orders.items():
            rows.append((how, name, 0.0, 0.0, 0.0, 0.0, 0.0))
            for step in range(found.effect.shape[1]):
                mean = interval(found.effect[:, step], cluster)
                rows.append((how, name, (step + 1) / len(blocks), *mean, float(found.path[:, step].mean())))
    return pd.DataFrame(rows, columns=["replace", "order", "removed", "effect", "low", "high", "path"])
