"""The command ``benchmark``: a model under the published rules of a data set, whichever they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tsattn.errors import ConfigError
from tsattn.evaluation.m4 import find_m4, run_m4
from tsattn.evaluation.protocol import find_protocol, run_protocol
from tsattn.writing import write_whole


def benchmark(
    dataset: str,
    *,
    model: str = "lucid",
    horizon: int | None = None,
    context: int | None = None,
    seeds: int = 3,
    options: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    part: str = "test",
    data_dir: str | None = None,
    out: str | None = None,
) -> None:
    """Score a model under the published rules of a benchmark, beside the published scores and the naive forecasts.

    Args:
        dataset: ETTh1, ETTh2, ETTm1, ETTm2, exchange, illness, weather, m4_hourly or m4_weekly; case does not matter.
        model: Name of a model.
        horizon: Steps to forecast: 96, 192, 336 or 720; for illness 24, 36, 48 or 60. M4 fixes it: leave it out.
        context: Past steps the model reads; unset 512 (illness 104, m4_hourly 336, m4_weekly 104).
        seeds: Number of training runs, with the seeds 0, 1, ...
        options: Keywords of the model.
        training: Fields of the training settings, such as epochs and batch_size.
        part: "validation" scores the validation part alone, for choosing settings without a look at the test.
        data_dir: Folder with the files of the data set; unset looks into TSATTN_DATA and the cache, then fetches it.
        out: JSON file to write.
    """
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, found {seeds}.")
    file = None if out is None else Path(out).expanduser()
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise ConfigError(f"out names {out!r}, which is not a file in an existing folder.")
    common: dict[str, Any] = {
        "model": model,
        "seeds": range(seeds),
        "options": options,
        "training": training,
        "part": part,
        "data_dir": data_dir,
    }
    rules = find_m4(dataset)
    if rules is not None:
        if horizon not in (None, rules.horizon):
            raise ConfigError(f"The horizon of {rules.name} is {rules.horizon} steps, by its rules; found {horizon!r}.")
        reach = context or (336 if rules.name == "m4_hourly" else 104)
        result: Any = run_m4(rules.name, context=reach, **common)
    else:
        protocol = find_protocol(dataset)
        if horizon is None:
            raise ConfigError(f"horizon is missing: {protocol.name} is published for {protocol.horizons}.")
        reach = context or (104 if protocol.name == "illness" else 512)
        result = run_protocol(protocol.name, horizon=horizon, context=reach, **common)
    print(result)
    if file is not None:
        write_whole(file, (json.dumps(result.to_dict(), indent=2, default=str) + "\n").encode())
