"""Run the notebooks: on a small budget to see that they work, or in full to write their pictures again.

    python scripts/run_notebooks.py                        # all, small budget, in a folder that is thrown away
    python scripts/run_notebooks.py notebooks/01_*.ipynb   # one
    python scripts/run_notebooks.py --write                # full budget, results written into the notebooks

A notebook reads ``TSATTN_NOTEBOOK_BUDGET`` (small or full) to train less. Exits with 1, naming notebook and cell, when
one fails or prints a warning.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
_SECONDS = 900  # for one cell


def run(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of a fresh run in ``folder``. Raises CellExecutionError where a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=_SECONDS, startup_timeout=_SECONDS, kernel_name="python3")
    client.execute(cwd=str(folder))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell ran: a difference in every line that says nothing
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def complaints(notebook: nbformat.NotebookNode) -> list[str]:
    """What a cell wrote to stderr: a reader should see none of it."""
    return [
        f"cell {number} wrote to stderr: {output['text'].strip()[:500]}"
        for number, cell in enumerate(notebook.cells)
        for output in cell.get("outputs", ())
        if output.get("name") == "stderr"
    ]


def main() -> int:
    """Run what was asked for; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="all in notebooks/ unless given")
    parser.add_argument("--write", action="store_true", help="full budget, and keep the results")
    asked = parser.parse_args()
    os.environ["TSATTN_NOTEBOOK_BUDGET"] = "full" if asked.write else "small"
    os.environ["PYTHONWARNINGS"] = "default"
    failed = 0
    for path in asked.notebooks or sorted(FOLDER.glob("*.ipynb")):
        started = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="notebook"))
        try:
            notebook = run(path, folder)
            found = complaints(notebook)
        except CellExecutionError as error:
            notebook, found = None, [f"{error.ename}: {error.evalue} in\n{error.traceback}"]
        finally:
            shutil.rmtree(folder)
        print(f"{path.name}: {'; '.join(found) or 'ok'}, {time.monotonic() - started:.0f} s", flush=True)
        failed += bool(found)
        if asked.write and notebook is not None and not found:
            nbformat.write(notebook, path)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
