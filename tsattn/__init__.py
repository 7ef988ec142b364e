"""tsattn: time-series forecasting with attention you can see.

The public names resolve on first use, so that importing tsattn imports neither torch nor pandas.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "AttentionMap": "tsattn.inspection.maps",
    "Backtest": "tsattn.evaluation.backtest",
    "Batch": "tsattn.data.batch",
    "Forecast": "tsattn.forecast",
    "ForecastDataModule": "tsattn.data.datamodule",
    "ForecastModule": "tsattn.training.module",
    "Forecaster": "tsattn.forecaster",
    "InputSpec": "tsattn.models.base",
    "Network": "tsattn.models.base",
    "OnDisk": "tsattn.data.ondisk",
    "Output": "tsattn.models.base",
    "TrainConfig": "tsattn.training.config",
    "TsattnError": "tsattn.errors",
    "TsattnWarning": "tsattn.errors",
    "TuneResult": "tsattn.tuning.result",
    "attention": "tsattn",
    "attribute": "tsattn.inspection.attribute",
    "build": "tsattn.models",
    "check_attention": "tsattn.inspection.trust",
    "diagnose": "tsattn.inspection.diagnose",
    "from_wide": "tsattn.data.table",
    "list_datasets": "tsattn.data.catalog",
    "load_dataset": "tsattn.data.catalog",
    "tune": "tsattn.tuning.run",
}

__all__ = [
    "AttentionMap",
    "Backtest",
    "Batch",
    "Forecast",
    "ForecastDataModule",
    "ForecastModule",
    "Forecaster",
    "InputSpec",
    "Network",
    "OnDisk",
    "Output",
    "TrainConfig",
    "TsattnError",
    "TsattnWarning",
    "TuneResult",
    "__version__",
    "attention",
    "attribute",
    "build",
    "check_attention",
    "diagnose",
    "from_wide",
    "list_datasets",
    "load_dataset",
    "tune",
]

if TYPE_CHECKING:
    from tsattn import attention
    from tsattn.data.batch import Batch
    from tsattn.data.catalog import list_datasets, load_dataset
    from tsattn.data.datamodule import ForecastDataModule
    from tsattn.data.ondisk import OnDisk
    from tsattn.data.table import from_wide
    from tsattn.errors import TsattnError, TsattnWarning
    from tsattn.evaluation.backtest import Backtest
    from tsattn.forecast import Forecast
    from tsattn.forecaster import Forecaster
    from tsattn.inspection.attribute import attribute
    from tsattn.inspection.diagnose import diagnose
    from tsattn.inspection.maps import AttentionMap
    from tsattn.inspection.trust import check_attention
    from tsattn.models import build
    from tsattn.models.base import InputSpec, Network, Output
    from tsattn.training.config import TrainConfig
    from tsattn.training.module import ForecastModule
    from tsattn.tuning.result import TuneResult
    from tsattn.tuning.run import tune


def __getattr__(name: str) -> Any:
    """Import the home of a public name when it is first used."""
    if name in _HOME:
        home = importlib.import_module(f"tsattn.{name}" if _HOME[name] == "tsattn" else _HOME[name])
        value = home if _HOME[name] == "tsattn" else getattr(home, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'tsattn' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Public names, for completion."""
    return sorted({*globals(), *_HOME})
