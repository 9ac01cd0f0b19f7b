"""Nested levels beside the estimators of census products: squared error a level, seconds and memory, on a synthetic census.

    python benchmarks/geography.py [--blocks 1000000] [--cells 252] [--columns 8] [--out benchmarks/results/geography.md]

Six levels (country, states, counties, tracts, groups of blocks, blocks) of unequal families, the same table at each, one total rho. Three
ways to spend and read it: TopDown's measurements as they are (the same rho for every level), their best linear unbiased estimate (what
BlueDown, arXiv 2603.10099, and SEA BLUE, 2409.04387, compute of such measurements), and dpdist. All three are unbiased, so squared errors
are variances, which are exact; for a few columns noise is drawn and they are counted, too. The first two share dpdist's passes: they are no
runs of those authors' programs. Errors are
variances at rho = 0.5 (noise of deviation 1 for one count), once with every count of every level counting alike, once with every level.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpdist.domain import Attribute, Domain, Level
from dpdist.grids.node_variances import NodeVariances, Passes
from dpdist.operators import Matrix
from dpdist.strategies import nested
from dpdist.strategies.nested_levels import NestedStrategy
from dpdist.workloads import Workload
from dpdist.workloads.marginals import listed_marginals
from dpdist.workloads.nested import Hierarchy, nested_of

LEVELS = ("state", "county", "tract", "group")
FAMILIES = (50, 50, 20, 4)
"""Sizes of families of these levels in the mean: they lie between a half of them and one and a half."""


def census(blocks: int, cells: int, *, even: bool = False, seed: int = 0) -> Workload:
    """Tables of so many cells for every block, group, tract, county and state, and for the country."""
    rng, parents, nodes = np.random.default_rng(seed), [], 1
    for family in FAMILIES:
        parents.append(np.repeat(np.arange(nodes), rng.integers(max(1, family // 2), family * 3 // 2 + 1, nodes)))
        nodes = parents[-1].size
    while nodes > blocks // 2:  # fewer blocks have fewer levels of this width
        parents.pop()
        nodes = parents[-1].size
    code = np.repeat(np.arange(nodes), rng.multinomial(blocks - nodes, np.ones(nodes) / nodes) + 1)
    levels: list[Level] = []
    for depth in reversed(range(len(parents))):
        groups = parents[depth].size
        levels.append(Level(LEVELS[depth], tuple(map(str, range(groups))), tuple(code.tolist())))
        code = parents[depth][code]
    block = Attribute("block", categories=tuple(f"b{i}" for i in range(blocks)), levels=tuple(reversed(levels)))
    domain = Domain((block, Attribute("cell", edges=tuple(range(cells + 1)))))
    asked = listed_marginals(domain, [("cell",), *((level.name, "cell") for level in block.levels), ("block", "cell")])
    weights = [(each.queries / cells) ** -0.5 if even else 1.0 for each in asked.blocks]
    return Workload(domain, tuple(replace(each, weight=weight) for each, weight in zip(asked.blocks, weights, strict=True)))


def equal_shares(tree: Hierarchy) -> NodeVariances:
    """The best linear unbiased estimate of measurements that have the same rho at every level."""
    passes = Passes(tree.parents, tree.weights, np.ones(tree.sizes[-1]))
    share = 1.0 / len(tree.sizes)
    return NodeVariances.of(passes, [np.full(n, share) for n in tree.sizes], np.ones(tree.sizes[-1]))


def drawn(strategy: NestedStrategy, columns: int, seed: int = 1) -> tuple[list[float], float]:
    """Mean squared errors a level of some columns of sparse counts with noise of deviation 1, and the CPU seconds of a column."""
    rng, rows = np.random.default_rng(seed), strategy.node_rows
    counts = rng.poisson(0.3, (columns, rows.nodes.size))
    started = time.process_time()
    measured = rows.measure(counts)
    noise = np.rint(rng.standard_normal(measured.shape) * np.sqrt(int(rows.column_squares.max()))).astype(np.int64)
    found = rows.estimates(measured + noise)
    seconds = (time.process_time() - started) / columns
    truth = [counts[:, np.argsort(rows.nodes, kind="stable")]]
    for level in reversed(range(len(rows.inner))):
        truth.insert(0, rows.up(level, truth[0]))
    return [float(np.mean((a - b) ** 2)) for a, b in zip(found, truth, strict=True)], seconds


def main() -> None:
    """Print the table, for levels that count as often as they have nodes and for levels that count alike."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=10**6)
    parser.add_argument("--cells", type=int, default=252)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = []
    for even in (False, True):
        found = table(census(given.blocks, given.cells, even=even), given.cells, given.columns)
        lines += ["", "Every level counts alike:" if even else "Every count counts alike:", "", *found]
        print("\n".join(lines[-len(found) - 2 :]), flush=True)
    if given.out is not None:
        given.out.write_text(f"# Nested levels\n\n`python benchmarks/geography.py`\n\n{__doc__}\n" + "\n".join(lines) + "\n")


def table(workload: Workload, cells: int, columns: int) -> list[str]:
    """One strategy beside the others, level by level."""
    started = time.process_time()
    levels = nested_of(workload)
    strategy = nested(workload)
    planned = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    counted, seconds = drawn(strategy, columns)
    estimate, own = equal_shares(levels.tree).values, strategy.node_rows.variances.values
    unit, sizes, weights = float(strategy.node_rows.column_squares.max()), levels.tree.sizes, levels.tree.weights
    lines = ["| level | nodes | measurements | their best estimate | dpdist | dpdist, drawn |", "|---|---|---|---|---|---|"]
    for k, size in enumerate(sizes):
        numbers = (len(sizes), float(estimate[k].mean()), unit * float(own[k].mean()), counted[k])
        lines.append(f"| {k} | {size:,} | " + " | ".join(f"{number:.3f}" for number in numbers) + " |")
    totals = [
        len(sizes) * _total(weights, [np.ones(n) for n in sizes]),
        _total(weights, estimate),
        unit * _total(weights, own),
    ]
    lines.append("| weighted sum | | " + " | ".join(f"{total:,.4g}" for total in totals) + " | |")
    return [
        *lines,
        "",
        f"Certified gap {strategy.gap:.1e}. Planned in {planned:.1f} CPU s; peak {peak:.2f} GiB, the workload included. Measured and read: "
        f"{seconds:.2f} CPU s a column, {seconds * cells:.0f} for all {cells}.",
    ]


def _total(weights: Sequence[Matrix], values: Sequence[Matrix]) -> float:
    return sum(float(w @ each) for w, each in zip(weights, values, strict=True))


if __name__ == "__main__":
    main()
