"""Relations of two attributes: counts by x + y <= c and by |x - y| <= c of every pair of attributes, for every c.

    python benchmarks/attribute_relations.py [--querysmasher FOLDER --python PYTHON] [--out benchmarks/results/attribute_relations.md]

Root mean squared error of a query under Gaussian noise at privacy cost 1 (noise multiplier 1) of what a spec with these relations plans
by itself, and its gap in squared error to a bound for strategies that take each number for an attribute of its own. 'all pairs': the
optimum over all combinations of values, where these are few. Of one pair of attributes both are the same program; relations of several
pairs can share rows there, which numbers of their own cannot. QuerySmasher (He et al. 2026, arXiv 2604.00868; its table 2 asks these
queries and those of single attributes) is run from a clone of cmla-psu/QuerySmasherMatrixMechanism, as its README says, by a Python
that has NumPy, SciPy, cvxpy and PyTorch. CPU seconds of one thread, under whatever else the machine did, for the strategy and its bound
together: compare them with each other only.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from dpdist.engine import inline
from dpdist.planner.release_plan import plan
from dpdist.runtime.context import Context, ignore_progress
from dpdist.spec import load
from dpdist.storage.array_store import Store
from dpdist.strategies import coa
from dpdist.workloads import explicit

ASKED = ((6, 6), (10, 10), (7, 4, 2), (10, 7, 4), (100, 100), (1000, 1000), (50, 100, 7, 4, 2), (100_000, 100_000))
PEER = ASKED[:4]
"""Sizes that QuerySmasher solves within seconds; CPS (the sizes with 50 and 100) had not ended after five CPU minutes, with 5.5 GB."""
PAIRS = 300
"""Combinations of values up to which the optimum over them is sought."""
MOST_BOUNDS = 1000
"""Of absolute differences, which a spec lists."""
KINDS = {"sum": "x + y <= c", "difference": "abs(x - y) <= c"}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--querysmasher", type=Path)
    asked.add_argument("--python", default="python")
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    peer = peers(given.python, given.querysmasher) if given.querysmasher else {}
    head = ["sizes", "queries", "dpdist", "gap", "CPU s", "all pairs", "QuerySmasher", "CPU s"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    asked_of = [(kind, sizes) for kind in KINDS for sizes in ASKED if kind == "sum" or max(sizes) <= MOST_BOUNDS]
    lines += [row(sizes, kind, peer.get((sizes, kind))) for kind, sizes in asked_of]
    table = "\n".join(lines)
    print(table)
    if given.out is not None:
        given.out.write_text(f"# Relations of two attributes\n\n{str(__doc__).split(chr(10), 2)[2].strip()}\n\n{table}\n")


def row(sizes: tuple[int, ...], kind: str, peer: tuple[float, float] | None) -> str:
    """One line of the table."""
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        made = plan(
            Context(Path(folder), Store(Path(folder) / "store"), inline(), ignore_progress),
            load(written(Path(folder), sizes, kind)),
        )
        taken = time.process_time() - started
        chosen = next(each for each in made.table if each.mechanism == made.strategy.name)
        queries = made.workload.shape[0]
    assert chosen.cost is not None
    assert chosen.gap is not None
    pairs = f"{over_pairs(sizes, kind):.4f}" if math.prod(sizes) <= PAIRS else ""
    theirs = " | " if peer is None else f"{peer[0]:.4f} | {peer[1]:.1f}"
    shown = f"{math.sqrt(chosen.cost / queries):.4f} | {100 * chosen.gap:.2g} % | {taken:.1f} | {pairs} | {theirs}"
    return f"| {' x '.join(f'{each:,}' for each in sizes)} | {queries:,} of {KINDS[kind]} | {shown} |"


def written(folder: Path, sizes: tuple[int, ...], kind: str) -> Path:
    """The spec."""
    names = {f"x{place}": size for place, size in enumerate(sizes)}
    content: dict[str, Any] = {
        "release": "relations",
        "records": {"path": "records.parquet"},
        "domain": {name: {"from": 0, "to": size - 1} for name, size in names.items()},
        "workload": [{"relation": relation(names, a, b, kind)} for a, b in combinations(names, 2)],
        "budget": {"rho": 0.5},
        "ledger": {"dataset": "d", "cap": {"rho": 1}},
    }
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def relation(names: dict[str, int], a: str, b: str, kind: str) -> dict[str, Any]:
    """Of two attributes."""
    if kind == "sum":
        return {"of": {a: 1, b: 1}}
    return {"of": {a: 1, b: -1}, "within": list(range(max(names[a], names[b])))}


def over_pairs(sizes: tuple[int, ...], kind: str) -> float:
    """Root mean squared error of the optimum over all combinations of values."""
    values = np.indices(sizes).reshape(len(sizes), -1)
    found = []
    for a, b in combinations(range(len(sizes)), 2):
        number = values[a] + values[b] if kind == "sum" else np.abs(values[a] - values[b])
        last = sizes[a] + sizes[b] - 1 if kind == "sum" else max(sizes[a], sizes[b])
        found += [number <= bound for bound in range(last)]
    cost = coa(explicit(np.array(found, dtype=np.int64))).workload_cost
    assert cost is not None
    return math.sqrt(cost / len(found))


def peers(python: str, folder: Path) -> dict[tuple[tuple[int, ...], str], tuple[float, float]]:
    """Error and CPU seconds of QuerySmasher for sizes and kind."""
    program = Path(__file__).parent / "peers" / "querysmasher_relations.py"
    sizes = [",".join(map(str, each)) for each in PEER]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, str(program), str(folder), *sizes], stdout=subprocess.PIPE, text=True, check=True, env=threads
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {(tuple(given), kind): (error, seconds) for given, kind, error, seconds in lines}


if __name__ == "__main__":
    main()
