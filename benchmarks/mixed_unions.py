"""Unions that ask an attribute in several ways: variance over the certified optimum, and the gap that is shown.

    python benchmarks/mixed_unions.py [--unions 60] [--out benchmarks/results/mixed_unions.md]

Random unions of 2 to 6 tables over 2 to 4 attributes. Each table asks 1 to all of the attributes, each of them value by value, as
prefixes or as all ranges; at least one attribute is asked in several ways. Every other union gives all queries weights of 0.3 to 3,
the others all tables, whatever their number of queries. The domains are small (at most 1,000 cells), so that COA certifies the optimum.
'over': total variance over COA's lower bound, less one. 'gap': variance over the bound that the strategy itself shows, less one. 'bound':
that bound over the optimum. CPU seconds of one thread, for the strategy and its bound together.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np

from dpdist.domain import Domain
from dpdist.operators import AllRanges, Identity, Operator, Prefix
from dpdist.plugins.oblique_products.oblique_design import oblique
from dpdist.strategies import coa
from dpdist.strategies.tables.residual_bases import residual
from dpdist.workloads import Block, Workload

KINDS = {"value": Identity, "prefix": Prefix, "range": AllRanges}
MOST_CELLS = 1000
TOLERANCE = 1e-5


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--unions", type=int, default=60)
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    lines = ["| seed | sizes | tables | residual: over | oblique: over | bound | gap | CPU s |", "|" + "---|" * 8]
    print("\n".join(lines))
    figures = []
    for seed in range(given.unions):
        line, values = row(seed)
        lines.append(line)
        figures.append(values)
        print(line, flush=True)
    over, bound, gap = np.array(figures).T
    lines.append(
        f"\nLargest: over {100 * over.max():.1f} %, gap {100 * gap.max():.1f} %; mean: over {100 * over.mean():.1f} %, "
        f"gap {100 * gap.mean():.1f} %; least bound {bound.min():.3f} of the optimum."
    )
    print(lines[-1])
    about = __doc__.split("md]")[1].strip()
    if given.out:
        title = "# Unions that ask an attribute in several ways\n\n`python benchmarks/mixed_unions.py`\n\n"
        given.out.write_text(title + about + "\n\n" + "\n".join(lines) + "\n")


def row(seed: int) -> tuple[str, tuple[float, float, float]]:
    """One line of the table, and what of it is summed up: over, bound and gap."""
    workload, tables = mixed_union(seed)
    optimum = coa(workload, tolerance=TOLERANCE)
    started = time.process_time()
    found = oblique(workload, tolerance=TOLERANCE)
    took = time.process_time() - started
    plain = residual(workload, tolerance=TOLERANCE).workload_cost
    assert optimum.lower_bound is not None
    assert optimum.workload_cost is not None
    assert found.workload_cost is not None
    assert found.lower_bound is not None
    assert plain is not None
    over, bound = found.workload_cost / optimum.lower_bound - 1, found.lower_bound / optimum.workload_cost
    sizes = " x ".join(map(str, workload.domain.shape))
    figures = f"{100 * (plain / optimum.lower_bound - 1):.1f} % | {100 * over:.1f} % | {bound:.3f} | {100 * found.gap:.1f} %"
    return f"| {seed} | {sizes} | {tables} | {figures} | {took:.1f} |", (over, bound, found.gap)


def mixed_union(seed: int) -> tuple[Workload, str]:
    """A random union of tables, some attribute of which is asked in several ways, and its tables in short."""
    state = np.random.default_rng(seed)
    attributes = int(state.integers(2, 5))
    while True:
        sizes = tuple(round(n) for n in np.exp(state.uniform(math.log(3), math.log(60), attributes)))
        tables = {_some_table(state, attributes) for _ in range(int(state.integers(2, 7)))}
        ways = [{kind for table in tables for axis, kind in table if axis == each} for each in range(attributes)]
        if math.prod(sizes) <= MOST_CELLS and any(len(kinds) > 1 for kinds in ways) and all(ways):
            break
    blocks = []
    for table in sorted(tables):
        factors: tuple[Operator, ...] = tuple(KINDS[kind](sizes[axis]) for axis, kind in table)
        labels = tuple(tuple(map(str, range(f.shape[0]))) for f in factors)
        queries = 1 if seed % 2 else math.prod(f.shape[0] for f in factors)
        weight = math.exp(state.uniform(math.log(0.3), math.log(3))) / math.sqrt(queries)
        axes = tuple(axis for axis, _ in table)
        blocks.append(Block("x".join(f"{kind}-{axis}" for axis, kind in table), axes, factors, labels, weight))
    short = "; ".join(" ".join(f"{kind[0]}{axis + 1}" for axis, kind in table) for table in sorted(tables))
    return Workload(Domain.of_shape(sizes), tuple(blocks)), short


def _some_table(state: np.random.Generator, attributes: int) -> tuple[tuple[int, str], ...]:
    axes = sorted(state.choice(attributes, int(state.integers(1, attributes + 1)), replace=False))
    return tuple((int(axis), list(KINDS)[int(state.integers(len(KINDS)))]) for axis in axes)


if __name__ == "__main__":
    main()
