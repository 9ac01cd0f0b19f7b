"""What it costs to extend a stream: the rho of the longer series over that of the declared one, and what the error becomes.

    python benchmarks/extended_streams.py [--most STEPS] [--out benchmarks/results/extended_streams.md]

Running sums, Gaussian noise, add-remove. 'rho' is charged in addition to what was paid, in per cent of it. 'error' is the root mean
squared error of the extended stream over that of a stream whose longer horizon was declared from the beginning with the same rho in all.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from dpdist.arrays.array_workspace import MEMORY
from dpdist.measurement.filter_measurement import FilterMeasurement
from dpdist.plugins.streams.buffered_toeplitz import buffered
from dpdist.strategies import square_root
from dpdist.strategies.filter_strategies import through_horizons
from dpdist.strategies.representations import FilterStrategy
from dpdist.workloads import Workload, filtered
from dpdist.workloads.time_filters import running_sum

HORIZONS = ((52, 104), (52, 520), (365, 730), (365, 3650), (1024, 2048), (8760, 17520))
KINDS = {"square-root": square_root, "buffered": buffered}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--most", type=int, default=2**20, help="steps of the longest series")
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    columns = ("mechanism", "declared steps", "extended to", "rho charged in addition", "error")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name in KINDS:
        for before, after in (each for each in HORIZONS if each[1] <= given.most):
            more, error = extension(name, before, after)
            lines.append(f"| {name} | {before:,} | {after:,} | {100 * more:.1f} % | {error:.4f} |")
            print(lines[-1], flush=True)
    head = f"# Extended streams\n\n`python benchmarks/extended_streams.py`\n\n{__doc__.split('md]')[1].strip()}\n\n"
    if given.out:
        given.out.write_text(head + "\n".join(lines) + "\n")


def extension(name: str, before: int, after: int) -> tuple[float, float]:
    """The part of the paid rho that is charged in addition, and the error over that of a stream that was declared so."""

    def strategy_of(workload: Workload) -> FilterStrategy:
        return KINDS[name](workload)

    short, long = (filtered(steps, "x0", [running_sum(steps)]) for steps in (before, after))
    extended = through_horizons((short, long), strategy_of, MEMORY, lambda workload, method: "")
    grid = extended.measurement(long, neighbours="add-remove", most_records=1)
    assert isinstance(grid, FilterMeasurement)
    assert grid.first_squared is not None
    declared = strategy_of(long).workload_cost
    assert declared is not None
    assert extended.workload_cost is not None
    return grid.sensitivity_squared / grid.first_squared - 1, math.sqrt(extended.workload_cost / declared)


if __name__ == "__main__":
    main()
