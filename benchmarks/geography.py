"""Nested levels beside the estimators of census products: squared error a level, seconds and memory, on a synthetic census.

    python benchmarks/geography.py [--blocks 1000000] [--cells 252] [--columns 8] [--out benchmarks/results/geography.md]
    python benchmarks/geography.py --released 20000000 [--worker-gib 1] [--blocks 1000000] [--cells 252] [--out FILE]

Six levels (country, states, counties, tracts, groups of blocks, blocks) of unequal families, the same table at each, one total rho. Three
ways to spend and read it: TopDown's measurements as they are (the same rho for every level), their best linear unbiased estimate (what
BlueDown, arXiv 2603.10099, and SEA BLUE, 2409.04387, compute of such measurements), and dpdist. All three are unbiased, so squared errors
are variances, which are exact, at rho = 0.5 (noise of deviation 1 for one count). For a few columns of sparse counts noise is drawn, too.
'drawn' are mean squared errors of these draws, of dpdist's unbiased answers; '>= 0' those of the answers with 'non_negative'; 'top down'
those where the same unbiased estimate goes down from the country, each family by the closest non-negative counts whose sum is the parent's,
as TopDown and its successors do (without their whole numbers); 'theirs, top down' that of their best estimate. The ways of others share
dpdist's passes: they are no runs of those authors' programs. Once every count of every level counts alike, once every level.

With --released a whole release with so many records is made and published by local workers, with 'non_negative': seconds, memory, whether
levels add up, and how many true counts the intervals hold, by their size.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dpdist.arrays.array_workspace import MEMORY
from dpdist.domain import Attribute, Domain, Level
from dpdist.operators import Matrix
from dpdist.plugins.geography.hierarchy_measurement import NodeRows
from dpdist.plugins.geography.level_fitting import LevelFit
from dpdist.plugins.geography.nested_groups import Hierarchy, nested_of
from dpdist.plugins.geography.node_variances import MergedHierarchy, NodeVariances
from dpdist.reconstruction.answer_vectors import Answers
from dpdist.strategies import nested
from dpdist.workloads import Workload
from dpdist.workloads.product_queries import listed_marginals

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
    passes = MergedHierarchy(tree.parents, tree.weights, np.ones(tree.sizes[-1]))
    share = 1.0 / len(tree.sizes)
    return NodeVariances.of(passes, [np.full(n, share) for n in tree.sizes], np.ones(tree.sizes[-1]))


@dataclass(frozen=True)
class Drawn:
    """Mean squared errors a level of some columns of sparse counts, and CPU seconds of a column."""

    unbiased: list[float]
    fitted: list[float]
    downwards: list[float]
    seconds: float
    fitting: float


def drawn(workload: Workload, rows: NodeRows, deviation: float, columns: int, seed: int = 1) -> Drawn:
    """What noise of a deviation does to some columns, and what fits make of it."""
    rng, levels = np.random.default_rng(seed), nested_of(workload)
    counts = rng.poisson(rng.gamma(0.3, 1.0, (columns, rows.nodes.size)))
    started = time.process_time()
    measured = rows.measure(counts)
    found = rows.estimates(measured + np.rint(rng.standard_normal(measured.shape) * deviation).astype(np.int64))
    seconds = (time.process_time() - started) / columns
    truth = [counts[:, np.argsort(rows.nodes, kind="stable")].astype(np.float64)]
    for level in reversed(range(len(rows.inner))):
        truth.insert(0, rows.sum_children(level, truth[0]))
    fit = LevelFit.of(workload, MEMORY)
    assert fit is not None
    answers = np.concatenate([found[each.level][:, each.nodes].T for each in levels.counted_nodes])
    closest = replace(fit, after=columns)
    closest.fit_in_memory(answers[:, :1].repeat(columns, axis=1).ravel(), None)  # compiled
    started = time.process_time()
    made = closest.fit_in_memory(answers.ravel(), None).reshape(answers.shape)
    fitting = (time.process_time() - started) / columns
    asked = np.split(made, np.cumsum([each.nodes.size for each in levels.counted_nodes])[:-1])
    fitted = [
        part
        for _, part in sorted(
            zip((each.level for each in levels.counted_nodes), asked, strict=True), key=lambda pair: pair[0]
        )
    ]
    order = {each.level: each.nodes for each in levels.counted_nodes}
    errors = [float(np.mean((part - truth[level][:, order[level]].T) ** 2)) for level, part in enumerate(fitted)]
    return Drawn(_errors(found, truth), errors, _errors(top_down(rows, found), truth), seconds, fitting)


def _errors(found: Sequence[Matrix], truth: Sequence[Matrix]) -> list[float]:
    return [float(np.mean((a - b) ** 2)) for a, b in zip(found, truth, strict=True)]


def top_down(rows: NodeRows, found: Sequence[Matrix]) -> list[Matrix]:
    """Counts of all levels, (columns, nodes): from the root, each family the closest of its estimates that are >= 0 and have its sum."""
    out = [np.maximum(found[0], 0.0)]
    for level, (parents, starts) in enumerate(zip(rows.parents, rows.starts, strict=True)):
        place = np.arange(parents.size) - starts[parents] + 1
        made = np.empty_like(found[level + 1])
        for column, values in enumerate(found[level + 1]):
            order = np.lexsort((-values, parents))
            sums = np.cumsum(values[order])
            sums -= np.append(0.0, sums[starts[1:] - 1])[parents]
            cuts = (sums - out[level][column][parents]) / place
            kept = np.maximum(np.add.reduceat((values[order] > cuts).astype(np.int64), starts), 1)
            made[column] = np.maximum(values - cuts[starts + kept - 1][parents], 0.0)
        out.append(made)
    return out


def main() -> None:
    """Print the table, for levels that count as often as they have nodes and for levels that count alike; or a release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=10**6)
    parser.add_argument("--cells", type=int, default=252)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--released", type=int, metavar="RECORDS")
    parser.add_argument("--worker-gib", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = []
    if given.released:
        with tempfile.TemporaryDirectory() as name:
            lines = whole_release(given, Path(name))
        print("\n".join(lines), flush=True)
    for even in () if given.released else (False, True):
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
    rows, sizes, weights = strategy.node_rows, levels.tree.sizes, levels.tree.weights
    unit = float(rows.column_squares.max())
    own = drawn(workload, rows, math.sqrt(unit), columns)
    every = tuple(np.ones(size, dtype=np.int64) for size in sizes)
    theirs = drawn(
        workload,
        NodeRows(levels.tree.parents, levels.nodes, every[-1], every[:-1], every[-1]),
        math.sqrt(len(sizes)),
        columns,
    )
    estimate, variances = equal_shares(levels.tree).values, rows.variances.values
    lines = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
    for k, size in enumerate(sizes):
        numbers = (len(sizes), float(estimate[k].mean()), unit * float(variances[k].mean()), own.unbiased[k])
        numbers = (*numbers, own.fitted[k], own.downwards[k], theirs.downwards[k])
        lines.append(f"| {k} | {size:,} | " + " | ".join(f"{number:.3f}" for number in numbers) + " |")
    totals = [
        len(sizes) * _total(weights, [np.ones(n) for n in sizes]),
        _total(weights, estimate),
        unit * _total(weights, variances),
        *(
            sum(float(w.sum()) * e for w, e in zip(weights, errors, strict=True))
            for errors in (own.unbiased, own.fitted, own.downwards)
        ),
        sum(float(w.sum()) * e for w, e in zip(weights, theirs.downwards, strict=True)),
    ]
    lines.append("| weighted sum | | " + " | ".join(f"{total:,.4g}" for total in totals) + " |")
    return [
        *lines,
        "",
        f"Certified gap {strategy.gap:.1e}. Planned in {planned:.1f} CPU s; peak {peak:.2f} GiB, the workload included. Measured and read: "
        f"{own.seconds:.2f} CPU s a column, {own.seconds * cells:.0f} for all {cells}. Fitted: {own.fitting:.2f} CPU s a column, "
        f"{own.fitting * cells:.0f} for all.",
    ]


HEAD = ("level", "nodes", "measurements", "their best estimate", "dpdist", "drawn", ">= 0", "top down", "theirs, top down")
SIZES = (0, 1, 4, 11, 31, 101, 1001)
"""Least true counts of the sizes at which coverage is looked at."""
CHUNK = 2**24


def whole_release(given: argparse.Namespace, folder: Path) -> list[str]:
    """A release of all levels with what it took, and what its answers are."""
    from scale import released

    from dpdist.spec import load

    workload = census(given.blocks, given.cells)
    (block, _), names = workload.domain.attributes, [level.name for level in workload.domain.attributes[0].levels]
    rows = zip(range(given.blocks), *(level.groups for level in block.levels), strict=True)
    (folder / "levels.csv").write_text("\n".join([",".join(["block", *names]), *(",".join(map(str, row)) for row in rows)]))
    codes = written(folder / "records.parquet", given.released, given.blocks, given.cells)
    os.environ["DPDIST_HOME"] = str(folder / "home")
    os.chdir(folder)
    spec = {
        "release": "census",
        "records": {"path": "records.parquet"},
        "domain": {
            "block": {"from": 0, "to": given.blocks - 1, "levels": "levels.csv"},
            "cell": {"from": 0, "to": given.cells - 1},
        },
        "workload": [{"marginals": {"of": [["cell"], *([name, "cell"] for name in names), ["block", "cell"]]}}],
        "mechanism": "nested",
        "postprocess": {"non_negative": True},
        "budget": {"rho": 0.5},
        "ledger": {"dataset": "census", "cap": {"rho": 0.5}},
    }
    lines, done = released(load(spec), folder, given)
    os.chdir("/")
    heading = f"## {workload.shape[0]:,} answers of {len(names) + 2} levels over {workload.shape[1]:,} cells, {given.released:,} records, "
    groups = [
        np.zeros(given.blocks, dtype=np.int64),
        *(np.array(level.groups) for level in block.levels),
        np.arange(given.blocks),
    ]
    return [
        f"{heading}2 workers of {given.worker_gib:g} GiB",
        "",
        *lines,
        *checked(done.columns, groups, codes, given.cells),
    ]


def written(path: Path, records: int, blocks: int, cells: int) -> Matrix:
    """Records of blocks of unequal size, and the sorted numbers of their cells."""
    rng, codes = np.random.default_rng(0), []
    ends = np.cumsum(rng.gamma(0.5, 2.0, blocks))
    schema = pa.schema([("block", pa.int32()), ("cell", pa.int32())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, records, 10**6):
            size = min(10**6, records - start)
            block = np.minimum(np.searchsorted(ends, rng.random(size) * ends[-1]), blocks - 1)
            cell = np.minimum(rng.geometric(0.05, size) - 1, cells - 1)
            writer.write_table(pa.table([pa.array(block, pa.int32()), pa.array(cell, pa.int32())], schema=schema))
            codes.append(block * cells + cell)
    return np.sort(np.concatenate(codes))


def checked(found: Answers, groups: Sequence[Matrix], codes: Matrix, cells: int) -> list[str]:
    """Mean squared errors and covered true counts, level by level, and how far the sums of levels are from each other."""
    lines, start, sums = (
        ["| level | answers | mean squared error | covered | least, by size of count |", "|---|---|---|---|---|"],
        0,
        [],
    )
    for level, group in enumerate(groups):
        size, squared, inside, every = (int(group.max()) + 1) * cells, 0.0, np.zeros(len(SIZES)), np.zeros(len(SIZES))
        own = np.sort(group[codes // cells] * cells + codes % cells)
        sums.append(np.zeros(cells))
        for low in range(0, size, CHUNK // cells * cells):
            high = min(size, low + CHUNK // cells * cells)
            first, last = np.searchsorted(own, (low, high))
            true = np.bincount(own[first:last] - low, minlength=high - low)
            answers, half = (vector.read(start + low, start + high) for vector in (found.answer, found.half_width))
            kind = np.searchsorted(SIZES, true, side="right") - 1
            squared += float(((answers - true) ** 2).sum())
            inside += np.bincount(kind, np.abs(answers - true) <= half, minlength=len(SIZES))
            every += np.bincount(kind, minlength=len(SIZES))
            sums[-1] += answers.reshape(-1, cells).sum(axis=0)
            assert answers.min() >= 0
        start += size
        shares = inside[every > 200] / every[every > 200]
        least = f"{shares.min():.4f}" if shares.size else ""
        lines.append(f"| {level} | {size:,} | {squared / size:.3f} | {inside.sum() / every.sum():.4f} | {least} |")
    away = max(float(np.abs(each - sums[0]).max()) for each in sums)
    return [
        *lines,
        "",
        f"No answer is below 0. The sums of a column over all groups differ by {away:.1e} between levels, at most.",
    ]


def _total(weights: Sequence[Matrix], values: Sequence[Matrix]) -> float:
    return sum(float(w @ each) for w, each in zip(weights, values, strict=True))


if __name__ == "__main__":
    main()
