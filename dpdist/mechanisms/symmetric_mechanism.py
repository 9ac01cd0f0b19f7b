"""The certified optimum of workloads that treat many cells alike."""

from __future__ import annotations

import math
from functools import partial

from dpdist.measurement.integer_measurement import MEMORY_COPIES
from dpdist.mechanisms.mechanism import (
    AUTO_LIMITS,
    AUTO_MEMORY_BYTES,
    AutoComparison,
    Mechanism,
    PlanWorkspace,
    Request,
    reason_beaten,
    reason_slow,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import get_symmetric_strategy, name_strategy
from dpdist.strategies.solver_resources import effort
from dpdist.strategies.strategy import Strategy
from dpdist.strategies.symmetric_optimum import symmetric
from dpdist.workloads import Workload
from dpdist.workloads.symmetry import MOST_COMPONENTS, most_components


def prefers_symmetric(workload: Workload, needed_bytes: int) -> bool:
    """Whether ``auto`` leaves a workload to ``symmetric``, which finds the same optimum within reach, counts included.

    Args:
        needed_bytes: what the other mechanism takes to write down an attribute's rows.
    """
    if needed_bytes <= AUTO_MEMORY_BYTES or _reason_counts_large(workload) is not None:
        return False
    return Symmetric().reason_unable(workload) is None and AUTO_LIMITS.exceeded_by(effort(workload, "symmetric")) is None


def _counts_bytes(workload: Workload) -> int:
    """What measuring takes: all cells are held, whatever the symmetry."""
    return MEMORY_COPIES * 8 * workload.domain.cells


def _reason_counts_large(workload: Workload) -> str | None:
    """Why ``auto`` does not take it: others measure tables, and never hold all cells."""
    needed_bytes = _counts_bytes(workload)
    if needed_bytes <= AUTO_MEMORY_BYTES:
        return None
    return f"holds all cells, which takes {needed_bytes / 2**30:,.0f} GiB; ask for it by name"


class Symmetric(Mechanism):
    """One weight for cells that are exchanged, one small block for every way to tell them apart."""

    name = "symmetric"
    summary = (
        "the certified optimum where values are exchangeable, over up to millions of cells: one weight for cells that are"
    )
    answers = "unions of products of queries of single attributes, some of whose values no query treats differently"
    optimiser = "symmetric"

    def reason_refused(self, workload: Workload) -> str | None:
        codes = workload.orbits
        if codes is None:
            return "the workload holds queries that are no product over attributes"
        if math.prod(int(code.max()) + 1 for code in codes) == workload.domain.cells:
            return "no two values of an attribute are exchangeable"
        component_count = most_components(codes)
        return (
            f"its symmetry gives {component_count:,} parts, more than {MOST_COMPONENTS:,}"
            if component_count > MOST_COMPONENTS
            else None
        )

    def proves(self, question: AutoComparison) -> Optimality | None:
        """Where the optimum over all cells is out of reach and this one is not."""
        if question.has_special_queries or self.reason_refused(question.workload) is not None:
            return None
        dense = effort(question.workload, "coa")
        if AUTO_LIMITS.exceeded_by(dense) is None or question.limits.exceeded_by(dense) is not None:
            return None
        return None if self._reason_too_large(question) else Optimality(question.workload)

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        reason = reason_beaten(self, question)
        return reason or (reason_slow() if question.has_special_queries else self._reason_too_large(question))

    def _reason_too_large(self, question: AutoComparison) -> str | None:
        planning_effort = self.effort(question.workload)
        if question.limits.exceeded_by(planning_effort) is not None:
            return question.limits.exceeded_by(planning_effort)
        return (
            reason_slow()
            if AUTO_LIMITS.exceeded_by(planning_effort) is not None
            else _reason_counts_large(question.workload)
        )

    def recommendation(self, workload: Workload, memory_bytes: int) -> str | None:
        needed_bytes = max(self.effort(workload).memory_bytes, _counts_bytes(workload))
        return f"'symmetric' (the same optimum in {needed_bytes / 2**30:.2f} GiB)" if needed_bytes <= memory_bytes else None

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        name = name_strategy(workload, f"symmetric-{request.tolerance:g}")
        solve, needed_bytes = partial(symmetric, tolerance=request.tolerance), self.effort(workload).memory_bytes
        strategy = get_symmetric_strategy(
            work, name, workload, lambda: work.resume_solve(name, solve, workload, needed_bytes)
        )
        work.forget(name)
        return strategy
