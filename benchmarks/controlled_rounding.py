"""How long controlled rounding takes, and what it adds to the error, against rounding each answer alone.

    python -m benchmarks.controlled_rounding [--json] [--cells N]

Counts of N cells (a million by default) are drawn with many zeros, noise of standard deviation 3 is added, and answers are made
non-negative as a release does. They are rounded to whole numbers one by one, together to near ones, and together without a bias. "Error"
is the total squared error against the true counts over that of answers that are rounded one by one, and of the group of queries that
loses most; "off" is by how much totals differ from the sums of their parts when answers are rounded one by one, on average.

TopDown: levels of tracts by ten ages (N cells) are each measured with the same noise. From the same noisy tables the peer
``benchmarks.peers.topdown`` goes down from the root, with its linear program for each level, and dpdist takes least squares over all
levels, the closest non-negative tables that add up, and rounds these. Printed are CPU seconds and mean squared errors by level.

Intervals: the share of true counts in those of 500 histories of days and weeks. Zeros: of a perturbation by cell keys (a table with
variance 2 that keeps 0, as in the ABS's and Eurostat's method) and of dpdist.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from benchmarks.peers.topdown import topdown_tables
from dpdist.arrays.array_workspace import MEMORY
from dpdist.domain import Attribute, Domain, Level
from dpdist.operators import Groups, Identity, Operator, Total
from dpdist.plugins.geography.hierarchy_measurement import NodeRows
from dpdist.plugins.geography.level_fitting import LevelFit
from dpdist.plugins.geography.nested_groups import nested_of
from dpdist.plugins.nonnegative_answers.nonnegative_tables import TableFamily, fit_tables
from dpdist.plugins.whole_numbers.additive_queries import Rule, joint_tables
from dpdist.plugins.whole_numbers.whole_answers import round_answers
from dpdist.workloads import Block
from dpdist.workloads.product_queries import listed_marginals

NOISE, SEED = 3.0, 11
RULES: tuple[Rule, ...] = ("nearest", "unbiased")


def block(name: str, *factors: tuple[int, Operator]) -> Block:
    """A group of queries of one factor an attribute."""
    axes, operators = zip(*factors, strict=True)
    return Block(name, axes, operators, tuple(range(operator.shape[0]) for operator in operators))


def level(leaves: int, size: int) -> Operator:
    """Groups of as many leaves each."""
    groups = np.arange(leaves) // size
    return Groups(groups, int(groups[-1]) + 1)


def releases(cells: int) -> dict[str, tuple[list[Block], tuple[int, ...]]]:
    """What is asked of about so many cells."""
    side, edge, tracts = math.isqrt(cells), round(cells ** (1 / 3)), cells // 10
    sizes = [cells // 10**k for k in range(1, 6) if cells // 10**k > 1]
    geography = [block("all", (0, Total(cells))), *(block(f"groups of {size}", (0, level(cells, size))) for size in sizes)]
    pairs = [block(f"{a} by {b}", (a, Identity(edge)), (b, Identity(edge))) for a, b in ((0, 1), (0, 2), (1, 2))]
    ages = [
        each
        for size in (1, 10, 100, 1000)
        for each in (
            block(f"groups of {size} by age", (0, level(tracts, size)), (1, Identity(10))),
            block(f"groups of {size}", (0, level(tracts, size))),
        )
    ]
    table = [
        block("both", (0, Identity(side)), (1, Identity(side))),
        block("rows", (0, Identity(side))),
        block("columns", (1, Identity(side))),
    ]
    spans = [block(name, (0, level(cells, size))) for name, size in (("weeks", 7), ("months", 30), ("years", 365))]
    return {
        "days, weeks, months, years": ([*spans, block("days", (0, Identity(cells)))], (cells,)),
        "geography of 6 levels": ([*geography, block("leaves", (0, Identity(cells)))], (cells,)),
        "two-way table": (table, (side, side)),
        "geography by age": (ages, (tracts, 10)),
        "all pairs of three attributes": (pairs, (edge, edge, edge)),
    }


def noisy_answers(
    blocks: Sequence[Block], shape: tuple[int, ...], true: np.ndarray, state: np.random.Generator
) -> np.ndarray:
    """Non-negative answers that agree: of noisy cells, or of noisy tables where no group of queries has all cells."""
    if max(each.queries for each in blocks) == true.size:
        cells = np.maximum(true + state.normal(0, NOISE, shape), 0.0)
        return np.concatenate([each.operator(shape).matvec(cells.ravel()) for each in blocks])
    family = TableFamily(tuple(each.axes for each in blocks), shape, (1.0,) * len(blocks))
    tables = [
        each.operator(shape).matvec(true.ravel().astype(float)).reshape([shape[axis] for axis in each.axes])
        for each in blocks
    ]
    noisy = [table + state.normal(0, NOISE, table.shape) for table in tables]
    return np.concatenate([table.ravel() for table in fit_tables(family, noisy, float(true.sum()), 0.01 * NOISE).tables])


def measure(name: str, blocks: list[Block], shape: tuple[int, ...]) -> list[dict[str, object]]:
    """A row for each rule."""
    state = np.random.default_rng(SEED)
    true = state.poisson(state.gamma(0.3, 10.0, shape))
    answers = noisy_answers(blocks, shape, true, state)
    truth = np.concatenate([each.operator(shape).matvec(true.ravel().astype(float)) for each in blocks])
    starts = np.concatenate([[0], np.cumsum([each.queries for each in blocks])[:-1]])
    alone = np.add.reduceat((np.rint(answers) - truth) ** 2, starts)
    (table,) = joint_tables(blocks, shape)
    rows: list[dict[str, object]] = []
    for rule in RULES:
        start = time.process_time()
        made = round_answers(blocks, shape, answers, rule, SEED)
        seconds = time.process_time() - start
        together = np.add.reduceat((made.values - truth) ** 2, starts)
        finest = table.sums[0]
        parts = np.rint(answers[starts[finest.number] :][: blocks[finest.number].queries])
        row = {
            "release": name, "cells": table.cells, "rule": rule, "kind": table.kind, "seconds": round(seconds, 1),
            "error": round(float(together.sum() / alone.sum()), 4), "worst_group": round(float((together / alone).max()), 4),
            "farthest": made.deviation, "off": round(abs(float(parts.sum() - answers[starts[finest.number] :][: parts.size].sum())), 1),
        }  # fmt: skip
        rows.append(row)
    return rows


def zeros(cells: int) -> dict[str, float]:
    """The shares of true zeros and of cells with one record that are published as 0."""
    state = np.random.default_rng(SEED)
    true = state.poisson(state.gamma(0.3, 10.0, cells))
    kept = np.where(true == 0, 0, np.maximum(true + np.rint(state.normal(0, math.sqrt(2), cells)), 0))
    blocks = [block("cells", (0, Identity(cells))), block("all", (0, Total(cells)))]
    noisy = np.maximum(true + state.normal(0, NOISE, cells), 0.0)
    made = round_answers(blocks, (cells,), np.append(noisy, noisy.sum()), "nearest", SEED).values[:-1]
    shares = {}
    for name, published in (("cell_keys", kept), ("dpdist", made)):
        shares[f"{name}_zeros_shown_as_zero"] = round(float((published[true == 0] == 0).mean()), 3)
        shares[f"{name}_ones_shown_as_zero"] = round(float((published[true == 1] == 0).mean()), 3)
    return shares


def beside_topdown(tracts: int, ages: int = 10) -> list[dict[str, object]]:
    """A row a level: mean squared errors of TopDown's whole numbers and of dpdist's, of the same noisy tables."""
    state, sizes = np.random.default_rng(SEED), [tracts, *(size for size in (1000, 100, 10, 1) if size < tracts)]
    true = state.poisson(state.gamma(0.3, 10.0, (tracts, ages))).astype(float)
    truth = [true.reshape(-1, size, ages).sum(axis=1) for size in sizes]
    noisy = [table + state.normal(0, NOISE, table.shape) for table in truth]
    families = [above // below for above, below in pairwise(sizes)]
    start = time.process_time()
    theirs = topdown_tables(noisy, families)
    seconds = [time.process_time() - start]
    start = time.process_time()
    ours = fitted_levels(noisy, families)
    blocks = [block(f"groups of {size} by age", (0, level(tracts, size)), (1, Identity(ages))) for size in sizes]
    rounded = round_answers(
        blocks, (tracts, ages), np.concatenate([table.ravel() for table in ours]), "nearest", SEED
    ).values
    seconds.append(time.process_time() - start)
    whole = np.split(rounded, np.cumsum([table.size for table in noisy])[:-1])
    for above, below, family in zip(theirs, theirs[1:], families, strict=False):
        assert (above == below.reshape(-1, family, ages).sum(axis=1)).all()
    return [
        {
            "level": f"groups of {size}", "tables": len(table), "topdown": round(float(((peer - table) ** 2).mean()), 3),
            "dpdist": round(float(((own.reshape(table.shape) - table) ** 2).mean()), 3),
            "topdown_seconds": round(seconds[0], 1), "dpdist_seconds": round(seconds[1], 1),
        }
        for size, table, peer, own in zip(sizes, truth, theirs, whole, strict=True)
    ]  # fmt: skip


def fitted_levels(noisy: Sequence[np.ndarray], families: Sequence[int]) -> list[np.ndarray]:
    """Tables of all levels, from the root on, as 'non_negative' makes them of levels that were measured alike."""
    leaves, ages = noisy[-1].shape
    sizes = [len(table) for table in noisy[:-1]]
    levels = tuple(
        Level(f"l{size}", tuple(map(str, range(size))), tuple(np.repeat(np.arange(size), leaves // size).tolist()))
        for size in sizes[:0:-1]
    )
    tract = Attribute("tract", categories=tuple(map(str, range(leaves))), levels=levels)
    domain = Domain((tract, Attribute("age", edges=tuple(range(ages + 1)))))
    workload = listed_marginals(domain, [("age",), *((each.name, "age") for each in reversed(levels)), ("tract", "age")])
    tree = nested_of(workload).tree
    ones = [np.ones(size, dtype=np.int64) for size in tree.sizes]
    rows = NodeRows(tree.parents, np.arange(leaves), ones[-1], tuple(ones[:-1]), ones[-1])
    estimates = rows.estimates(np.concatenate([table.T for table in noisy], axis=1))
    answers = np.concatenate([table.T.ravel() for table in estimates])
    fitted = LevelFit.of(workload, MEMORY).fit_in_memory(answers, None)
    return [part.reshape(-1, ages) for part in np.split(fitted, np.cumsum([table.size for table in noisy])[:-1])]


def coverage(histories: int = 500, cells: int = 210) -> dict[str, float]:
    """The shares of true counts that intervals of whole numbers hold, over histories of unbiased answers, by rule."""
    blocks = [block("all", (0, Total(cells))), block("weeks", (0, level(cells, 7))), block("days", (0, Identity(cells)))]
    state, operators = np.random.default_rng(SEED), [each.operator((cells,)) for each in blocks]
    deviations = np.concatenate([NOISE * np.sqrt(operator.row_norms_squared()) for operator in operators])
    shares = dict.fromkeys(RULES, 0.0)
    for history in range(histories):
        true = state.poisson(50, cells).astype(float)
        noisy = true + state.normal(0, NOISE, cells)
        answers, truth = (np.concatenate([operator.matvec(each) for operator in operators]) for each in (noisy, true))
        for rule in RULES:
            made = round_answers(blocks, (cells,), answers, rule, history)
            shares[rule] += float((np.abs(made.values - truth) <= 1.96 * deviations + made.deviation).mean()) / histories
    return shares


def main() -> None:
    """Print the table, or its numbers as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cells", type=int, default=10**6)
    options = parser.parse_args()
    rows = [row for name, (blocks, shape) in releases(options.cells).items() for row in measure(name, blocks, shape)]
    beside_topdown(100)  # compiled
    shares, peers = zeros(options.cells // 10), beside_topdown(options.cells // 10)
    covered = coverage()
    if options.json:
        print(json.dumps({"rows": rows, "zeros": shares, "covered": covered, "topdown": peers}))
        return
    print(
        "| release | cells | rule | CPU seconds | error | worst group | no answer moved by more than | sum of parts off by, one by one |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        columns = ("release", "cells", "rule", "seconds", "error", "worst_group", "farthest", "off")
        print(
            "| " + " | ".join(f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in columns) + " |"
        )
    print("\n| level | tables of ten ages | TopDown, squared error | dpdist |\n|---|---|---|---|")
    for peer in peers:
        print(f"| {peer['level']} | {peer['tables']:,} | {peer['topdown']} | {peer['dpdist']} |")
    print(f"\nCPU seconds: TopDown {peers[0]['topdown_seconds']}, dpdist {peers[0]['dpdist_seconds']}.")
    print(f"\nTrue zeros that are published as 0: {shares['cell_keys_zeros_shown_as_zero']:.1%} by cell keys that keep zeros, "
          f"{shares['dpdist_zeros_shown_as_zero']:.1%} by dpdist; cells with one record that are: "
          f"{shares['cell_keys_ones_shown_as_zero']:.1%} and {shares['dpdist_ones_shown_as_zero']:.1%}.")  # fmt: skip
    print(
        f"True counts within 95 % intervals of whole numbers, 500 histories: {covered['nearest']:.2%} and {covered['unbiased']:.2%}."
    )


if __name__ == "__main__":
    main()
