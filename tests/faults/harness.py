"""Builds the shim, starts trials and tells what came of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import HANGS
from tests.support.forked_programs import Program

HERE = Path(__file__).parent


def shim(folder: Path) -> Path:
    """The preloaded library, compiled; the test is skipped where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux")
    library = folder / "shim.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, HERE / "shim.c", "-ldl"], check=True)
    return library


def trials(folder: Path, spec: Path, *, kinds: str, first: int, count: int) -> list[dict[str, Any]]:
    """Trials with consecutive seeds, of each kind: "kill", "power", or both."""
    environment = {**os.environ, "LD_PRELOAD": str(shim(folder)), "OMP_NUM_THREADS": "1"}
    for name in ("DPDIST_LEDGER", "DPDIST_HOME", "DPDIST_STORE"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "tests.faults.trials", str(spec), str(folder), kinds]
    done = subprocess.run(
        [*command, str(first), str(count)],
        env=environment,
        cwd=HERE.parent.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()][1:]


@contextmanager
def scheduler_and_worker(folder: Path) -> Iterator[tuple[str, Program]]:
    """The address and the process of a Dask scheduler with one worker, each a process of its own, in the clear."""
    file = folder / "scheduler.json"
    options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
    scheduler = Program("distributed.cli.dask_scheduler", *options, folder=folder)
    deadline = time.monotonic() + HANGS
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline, "the scheduler did not start"
        time.sleep(0.05)
    address = json.loads(file.read_text())["address"]
    worker = Program(
        "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny", folder=folder
    )
    try:
        yield address, scheduler
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()


def row(fault: str, outcomes: list[dict[str, Any]]) -> str:
    """A row of the table of faults: what was done, how often, with which seeds, what happened."""
    seeds = [outcome["seed"] for outcome in outcomes]
    found: dict[str, int] = {}
    for outcome in outcomes:
        found[outcome["outcome"]] = found.get(outcome["outcome"], 0) + 1
    what = "; ".join(f"{number} x {text}" for text, number in sorted(found.items()))
    return f"| {fault} | {len(outcomes)} | {min(seeds)} to {max(seeds)} | {what} |"
