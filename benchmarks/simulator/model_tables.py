"""The tables of the model: what it predicts, and how that compares with simulations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.simulator.rates import RATES, Rates
from benchmarks.simulator.stages import ALONE, Stage, predicted, wall
from dpdist.strategies.solver_resources import FULL_RANK_PRODUCTS, NOMINAL_RATE, effort
from dpdist.workloads import prefix


def table(
    sizes: Sequence[int] = (10**10, 10**11, 10**12), workers: Sequence[int] = (10, 100, 1000), rates: Rates = RATES
) -> str:
    """Markdown: what the model predicts, where workers draw the noise, and what the flow takes to draw it alone."""
    out = [
        "| cells | workers | tasks | requests | objects | TB moved | hours | the next wall | noise by the flow alone, hours |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cells in sizes:
        for count in workers:
            found = predicted(cells, count, rates=rates)
            stages = [each for each in found if each.name != ALONE]
            alone = sum(each.seconds for each in found if each.name == ALONE)
            out.append(
                f"| 10^{math.log10(cells):.0f} | {count:,} | {sum(s.tasks for s in stages):,} | {sum(s.requests for s in stages):,} | "
                f"{sum(s.objects for s in stages):,} | {sum(s.bytes for s in stages) / 1e12:.1f} | "
                f"{sum(s.seconds for s in stages) / 3600:.2f} | {wall(stages)} | {alone / 3600:.2f} |"
            )
    return "\n".join(out) + "\n"


def optima(sizes: Sequence[int] = (8192, 16_384, 32_768, 65_536)) -> str:
    """Markdown: what the certified optimum over n cells in one block asks of one worker, on the nominal processor of 60 GFLOP/s."""
    out = ["| n | GiB | nominal hours |", "|---|---|---|"]
    for n in sizes:
        needs = effort(prefix(n), "coa")
        hours = FULL_RANK_PRODUCTS * 2.0 * n**3 / NOMINAL_RATE / 3600
        out.append(f"| {n:,} | {needs.memory_bytes / 2**30:.0f} | {hours:.1f} |")
    return "\n".join(out) + "\n"


def comparison(model: Sequence[Stage], found: Sequence[Stage], disturbed: Sequence[Stage]) -> str:
    """Markdown: what the model predicts beside what simulations did, undisturbed and with faults."""
    out = ["| stage | by | tasks | requests | objects | GB moved | seconds |", "|---|---|---|---|---|---|---|"]
    for same in zip(model, found, disturbed, strict=True):
        out += [
            f"| {stage.name} | {by} | {stage.tasks:,} | {stage.requests:,} | {stage.objects:,} | {stage.bytes / 1e9:,.0f} | "
            f"{stage.seconds:,.0f} |"
            for by, stage in zip(("the model", "simulated", "simulated, with faults"), same, strict=True)
        ]
    return "\n".join(out) + "\n"
