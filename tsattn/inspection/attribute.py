"""Attributions: what the forecast took from where, in the container of the attention maps.

Legend: ``W`` windows, ``B`` those of a batch, ``C`` targets, ``N`` heads, ``H`` horizon, ``L`` context; ``J`` query
tokens, ``I`` key tokens. ``y`` is the point forecast in data units.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tsattn.errors import unknown_name
from tsattn.inference import Record
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.options import Attribution, Options

if TYPE_CHECKING:
    from tsattn.forecaster import Forecaster
    from tsattn.inspection.probe import Probe

METHODS = (
    "attention",
    "value_norm",
    "contribution",
    "knockout",
    "value_zeroing",
    "attention_x_grad",
    "rollout",
    "integrated_gradients",
    "occlusion",
)


def attribute(
    forecaster: Forecaster,
    data: Any = None,
    method: str = "value_norm",
    *,
    known: Any = None,
    windows: int | None = None,
    step: int | None = None,
    layer: int | str | None = None,
    variable: str | None = None,
    statistics: str = "fixed",
    attention: str = "free",
    replace: str = "mean",
    block: int | str = "auto",
    steps: int = 32,
    seed: int = 0,
) -> AttentionMap:
    """Attribute the point forecast of a fitted model to the past steps (or variables) it read.

    ====================== ============================================================================ ======== =======
    method                 what a number says                                                           signed   unit
    ====================== ============================================================================ ======== =======
    "attention"            the weights themselves, every layer                                          no       share
    "value_norm"           weight times the length of what it brings in (Kobayashi et al., 2020)        no       share
    "contribution"         what was added to ``y``; exact: lucid by step, patchtst's last layer by patch yes      data
    "knockout"             ``y`` minus ``y`` with the key hidden, the others taking over                yes      data
    "value_zeroing"        ``y`` minus ``y`` with the key's value at zero (Mohebbi et al., 2023)        yes      data
    "attention_x_grad"     weight times ``dy / dweight`` (Chefer et al., 2021, the sign kept)           yes      data
    "rollout"              weights through the encoder's layers (Abnar and Zuidema, 2020)               no       share
    "integrated_gradients" gradient along the line from the mean (Sundararajan et al., 2017)            yes      data
    "occlusion"            ``y`` minus ``y`` with a stretch of the past replaced (Zeiler, Fergus, 2014) yes      data
    ====================== ============================================================================ ======== =======

    The first seven look into the attention; the last two ask what the forecast depends on, whatever the network.

    Args:
        forecaster: A fitted forecaster. It is not changed.
        data: Table or path; None takes the series it was trained on.
        method: One of the above.
        known: The known covariates over the horizon, as in ``predict``.
        windows: None attributes the forecasts ``predict`` would make; a number takes that many past origins of each
            series, ``step`` apart, as ``backtest`` does.
        step: Steps between origins.
        layer: Layer to look into, by name or position. None takes the last one from forecast steps to past steps; where
            there is none, all layers with the last one's keys are changed together ("knockout", "value_zeroing").
        variable: For "contribution" and "integrated_gradients": the part of one column alone (the target, or a
            past-only covariate); None adds all up.
        statistics: For "integrated_gradients" and "occlusion": "fixed" keeps the level and unit by which the network
            normalised the window; "recomputed" lets them change with the step that is taken out, so that every output
            depends on every step. The difference is what a step does through level and unit.
        attention: For "occlusion": "frozen" keeps the attention weights of the full window.
        replace: For "occlusion": one of ``tsattn.inspection.replace.REPLACEMENTS``.
        block: For "occlusion": steps taken out together; "auto" is a patch of the attention, else a quarter season.
        steps: For "integrated_gradients": points along the line.
        seed: For random replacements.

    Returns:
        A map with the axes of what was asked: a key token per patch, step, stretch or variable.

    Raises:
        ConfigError: an unknown method or option, or one this model cannot answer; the message names what can.
    """
    from tsattn.inspection.probe import Probe

    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    options = Options(layer, variable, statistics, attention, replace, block, steps, seed)
    return attribute_probe(Probe.of(forecaster, data, known=known, windows=windows, step=step), method, options)


def attribute_probe(probe: Probe, method: str, options: Options) -> AttentionMap:
    """``attribute`` for windows that are chosen already."""
    from tsattn.inspection import gradients, interventions, reading

    functions: dict[str, Callable[[Probe, Options], Attribution]] = {
        "value_norm": reading.value_norm,
        "contribution": reading.contribution,
        "rollout": reading.rollout,
        "knockout": interventions.knockout,
        "value_zeroing": interventions.value_zeroing,
        "occlusion": interventions.occlusion,
        "attention_x_grad": gradients.attention_x_grad,
        "integrated_gradients": gradients.integrated_gradients,
    }
    if method == "attention":
        windows = reading.windows_with(probe, contributions=False)
        if not windows.attention:
            probe.layers()  # raises with the reason
        if options.layer is not None:
            position = AttentionMap(probe.panel, windows).layer_position(options.layer)
            windows = windows.with_attention(windows.attention[position])
        return AttentionMap(probe.panel, windows, probe.levels, probe.model)
    found = functions[method](probe, options)
    record = Record(found.weights.astype(np.float32), found.query, found.key, found.layer)
    return AttentionMap(
        probe.panel,
        probe.windows.with_attention(record),
        probe.levels,
        probe.model,
        method=method,
        signed=found.signed,
        unit=found.unit,
        notes=found.notes,
    )
