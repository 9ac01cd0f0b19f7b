"""Prefix tables of the ResidualPlanner+ paper: all marginals of 1, 2, 3 and at most 3 attributes, prefixes on ordered attributes.

    python benchmarks/prefix_tables.py [--data CPS Loans Adult] [--out benchmarks/results/prefix_tables.md]

Root mean squared error of a query under Gaussian noise at privacy cost 1 (noise multiplier 1). 'bound': no matrix mechanism is below it.
'published' are the paper's figures (Xiao, He, Zhang, Kifer: ResidualPlanner+), 'HDMM' those it gives for HDMM. CPU seconds of one
thread, under whatever else the machine did, for the strategy and its bound together: compare them with each other only.

Where the bound leaves 10 % of squared error or more (Loans from three attributes on, Adult from two), neither rank nor symmetry certifies
more: the queries have up to 21 million different rows, and prefixes of four or five attributes tell nearly all cells apart. The 1-way
tables of CPS are certified to 4e-7 by symmetry (benchmarks/results/symmetric_optima.md).
"""

from __future__ import annotations

import argparse
import math
import time
from itertools import combinations
from pathlib import Path

from dpdist.domain import Domain
from dpdist.operators import Identity, Prefix
from dpdist.plugins.oblique_products.oblique_design import oblique
from dpdist.strategies import coa
from dpdist.strategies.tables.residual_bases import residual
from dpdist.workloads import Block, Workload

TABLES = {
    "CPS": ([50, 100, 7, 4, 2], 2),
    "Loans": ([101, 101, 101, 101, 3, 8, 36, 6, 51, 4, 5, 15], 4),
    "Adult": ([100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2], 5),
}
"""Sizes of the attributes, and how many of them, the first ones, have an order."""
WAYS = {"1": [1], "2": [2], "3": [3], "<= 3": [1, 2, 3]}
PUBLISHED = {
    "Adult": {"1": (5.081, 5.648), "2": (17.274, 21.111), "3": (45.223, 60.025), "<= 3": (45.174, 61.613)},
    "CPS": {"1": (3.081, 3.347), "2": (5.823, 6.625), "3": (7.302, 8.634), "<= 3": (7.570, 8.623)},
    "Loans": {"1": (4.681, 5.127), "2": (14.502, 17.149), "3": (34.168, 42.938), "<= 3": (34.144, 44.338)},
}
TOLERANCE = 1e-4
DENSE = (
    ([10, 10, 10], 3, [1, 2], 0.017),
    ([24, 24], 2, [1, 2], 0.003),
    ([8, 8, 8, 4], 3, [1, 2, 3], 0.016),
    ([16, 12, 3], 2, [1, 2], 0.008),
)
"""Unions whose optimum COA certifies: sizes, ordered attributes, ways, and the loss that a prototype with two parameters had."""
DENSE_HEAD = """
## Loss to the certified optimum

Unions of so few cells that COA certifies the optimum. Squared error over COA's lower bound, less one. 'asked': what two parameters an
attribute had left in a prototype.

"""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--data", nargs="+", default=list(TABLES), choices=list(TABLES))
    asked.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    asked.add_argument(
        "--dense", type=int, default=len(DENSE), help="how many of the unions with a certified optimum, smallest first"
    )
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    columns = (
        "data",
        "ways",
        "queries",
        "oblique",
        "bound",
        "squared error over the bound",
        "residual",
        "published",
        "HDMM",
        "CPU s",
    )
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name in given.data:
        for ways in given.ways:
            lines.append(row(name, ways))
            print(lines[-1], flush=True)
    dense = ["| sizes | ways | queries | oblique | residual | asked |", "|" + "---|" * 6]
    for union in sorted(DENSE, key=lambda each: math.prod(each[0]))[: given.dense]:
        dense.append(dense_row(*union))
        print(dense[-1], flush=True)
    text = f"# Prefix tables\n\n`python benchmarks/prefix_tables.py`\n\n{__doc__.split('md]')[1].strip()}\n\n" + "\n".join(
        lines
    )
    if given.out:
        given.out.write_text(text + "\n" + DENSE_HEAD + "\n".join(dense) + "\n")


def dense_row(sizes: list[int], ordered: int, ways: list[int], asked: float) -> str:
    """One line of the second table."""
    workload = prefix_tables(sizes, ordered, ways)
    lower = coa(workload, tolerance=1e-5).lower_bound
    costs = [
        oblique(workload, tolerance=1e-5).workload_cost,
        residual(workload, tolerance=1e-5).workload_cost,
    ]
    assert lower is not None
    losses = " | ".join(f"{100 * (cost / lower - 1):.2f} %" for cost in costs if cost is not None)
    return f"| {' x '.join(map(str, sizes))} | <= {max(ways)} | {workload.shape[0]:,} | {losses} | {100 * asked:.1f} % |"


def row(name: str, ways: str) -> str:
    """One line of the table."""
    workload = prefix_tables(*TABLES[name], WAYS[ways])
    queries = workload.shape[0]
    started = time.process_time()
    found = oblique(workload, tolerance=TOLERANCE)
    took = time.process_time() - started
    assert found.workload_cost is not None
    assert found.lower_bound is not None
    plain = residual(workload, tolerance=TOLERANCE).workload_cost
    assert plain is not None
    errors = [math.sqrt(cost / queries) for cost in (found.workload_cost, found.lower_bound, plain)]
    figures = f"{errors[0]:.3f} | {errors[1]:.3f} | {found.workload_cost / found.lower_bound:.3f} | {errors[2]:.3f}"
    published, hdmm = PUBLISHED[name][ways]
    return f"| {name} | {ways} | {queries:,} | {figures} | {published:.3f} | {hdmm:.3f} | {took:.1f} |"


def prefix_tables(sizes: list[int], ordered: int, ways: list[int]) -> Workload:
    """All marginals of so many attributes, prefixes of ordered ones."""
    blocks = []
    for way in ways:
        for axes in combinations(range(len(sizes)), way):
            factors = tuple(Prefix(sizes[i]) if i < ordered else Identity(sizes[i]) for i in axes)
            labels = tuple(tuple(str(j) for j in range(sizes[i])) for i in axes)
            blocks.append(Block(" x ".join(map(str, axes)), axes, factors, labels))
    return Workload(Domain.of_shape(tuple(sizes)), tuple(blocks))


if __name__ == "__main__":
    main()
