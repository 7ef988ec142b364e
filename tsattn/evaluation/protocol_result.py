"""What a run under a protocol gives: scores per seed, and their table beside the floors and the published rows."""

from __future__ import annotations

import platform
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tsattn.evaluation.published import Line, PublishedRow, comparison, published_lines

if TYPE_CHECKING:
    from tsattn.evaluation.protocol import Protocol


@dataclass(frozen=True)
class Score:
    """One mean over windows, horizon and channels, on standardised values."""

    mse: float
    mae: float


@dataclass(frozen=True)
class SeedResult:
    """One training run. Validation and test scores are of the same weights: those of the best validation."""

    seed: int
    val_mse: float
    mse: float
    mae: float
    seconds: float  # training
    test_seconds: float  # scoring all test windows
    epochs: int
    best_epoch: int | None  # from 0
    parameters: int

    def scores(self, part: str) -> str:
        """The scores in words, for the "test" or the "validation" part."""
        scored = f"{part} MSE {self.mse:.4f}, MAE {self.mae:.4f}"
        return scored if part == "validation" else f"validation MSE {self.val_mse:.4f}, {scored}"


@dataclass(frozen=True)
class ProtocolResult:
    """Scores of a model under a protocol, one per seed, with what is needed to read and to repeat them."""

    protocol: Protocol
    model: str
    horizon: int
    context: int
    options: dict[str, Any]
    training: dict[str, Any]
    chosen_by: str  # loss whose best validation chose the weights
    seeds: tuple[SeedResult, ...]
    floors: dict[str, Score]
    published: tuple[PublishedRow, ...]
    part: str  # what was scored: "test", or "validation" with nothing of the test read
    scored_windows: int
    versions: dict[str, str]
    device: str
    date: str  # ISO

    def mean(self, name: str) -> float:
        """Mean over the seeds of a field of :class:`SeedResult`."""
        return statistics.fmean(getattr(result, name) for result in self.seeds)

    def spread(self, name: str) -> float | None:
        """Standard deviation over the seeds (ddof 1); None with a single seed."""
        values = [getattr(result, name) for result in self.seeds]
        return statistics.stdev(values) if len(values) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        names = ("val_mse", "mse", "mae", "seconds")
        return {
            **asdict(self),
            "mean": {name: self.mean(name) for name in names},
            "spread": {name: self.spread(name) for name in names},
        }

    def __str__(self) -> str:
        """Our scores beside the floors and the published rows, then every seed."""
        rules = self.protocol
        ours = self._line(self.model, self.context, self.mean("mse"), self.mean("mae"), self._note(), spread=True)
        floors = [self._floor(name, score) for name, score in self.floors.items()]
        seeds = [
            f"seed {r.seed}: {r.scores(self.part)}; {r.epochs} epochs, {r.parameters} parameters, "
            f"trained in {r.seconds:.1f} s, scored in {r.test_seconds:.1f} s"
            for r in self.seeds
        ]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return "\n".join(
            [
                f"{rules.name}, horizon {self.horizon}: {self.scored_windows} {self.part} windows, "
                f"{rules.channels} channels, standardised values",
                f"rows: {rules.train} training, {rules.validation} validation, {rules.test} test; stride 1; "
                f"weights of the best validation {self.chosen_by.upper()}",
                "",
                comparison([ours, *floors, *published_lines(self.published)]),
                "",
                *seeds,
                f"{self.date}, {self.device}, {versions}",
            ]
        )

    def _line(self, model: str, context: int, mse: float, mae: float, note: str, spread: bool = False) -> Line:
        texts = {}
        for name, value in (("mse", mse), ("mae", mae)):
            deviation = self.spread(name) if spread else None
            texts[name] = f"{value:.3f}" if deviation is None else f"{value:.3f} ± {deviation:.3f}"
        return Line(model, str(context), texts["mse"], texts["mae"], "all", note, order=mse, ours=True)

    def _floor(self, name: str, score: Score) -> Line:
        context = self.protocol.season if name == "seasonal_naive" else 1
        note = f"season {context}" if name == "seasonal_naive" else "last value"
        return self._line(name, context, score.mse, score.mae, note)

    def _note(self) -> str:
        count = len(self.seeds)
        if not self.seeds[0].parameters:
            return "nothing to train"
        return "1 seed" if count == 1 else f"mean of {count} seeds ± deviation"


def versions() -> dict[str, str]:
    """Versions of what a score depends on."""
    from importlib.metadata import version

    import tsattn

    packages = ("torch", "pytorch-lightning", "numpy", "scikit-learn")
    return {"tsattn": tsattn.__version__, "python": platform.python_version(), **{p: version(p) for p in packages}}


def device_name(accelerator: str) -> str:
    """The device a model is trained and scored on, in words."""
    import torch

    from tsattn.inference import best_device

    if best_device(accelerator).type == "cuda":
        return torch.cuda.get_device_name(0)
    return f"CPU ({platform.machine()}, threads: {torch.get_num_threads()})"
