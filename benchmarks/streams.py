"""Series that grow: total error over the certified optimum of the whole series.

    python benchmarks/streams.py [--sizes 256 1024 4096] [--out benchmarks/results/streams.md]

Gaussian noise. Every strategy measures a step from itself and earlier ones. 'triangular' is the triangular factor of the certified
optimum, 'square root' two equal filters (Fichtenberger, Henzinger, Upadhyay 2023). Costs are J over the certified lower bound of any
strategy, causal or not. CPU seconds of one thread, under whatever else the machine did: compare them with each other only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from dpdist.strategies import square_root
from dpdist.strategies.lower_factors import triangular
from dpdist.workloads import Filter, filtered
from dpdist.workloads.filters import exponential, running_sum, window

FILTERS: dict[str, Callable[[int], Filter]] = {
    "running sum": running_sum,
    "window of n / 8": lambda n: window(n // 8),
    "exponential 0.99": lambda n: exponential(0.99, n),
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", type=int, nargs="+", default=[256, 1024, 4096])
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    columns = ("filter", "steps", "triangular over the bound", "square root over the bound", "CPU s of the triangular one")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for name, made in FILTERS.items():
        for n in given.sizes:
            workload = filtered(n, "x0", [made(n)])
            started = time.process_time()
            found = triangular(workload)
            took = time.process_time() - started
            root = square_root(workload).workload_cost
            assert found.workload_cost is not None
            assert found.lower_bound is not None
            assert root is not None
            assert found.lower_bound <= min(root, found.workload_cost)
            ratios = f"{found.workload_cost / found.lower_bound:.7f} | {root / found.lower_bound:.4f}"
            lines.append(f"| {name} | {n} | {ratios} | {took:.1f} |")
            print(lines[-1], flush=True)
    text = (
        f"# Streams beside the optimum\n\n`python benchmarks/streams.py`\n\n{__doc__.split('md]')[1].strip()}\n\n"
        + "\n".join(lines)
    )
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
