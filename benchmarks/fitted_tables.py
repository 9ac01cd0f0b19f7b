"""What fitting non-negative tables does to their errors, what it takes, and whether intervals hold at every size of count.

    python benchmarks/fitted_tables.py [--records FILE.npz --sizes FILE.json] [--ways 2] [--epsilon 0.1 1 10]
        [--out benchmarks/results/fitted_tables.md]

The tables are all those of so many attributes with at most 10,000 cells, released once by the certified optimum for marginals at the
given epsilon and delta = 1e-9, with noise from a fixed seed; the number of records is estimated. 'raw', 'apart' and 'together' are mean
total variation distances of the unbiased tables, of each projected onto non-negative cells with its total, and of those that agree with
each other; 'expected' that of the tables that synthetic records are made of (``posterior_tables``). 'squared' is the total
squared error of 'together' over that of the unbiased ones. 'CPU s' is the fit alone, on one core. 'length' is the mean length of the
intervals over that of the uncut ones around the unbiased answers; 'covered' is the least share of true counts that they hold, over counts
of 0, 1 to 3, 4 to 10, 11 to 30, 31 to 100, 101 to 1,000 and above. 'records' is the mean total variation distance of the same tables of
synthetic records, '3-way' that of all tables of three attributes with at most 10,000 cells of these records, whether they were measured
or not. FILE.npz holds an array of whole numbers from 0 for each attribute, FILE.json the number of values of each (Adult with 14
attributes in the recorded figures); without them records are drawn.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from pathlib import Path

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, to_array
from dpdist.domain import Attribute, Domain
from dpdist.plugins.nonnegative_answers.nonnegative_cells import covering_half_widths
from dpdist.plugins.nonnegative_answers.nonnegative_tables import threshold
from dpdist.plugins.nonnegative_answers.posterior_tables import posterior_tables
from dpdist.plugins.nonnegative_answers.table_fitting import cut_answers, fit_together, query_groups, tolerance_for
from dpdist.plugins.synthetic.synthetic_records import SyntheticModel
from dpdist.privacy.accounting import Loss, rho_for
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.strategies.tables.marginal_optimum import marginal_optimum
from dpdist.workloads import Workload, marginals

MOST_CELLS = 10_000
DRAWN = (20, 8, 30, 12, 5)
"""Sizes of the attributes of records that are drawn."""
SIZES = (0, 1, 4, 11, 31, 101, 1001)
"""Least counts of the sizes at which coverage is looked at."""
COLUMNS = (
    "ways",
    "epsilon",
    "cells",
    "raw",
    "apart",
    "together",
    "expected",
    "squared",
    "CPU s",
    "length",
    "covered",
    "records",
    "3-way",
)


def records_of(given: argparse.Namespace) -> tuple[np.ndarray, tuple[int, ...]]:
    """Codes of all records, (records, attributes), and the sizes of the attributes."""
    if given.records is not None:
        sizes = json.loads(given.sizes.read_text())
        columns = np.load(given.records)
        return np.array([columns[name] for name in sizes]).T.astype(np.int64), tuple(sizes.values())
    state = np.random.default_rng(1)
    return np.array([(state.geometric(0.4, 3000) - 1).clip(0, size - 1) for size in DRAWN]).T, DRAWN


def tables_of(sizes: tuple[int, ...], ways: int) -> Workload:
    """The tables that are released."""
    domain = Domain.of_shape(sizes)
    few = [s for s in itertools.combinations(range(len(sizes)), ways) if math.prod(sizes[axis] for axis in s) <= MOST_CELLS]
    every = {block.asked_axes: block for block in marginals(domain, ways).blocks}
    return Workload(domain, tuple(every[s] for s in few))


def counted(codes: np.ndarray, workload: Workload) -> np.ndarray:
    """The true answers."""
    out = []
    for part in query_groups(workload):
        places = np.ravel_multi_index(tuple(codes[:, axis] for axis in part.axes), part.shape)
        out.append(np.bincount(places, minlength=part.stop - part.start))
    return np.concatenate(out).astype(float)


def released(workload: Workload, codes: np.ndarray, epsilon: float, *, of: Workload) -> Answers:
    """Unbiased answers ``of`` what one release of a workload measured."""
    grid = marginal_optimum(workload).measurement(workload, neighbours="add-remove", most_records=1)
    noise = grid.noise(Loss(rho_for(epsilon, 1e-9)))
    drawn = np.rint(np.random.default_rng(0).standard_normal(grid.rows) * noise.deviation).astype(np.int64)
    found = grid.answers(of, ArrayVector(drawn), noise, AnswerRequest("x"))
    return Answers(ArrayVector(counted(codes, of) + to_array(found.answer)), found.error, found.half_width)


def expected(known: list[tuple[Workload, Answers]], sizes: tuple[int, ...]) -> SyntheticModel:
    """The tables that records are made of: what is expected of them. Errors of sums over values are taken for independent here.

    Args:
        known: tables with what is known of each, small ones first; the last are those of which records are made.
    """
    read = {}
    for tables, answers in known:
        values, errors = to_array(answers.answer), to_array(answers.error)
        for part in query_groups(tables):
            rows = slice(part.start, part.stop)
            read[part.axes] = values[rows].reshape(part.shape), errors[rows].reshape(part.shape)

    def sums(axis: int, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, errors = read[axis,]
        return vectors @ values, np.sqrt(vectors @ errors**2)

    axes = tuple(part.axes for part in query_groups(known[-1][0]))
    total = float(np.mean([read[axis,][0].sum() for axis in range(len(sizes))]))
    attributes = tuple(Attribute(f"x{place}", edges=range(size + 1)) for place, size in enumerate(sizes))
    return SyntheticModel(attributes, axes, tuple(posterior_tables(axes, sizes, total, read.__getitem__, sums)), 1)


def row(codes: np.ndarray, sizes: tuple[int, ...], ways: int, epsilon: float) -> str:
    """One line of the table."""
    workload = tables_of(sizes, ways)
    truth, parts = counted(codes, workload), query_groups(workload)
    unbiased = released(workload, codes, epsilon, of=workload)
    answers, half = to_array(unbiased.answer), to_array(unbiased.half_width)
    groups = [slice(part.start, part.stop) for part in parts]
    apart = np.concatenate(
        [cut_answers(answers[group], "table", threshold(answers[group], answers[group].sum())) for group in groups]
    )
    clock = time.process_time()
    tolerance = tolerance_for(parts, to_array(unbiased.error))
    fitted, _ = fit_together(parts, workload.domain.shape, None, tolerance, answers)
    took = time.process_time() - clock

    def variation(found: np.ndarray) -> float:
        return float(np.mean([np.abs(found[group] - truth[group]).sum() for group in groups])) / (2 * len(codes))

    smaller = [tables_of(sizes, fewer) for fewer in range(1, ways)]
    known = [(each, released(workload, codes, epsilon, of=each)) for each in smaller]
    model = expected([*known, (workload, unbiased)], sizes)
    likely, made = np.concatenate([table.ravel() for table in model.tables]), model.draw_records().codes
    three = tables_of(sizes, 3)
    beyond = [slice(part.start, part.stop) for part in query_groups(three)]
    shares = [counted(each, three) / len(each) for each in (made, codes)]
    three_ways = float(np.mean([np.abs(shares[0][part] - shares[1][part]).sum() / 2 for part in beyond]))
    around = covering_half_widths(fitted, answers, half, 0.0)
    low, high = np.maximum(fitted - around, 0), fitted + around
    inside, size = (low <= truth) & (truth <= high), np.searchsorted(SIZES, truth, side="right")
    covered = min(float(inside[size == k].mean()) for k in np.unique(size))
    squared = float(((fitted - truth) ** 2).sum() / ((answers - truth) ** 2).sum())
    length = float((high - low).mean() / (2 * half).mean())
    cells = f"{truth.size:,}"
    variations = [f"{variation(found):.4f}" for found in (answers, apart, fitted, likely)]
    figures = (
        f"{ways}",
        f"{epsilon:g}",
        cells,
        *variations,
        f"{squared:.3f}",
        f"{took:.1f}",
        f"{length:.2f}",
        f"{covered:.3f}",
        f"{variation(counted(made, workload)):.4f}",
        f"{three_ways:.4f}",
    )
    return f"| {' | '.join(figures)} |"


def main() -> None:
    """Print the table, and write it."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--records", type=Path)
    asked.add_argument("--sizes", type=Path)
    asked.add_argument("--ways", type=int, nargs="+", default=[2])
    asked.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    codes, sizes = records_of(given)
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for ways, epsilon in itertools.product(given.ways, given.epsilon):
        lines.append(row(codes, sizes, ways, epsilon))
        print(lines[-1], flush=True)
    told = (__doc__ or "").split("fitted_tables.md]")[1].strip()
    if given.out:
        given.out.write_text(
            "# Fits of non-negative tables\n\n`python benchmarks/fitted_tables.py`\n\n"
            + told
            + "\n\n"
            + "\n".join(lines)
            + "\n"
        )


if __name__ == "__main__":
    main()
