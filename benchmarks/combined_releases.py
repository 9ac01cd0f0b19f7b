"""How often 95 % intervals of combined releases hold the true counts, and how much smaller their errors are.

    python -m benchmarks.combined_releases [--json]
    python -m benchmarks.combined_releases --cells N [--weighted]

500 histories are drawn: a month of four weeks over 12 x 2 x 3 cells. In every week one release has all pairs of attributes and another one
the whole table, with Gaussian noise of standard deviation 20 and 30; both are joined, and the weeks are added up. All answers of both
releases count. The noise is drawn as real numbers, from a public seed.

With ``--cells`` two tables of about N cells (a cube) in files are joined, read slab by slab; printed are CPU seconds, by how much the
peak of the process grew, and what is planned for it. With ``--weighted`` the second release has measured, in place of all cells, marginals:
rows along each attribute that weigh every value and their sum, whose measured values are held in memory.

With ``--cells N --weeks W`` published answers of W weeks over the same cells are combined, as ``dpdist combine`` does it, and written; the
answers are drawn, and each week's table is made of 64 files, without a certificate.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from dpdist.arrays.lazy_vector import ArrayVector
from dpdist.operators import Identity, Matrix
from dpdist.plugins.combine.combined_editions import CombinedEdition
from dpdist.plugins.combine.combined_releases import combine_releases, combined_bytes, write_estimates
from dpdist.plugins.combine.independent_terms import IndependentTerm
from dpdist.plugins.combine.pooled_measurement import pool
from dpdist.plugins.combine.pooled_slabs import SlabPool, StoredTable, slab_bytes
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


def weighted_marginals(side: int, state: np.random.Generator) -> IndependentTerm:
    """What a release measures of a table by rows that weigh each value, and all of them together."""
    rows = np.eye(side) + 0.5 / side
    values = state.standard_normal((side, side, side))
    values *= 20.0
    values += 100.0 * float(rows[0].sum()) ** 3
    return IndependentTerm((0, 1, 2), (rows, rows, rows), values.reshape(-1), 20.0)


def join_stored(cells: int, *, weighted: bool = False) -> dict[str, float]:
    """How long two tables take to be joined, of which one at least is in a file, and how much memory."""
    side = round(cells ** (1 / 3))
    shape, state = (side, side, side), np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        tables = []
        for number in range(1 if weighted else 2):
            path = Path(folder) / f"{number}.npy"
            values = np.lib.format.open_memmap(path, "w+", np.int64, (side, side**2))
            for part in values:
                part[:] = np.rint(state.normal(100, 20, part.size))
            del values, part
            tables.append(StoredTable((0, 1, 2), ArrayVector(np.load(path, mmap_mode="r").reshape(-1)), 20.0))
        block = Block("all", (0, 1, 2), (Identity(side),) * 3, ((), (), ()))
        begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        terms = [weighted_marginals(side, state)] if weighted else []
        ((answers, variances),) = SlabPool(shape, tables, terms, [block]).estimates()
        if weighted:
            assert abs(float(answers.mean()) - 100) < 1
            assert float(variances.max()) <= 200
        else:
            first = np.mean([table.values.read(0, 1000) for table in tables], axis=0)
            assert np.allclose(answers[:1000], first)
            assert np.allclose(variances[:1000], 200)
        return {
            "cells": side**3,
            "cpu_seconds": time.process_time() - begin,
            "peak_GiB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20,
            "planned_GiB": slab_bytes(shape, side**3, held_values=side**3 if weighted else 0) / 2**30,
        }


def publish_answers(folder: Path, side: int, state: np.random.Generator) -> CombinedEdition:
    """A week of which all cells were measured with noise 20, and the answers alone were published."""
    (folder / "answers.parquet").mkdir(parents=True)
    names = pa.array([str(number) for number in range(side)])
    for number, part in enumerate(np.array_split(np.arange(side), 64)):
        codes = np.unravel_index(np.arange(part.size * side**2), (part.size, side, side))
        texts = {
            name: names.take(pa.array(code))
            for name, code in zip("abc", (codes[0] + part[:1].sum(), *codes[1:]), strict=True)
        }
        query = pa.compute.binary_join_element_wise(*texts.values(), ", ")
        answers = np.round(state.normal(100, 20, codes[0].size), 3)
        low, high = answers - 39.2, answers + 39.2
        columns = {"group": pa.repeat("a x b x c", answers.size), "query": query, **texts}
        columns |= {"answer": answers, "standard_error": np.full(answers.size, 20.0), "low_95": low, "high_95": high}
        if answers.size:
            pyarrow.parquet.write_table(pa.table(columns), folder / "answers.parquet" / f"part-{number:05d}.parquet")
    (folder / "release.json").write_text("{}")
    certificate = {
        **{
            "release": folder.name,
            "period": folder.name,
            "dataset": "drawn",
            "post_processing": [],
            "method": {"meaning": ""},
        },
        "mechanism": {"biased": False},
        "privacy": {"noise": "Gaussian", "noise_scale_on_grid": 20, "bound_enforced_while_counting": False},
        "measurement": {"why": "it is too large"},
    }
    return CombinedEdition(folder, certificate, None, ())


def combine_weeks(cells: int, weeks: int) -> dict[str, float]:
    """How long published answers of weeks take to be added up and written, and how much memory."""
    side, state = round(cells ** (1 / 3)), np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        editions = [publish_answers(Path(folder) / f"2026-11-{day:02d}", side, state) for day in range(2, 2 + 7 * weeks, 7)]
        begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        combined = combine_releases(editions)
        write_estimates(combined, Path(folder) / "months")
        read = pyarrow.parquet.ParquetFile(Path(folder) / "months" / "estimates.parquet")
        first = read.read_row_group(0)
        assert read.metadata.num_rows == side**3
        assert np.allclose(first["standard_error"].to_numpy(), 20 * weeks**0.5)
        assert abs(first["estimate"].to_numpy().mean() - 100 * weeks) < 1
        return {
            "cells": side**3,
            "weeks": weeks,
            "cpu_seconds": time.process_time() - begin,
            "peak_GiB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20,
            "planned_GiB": combined_bytes(side**3) / 2**30,
        }


def main() -> None:
    """Print the shares, or what joining takes."""
    if "--cells" in sys.argv[1:]:
        cells = int(sys.argv[sys.argv.index("--cells") + 1])
        if "--weeks" in sys.argv[1:]:
            print(json.dumps(combine_weeks(cells, int(sys.argv[sys.argv.index("--weeks") + 1]))))
            return
        print(json.dumps(join_stored(cells, weighted="--weighted" in sys.argv[1:])))
        return
    result = simulate()
    if "--json" in sys.argv[1:]:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name.replace('_', ' ')}: {value:.4f}")


if __name__ == "__main__":
    main()
