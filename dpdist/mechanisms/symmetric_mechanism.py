"""The certified optimum of workloads that treat many cells alike."""

from __future__ import annotations

import math
from functools import partial

from dpdist.measurement.integer_measurement import HELD_COPIES
from dpdist.mechanisms.mechanism import (
    REACH,
    REACH_BYTES,
    AutoComparison,
    Mechanism,
    PlanWorkspace,
    Request,
    beaten,
    takes_long,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import kept_symmetric, name_of
from dpdist.strategies.solver_resources import effort
from dpdist.strategies.strategy import Strategy
from dpdist.strategies.symmetric_optimum import symmetric
from dpdist.workloads import Workload
from dpdist.workloads.symmetry import MOST_COMPONENTS, most_components, orbits_of


def takes_over(workload: Workload, needed_bytes: int) -> bool:
    """Whether ``auto`` leaves a workload to ``symmetric``, which finds the same optimum within reach, counts included.

    Args:
        needed_bytes: what the other mechanism takes to write down an attribute's rows.
    """
    if needed_bytes <= REACH_BYTES or _counts_beyond_reach(workload) is not None:
        return False
    return Symmetric().cannot(workload) is None and REACH.exceeded_by(effort(workload, "symmetric")) is None


def _counts_bytes(workload: Workload) -> int:
    """What measuring takes: all cells are held, whatever the symmetry."""
    return HELD_COPIES * 8 * workload.domain.cells


def _counts_beyond_reach(workload: Workload) -> str | None:
    """Why ``auto`` does not take it: others measure tables, and never hold all cells."""
    needed = _counts_bytes(workload)
    if needed <= REACH_BYTES:
        return None
    return f"holds all cells, which takes {needed / 2**30:,.0f} GiB; ask for it by name"


class Symmetric(Mechanism):
    """One weight for cells that are exchanged, one small block for every way to tell them apart."""

    name = "symmetric"
    summary = (
        "the certified optimum where values are exchangeable, over up to millions of cells: one weight for cells that are"
    )
    answers = "unions of products of queries of single attributes, some of whose values no query treats differently"
    optimiser = "symmetric"

    def refuses(self, workload: Workload) -> str | None:
        codes = orbits_of(workload)
        if codes is None:
            return "the workload holds queries that are no product over attributes"
        if math.prod(int(code.max()) + 1 for code in codes) == workload.domain.cells:
            return "no two values of an attribute are exchangeable"
        parts = most_components(codes)
        return f"its symmetry gives {parts:,} parts, more than {MOST_COMPONENTS:,}" if parts > MOST_COMPONENTS else None

    def proves(self, question: AutoComparison) -> Optimality | None:
        """Where the optimum over all cells is out of reach and this one is not."""
        if question.special or self.refuses(question.workload) is not None:
            return None
        dense = effort(question.workload, "coa")
        if REACH.exceeded_by(dense) is None or question.limits.exceeded_by(dense) is not None:
            return None
        return None if self._too_large(question) else Optimality(question.workload)

    def passed_over(self, question: AutoComparison) -> str | None:
        reason = beaten(self, question)
        return reason or (takes_long() if question.special else self._too_large(question))

    def _too_large(self, question: AutoComparison) -> str | None:
        needs = self.effort(question.workload)
        if question.limits.exceeded_by(needs) is not None:
            return question.limits.exceeded_by(needs)
        return takes_long() if REACH.exceeded_by(needs) is not None else _counts_beyond_reach(question.workload)

    def instead(self, workload: Workload, memory_bytes: int) -> str | None:
        needed = max(self.effort(workload).memory_bytes, _counts_bytes(workload))
        return f"'symmetric' (the same optimum in {needed / 2**30:.2f} GiB)" if needed <= memory_bytes else None

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        name = name_of(workload, f"symmetric-{request.tolerance:g}")
        solve, needed = partial(symmetric, tolerance=request.tolerance), self.effort(workload).memory_bytes
        found = kept_symmetric(work, name, workload, lambda: work.resumed(name, solve, workload, needed))
        work.forget(name)
        return found
