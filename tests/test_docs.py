"""Every Python block of the README and the docs runs as it stands, in order, in a folder of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(page, number, code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytorch_lightning.utilities.warnings.PossibleUserWarning")
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # Lightning beside a new torch
@pytest.mark.parametrize(("page", "number", "code"), BLOCKS)
def test_block_runs(page, number, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, f"{page.name}[{number}]", "exec"), {"__name__": "__main__"})
    assert code


def test_there_are_blocks():
    assert len(BLOCKS) >= 4


def test_the_two_commands_stand_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\npip install -e . && tsattn demo\n" in text
    assert '\npip install -e ".[dev]" && pytest\n' in text


def test_nothing_is_left_to_fill_in():
    assert not [page.name for page in PAGES if "@@" in page.read_text(encoding="utf-8")]


def test_every_config_of_the_readme_exists():
    names = re.findall(r"configs/[\w./]+\.yaml", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert names
    assert all((ROOT / name).exists() for name in names)
