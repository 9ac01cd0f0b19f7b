"""How often 95 % intervals of combined releases hold the true counts, and how much smaller their errors are.

    python -m benchmarks.combine [--json]
    python -m benchmarks.combine --cells N

500 histories are drawn: a month of four weeks over 12 x 2 x 3 cells. In every week one release has all pairs of attributes and another one
the whole table, with Gaussian noise of standard deviation 20 and 30; both are joined, and the weeks are added up. All answers of both
releases count. The noise is drawn as real numbers, from a public seed.

With ``--cells`` two tables of N cells (a square number) in files are joined, read slab by slab; printed are CPU seconds, by how much the
peak of the process grew, and what is planned for it.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.operators import Identity, Matrix
from dpdist.reconstruction.pooled_measurement import IndependentTerm, pool
from dpdist.reconstruction.pooled_slabs import SlabPool, StoredTable, slab_bytes
from dpdist.workloads import Block

SHAPE, WEEKS, HISTORIES, SEED = (12, 2, 3), 4, 500, 11
TABLES = (*combinations(range(3), 2), (0, 1, 2))
DEVIATIONS = (20.0, 20.0, 20.0, 30.0)
BLOCKS = tuple(Block(f"{axes}", axes, tuple(Identity(SHAPE[axis]) for axis in axes), ((),) * len(axes)) for axes in TABLES)


def margin(table: Matrix, axes: tuple[int, ...]) -> Matrix:
    """The table of some attributes, flat."""
    return np.asarray(table.sum(axis=tuple(axis for axis in range(3) if axis not in axes))).ravel()


def simulate(histories: int = HISTORIES) -> dict[str, float]:
    """Shares of true counts within intervals of weeks and of months, the least share of one group, and ratios of mean errors."""
    state = np.random.default_rng(SEED)
    within = np.zeros((2, len(BLOCKS)))
    ratios = np.zeros(len(BLOCKS))
    for _ in range(histories):
        months = [np.zeros((3, block.queries)) for block in BLOCKS]
        for _ in range(WEEKS):
            table = state.poisson(100, SHAPE).astype(np.float64)
            terms = [
                IndependentTerm(
                    axes, (None,) * len(axes), (truth := margin(table, axes)) + state.normal(0, noise, truth.size), noise
                )
                for axes, noise in zip(TABLES, DEVIATIONS, strict=True)
            ]
            pooled = pool(SHAPE, terms)
            for number, block in enumerate(BLOCKS):
                answers, variances = pooled.estimate(block)
                truth = margin(table, block.axes)
                within[0, number] += (np.abs(answers - truth) <= 1.96 * np.sqrt(variances)).mean() / WEEKS
                ratios[number] += float(np.sqrt(variances).mean()) / DEVIATIONS[number] / WEEKS
                months[number] += [answers, variances, truth]
        for number, (answers, variances, truth) in enumerate(months):
            within[1, number] += (np.abs(answers - truth) <= 1.96 * np.sqrt(variances)).mean()
    shares = within / histories
    return {
        "weeks_covered": float(shares[0].mean()),
        "months_covered": float(shares[1].mean()),
        "least_covered_group": float(shares.min()),
        "error_of_pairs": float(ratios[:3].mean() / histories),
        "error_of_whole_table": float(ratios[3] / histories),
    }


def join_stored(cells: int) -> dict[str, float]:
    """How long two tables in files take to be joined, and how much memory."""
    side = math.isqrt(cells)
    state, shape, slab = np.random.default_rng(SEED), (side, side), max(1, 2**22 // side)
    with tempfile.TemporaryDirectory() as folder:
        tables = []
        for number in range(2):
            path = Path(folder) / f"{number}.npy"
            values = np.lib.format.open_memmap(path, "w+", np.int64, (cells,))
            for start in range(0, side, slab):
                part = values[start * side : (start + slab) * side]
                part[:] = np.rint(state.normal(100, 20, part.size))
            del values, part
            tables.append(StoredTable((0, 1), ArrayVector(np.load(path, mmap_mode="r")), 20.0))
        block = Block("both", (0, 1), (Identity(side), Identity(side)), ((), ()))
        begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ((answers, variances),) = SlabPool(shape, tables, [], [block]).estimates()
        first = np.mean([table.values.read(0, 1000) for table in tables], axis=0)
        assert np.allclose(answers[:1000], first)
        assert np.allclose(variances[:1000], 200)
        return {
            "cells": cells,
            "cpu_seconds": time.process_time() - begin,
            "peak_GiB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20,
            "planned_GiB": slab_bytes(shape, cells) / 2**30,
        }


def main() -> None:
    """Print the shares, or what joining takes."""
    if "--cells" in sys.argv[1:]:
        print(json.dumps(join_stored(int(sys.argv[sys.argv.index("--cells") + 1]))))
        return
    result = simulate()
    if "--json" in sys.argv[1:]:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name.replace('_', ' ')}: {value:.4f}")


if __name__ == "__main__":
    main()
