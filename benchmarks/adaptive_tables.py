"""Tables of adaptive rounds beside those of the certified optimum, AIM and MST: same data, same (epsilon, delta).

    python benchmarks/adaptive_tables.py [--sets FOLDER | --records FILE.npz --sizes FILE.json] [--ways 2 3] [--epsilon 0.1 1 10]
        [--repeats 3] [--private-pgm FOLDER PYTHON] [--out benchmarks/results/adaptive_tables.md]

The workload is all tables of two (three) attributes with at most 10,000 cells; delta is 1e-9. 'two' and 'three' are mean total variation
distances of all such tables of two and of three attributes from the true ones, means over the repeats (keys, or seeds), 'squared' the total
squared error of the tables that were asked for over that of the unbiased optimum, 'relative' the mean of |error| / max(count, 10).
'marginals' is the certified optimum with ``non_negative``, which answers only the tables that it measured; 'adaptive' draws its exact
noise; both take the number of records as unknown. 'rounds' is how many tables were chosen. AIM (models of at most 10 MB, 300 iterations)
and MST are those of private-pgm (``benchmarks/peers/private_pgm.py``), once each; their tables are counted in their synthetic records. CPU
seconds are those of the mechanism: of measuring, choosing and fitting. 'modelled' is the share of the answers that come from the model,
'held' the share of their true counts that their intervals hold, 'worst' the least such share over counts of one size (0, 1 to 3, 4 to 10,
11 to 30, 31 to 100, 101 to 1,000 and above), 'used' the largest sum of errors of such a table over its bound.
FOLDER: see ``benchmarks/record_sets.py``.
FILE.npz and FILE.json: see ``benchmarks/fitted_tables.py``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from fitted_tables import SIZES, counted, records_of, released, tables_of

from dpdist.arrays.lazy_vector import to_array
from dpdist.domain import Layout
from dpdist.plugins.adaptive.aim import AimMeasurement, Rounds, aim_measurement
from dpdist.plugins.adaptive.measured_tables import MeasuredTables
from dpdist.plugins.adaptive.model_intervals import half_widths, largest_distances
from dpdist.plugins.nonnegative_answers.table_fitting import QueryGroup, fit_together, query_groups, tolerance_for
from dpdist.privacy.accounting import Loss, rho_for
from dpdist.privacy.noise import Noise
from dpdist.workloads import Workload

DELTA = 1e-9
COLUMNS = (
    "asked",
    "epsilon",
    "mechanism",
    "two",
    "three",
    "squared",
    "relative",
    "rounds",
    "CPU s",
    "modelled",
    "held",
    "worst",
    "used",
)


def variation(parts: tuple[QueryGroup, ...], found: np.ndarray, truth: np.ndarray, records: int) -> float:
    """Mean total variation distance of tables."""
    if not parts:
        return math.nan
    return float(
        np.mean([np.abs(found[part.start : part.stop] - truth[part.start : part.stop]).sum() for part in parts])
    ) / (2 * records)


def errors(found: np.ndarray, truth: np.ndarray, raw: float) -> list[str]:
    """Squared and relative error."""
    relative = float(np.mean(np.abs(found - truth) / np.maximum(truth, 10)))
    return [f"{float(((found - truth) ** 2).sum()) / raw:.3f}", f"{relative:.3f}"]


def measured(
    codes: np.ndarray, workload: Workload, rho: Fraction, seed: int
) -> tuple[AimMeasurement, MeasuredTables, Noise, np.ndarray, float]:
    """What a release measures, with the true answers and the CPU seconds."""
    grid = aim_measurement(workload, "add-remove", 1)
    counts, clock = counted(codes, workload).astype(np.int64), time.process_time()  # in the order of the grid's tables
    noise, layout = grid.noise(Loss.gaussian(rho)), Layout(grid.shape, grid.tables)
    values = Rounds(grid, counts, layout, noise, rho, seed.to_bytes(32, "big")).values()
    return grid, grid.read_tables(values), noise, counts, time.process_time() - clock


@dataclass(frozen=True)
class ModelledTables:
    """Tables of a model: all of two and three attributes, those that are asked for, and what its bounds and intervals hold.

    Attributes:
        inside: of modelled answers, whether their intervals hold the true counts.
        true: these counts.
        used: the largest sum of errors of a table over its bound.
    """

    both: dict[int, np.ndarray]
    asked: np.ndarray
    took: float
    inside: np.ndarray
    true: np.ndarray
    used: float


def model_tables(
    measurement: tuple[AimMeasurement, MeasuredTables, Noise, np.ndarray, float], workload: Workload
) -> ModelledTables:
    """Answers of the model of what was measured."""
    grid, found, noise, counts, took = measurement
    clock = time.process_time()
    model = found.model(noise)

    def answers(tables: Workload) -> np.ndarray:
        return np.concatenate([model.table(part.axes).ravel() for part in query_groups(tables)])

    asked = answers(workload)
    took += time.process_time() - clock
    both = {ways: answers(tables_of(grid.shape, ways)) for ways in (2, 3) if len(grid.shape) > ways}
    bounds = largest_distances(found, grid.importances, model, noise)
    parts = [part for part in query_groups(workload) if part.axes in bounds]
    widths = half_widths(found, bounds, [part.axes for part in parts], model, noise)
    nothing = [np.zeros(0)]
    true = [counts[part.start : part.stop] for part in parts]
    apart = [np.abs(model.table(part.axes).ravel() - each) for part, each in zip(parts, true, strict=True)]
    inside = [each <= widths[part.axes].ravel() for each, part in zip(apart, parts, strict=True)]
    used = max((float(each.sum()) / bounds[part.axes] for each, part in zip(apart, parts, strict=True)), default=math.nan)
    return ModelledTables(both, asked, took, np.concatenate(inside or nothing), np.concatenate(true or nothing), used)


def coverage_columns(tables: list[ModelledTables]) -> list[str]:
    """The share of modelled answers, those of them that intervals hold, the least such share by size, and what bounds hold."""
    inside, true = (np.concatenate([getattr(each, name) for each in tables]) for name in ("inside", "true"))
    share = f"{inside.size / sum(each.asked.size for each in tables):.3f}"
    if not inside.size:
        return [share, "", "", ""]
    size = np.searchsorted(SIZES, true, side="right")
    worst = min(float(inside[size == k].mean()) for k in np.unique(size))
    return [share, f"{inside.mean():.3f}", f"{worst:.3f}", f"{max(each.used for each in tables):.2f}"]


def rows(
    codes: np.ndarray, sizes: tuple[int, ...], ways: int, epsilon: float, given: argparse.Namespace
) -> Iterator[list[str]]:
    """The lines of one workload and budget."""
    workload, records = tables_of(sizes, ways), len(codes)
    truth, parts, rho = counted(codes, workload), query_groups(workload), rho_for(epsilon, DELTA)
    unbiased = released(workload, codes, epsilon, of=workload)
    raw, clock = float(((to_array(unbiased.answer) - truth) ** 2).sum()), time.process_time()
    fitted, _ = fit_together(parts, sizes, None, tolerance_for(parts, to_array(unbiased.error)), to_array(unbiased.answer))
    took, own = time.process_time() - clock, f"{variation(parts, fitted, truth, records):.4f}"
    both = [own, ""] if ways == 2 else ["", own]
    yield [f"{ways}-way", f"{epsilon:g}", "marginals", *both, *errors(fitted, truth, raw), "", f"{took:.1f}"]
    every = {k: (tables_of(sizes, k), counted(codes, tables_of(sizes, k))) for k in (2, 3) if len(sizes) > k}
    releases = [measured(codes, workload, rho, seed) for seed in range(given.repeats)]
    rounds = f"{np.mean([each[1].rounds for each in releases]):.1f}"
    found = [model_tables(each, workload) for each in releases]
    variations = [
        f"{np.mean([variation(query_groups(w), each.both[k], t, records) for each in found]):.4f}"
        for k, (w, t) in every.items()
    ]
    asked = np.mean([[float(text) for text in errors(each.asked, truth, raw)] for each in found], axis=0)
    cpu = f"{np.mean([each.took for each in found]):.1f}"
    told = [*[*variations, ""][:2], *(f"{each:.3f}" for each in asked), rounds, cpu, *coverage_columns(found)]
    yield [f"{ways}-way", f"{epsilon:g}", "adaptive", *told]
    for name in ("mst", "aim") if given.private_pgm and ways == 2 else ():
        folder, python = given.private_pgm
        peer = Path(__file__).parent / "peers" / "private_pgm.py"
        command = [python, str(peer), folder, str(given.records), str(given.sizes), name, str(ways), str(epsilon), "0"]
        peers = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        three = "" if peers["three"] is None else f"{peers['three']:.4f}"
        both = [f"{peers['two']:.4f}", three, f"{peers['squared'] / raw:.3f}", f"{peers['relative']:.3f}"]
        yield [f"{ways}-way", f"{epsilon:g}", name.upper(), *both, "", f"{peers['cpu']:.1f}"]


def main() -> None:
    """Print the table, and write it."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sets", type=Path)
    asked.add_argument("--records", type=Path)
    asked.add_argument("--sizes", type=Path)
    asked.add_argument("--ways", type=int, nargs="+", default=[2, 3])
    asked.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    asked.add_argument("--repeats", type=int, default=3)
    asked.add_argument("--private-pgm", nargs=2, metavar=("FOLDER", "PYTHON"))
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    out = ["# Adaptive rounds"]
    for records in sorted(given.sets.glob("*.npz")) if given.sets else [given.records]:
        if given.sets:
            given.records, given.sizes = records, records.with_suffix(".json")
        codes, sizes = records_of(given)
        out.append(
            f"\n## {records and records.stem}\n\n{len(codes):,} records, {len(sizes)} attributes, {math.prod(sizes):.2g} cells.\n"
        )
        out += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        print("\n".join(out[-3:]), flush=True)
        for ways, epsilon in itertools.product(given.ways, given.epsilon):
            for row in rows(codes, sizes, ways, epsilon, given):
                out.append(f"| {' | '.join([*row, *[''] * len(COLUMNS)][: len(COLUMNS)])} |")
                print(out[-1], flush=True)
        if given.out is not None:
            given.out.write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
