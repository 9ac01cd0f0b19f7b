"""Error of every data-independent mechanism over the certified lower bound, on the workloads of the AM paper's section 5.

    python benchmarks/mechanisms.py [--size 2048] [--out benchmarks/results/mechanisms.md]

Gaussian noise. Entries are root mean squared errors over that of the certified bound: sqrt(J / LB). A sixth column of
ratios compares AM, and dpdist's choice, with the best of the competitors that the paper had for the workload.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from dpdist.operators import Matrix
from dpdist.strategies import (
    Strategy,
    coa,
    datacube,
    eigen_design,
    fourier,
    gaussian,
    hierarchical,
    identity,
    kronecker,
    wavelet,
)
from dpdist.strategies.tables.marginal_optimum import marginal_optimum
from dpdist.strategies.tables.residual_bases import residual
from dpdist.workloads import (
    Gram,
    Workload,
    all_ranges,
    marginals,
    permuted,
    prefix,
    random_marginals,
    range_marginals,
    ranges,
    two_step_ranges,
    uniform_predicates,
)

COLUMNS = ("dpdist", "residual", "AM", "wavelet", "hierarchical", "best tree", "Fourier", "DataCube", "identity", "Gaussian")
SHAPES = {
    2048: ((64, 32), (8, 16, 16), (2, 4, 4, 8, 8)),
    256: ((16, 16), (4, 8, 8), (2, 4, 4, 8)),
    64: ((8, 8), (4, 4, 4), (2, 2, 4, 4)),
}


@cache
def workloads(size: int) -> dict[str, Workload]:
    plane, cube, many = SHAPES[size]
    queries = max(50, size // 2)
    return {
        f"all ranges, {size}": all_ranges(size),
        f"all ranges, {plane}": ranges(plane),
        f"all ranges, {cube}": ranges(cube),
        f"{queries} random ranges, {size}": two_step_ranges((size,), queries),
        f"{queries} random ranges, {plane}": two_step_ranges(plane, queries),
        f"{queries} random ranges, {cube}": two_step_ranges(cube, queries),
        f"2-way marginals, {cube}": marginals(cube, 2),
        f"2-way marginals, {many}": marginals(many, 2),
        f"random marginals, {cube}": random_marginals(cube, 4),
        f"random marginals, {many}": random_marginals(many, 10),
        f"1-way range marginals, {cube}": range_marginals(cube, 1),
        f"2-way range marginals, {cube}": range_marginals(cube, 2),
        f"CDF, {size}": prefix(size),
        f"permuted ranges, {size}": permuted(all_ranges(size)),
        f"{queries} uniform predicates, {size}": uniform_predicates(size, queries),
    }


def auto_strategy(workload: Workload) -> Strategy:
    """dpdist's own choice, as ``mechanism: auto`` makes it."""
    if workload.kind.is_marginals:
        return marginal_optimum(workload)
    if workload.kind.is_product and len(workload.blocks[0].axes) > 1:
        return kronecker(workload)
    return coa(workload)


def makers(workload: Workload, gram: Matrix | None) -> dict[str, Callable[[], Strategy]]:
    """What can be compared on a workload, each made when it is called. The gram is needed only to make them."""
    shape = workload.domain.shape
    weighed = workload if gram is None else Gram(gram)
    out: dict[str, Callable[[], Strategy]] = {
        "dpdist": lambda: auto_strategy(workload),
        "AM": lambda: eigen_design(weighed),
        "wavelet": lambda: wavelet(shape),
        "hierarchical": lambda: hierarchical(shape),
        "best tree": lambda: min((hierarchical(shape, branching=b) for b in (4, 8, 16)), key=lambda s: s.cost(weighed)),
        "identity": lambda: identity(workload.shape[1], workload),
        "Gaussian": lambda: gaussian(workload),
    }
    if workload.kind.is_separable:
        out |= {"residual": lambda: residual(workload)}
    if workload.kind.is_marginals:
        out |= {"Fourier": lambda: fourier(workload), "DataCube": lambda: datacube(workload)}
    return out


def row(workload: Workload) -> dict[str, float]:
    gram = workload.gram()
    made = {name: make() for name, make in makers(workload, gram).items()}
    bound = made["dpdist"].lower_bound
    assert bound is not None
    costs = {name: s.workload_cost if s.workload_cost is not None else s.cost(Gram(gram)) for name, s in made.items()}
    return {name: math.sqrt(cost / bound) for name, cost in costs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, choices=sorted(SHAPES), default=2048)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = ["# Mechanisms: root mean squared error over the certified bound", ""]
    lines += [f"`python benchmarks/mechanisms.py --size {options.size}`, {os.cpu_count()} cores. Gaussian noise.", ""]
    heads = [*COLUMNS, "best competitor / AM", "best competitor / dpdist"]
    lines += ["| workload | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    started = time.monotonic()
    for name, workload in workloads(options.size).items():
        found = row(workload)
        rivals = ("Fourier", "DataCube") if "Fourier" in found else ("wavelet", "hierarchical")
        rival = min(found[r] for r in rivals)
        cells = [f"{found[c]:.4g}" if c in found else "" for c in COLUMNS]
        cells[0] = f"{found['dpdist']:.7f}"
        cells += [f"{rival / found['AM']:.2f}", f"{rival / found['dpdist']:.2f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
        assert all(found["dpdist"] <= value * (1 + 1e-6) for value in found.values()), f"{name}: the optimum was beaten"
    lines += [
        "",
        "`dpdist` is what `mechanism: auto` takes: the closed form for marginals, a product for products, else COA.",
    ]
    lines += [f"The table took {time.monotonic() - started:.0f} s."]
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
