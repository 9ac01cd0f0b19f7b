"""Processes of pytest-xdist that are forked: what is collected once, what becomes of failures, and of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import HANGS

ROOT = Path(__file__).parents[1]
ONE = """
import os, pathlib
place = pathlib.Path(__file__).parent
def note(what):
    with open(place / what, "a") as file:
        file.write(f"{os.getpid()}\\n")
note("imported")
def test_passes(tmp_path):
    note("ran")
"""
FAILS = (
    ONE
    + """
def test_fails():
    assert os.getpid() == 0
def test_ends_its_process():
    if not (place / "ended").exists():
        note("ended")
        os._exit(3)
"""
)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]")
    command = [
        sys.executable,
        "-m",
        "tests.parallel",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        str(folder),
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANGS, env=environment)


@pytest.mark.slow
def test_files_are_imported_once_and_run_in_processes_of_their_own(tmp_path: Path) -> None:
    """Failures are told, and a process that ends is replaced."""
    (tmp_path / "test_one.py").write_text(FAILS)
    (tmp_path / "test_two.py").write_text(ONE)
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "worker 'gw" in done.stdout
    assert "2 failed, 3 passed" in done.stdout  # the replacement repeats the test that ended its process
    imported, ran = ((tmp_path / name).read_text().split() for name in ("imported", "ran"))
    assert len(imported) == 2
    assert len({*imported}) == 1
    assert len({*ran} - {*imported}) == 2


@pytest.mark.slow
def test_threads_of_modules_are_refused(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    done = run(tmp_path)
    assert done.returncode == 1
    assert "modules of the tests start 1 threads" in done.stderr
