"""Builds the shim, starts trials and tells what came of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def shim(folder: Path) -> Path:
    """The preloaded library, compiled; the test is skipped where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux")
    library = folder / "shim.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "shim.c", "-ldl"], check=True)
    return library


def trials(folder: Path, spec: Path, *, power: bool, first: int, count: int) -> list[dict[str, Any]]:
    """Trials with consecutive seeds."""
    environment = {**os.environ, "LD_PRELOAD": str(shim(folder)), "OMP_NUM_THREADS": "1"}
    for name in ("DPDIST_LEDGER", "DPDIST_HOME", "DPDIST_STORE"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "tests.faults.trials", str(spec), str(folder), "power" if power else "kill"]
    done = subprocess.run(
        [*command, str(first), str(count)],
        env=environment,
        cwd=HERE.parent.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


def row(fault: str, outcomes: list[dict[str, Any]]) -> str:
    """A row of the table of faults: what was done, how often, with which seeds, what happened."""
    seeds = [outcome["seed"] for outcome in outcomes]
    found: dict[str, int] = {}
    for outcome in outcomes:
        found[outcome["outcome"]] = found.get(outcome["outcome"], 0) + 1
    what = "; ".join(f"{number} x {text}" for text, number in sorted(found.items()))
    return f"| {fault} | {len(outcomes)} | {min(seeds)} to {max(seeds)} | {what} |"
