"""The networks by name."""

from __future__ import annotations

import inspect
from typing import Any

from tsattn.errors import ConfigError, unknown_name
from tsattn.models.base import AttentionRecord, Axis, Contributions, InputSpec, Network, Output, TokenContributions
from tsattn.models.itransformer import ITransformer
from tsattn.models.linear import DLinear, NLinear
from tsattn.models.lucid import Lucid
from tsattn.models.naive import Naive, SeasonalNaive
from tsattn.models.patchtst import PatchTST
from tsattn.models.seq2seq import Seq2Seq
from tsattn.models.tft import TFT
from tsattn.models.transformer import Transformer

MODELS: dict[str, type[Network]] = {
    "dlinear": DLinear,
    "itransformer": ITransformer,
    "lucid": Lucid,
    "naive": Naive,
    "nlinear": NLinear,
    "patchtst": PatchTST,
    "seasonal_naive": SeasonalNaive,
    "seq2seq": Seq2Seq,
    "tft": TFT,
    "transformer": Transformer,
}

__all__ = [
    "MODELS",
    "AttentionRecord",
    "Axis",
    "Contributions",
    "InputSpec",
    "Network",
    "Output",
    "TokenContributions",
    "build",
    "find",
    "options_of",
]


def find(model: str | type[Network]) -> type[Network]:
    """The network class called ``model``, or ``model`` itself when it is a Network. Raises ConfigError."""
    if isinstance(model, str):
        if model not in MODELS:
            raise unknown_name("model", model, MODELS)
        return MODELS[model]
    if isinstance(model, type) and issubclass(model, Network):
        return model
    raise ConfigError(
        f"A model is one of the names {', '.join(sorted(MODELS))} or a subclass of Network; got {model!r}."
    )


def options_of(model: str | type[Network]) -> dict[str, Any]:
    """The options of a network and their defaults, from the signature of its constructor."""
    parameters = list(inspect.signature(find(model).__init__).parameters.values())[2:]  # after self and spec
    named = (p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return {p.name: p.default for p in named}


def build(model: str | type[Network], spec: InputSpec, **options: Any) -> Network:
    """A network for windows of ``spec``. An unknown name or option raises ConfigError with the nearest known one."""
    network = find(model)
    known = options_of(network)
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {model if isinstance(model, str) else network.__name__}", option, known)
    return network(spec, **options)
