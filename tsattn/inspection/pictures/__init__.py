"""Pictures of attention maps, one file per kind. ``AttentionMap.plot(kind)`` finds them by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tsattn.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from tsattn.inspection.maps import AttentionMap

# kind -> module and function; a kind is imported when it is drawn
KINDS = {
    "strip": ("tsattn.inspection.plots", "plot_strip"),
    "heatmap": ("tsattn.inspection.pictures.heatmap", "plot_heatmap"),
    "lags": ("tsattn.inspection.pictures.lags", "plot_lags"),
    "calendar": ("tsattn.inspection.pictures.calendar", "plot_calendar"),
    "heads": ("tsattn.inspection.pictures.heads", "plot_heads"),
    "variables": ("tsattn.inspection.pictures.variables", "plot_variables"),
    "compare": ("tsattn.inspection.pictures.compare", "plot_compare"),
}
INTERACTIVE = {
    "strip": ("tsattn.inspection.pictures.interactive", "strip"),
    "heatmap": ("tsattn.inspection.pictures.interactive", "heatmap"),
}


def draw(attention: AttentionMap, kind: str, *, interactive: bool = False, **options: Any) -> Any:
    """The picture ``kind`` of a map, with the options of its function; ``interactive``: with plotly.

    Raises ConfigError for an unknown kind and for an option the picture does not have.
    """
    if kind not in KINDS:
        raise unknown_name("kind of picture", kind, KINDS)
    if interactive and kind not in INTERACTIVE:
        raise ConfigError(f"The picture {kind!r} is not interactive; {' and '.join(INTERACTIVE)} are.")
    module, name = (INTERACTIVE if interactive else KINDS)[kind]
    function: Callable[..., Any] = getattr(import_module(module), name)
    known = [name for name in inspect.signature(function).parameters if name != "attention"]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of the picture {kind!r}", option, known)
    return function(attention, **options)
