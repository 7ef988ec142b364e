"""The public names, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tsattn


def run(code: str) -> str:
    """Standard output of a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_loads_neither_torch_nor_pandas():
    code = (
        "import sys, tsattn; print(sorted({'torch', 'pandas', 'numpy', 'sklearn', 'jsonargparse'} & set(sys.modules)))"
    )
    assert run(code).strip() == "[]"


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from tsattn.cli import main; main(['--help']);"
        "print(sorted({'torch', 'pandas', 'jsonargparse'} & set(sys.modules)))"
    )
    assert run(code).splitlines()[-1] == "[]"


def test_all_is_sorted_complete_and_resolves():
    assert tsattn.__all__ == sorted(
        tsattn.__all__, key=lambda name: (not name[0].isupper(), name.startswith("__") is False, name)
    )
    assert set(tsattn.__all__) == {*tsattn._HOME, "__version__"}
    for name in tsattn.__all__:
        assert getattr(tsattn, name) is not None
        assert name in dir(tsattn)


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Forcaster'"):
        _ = tsattn.Forcaster
