"""Whole commands that meet: many runs of one release at once, and periods that are interrupted again and again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpdist.privacy import keys
from dpdist.privacy.ledger import opened
from tests import HANGS, small


def command(place: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command line with the state folder ``home`` of a place."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows.entry", *arguments],
        cwd=place,
        env={**os.environ, "DPDIST_HOME": str(place / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def at_once(place: Path, runs: int) -> None:
    keys.initialise(place / "home")
    small.write(place / "data")
    started = [command(place, "run", "data/release.yaml") for _ in range(runs)]
    told = [run.communicate(timeout=HANGS) for run in started]
    assert [run.returncode for run in started] == [0] * runs, told
    said = [output for output, _ in told]
    assert sum("charged rho" in output for output in said) == 1, told
    with opened(place / "home") as ledger:
        audit, (budget,) = ledger.verify(), ledger.budgets()
    assert (audit.running, budget.releases) == (0, 1)
    published = small.tree(place / "releases")
    assert command(place, "run", "data/release.yaml").wait(HANGS) == 0
    assert small.tree(place / "releases") == published
    assert not [name for name in os.listdir(place / "releases") if name.startswith(".")]


def test_runs_of_one_release_at_once_charge_once(tmp_path: Path) -> None:
    at_once(tmp_path, 2)


@pytest.mark.slow
def test_sixteen_runs_of_one_release_at_once_charge_once(tmp_path: Path) -> None:
    at_once(tmp_path, 16)
