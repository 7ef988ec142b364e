"""Named data sets: read the cards in ``datasets/``, find or fetch the files, check them, return a table.

A card (one YAML file) says what a data set is: source, licence, units, roles of the columns, files with checksums.
Two small sets are shipped. The others are looked for in this order: the ``data_dir`` argument, the folder in the
``TSATTN_DATA`` environment variable, the cache (``TSATTN_CACHE``, else the platform's cache folder); then they are
fetched once into the cache. A file whose checksum differs is never used. Importing this module imports neither pandas
nor torch and touches no network.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import yaml

from tsattn.errors import DatasetError, listed, unknown_name, warn
from tsattn.resources import cache_dir, resource_path

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ColumnRoles", "DataFile", "DatasetCard", "dataset_card", "list_datasets", "load_dataset"]

CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class ColumnRoles:
    """Columns of the loaded table by role. ``id`` is None where the table is one series."""

    id: str | None
    time: str
    target: tuple[str, ...]
    known: tuple[str, ...] = ()
    past: tuple[str, ...] = ()
    static: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that has a role, id and time first."""
        first = (self.time,) if self.id is None else (self.id, self.time)
        return first + self.target + self.known + self.past + self.static


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    ``sha256`` holds every accepted checksum (the same rows circulate with Unix and with Windows line ends); empty
    means that none is known. ``also`` holds other names, relative to a folder, under which people keep the file.
    """

    file: str
    url: str | None
    sha256: tuple[str, ...] = ()
    size_bytes: int | None = None
    split: str | None = None
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatasetCard:
    """What a data set is.

    ``format`` is how the files are laid out: ``long`` (a row per series and time step), ``wide`` (one series, a row
    per time step, a column per target) or ``m4`` (a row per series, a column per step; loaded as a long table).
    ``time_type`` is ``datetime`` or ``integer`` (steps 1..n). ``frequency`` is the pandas alias of one step,
    ``season`` the steps in the usual season (1: none). ``rows`` counts the rows of the loaded table and ``series``
    its series; None where not counted. With ``rename_columns`` the names of the card replace those in the file.
    """

    name: str
    title: str
    description: str
    source: str
    licence: str
    format: str
    frequency: str
    season: int
    rows: int | None
    series: int | None
    columns: ColumnRoles
    units: Mapping[str, str]
    files: tuple[DataFile, ...]
    shipped: bool = False
    time_type: str = "datetime"
    time_format: str | None = None
    timezone: str | None = None
    rename_columns: bool = False
    aliases: tuple[str, ...] = ()
    notes: str | None = None
    how: str | None = None


def list_datasets() -> list[DatasetCard]:
    """Every card, shipped sets first, then by name."""
    return sorted(_cards(resource_path("datasets")), key=lambda card: (not card.shipped, card.name.lower()))


def dataset_card(name: str) -> DatasetCard:
    """The card called ``name``. Case, spaces, dashes and underscores do not matter: "M4 Hourly" is "m4_hourly".

    Raises:
        DatasetError: no data set has this name; the message names the nearest.
    """
    cards = list_datasets()
    wanted = _key(str(name))
    for card in cards:
        if wanted in map(_key, (card.name, *card.aliases)):
            return card
    raise unknown_name("data set", name, [card.name for card in cards], DatasetError)


def load_dataset(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """The data set as a table with the columns named in its card, in time order within each series.

    Values keep the units of the card. Missing values and missing rows stay as they are in the source. The time column
    is ``datetime64[ns]``, with the card's time zone if it has one, or ``int64`` steps 1..n (M4). M4 sets get a
    ``split`` column ("train" or "test") beside ``unique_id``, ``ds`` and ``y``.

    Args:
        name: a name from :func:`list_datasets`; case does not matter.
        data_dir: a folder that holds the file of a set which is not shipped.

    Raises:
        DatasetError: unknown name; no such folder; the file is absent and cannot be fetched, has the wrong checksum
            or does not have the columns of the card.
    """
    card = dataset_card(name)
    paths = []
    for item in card.files:  # a plain loop: a comprehension is one more frame in some versions, see stacklevel below
        paths.append(_locate(card, item, data_dir))
    if card.format == "m4":
        return _read_m4(card, paths)
    return _read_table(card, paths[0])


# --- cards ----------------------------------------------------------------------------------------------------------


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@lru_cache(maxsize=4)
def _cards(folder: Path) -> tuple[DatasetCard, ...]:
    return tuple(_read_card(path) for path in sorted(folder.glob("*.yaml")))


def _read_card(path: Path) -> DatasetCard:
    """Parse one card. A missing or an unknown field is a DatasetError that names the file and the field."""
    raw: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        roles: dict[str, Any] = {key: _expand(value) for key, value in raw["columns"].items()}
        files = tuple(_data_file(item) for item in raw["files"])
        raw |= {"columns": ColumnRoles(**roles), "files": files, "aliases": tuple(raw.get("aliases", ()))}
        return DatasetCard(**raw)
    except (KeyError, TypeError) as error:
        known = ", ".join(field.name for field in fields(DatasetCard))
        raise DatasetError(f"Data card {path} is not valid: {error}. Fields of a card: {known}.") from None


def _data_file(raw: dict[str, Any]) -> DataFile:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    if values.get("sha256") is None:
        values["sha256"] = ()
    return DataFile(**values)


def _expand(names: str | list[str] | None) -> str | tuple[str, ...] | None:
    """A list of column names as a tuple, with ``"0..319"`` spelled out as "0", "1", ..., "319"."""
    if not isinstance(names, list):
        return names
    expanded: list[str] = []
    for name in names:
        span = re.fullmatch(r"(\d+)\.\.(\d+)", name)
        expanded += map(str, range(int(span[1]), int(span[2]) + 1)) if span else [name]
    return tuple(expanded)


# --- finding and checking a file ------------------------------------------------------------------------------------


def _locate(card: DatasetCard, item: DataFile, data_dir: str | os.PathLike[str] | None) -> Path:
    """The checked path of one file, fetched if it is nowhere on this machine."""
    cache = cache_dir()
    folders = [resource_path("datasets")] if card.shipped else [*_user_folders(data_dir), cache]
    for folder in folders:
        for name in (item.file, *item.also):
            path = folder / name
            if path.is_file():
                _check_file(card, item, path)
                return path
    return _fetch(card, item, cache)


def _user_folders(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """The folders the user named, which must exist: the argument first, then the environment variable."""
    named = [("data_dir", data_dir), ("TSATTN_DATA", os.environ.get("TSATTN_DATA"))]
    folders = [(origin, Path(value).expanduser()) for origin, value in named if value]
    for origin, folder in folders:
        if not folder.is_dir():
            raise DatasetError(f"{origin} names {str(folder)!r}, which is not a folder on this machine.")
    return [folder for _, folder in folders]


def _check_file(card: DatasetCard, item: DataFile, path: Path) -> None:
    """Raise DatasetError when the checksum differs from every one in the card."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    problem = _checksum_problem(card, item, str(path), digest.hexdigest())
    if problem is None:
        return
    if card.shipped:
        raise DatasetError(f"{problem} Install tsattn again.")
    raise DatasetError(f"{problem} Delete it, or replace it with {item.url or 'the right file'}.")


def _checksum_problem(card: DatasetCard, item: DataFile, where: str, found: str) -> str | None:
    """What is wrong with a checksum, or None. Warns when the card has no checksum to compare with."""
    if not item.sha256:
        warn(f"{where} could not be verified: no checksum of {item.file} is known (its sha256 is {found}).")
        return None
    if found in item.sha256:
        return None
    expected = " or ".join(item.sha256)
    return f"{where} is not the {item.file} of data set {card.name!r}: expected sha256 {expected}, found {found}."


# --- fetching -------------------------------------------------------------------------------------------------------


def _fetch(card: DatasetCard, item: DataFile, cache: Path) -> Path:
    """Download one file into the cache: to a temporary name, checked, then renamed in one step."""
    place = f"Put {item.file} into a folder and name that folder with --data-dir (data_dir) or TSATTN_DATA."
    if item.url is None:
        how = f" {card.how.strip()}" if card.how else ""
        raise DatasetError(
            f"Data set {card.name!r} is not on this machine and has no address to fetch it from.{how} {place}"
        )
    target = cache / item.file
    part = cache / f".{item.file}.{uuid.uuid4().hex}.part"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as out:
            found = _download(item, out)
        problem = _checksum_problem(card, item, item.url, found)
        if problem:
            raise DatasetError(f"{problem} Nothing was kept. {place}")
        os.replace(part, target)
    except (OSError, http.client.HTTPException) as error:
        reason = _reason(error)
        raise DatasetError(
            f"Data set {card.name!r} is not on this machine and {item.url} could not be fetched ({reason}). {place}"
        ) from None
    finally:
        part.unlink(missing_ok=True)
    return target


def _download(item: DataFile, out: IO[bytes]) -> str:
    """Copy the address of ``item`` to ``out``; returns the sha256. An early end of the stream is an OSError."""
    assert item.url is not None
    request = urllib.request.Request(item.url, headers={"User-Agent": "tsattn"})
    digest, done = hashlib.sha256(), 0
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        total = int(response.headers.get("Content-Length") or 0)
        while chunk := response.read(CHUNK_BYTES):
            out.write(chunk)
            digest.update(chunk)
            done += len(chunk)
            _progress(item.file, done, total or item.size_bytes)
    if total and done != total:
        raise OSError(f"the connection ended after {done:,} of {total:,} bytes")
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return digest.hexdigest()


def _progress(name: str, done: int, total: int | None) -> None:
    """One line on standard error, rewritten in place; silent when nobody watches a terminal."""
    if sys.stderr.isatty():
        of = f" of {total / 1e6:.1f} MB" if total else ""
        print(f"\rFetching {name}: {done / 1e6:.1f} MB{of}", end="", file=sys.stderr, flush=True)


def _reason(error: Exception) -> str:
    """The plain cause of a failed fetch, without the wrapping of urllib."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()  # it holds the open connection
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return str(error.reason)
    return str(error) or type(error).__name__


# --- reading --------------------------------------------------------------------------------------------------------


def _read_table(card: DatasetCard, path: Path) -> pd.DataFrame:
    """A ``long`` or ``wide`` file with exactly the columns of the card, the time column parsed."""
    import pandas as pd

    # The header of "weather" circulates with damaged non-ASCII letters; its names are replaced below.
    frame = pd.read_csv(path, encoding_errors="replace")
    expected = list(card.columns.names)
    if card.rename_columns and len(frame.columns) == len(expected):
        frame.columns = pd.Index(expected)
    missing = [name for name in expected if name not in frame.columns]
    if missing:
        raise DatasetError(
            f"{path} is not the table of data set {card.name!r}: column {listed(missing)} is missing; "
            f"it has {listed(frame.columns)}. Replace the file."
        )
    frame = frame[expected]
    time = card.columns.time
    try:
        parsed = pd.to_datetime(frame[time], format=card.time_format, utc=card.timezone is not None)
    except ValueError as error:
        raise DatasetError(f"{path}: column {time!r} holds a time that cannot be read: {error}.") from None
    if card.timezone is not None:
        parsed = parsed.dt.tz_convert(card.timezone)
    return frame.assign(**{time: parsed.dt.as_unit("ns")})


def _read_m4(card: DatasetCard, paths: list[Path]) -> pd.DataFrame:
    """The two M4 files (a row per series) as one table: ``unique_id``, ``ds`` (1..n), ``y``, ``split``.

    Series keep the order of the training file; the test steps of a series follow its training steps.
    """
    import numpy as np
    import pandas as pd

    train, test = (pd.read_csv(path, index_col=0) for path in paths)
    if set(train.index) != set(test.index) or not train.index.is_unique or not test.index.is_unique:
        raise DatasetError(f"{paths[0]} and {paths[1]} do not hold the same series, one row each. Replace both files.")
    test = test.loc[train.index]
    values = np.hstack([train.to_numpy("float64"), test.to_numpy("float64")])
    # Rows of a file have unequal length: the end of a shorter series is filled with empty cells.
    present = ~np.isnan(values)
    row, column = np.nonzero(present)
    step = present.cumsum(axis=1)[row, column]
    split = np.where(column < train.shape[1], "train", "test")
    roles = card.columns
    return pd.DataFrame(
        {
            roles.id: train.index.to_numpy()[row],
            roles.time: step,
            roles.target[0]: values[row, column],
            "split": split,
        }
    ).astype({roles.time: "int64"})
