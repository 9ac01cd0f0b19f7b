"""The notebooks of examples/notebooks run as they are, and show what they say they show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import forked_programs

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
RUN = """
import json, os, sys
from pathlib import Path
from tests.support import notebook_cells
for name in sys.argv[1:]:
    Path(Path(name).stem).mkdir()
    os.chdir(Path(name).stem)
    found = notebook_cells.run(json.loads(Path(name).read_text(encoding="utf-8")), Path(name).name)
    print(json.dumps([[sorted([output["output_type"], *output.get("data", ())]) for output in cell] for cell in found]))
    os.chdir("..")
"""


def kinds(notebook: Path) -> list[list[list[str]]]:
    """What kinds of output every code cell of a file shows."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    return [[sorted([output["output_type"], *output.get("data", ())]) for output in cell["outputs"]] for cell in code]


def test_every_notebook_runs(tmp_path: Path) -> None:
    """In one process, one after the other, each in a folder of its own; cells show what they show in the file, numbers aside."""
    assert len(NOTEBOOKS) >= 4
    done = forked_programs.finished(RUN, *NOTEBOOKS, folder=tmp_path, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [kinds(notebook) for notebook in NOTEBOOKS]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_names_no_folder_of_whoever_ran_it(notebook: Path) -> None:
    text = notebook.read_text(encoding="utf-8")
    assert json.loads(text)["nbformat"] == 4
    for place in ("/tmp/", "/home/", "/root/", "PosixPath"):
        assert place not in text


def test_a_cell_that_fails_is_heard(tmp_path: Path) -> None:
    broken = {"cells": [{"cell_type": "code", "source": ["fine = 1"], "outputs": []}]}
    broken["cells"].append({"cell_type": "code", "source": ["assert 1 == 2, 'the last cell'"], "outputs": []})
    (tmp_path / "broken.ipynb").write_text(json.dumps(broken), encoding="utf-8")
    done = forked_programs.finished(RUN, tmp_path / "broken.ipynb", folder=tmp_path, HOME=str(tmp_path))
    assert done.returncode == 1
    assert "the last cell" in done.stderr
