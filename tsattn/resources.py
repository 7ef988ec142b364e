"""Where the data cards, the shipped data, the run configs and the cache are.

In a wheel they are inside the package (``tsattn/_resources/<kind>``). In a checkout or an editable install they are
at the top of the repository (``<repo>/<kind>``). Imports the standard library only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tsattn.errors import TsattnError, unknown_name

KINDS = ("configs", "datasets")


def resource_path(kind: str) -> Path:
    """The folder that holds ``kind`` (``"datasets"`` or ``"configs"``).

    Raises:
        ConfigError: ``kind`` is neither of the two.
        TsattnError: neither the package nor a checkout has the folder: the installation is incomplete.
    """
    if kind not in KINDS:
        raise unknown_name("resource kind", kind, KINDS)
    package = Path(__file__).resolve().parent
    packaged = package / "_resources" / kind
    if packaged.is_dir():
        return packaged
    checkout = package.parent
    # Beside an installed package, a folder called "datasets" would be Hugging Face's: only a checkout counts.
    if (checkout / "pyproject.toml").is_file() and (checkout / kind).is_dir():
        return checkout / kind
    raise TsattnError(f"The {kind} folder of tsattn is missing (looked in {packaged}). Install tsattn again.")


def cache_dir() -> Path:
    """``TSATTN_CACHE``, or the own cache folder of the platform for tsattn. It need not exist yet."""
    if chosen := os.environ.get("TSATTN_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tsattn"
