"""CPU seconds and memory of ``dpdist ledger verify``, this tree's and another's in turn, and where they go in this one.

    python benchmarks/ledger_verification.py [--rows 100000] [--before ANOTHER_TREE] [--repeats 5]

The ledger is that of ``at_once`` in benchmarks/ledger.py: one reserved charge a row. The parts are taken one at a time, with the
clock's own time off; together they take more, as what one row leaves in the processor's cache another one displaces.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledger import at_once

from dpdist.privacy.ledger import database, ledger_audit
from dpdist.privacy.ledger.budget_ledger import Ledger

ROOT = Path(__file__).parents[1]
COMMAND = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-c", "from flows.main import main; main()", "ledger", "verify"], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""
PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "the digest of the chain": ((database, "digest_of"),),
    "parsing its JSON": ((json, "loads"),),
    "the command that it answers, and the state it is about": (
        (ledger_audit.ReplayedState, "_command"),
        (ledger_audit.ReplayedState, "_state_before"),
    ),
    "`decide`": ((ledger_audit, "decide"),),
    "`apply`": ((ledger_audit, "apply"),),
    "keeping the state; digests of salts and records": (
        (ledger_audit.ReplayedState, "_take"),
        (ledger_audit.ReplayedState, "_commitments_of"),
    ),
    "what the tables keep beside a page of rows": ((ledger_audit, "_load_page"),),
    "comparing the tables at the end": tuple(
        (ledger_audit, f"_compare_{name}") for name in ("salts", "releases", "accounts", "caps", "records")
    ),
}


def clocked(functions: tuple[tuple[Any, str], ...], work: Callable[[], object]) -> tuple[float, int]:
    """CPU seconds of some functions while others work, and how often they were called."""
    spent, calls, before = 0.0, 0, [(place, name, getattr(place, name)) for place, name in functions]

    def clock(function: Callable[..., Any]) -> Callable[..., Any]:
        def timed_call(*arguments: Any) -> Any:
            nonlocal spent, calls
            calls += 1
            start = time.process_time()
            try:
                return function(*arguments)
            finally:
                spent += time.process_time() - start

        return timed_call

    for place, name, function in before:
        setattr(place, name, clock(function))
    work()
    for place, name, function in before:
        setattr(place, name, function)
    return spent, calls


class _Nothing:
    def __call__(self) -> None:
        """What the clock alone takes."""


def part_microseconds(ledger: Ledger, rows: int, repeats: int) -> list[str]:
    """Microseconds a row of each part, the least of several."""
    nothing = argparse.Namespace(call=_Nothing())
    spent, calls = min(clocked(((nothing, "call"),), lambda: [nothing.call() for _ in range(rows)]) for _ in range(repeats))
    clock = spent / calls
    lines = []
    for what, functions in PARTS.items():
        spent, calls = min(clocked(functions, ledger.verify) for _ in range(repeats))
        lines.append(f"| {what} | {1e6 * (spent - clock * calls) / rows:.1f} |")
    whole = min(_cpu(ledger.verify) for _ in range(repeats))
    return [*lines, f"| all, with reading the rows | {1e6 * whole / rows:.1f} |"]


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def command(tree: Path, database_file: Path) -> tuple[float, float]:
    """CPU seconds and peak MB of the whole command."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DPDIST_"))}
    environment |= {"PYTHONPATH": str(tree), "DPDIST_HOME": str(database_file.parent)}
    done = subprocess.run(
        [sys.executable, "-c", COMMAND],
        cwd=database_file.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.db"
        ledger = at_once(file, options.rows)
        trees = [tree for tree in (options.before, ROOT) if tree is not None]
        taken = [[command(tree, file) for tree in trees] for _ in range(options.repeats)]
        print("| tree | CPU s, least | peak, MB |", "|---|---|---|", sep="\n")
        for name, own in zip(("before", "now")[-len(trees) :], zip(*taken, strict=True), strict=True):
            print(f"| {name} | {min(seconds for seconds, _ in own):.2f} | {max(memory for _, memory in own):.0f} |")
        gc.disable()  # as the command does
        print(
            "",
            "| part of a row | CPU microseconds |",
            "|---|---|",
            *part_microseconds(ledger, options.rows, options.repeats),
            sep="\n",
        )
        ledger.close()
    print(f"\nload {os.getloadavg()[1]:.1f}")


if __name__ == "__main__":
    main()
