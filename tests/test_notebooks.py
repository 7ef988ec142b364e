"""The notebooks as they are committed: run, in order, without a fault, small enough to open on a code host."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LARGEST = 1 << 20  # bytes


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def cells(request):
    assert request.param.stat().st_size < LARGEST
    return json.loads(request.param.read_text(encoding="utf-8"))["cells"]


def test_every_cell_ran_in_order_without_a_fault(cells):
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert "error" not in kinds
    assert not [output for cell in code for output in cell["outputs"] if output.get("name") == "stderr"]


def test_there_are_prose_and_pictures(cells):
    words = sum(len("".join(cell["source"]).split()) for cell in cells if cell["cell_type"] == "markdown")
    assert words > 200
    assert [o for cell in cells for o in cell.get("outputs", ()) if "image/png" in o.get("data", {})]


def test_nothing_of_the_machine_is_left(cells):
    text = json.dumps([{k: v for k, v in cell.items() if k != "id"} for cell in cells])
    text = re.sub(r'"image/png": "[^"]*"', "", text)
    assert not re.findall(r"/(?:root|home|tmp|work|usr)/", text)
    assert not re.findall(r"Warning", text)


def test_the_readme_lists_them():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert NOTEBOOKS
    assert all(f"notebooks/{path.name}" in text for path in NOTEBOOKS)


def test_links_lead_somewhere():
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        prose = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        for link in re.findall(r"\]\(([^)#]+)\)", prose):
            assert link.startswith("https://") or (path.parent / link).exists(), (path.name, link)
