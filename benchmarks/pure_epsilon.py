"""Pure epsilon: root mean squared error of a query at epsilon 1 under Laplace noise, beside HDMM's figures.

    python benchmarks/pure_epsilon.py [--rows NAME ...] [--out benchmarks/results/pure_epsilon.md]

'p-identity': one strategy over all cells, up to 1,024 of them. 'products': p-Identity strategies and trees of single
attributes. 'marginals': whole marginals with optimised weights. 'tree': the best of 2, 4, 8 and 16 children a node; 'identity': noise
on every cell; 'laplace': on every answer. 'best / bound': squared error of the best over the lower bound that certificates show
(docs/mathematics.md, section 5, says what it sees and misses). 'HDMM': figures of that project's own code for the same workloads. CPU
seconds of one thread, for all strategies of a row together.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from prefix_tables import prefix_tables

from dpdist.domain import Domain
from dpdist.operators import Dense, Identity, Operator, Total
from dpdist.strategies import (
    Strategy,
    hierarchical,
    identity,
    laplace,
    laplace_bound,
    p_identity,
    p_identity_products,
    weighted_marginals,
)
from dpdist.strategies.lower_bounds import tables_bound
from dpdist.strategies.tables.product_bound import product_bound
from dpdist.workloads import Block, Workload, all_ranges, marginals, prefix, random_ranges

LEARNT_CELLS = 1024
DENSE_CELLS = 4096


def census() -> Workload:
    """Tables of persons in Summary File 1 of the 2010 census, each table as HDMM's project counts it, some
    queries in several tables: 32 products over 500,480 cells (examples/sf1 asks each once)."""
    sizes = {"sex": 2, "hispanic": 2, "race": 64, "relationship": 17, "age": 115}
    single = np.array([[float(cell == 2**race) for cell in range(64)] for race in range(6)])
    races = np.vstack([single, 1.0 - single.sum(axis=0)])
    number = np.array([cell.bit_count() for cell in range(64)])
    several = [(number == count) * 1.0 for count in range(1, 7)]
    combined = np.vstack([np.eye(64)[1:], *several, (number >= 2) * 1.0])
    groups = [0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85, 115]
    years = [*range(101), 105, 110, 115]

    def age_ranges(ends: list[int]) -> np.ndarray:
        ages = np.arange(115)
        return np.array([(ages >= low) & (ages < high) for low, high in pairwise(ends)]) * 1.0

    each, both = np.eye(2), np.array([[1.0, 0], [0, 1], [1, 1]])
    yes, no, white, adult = np.array([[1.0, 0]]), np.array([[0.0, 1]]), np.eye(64)[1:2], age_ranges([18, 115])
    tables: list[dict[str, np.ndarray]] = [
        {}, {"race": races}, {}, {"hispanic": each}, {}, {"hispanic": each, "race": races}, {"hispanic": both}, {"race": combined}, {},
        {"hispanic": each}, {"hispanic": no, "race": combined}, {}, {"race": combined, "age": adult}, {"age": adult},
        {"hispanic": each, "age": adult}, {"hispanic": no, "race": combined, "age": adult}, {"age": adult},
    ]  # fmt: skip
    alone: list[dict[str, np.ndarray]] = [{}, {"race": races}, {"hispanic": yes}]
    for ages, others in ((groups, {"hispanic": no, "race": white}), (years, {"hispanic": no, "race": races})):
        for more in (*alone, others):
            tables += [{"sex": each, "age": age_ranges(ages), **more}, {"sex": both, **more}]
    domain = Domain.of_shape(tuple(sizes.values()))
    blocks = []
    for place, table in enumerate(tables):
        axes = tuple(axis for axis, name in enumerate(sizes) if name in table)
        factors: tuple[Operator, ...] = tuple(_operator(table[name]) for name in sizes if name in table)
        axes, factors = (axes, factors) if axes else ((0,), (Total(2),))
        labels = tuple(tuple(map(str, range(f.shape[0]))) for f in factors)
        blocks.append(Block(f"table {place}", axes, factors, labels))
    return Workload(domain, tuple(blocks))


def _operator(rows: np.ndarray) -> Operator:
    return Identity(rows.shape[1]) if rows.shape == (2, 2) and (rows == np.eye(2)).all() else Dense(rows)


ROWS: dict[str, tuple[Callable[[], Workload], str]] = {
    "all ranges 256": (lambda: all_ranges(256), "8.09"),
    "prefix 256": (lambda: prefix(256), "7.41"),
    "512 random ranges of 256": (lambda: random_ranges(256, 512, seed=0), ""),
    "prefixes, 10 x 10 x 10, <= 2-way": (lambda: prefix_tables([10, 10, 10], 3, [1, 2]), ""),
    "prefixes, 24 x 24, <= 2-way": (lambda: prefix_tables([24, 24], 2, [1, 2]), ""),
    "prefixes, 8 x 8 x 8 x 4, <= 3-way": (lambda: prefix_tables([8, 8, 8, 4], 3, [1, 2, 3]), ""),
    "prefixes, 16 x 12 x 3, <= 2-way": (lambda: prefix_tables([16, 12, 3], 2, [1, 2]), ""),
    "CPS, <= 3-way": (lambda: prefix_tables([50, 100, 7, 4, 2], 2, [1, 2, 3]), ""),
    "SF1, persons": (census, "7.35"),
    **{
        f"1-way tables, {' x '.join(map(str, sizes))}": (partial(marginals, Domain.of_shape(sizes), (1,)), "")
        for sizes in ((4, 4, 4, 4), (10, 10, 10), (100, 100, 100), (91, 9, 52, 47, 17, 7))
    },
    **{
        f"2-way tables, {' x '.join(map(str, sizes))}": (partial(marginals, Domain.of_shape(sizes), (2,)), "")
        for sizes in ((8, 8, 8), (5, 5, 5, 5), (20, 20, 20), (50, 50, 50), (91, 9, 52, 47, 17, 7))
    },
}
COLUMNS = (
    "workload", "queries", "cells", "p-identity", "products", "marginals", "tree", "identity", "laplace", "HDMM",
    "best / bound", "CPU s",
)  # fmt: skip


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for name in given.rows:
        lines.append(row(name, ROWS[name][0](), ROWS[name][1]))
        print(lines[-1], flush=True)
    text = f"# Pure epsilon\n\n`python benchmarks/pure_epsilon.py`\n\n{__doc__.split('md]')[1].strip()}\n\n" + "\n".join(
        lines
    )
    if given.out:
        given.out.write_text(text + "\n")


def row(name: str, workload: Workload, published: str) -> str:
    """One line of the table."""
    queries, cells = workload.shape
    several = len(workload.domain.shape) > 1
    started = time.process_time()
    found: dict[str, Strategy | None] = {
        "p-identity": p_identity(workload) if cells <= LEARNT_CELLS else None,
        "products": p_identity_products(workload) if several else None,
        "marginals": weighted_marginals(workload) if several else None,
        "tree": hierarchical(workload.domain.shape, workload, branching=None, norm="l1") if cells <= LEARNT_CELLS else None,
        "identity": identity(cells, workload, norm="l1"),
        "laplace": laplace(workload),
    }
    took = time.process_time() - started
    costs = {kind: each.workload_cost for kind, each in found.items() if each is not None}
    known = [cost for cost in costs.values() if cost is not None]
    bound = laplace_bound(workload) if cells <= DENSE_CELLS else 2.0 * product_bound(workload)
    if several:
        bound = max(bound, 2.0 * product_bound(workload), tables_bound(workload))
    errors = [f"{math.sqrt(costs[kind] / queries):.3f}" if costs.get(kind) else "" for kind in found]
    gap = f"{min(known) / bound:.2f}" if bound > 0 else ""
    return f"| {name} | {queries:,} | {cells:,} | {' | '.join(errors)} | {published} | {gap} | {took:.1f} |"


if __name__ == "__main__":
    main()
