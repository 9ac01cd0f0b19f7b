"""Tables of adaptive rounds beside those of the certified optimum, AIM and MST: same data, same (epsilon, delta).

    python benchmarks/adaptive.py [--sets FOLDER | --records FILE.npz --sizes FILE.json] [--ways 2 3] [--epsilon 0.1 1 10] [--repeats 3]
        [--private-pgm FOLDER PYTHON] [--out benchmarks/results/adaptive.md]

The workload is all tables of two (three) attributes with at most 10,000 cells; delta is 1e-9. 'two' and 'three' are mean total variation
distances of all such tables of two and of three attributes from the true ones, means over the repeats (keys, or seeds), 'squared' the total
squared error of the tables that were asked for over that of the unbiased optimum, 'relative' the mean of |error| / max(count, 10).
'marginals' is the certified optimum with ``non_negative``, which answers only the tables that it measured; 'adaptive' draws its exact
noise; both take the number of records as unknown. 'rounds' is how many tables were chosen. AIM (models of at most 10 MB, 300 iterations)
and MST are those of private-pgm (``benchmarks/peers/private_pgm.py``), once each; their tables are counted in their synthetic records. CPU
seconds are those of the mechanism: of measuring, choosing and fitting. 'modelled' is the share of the answers that come from the model,
'held' the share of their true counts that their intervals hold, 'used' the largest sum of errors of such a table over its bound.
FOLDER: see ``benchmarks/record_sets.py``.
FILE.npz and FILE.json: see ``benchmarks/tables.py``.
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
from fractions import Fraction
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from tables import counted, records_of, released, tables_of

from dpdist.arrays.vector import held
from dpdist.domain import Layout
from dpdist.grids.fitted_tables import Part, parts_of, together, tolerance_for
from dpdist.grids.model_intervals import half_widths, largest_distances
from dpdist.grids.rounds import Rounds, rounds_grid
from dpdist.privacy.accounting import Loss, rho_for
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
    "used",
)


def variation(parts: tuple[Part, ...], found: np.ndarray, truth: np.ndarray, records: int) -> float:
    """Mean total variation distance of tables."""
    if not parts:
        return math.nan
    return float(
        np.mean([np.abs(found[part.first : part.stop] - truth[part.first : part.stop]).sum() for part in parts])
    ) / (2 * records)


def errors(found: np.ndarray, truth: np.ndarray, raw: float) -> list[str]:
    """Squared and relative error."""
    relative = float(np.mean(np.abs(found - truth) / np.maximum(truth, 10)))
    return [f"{float(((found - truth) ** 2).sum()) / raw:.3f}", f"{relative:.3f}"]


def adaptive(
    codes: np.ndarray, workload: Workload, rho: Fraction, seed: int
) -> tuple[dict[int, np.ndarray], np.ndarray, int, float, float, float, float]:
    """Tables of two and of three attributes, those that are asked for, the rounds, CPU seconds, and what bounds and intervals hold."""
    grid, shape = rounds_grid(workload, "add-remove", 1), workload.domain.shape
    layout = Layout(shape, grid.tables)
    counts = counted(codes, workload).astype(np.int64)  # in the order of the grid's tables
    clock, key = time.process_time(), seed.to_bytes(32, "big")
    noise = grid.noise(Loss.gaussian(rho))
    values = Rounds(grid, counts, layout, noise, rho, key).values()
    found = grid.found(values)
    model = found.model(noise)
    asked = np.concatenate([model.table(part.axes).ravel() for part in parts_of(workload)])
    took = time.process_time() - clock
    both = {
        ways: np.concatenate([model.table(part.axes).ravel() for part in parts_of(tables_of(shape, ways))])
        for ways in (2, 3)
        if len(shape) > ways
    }
    bounds = largest_distances(found, grid.importances, model, noise)
    parts = [part for part in parts_of(workload) if part.axes in bounds]
    widths = half_widths(found, bounds, [part.axes for part in parts], model, noise)
    if not parts:
        return both, asked, found.rounds, took, 0.0, math.nan, math.nan
    apart = [np.abs(model.table(part.axes).ravel() - counts[part.first : part.stop]) for part in parts]
    inside = np.concatenate([each <= widths[part.axes].ravel() for each, part in zip(apart, parts, strict=True)])
    used = max(float(each.sum()) / bounds[part.axes] for each, part in zip(apart, parts, strict=True))
    return both, asked, found.rounds, took, inside.size / asked.size, float(inside.mean()), used


def rows(
    codes: np.ndarray, sizes: tuple[int, ...], ways: int, epsilon: float, given: argparse.Namespace
) -> Iterator[list[str]]:
    """The lines of one workload and budget."""
    workload, records = tables_of(sizes, ways), len(codes)
    truth, parts, rho = counted(codes, workload), parts_of(workload), rho_for(epsilon, DELTA)
    unbiased = released(workload, truth, epsilon)
    raw, clock = float(((held(unbiased.answer) - truth) ** 2).sum()), time.process_time()
    fitted, _ = together(parts, sizes, None, tolerance_for(parts, held(unbiased.error)), held(unbiased.answer))
    took, own = time.process_time() - clock, f"{variation(parts, fitted, truth, records):.4f}"
    both = [own, ""] if ways == 2 else ["", own]
    yield [f"{ways}-way", f"{epsilon:g}", "marginals", *both, *errors(fitted, truth, raw), "", f"{took:.1f}"]
    every = {k: (tables_of(sizes, k), counted(codes, tables_of(sizes, k))) for k in (2, 3) if len(sizes) > k}
    made = [adaptive(codes, workload, rho, seed) for seed in range(given.repeats)]
    variations = [
        f"{np.mean([variation(parts_of(w), each[0][k], t, records) for each in made]):.4f}" for k, (w, t) in every.items()
    ]
    told = [*variations, ""][:2]
    asked = np.mean([[float(text) for text in errors(each[1], truth, raw)] for each in made], axis=0)
    means = [f"{np.mean([each[place] for each in made]):.1f}" for place in (2, 3)]
    held_by = [f"{np.mean([each[place] for each in made]):.3f}" for place in (4, 5)]
    used = f"{max(each[6] for each in made):.2f}"
    yield [f"{ways}-way", f"{epsilon:g}", "adaptive", *told, *(f"{each:.3f}" for each in asked), *means, *held_by, used]
    for name in ("mst", "aim") if given.private_pgm and ways == 2 else ():
        folder, python = given.private_pgm
        peer = Path(__file__).parent / "peers" / "private_pgm.py"
        command = [python, str(peer), folder, str(given.records), str(given.sizes), name, str(ways), str(epsilon), "0"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        three = "" if found["three"] is None else f"{found['three']:.4f}"
        both = [f"{found['two']:.4f}", three, f"{found['squared'] / raw:.3f}", f"{found['relative']:.3f}"]
        yield [f"{ways}-way", f"{epsilon:g}", name.upper(), *both, "", f"{found['cpu']:.1f}"]


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
