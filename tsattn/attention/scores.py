"""Score functions: how well a query and a key match. Pure functions, and layers that own their parameters.

Legend: ``J`` query tokens, ``I`` key tokens, ``D`` width of a query, ``E`` width of a key, ``A`` width of the additive
score; ``...`` batch dimensions, the last of which is the head where there are several.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from tsattn.errors import ConfigError, unknown_name
from tsattn.layers.norm import full_precision

LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 1.0, 100.0
_SHORT = 1e-3  # shorter vectors keep their length: the slope of their direction would overflow half precision


def dot(query: Tensor, key: Tensor) -> Tensor:
    """``q . k``: ``[..., J, D]``, ``[..., I, D] -> [..., J, I]``. Luong, Pham and Manning, 2015, equation 8 ("dot").

    Full precision throughout, as inside the fused kernel: a score of 50 rounded to bfloat16 moves a weight by a tenth.
    """
    with torch.autocast(query.device.type, enabled=False):
        return full_precision(query) @ full_precision(key).transpose(-2, -1)


def scaled_dot(query: Tensor, key: Tensor, scale: float | None = None) -> Tensor:
    """``q . k * scale`` with ``scale = 1 / sqrt(D)`` unless given. Vaswani et al., 2017, equation 1."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return dot(query, key) * scale  # as the fused kernel: scaled first, scores of 100 would differ from its by 1e-5


def general(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """``q W k`` with ``weight [..., D, E]``, ``key [..., I, E] -> [..., J, I]``. Luong et al., 2015, equation 8."""
    return dot(query @ weight, key)


def additive(query: Tensor, key: Tensor, query_weight: Tensor, key_weight: Tensor, vector: Tensor) -> Tensor:
    """``v . tanh(q Wq + k Wk)``: a small network per pair. Bahdanau, Cho and Bengio, 2014, appendix A.1.2.

    ``query_weight [..., D, A]``, ``key_weight [..., E, A]``, ``vector [..., A] -> [..., J, I]``. The pairs take
    ``J * I * A`` numbers at once: this score has no fused kernel.
    """
    pairs = (query @ query_weight).unsqueeze(-2) + (key @ key_weight).unsqueeze(-3)  # [..., J, I, A]
    return full_precision((pairs.tanh() @ vector[..., None, :, None]).squeeze(-1))


def location(query: Tensor, weight: Tensor) -> Tensor:
    """``q W``: the query alone chooses positions, ``weight [..., D, I] -> [..., J, I]``. Luong et al., 2015, eq. 9."""
    return full_precision(query @ weight)


def cosine(query: Tensor, key: Tensor, temperature: Tensor | float) -> Tensor:
    """``temperature * cos(q, k)``: scores stay between plus and minus ``temperature``, whatever the inputs are.

    Henry et al., "Query-key normalization for transformers", 2020; a zero vector scores 0 with every key.
    """
    return dot(*_unit(query, key, temperature))


def _unit(query: Tensor, key: Tensor, temperature: Tensor | float) -> tuple[Tensor, Tensor]:
    """Unit vectors, the queries times the temperature; the squares in full precision, the result as it came."""
    long = functional.normalize(full_precision(query), dim=-1, eps=_SHORT) * temperature
    return long.to(query.dtype), functional.normalize(full_precision(key), dim=-1, eps=_SHORT).to(key.dtype)


class Score(nn.Module):
    """A score with parameters: ``forward(query, key) -> [..., J, I]`` float32.

    Where the score is a dot product of something, ``factors`` gives the two sides, and the fused kernel is used.
    """

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor] | None:
        """``(q', k')`` with ``score = q' . k'``, or None."""
        return None


class GeneralScore(Score):
    """``general`` with a learnt matrix, one for each head."""

    def __init__(self, query_width: int, key_width: int, heads: int | None = None) -> None:
        """``heads`` None: no head dimension."""
        super().__init__()
        self.weight = nn.Parameter(_uniform(_shape(heads, query_width, key_width), query_width))

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """``(q W, k)``."""
        return query @ self.weight, key

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """``[..., J, D]``, ``[..., I, E] -> [..., J, I]``."""
        return general(query, key, self.weight)


class AdditiveScore(Score):
    """``additive`` with learnt parameters, one set for each head."""

    def __init__(self, query_width: int, key_width: int, width: int, heads: int | None = None) -> None:
        """``width`` is A; ``heads`` None: no head dimension."""
        super().__init__()
        self.query_weight = nn.Parameter(_uniform(_shape(heads, query_width, width), query_width))
        self.key_weight = nn.Parameter(_uniform(_shape(heads, key_width, width), key_width))
        self.vector = nn.Parameter(_uniform(_shape(heads, width), width))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """``[..., J, D]``, ``[..., I, E] -> [..., J, I]``."""
        return additive(query, key, self.query_weight, self.key_weight, self.vector)


class LocationScore(Score):
    """``location`` for a fixed number of keys, with learnt parameters, one set for each head."""

    def __init__(self, query_width: int, keys: int, heads: int | None = None) -> None:
        """``keys`` is I; ``heads`` None: no head dimension."""
        super().__init__()
        self.weight = nn.Parameter(_uniform(_shape(heads, query_width, keys), query_width))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """``[..., J, D] -> [..., J, I]``; raises ConfigError unless there are exactly ``keys`` keys."""
        if key.shape[-2] != self.weight.shape[-1]:
            raise ConfigError(
                f"The location score was built for {self.weight.shape[-1]} keys and was given {key.shape[-2]}: it "
                f"knows positions only. Pad the keys and mask the padding."
            )
        return location(query, self.weight)


class CosineScore(Score):
    """``cosine`` with a learnt temperature for each head, kept between 1 and 100, so that no head can saturate."""

    def __init__(self, heads: int | None = None, start: float = 10.0) -> None:
        """``start``: temperature before training."""
        super().__init__()
        self.log_temperature = nn.Parameter(torch.full(_shape(heads, 1, 1), math.log(start)))

    @property
    def temperature(self) -> Tensor:
        """``[heads, 1, 1]``, clamped."""
        return self.log_temperature.clamp(math.log(LOWEST_TEMPERATURE), math.log(HIGHEST_TEMPERATURE)).exp()

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Unit queries times the temperature, unit keys."""
        return _unit(query, key, self.temperature)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """``[..., J, D]``, ``[..., I, D] -> [..., J, I]``."""
        return cosine(query, key, self.temperature)


PLAIN_SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"dot": dot, "scaled_dot": scaled_dot}
SCORES = ("dot", "scaled_dot", "general", "additive", "location", "cosine")


def build_score(
    name: str, query_width: int, key_width: int, *, heads: int | None = None, keys: int | None = None
) -> str | Score:
    """The score called ``name``, ready for ``attend``: a layer, or the name itself where nothing is learnt.

    ``keys`` is needed by "location" alone. Raises ConfigError for an unknown name, or widths the score cannot compare.
    """
    if name not in SCORES:
        raise unknown_name("attention score", name, SCORES)
    check_widths(name, query_width, key_width)
    if name == "general":
        return GeneralScore(query_width, key_width, heads)
    if name == "additive":
        return AdditiveScore(query_width, key_width, key_width, heads)
    if name == "cosine":
        return CosineScore(heads)
    if name == "location":
        if keys is None:
            raise ConfigError("The location score needs the number of keys.")
        return LocationScore(query_width, keys, heads)
    return name


def check_widths(name: str, query_width: int, key_width: int) -> None:
    """Raises ConfigError when the score called ``name`` cannot compare vectors of these widths."""
    if name in ("dot", "scaled_dot", "cosine") and query_width != key_width:
        raise ConfigError(
            f"The {name} score compares vectors of one width; queries have {query_width} and keys {key_width}. "
            f"Use 'general' or 'additive'."
        )


def _shape(heads: int | None, *sizes: int) -> tuple[int, ...]:
    return sizes if heads is None else (heads, *sizes)


def _uniform(shape: tuple[int, ...], fan_in: int) -> Tensor:
    """As a linear layer starts: uniform within one over the square root of its inputs."""
    bound = fan_in**-0.5
    return torch.empty(shape).uniform_(-bound, bound)
