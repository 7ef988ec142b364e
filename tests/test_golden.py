"""Numbers that must not change: a model saved by the first release, and a forecast recorded once.

The recorded values are the same on every supported pandas (the suite runs on the oldest and the newest). To record them
anew, after a change that is meant to move them: ``python -m tests.test_golden``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import tsattn
from tests.conftest import QUICK, make_waves

FOLDER = Path(__file__).parent / "golden"


def fitted(model: str) -> tsattn.Forecaster:
    """Trained for one epoch on a table with text ids, stamps in a zone, gaps and every covariate role."""
    table = make_waves()
    table["ds"] = table["ds"].dt.tz_localize("UTC").dt.tz_convert("America/New_York")
    settings = {"known": ["calendar.hour"], "past": ["load"], "static": ["kind"]} if model == "lucid" else {}
    forecaster = tsattn.Forecaster(model, horizon=6, context=48, training=QUICK, **settings)
    return forecaster.fit(table)


def test_model_of_the_first_release_still_loads_and_forecasts_the_same():
    forecast = tsattn.Forecaster.load(FOLDER / "first_release").predict().to_frame()
    expected = pd.read_csv(FOLDER / "first_release.csv")
    assert list(forecast["unique_id"]) == list(expected["unique_id"])
    assert [stamp.isoformat() for stamp in forecast["ds"]] == list(expected["ds"])
    for column in ("forecast", "q0.1", "q0.9"):
        np.testing.assert_allclose(forecast[column], expected[column], rtol=1e-4)


def test_training_gives_the_recorded_forecast():
    forecast = fitted("lucid").predict().to_frame()
    expected = pd.read_csv(FOLDER / "trained.csv")
    assert [stamp.isoformat() for stamp in forecast["ds"]] == list(expected["ds"])
    np.testing.assert_allclose(forecast["forecast"], expected["forecast"], rtol=1e-3)


def record() -> None:
    """Write the recorded values (the model of the first release only when there is none)."""
    FOLDER.mkdir(exist_ok=True)
    model = fitted("lucid")
    written = {"trained": model.predict().to_frame()}
    if not (FOLDER / "first_release").exists():
        model.save(FOLDER / "first_release")
        written["first_release"] = written["trained"]
    for name, frame in written.items():
        frame = frame.copy()
        frame["ds"] = [stamp.isoformat() for stamp in frame["ds"]]
        frame.to_csv(FOLDER / f"{name}.csv", index=False)


if __name__ == "__main__":
    record()
