"""The model of scale: what 10^10 to 10^12 cells would ask of 10 to 1000 workers, and the optimum over n cells of one.

    python -m benchmarks.simulator [--fit] [--rates FILE] [--simulate 1e11 --workers 100]

``--fit`` measures the rates of this machine, prints them beside the assumed ones, and compares predicted with measured seconds of two
workers; ``--simulate`` compares the model with the real orchestration on simulated storage.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.simulator import model_tables, rate_fitting, rates, simulated_release
from benchmarks.simulator.simulated_storage import COMMON, NO_FAULTS
from benchmarks.simulator.stages import predicted


def main() -> None:
    """Print the model's tables, its rates beside fitted ones, and its comparison with a simulation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true", help="measure the rates of this machine, with two workers")
    parser.add_argument("--rates", type=Path, metavar="FILE", help="with --fit: where they are kept; without: use these")
    parser.add_argument("--simulate", type=float, metavar="CELLS")
    parser.add_argument("--workers", type=int, default=100)
    options = parser.parse_args()
    chosen = rates.RATES
    if options.fit:
        chosen = _fitted(options.rates)
    elif options.rates:
        chosen = rates.load_rates(options.rates)
    print(f"## By assumed rates\n\n{model_tables.table()}")
    if chosen != rates.RATES:
        print(f"## By these rates\n\n{rates.rate_table(chosen)}\n{model_tables.table(rates=chosen)}")
    print(f"## The optimum over n cells of one block\n\n{model_tables.optima()}")
    if options.simulate:
        _simulated(int(options.simulate), options.workers)


def _fitted(path: Path | None) -> rates.Rates:
    """The rates of this machine, kept in a file if one is named; prints how what they predict compares with what stages take."""
    found, compared = rate_fitting.here()
    print(f"## Two workers of this machine: seconds predicted and measured\n\n{rate_fitting.table(compared)}")
    if path is not None:
        rates.written(path, found)
    return found


def _simulated(cells: int, workers: int) -> None:
    """Print what a simulation did beside what the model says, without and with faults, and what became of lies."""
    found, disturbed = (simulated_release.simulate(cells, workers, faults=faults) for faults in (NO_FAULTS, COMMON))
    print(f"## {cells:,} cells and {workers} workers, simulated\n")
    print(model_tables.comparison(predicted(cells, workers), found.stages, disturbed.stages))
    print(f"- the same bytes with faults: {found.digests == disturbed.digests}")
    for of, lie in simulated_release.liars(cells).items():
        print(
            f"- a worker tells a wrong digest of {of}: {simulated_release.after_a_lie(cells, workers, lie, found)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
