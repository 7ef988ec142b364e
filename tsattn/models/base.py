"""What every network is given, what it returns, and how an attention record names its axes.

A network is a plain ``torch.nn.Module``::

    class MyNetwork(Network):
        uses = frozenset({"known"})                      # covariate roles it reads; others are refused by name
        def __init__(self, spec: InputSpec, *, width: int = 32): ...
        def forward(self, batch: Batch, need_weights: bool = False) -> Output: ...

Legend as in ``tsattn.data.batch``; here also ``Q`` quantile levels, ``N`` heads, ``J`` query tokens, ``I`` key tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tsattn.data.batch import Batch
from tsattn.errors import ConfigError
from tsattn.heads import check_levels


@dataclass(frozen=True)
class InputSpec:
    """Sizes of the windows a network will be given; the first argument of every network.

    The category tuples hold the number of codes of each categorical column, the "unknown" code 0 included.
    """

    horizon: int  # H, steps
    context: int  # L, steps
    targets: int = 1  # C
    past: int = 0  # Kp
    known: int = 0  # Kk
    static: int = 0  # Ks
    past_categories: tuple[int, ...] = ()
    known_categories: tuple[int, ...] = ()
    static_categories: tuple[int, ...] = ()
    season: int = 1  # steps in one season, for the seasonal baselines
    quantiles: tuple[float, ...] = ()  # levels in (0, 1), kept sorted; empty for a point forecast

    def __post_init__(self) -> None:
        """Sort the levels; raises ConfigError for a level outside (0, 1) or a size below 1."""
        for name in ("horizon", "context", "targets", "season"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ConfigError(f"{name} must be a whole number of at least 1, found {value!r}.")
        object.__setattr__(self, "quantiles", check_levels(self.quantiles))

    def example(self, windows: int = 2) -> Batch:
        """A batch of zeros with every step observed, of exactly the shapes and dtypes this spec announces."""
        length, both = self.context, self.context + self.horizon
        return Batch(
            past=torch.zeros(windows, length, self.targets),
            past_observed=torch.ones(windows, length, self.targets, dtype=torch.bool),
            future=torch.zeros(windows, self.horizon, self.targets),
            future_observed=torch.ones(windows, self.horizon, self.targets, dtype=torch.bool),
            past_cov=torch.zeros(windows, length, self.past),
            past_codes=torch.zeros(windows, length, len(self.past_categories), dtype=torch.int64),
            known=torch.zeros(windows, both, self.known),
            known_codes=torch.zeros(windows, both, len(self.known_categories), dtype=torch.int64),
            static=torch.zeros(windows, self.static),
            static_codes=torch.zeros(windows, len(self.static_categories), dtype=torch.int64),
            scale=torch.ones(windows, self.targets),
            series=torch.zeros(windows, dtype=torch.int64),
            origin=torch.full((windows,), length, dtype=torch.int64),
        )

    def roles(self) -> set[str]:
        """The covariate roles this spec carries: a subset of ``past``, ``known``, ``static``."""
        sizes = {
            "past": self.past + len(self.past_categories),
            "known": self.known + len(self.known_categories),
            "static": self.static + len(self.static_categories),
        }
        return {role for role, size in sizes.items() if size}


@dataclass(frozen=True)
class Axis:
    """What the tokens along one axis of an attention map stand for.

    ``start`` and ``end`` give the support of each token in steps of the window, end exclusive. Key axes count from the
    first past step (0) to the origin (``L``); tokens of left padding may start below 0. Axes of kind "horizon" count
    from the first forecast step (0) to ``H``; as keys they are forecast steps that were read through what is known of
    them. A time axis may hold both: its last ``ahead`` tokens are forecast steps, counted on from ``L``. A token that
    covers no step (a null key) starts where it ends. Variables cover the part of the window they were read in and have
    ``names``: the role and the position in it, such as "target 0", "past 1", "known 0" or "static 2" (numeric columns
    of a role first, then categorical ones); "target" alone is the target that the map belongs to.
    """

    kind: Literal["time", "patch", "variable", "horizon"]
    start: tuple[int, ...]
    end: tuple[int, ...]
    names: tuple[str, ...] = ()
    ahead: int = 0

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.start)


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """Attention weights as the network used them (before dropout), with named axes.

    ``weights`` is ``[B, C, N, J, I]``: window, target, head, query token, key token; the second dimension is 1 where
    all targets share one attention. Every row sums to 1 over the keys, or to 0 where nothing could be attended. A key
    token without an observed step has weight exactly 0.
    """

    weights: Tensor
    query: Axis
    key: Axis
    layer: str = "attention"


@dataclass(frozen=True, eq=False)
class Contributions:
    """An exact split of the point forecast, in data units.

    ``history.sum(-1) + past.sum((-1, -2)) + known + level == point`` for every window, target and horizon step.
    """

    history: Tensor  # [B, C, H, L]: what each past step of the series itself added
    past: Tensor  # [B, C, H, L, Kp]: what each past step of each past-only covariate added (categories embedded)
    known: Tensor  # [B, C, H]: the additive term of known and static covariates; 0 without them
    level: Tensor  # [B, C, H]: the level of the window, put back by undoing the normalisation

    def total(self) -> Tensor:
        """The sum of all parts, ``[B, H, C]``: the point forecast."""
        parts = self.history.sum(-1) + self.past.sum((-1, -2)) + self.known + self.level
        return parts.transpose(1, 2)


@dataclass(frozen=True, eq=False)
class TokenContributions:
    """What the last, linear layer read from each key token, signed, in data units.

    ``tokens.sum(-1) + rest == point``. A token may have seen other tokens before: unlike ``Contributions`` this does
    not say which past step a number came from.
    """

    tokens: Tensor  # [B, C, H, I]
    rest: Tensor  # [B, C, H]: bias and level
    key: Axis


@dataclass(frozen=True, eq=False)
class Output:
    """What a network returns, in data units."""

    point: Tensor  # [B, H, C]: the mean (output "point") or the median (output "quantiles")
    quantiles: Tensor | None = None  # [B, H, C, Q], non-decreasing along Q
    attention: tuple[AttentionRecord, ...] = ()  # empty unless asked for, or for a model without attention
    contributions: Contributions | None = None  # only when asked for, and only by models whose split is exact
    token_contributions: TokenContributions | None = None  # only when asked for, by models with a linear last layer


class Network(nn.Module):
    """Base of the networks: keeps the spec and refuses covariates the model would ignore."""

    uses: ClassVar[frozenset[str]] = frozenset()  # subset of {"past", "known", "static"}
    has_attention: bool = False  # of the class with its default options; an instance may say otherwise
    trainable: ClassVar[bool] = True
    progress: float = 0.0  # share of the training that is done, from 0 to 1, set by the training shell

    def __init__(self, spec: InputSpec) -> None:
        """Keep ``spec``; raises ConfigError when it carries a covariate role this model does not read."""
        super().__init__()
        unused = sorted(spec.roles() - self.uses)
        if unused:
            raise ConfigError(
                f"{type(self).__name__} does not read {' or '.join(unused)} covariates, so they would be ignored in "
                f"silence. Leave them out, or choose a model that reads them (lucid does)."
            )
        self.spec = spec

    def forward(self, batch: Batch, need_weights: bool = False) -> Output:
        """Forecast ``batch``; with ``need_weights`` also fill ``attention`` (and ``contributions`` where exact)."""
        raise NotImplementedError


def check_sizes(**sizes: int) -> None:
    """Raises ConfigError unless every size is a whole number of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigError(f"{name} is a whole number of at least 1; got {size!r}.")


def check_shares(**shares: float) -> None:
    """Raises ConfigError unless every share (a dropout rate) is from 0 up to, but not including, 1."""
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0.0 <= share < 1.0:
            raise ConfigError(f"{name} is a share from 0 up to, but not including, 1; got {share!r}.")
