"""Certified optima over orbits: census tables and prefix tables over up to 500,480 cells.

    python benchmarks/symmetric_optima.py [--rows SF1 ...] [--out benchmarks/results/symmetric_optima.md]

'weights': orbits of cells, the variables of the dual. 'RMSE': root mean squared error of a query under Gaussian noise at privacy cost 1
(noise multiplier 1). 'residual', 'oblique': their variance over the bound. CPU seconds of one thread, under whatever else the machine
did. SF1: the tables of the 2010 census about persons that HDMM's examples have (examples/sf1/release.yaml); mini SF1: four races and 23
groups of ages (examples/sf1/mini.yaml). CPS: prefixes of two attributes and the values of three, one attribute at a time.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

from dpdist.domain import Domain
from dpdist.plugins.oblique_products.oblique_design import oblique
from dpdist.spec import load
from dpdist.strategies.symmetric_optimum import symmetric
from dpdist.strategies.tables.residual_bases import residual
from dpdist.workloads import Workload, products, union

EXAMPLES = Path(__file__).parents[1] / "examples" / "sf1"


def one_way_marginals(sizes: tuple[int, ...], ordered: int) -> Workload:
    """Prefixes of the first attributes, values of the others, one attribute at a time."""
    domain = Domain.of_shape(sizes)
    return union(*(products(domain, {name: "prefix" if k < ordered else "identity"}) for k, name in enumerate(domain.names)))


ROWS: dict[str, Callable[[], Workload]] = {
    "SF1": lambda: load(EXAMPLES / "release.yaml").workload.queries,
    "mini SF1": lambda: load(EXAMPLES / "mini.yaml").workload.queries,
    "CPS, 1-way": lambda: one_way_marginals((50, 100, 7, 4, 2), 2),
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rows", nargs="+", choices=[*ROWS], default=[*ROWS])
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    lines = [
        "| workload | cells | queries | weights | RMSE | gap | CPU s | residual | oblique |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name in given.rows:
        lines.append(_row(name, ROWS[name]()))
        print(lines[-1], flush=True)
    about = __doc__.split("md]")[1].strip()
    text = f"# Optima over orbits\n\n`python benchmarks/symmetric_optima.py`\n\n{about}\n\n" + "\n".join(lines)
    if given.out is not None:
        given.out.write_text(text + "\n")


def _row(name: str, workload: Workload) -> str:
    queries, cells = workload.shape
    started = time.process_time()
    found = symmetric(workload)
    spent = time.process_time() - started
    assert found.workload_cost is not None
    assert found.lower_bound is not None
    assert found.solve is not None
    assert found.solve.dual is not None
    others = [each(workload).workload_cost or math.nan for each in (residual, oblique)]
    compared = " | ".join(f"{cost / found.lower_bound:.3f}" for cost in others)
    return (
        f"| {name} | {cells:,} | {queries:,} | {found.solve.dual.size:,} | {math.sqrt(found.workload_cost / queries):.4f} | "
        f"{found.gap:.1e} | {spent:.1f} | {compared} |"
    )


if __name__ == "__main__":
    main()
