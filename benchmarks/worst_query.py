"""The least worst query beside what the strategy of least total error gives, with certified bounds.

    python benchmarks/worst_query.py [--sizes 256 1024] [--out benchmarks/results/worst_query.md]

Gaussian noise at noise multiplier 1. 'largest variance' is gamma_2(W)^2 of the queries: no strategy has a largest variance below the
lower bound. 'least total' is COA's strategy, 'square root' that of running sums (Henzinger, Upadhyay, Upadhyay 2023), which
streaming libraries use: it is the Toeplitz strategy of least largest error that jax_privacy 2.0.0 gives
(``toeplitz.optimal_max_error_strategy_coefs``). That library's numerical optimisers of the largest error are not in the table: on a
busy machine they had not ended after 400 seconds at n = 256. CPU seconds of one thread,
under whatever else the machine did: compare them with each other only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpdist.strategies import coa
from dpdist.strategies.dense.minimax import least_worst
from dpdist.workloads import Workload, all_ranges, marginals, prefix, random_ranges, related

TOLERANCE = 3e-5
WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "prefix": prefix,
    "all ranges": all_ranges,
    "1024 random ranges": lambda n: random_ranges(n, 1024, seed=0),
    "WRelated": lambda n: related(n, n, int(0.4 * n), seed=0),
    "2-way marginals": lambda n: marginals((4, 4, 4, n // 64), 2),
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", type=int, nargs="+", default=[256, 1024])
    asked.add_argument("--only", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    columns = ("workload", "n", "queries", "largest variance, lower bound", "least worst", "gap", "steps", "CPU s")
    columns += ("COA's worst over the bound", "square root's worst over the bound")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name in given.only:
        for n in given.sizes:
            lines.append(row(name, WORKLOADS[name](n), n))
            print(lines[-1], flush=True)
    text = (
        f"# The least worst query\n\n`python benchmarks/worst_query.py`\n\n{__doc__.split('md]')[1].strip()}\n\n"
        + "\n".join(lines)
    )
    if given.out:
        given.out.write_text(text + "\n")


def row(name: str, workload: Workload, n: int) -> str:
    """One line of the table. Raises: AssertionError when a bound is contradicted."""
    started = time.process_time()
    found = least_worst(workload, tolerance=TOLERANCE)
    took = time.process_time() - started
    assert found.solve is not None
    last = found.solve.history[-1]
    lower = last.objective / (1 + last.gap)
    total = (coa(workload, tolerance=1e-4).worst(workload) or float("nan")) ** 2
    assert not total < lower
    root = "" if name != "prefix" else f"{square_root_of_sums(n) / lower:.4f}"
    beside = "" if np.isnan(total) else f"{total / lower:.4f}"
    figures = f"{lower:.6g} | {last.objective:.6g} | {last.gap:.1e} | {last.iteration} | {took:.1f}"
    return f"| {name} | {n} | {workload.shape[0]:,} | {figures} | {beside} | {root} |"


def square_root_of_sums(n: int) -> float:
    """Largest variance of the square root of running sums: the squared length of its coefficients, twice."""
    coefficients = np.cumprod(np.concatenate([[1.0], 1.0 - 0.5 / np.arange(1, n)]))
    return float((coefficients**2).sum() ** 2)


if __name__ == "__main__":
    main()
