"""The Python blocks of the README and of each page run as they stand, one after the other, in a folder of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = {page: found for page in PAGES if (found := BLOCK.findall(page.read_text(encoding="utf-8")))}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::pytorch_lightning.utilities.warnings.PossibleUserWarning")
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # Lightning beside a new torch
@pytest.mark.parametrize("page", BLOCKS, ids=lambda page: page.stem)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}  # of the whole page: a later block may use what an earlier one made
    for number, code in enumerate(BLOCKS[page]):
        exec(compile(code, f"{page.name}[{number}]", "exec"), names)


def test_there_are_blocks():
    assert {page.stem for page in BLOCKS} >= {"README", "attention", "lightning", "pictures", "report"}


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
