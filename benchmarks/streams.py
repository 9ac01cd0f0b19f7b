"""Series that grow: total error over the certified optimum of the whole series.

    python benchmarks/streams.py [--sizes 256 1024 4096] [--out benchmarks/results/streams.md]
    python benchmarks/streams.py --persons [--peer PYTHON] [--out benchmarks/results/persons.md]

Gaussian noise. Every strategy measures a step from itself and earlier ones. 'triangular' is the triangular factor of the certified
optimum, 'square root' two equal filters (Fichtenberger, Henzinger, Upadhyay 2023). Costs are J over the certified lower bound of any
strategy, causal or not. CPU seconds of one thread, under whatever else the machine did: compare them with each other only.

--persons: running sums for persons in up to k steps, b apart: root mean squared error at multiplier 1, by the noise that the whole numbers
need; and persons by group: variance over that of every group by itself. 'before' is what 'auto' took; 'triangular' is the optimum up to 64
steps here, and above rows whose far steps have one product; the bound is what no strategy can beat, and the gap is that of squared
errors.
--peer is a Python with jax-privacy (benchmarks/peers/jax_streams.py), whose strategies have as many bands as the separation.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpdist.plugins.streams.banded_participation import banded_person_strategy
from dpdist.plugins.streams.participation_optimum import answers_participation, optimise_participation, steps_bound
from dpdist.plugins.streams.triangular_factor import strategy_over_series, triangular
from dpdist.stability import Distance
from dpdist.strategies import banded, buffered, square_root
from dpdist.strategies.group_optimum import persons_by_cell
from dpdist.strategies.strategy import Strategy
from dpdist.workloads import Filter, Gram, Workload, filtered
from dpdist.workloads.time_filters import exponential, running_sum, window

FILTERS: dict[str, Callable[[int], Filter]] = {
    "running sum": running_sum,
    "window of n / 8": lambda n: window(n // 8),
    "exponential 0.99": lambda n: exponential(0.99, n),
}
CASES = ((12, 4, 3), (24, 4, 6), (26, 4, 4), (64, 4, 16), (1024, 4, 256), (1024, 16, 64), (1024, 64, 16))
"""Steps, steps of one person, and how far these are apart."""
GROUPS = ((7, 7), (12, 12), (52, 52), (100, 50), (100, 10))


def error(strategy: Strategy, workload: Workload, moved: Distance) -> float:
    """Root mean squared error at multiplier 1."""
    grid = strategy.measurement_for(workload, moved)
    assert strategy.workload_cost is not None
    return math.sqrt(strategy.workload_cost / workload.shape[0]) * grid.sensitivity * grid.spacing / strategy.sensitivity


def of_persons(peer: str | None) -> list[str]:
    """The two tables for persons."""
    listed: list[list[float | None]] = [[None, None]] * len(CASES)
    if peer is not None:
        told = [",".join(map(str, case)) for case in CASES]
        ran = subprocess.run([peer, str(PEER), *told], stdout=subprocess.PIPE, check=True)
        listed = json.loads(ran.stdout)
    head = (
        "steps, k, b",
        "square-root (before)",
        "buffered",
        "banded",
        "triangular",
        "bound",
        "gap",
        "jax Toeplitz",
        "jax banded",
        "CPU s",
    )
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for case, others in zip(CASES, listed, strict=True):
        started, steps = time.process_time(), case[0]
        moved = Distance(1, replaced=False, participations=case[1], separation=case[2])
        workload = filtered(steps, "x0", [running_sum(steps)])
        found = [
            error(each, workload, moved)
            for each in (square_root(workload), buffered(workload), banded(workload, moved=moved))
        ]
        bound = steps_bound(workload, moved).lower_bound
        if answers_participation(workload, moved):
            best = strategy_over_series(workload, optimise_participation(workload, moved))
            assert best.persons is not None
            bound = max(bound, best.persons.lower_bound)
            found.append(error(best, workload, moved))
        else:
            found.append(error(strategy_over_series(workload, banded_person_strategy(workload, moved)), workload, moved))
        least = min(found)
        shown = [f"{each:.3f}" for each in (*found, math.sqrt(bound / steps))]
        shown += [f"{least**2 * steps / bound - 1:.1e}", *("" if each is None else f"{each:.3f}" for each in others)]
        lines.append(f"| {case} | {' | '.join(shown)} | {time.process_time() - started:.1f} |")
        print(lines[-1], flush=True)
    lines += ["", "| groups, of a person | variance over that of every group by itself | gap |", "|---|---|---|"]
    for groups, most in GROUPS:
        moved, gram = Distance(1, replaced=False, groups=most), np.eye(groups)
        made = persons_by_cell(Gram(gram), moved)
        assert made.persons is not None
        precision = made.operator.gram()
        longest = max(s * precision[0, 0] + s * (s - 1) * precision[0, 1] for s in range(1, most + 1))
        cost = longest * float(np.trace(np.linalg.inv(precision)))
        lines.append(f"| {groups}, {most} | {cost / (groups * most):.4f} | {cost / made.persons.lower_bound - 1:.0e} |")
        print(lines[-1], flush=True)
    return lines


PEER = Path(__file__).parent / "peers" / "jax_streams.py"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sizes", type=int, nargs="+", default=[256, 1024, 4096])
    asked.add_argument("--persons", action="store_true")
    asked.add_argument("--peer")
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    if given.persons:
        about = (__doc__ or "").split("--persons: ")[1].strip()
        command = f"python benchmarks/streams.py --persons{' --peer PYTHON' if given.peer else ''}"
        text = f"# Persons beside the optimum\n\n`{command}`\n\n{about}\n\n" + "\n".join(of_persons(given.peer))
        if given.out:
            given.out.write_text(text + "\n")
        return
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
    about = (__doc__ or "").split("persons.md]")[1].split("--persons: ")[0].strip()
    text = f"# Streams beside the optimum\n\n`python benchmarks/streams.py`\n\n{about}\n\n" + "\n".join(lines)
    if given.out:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
