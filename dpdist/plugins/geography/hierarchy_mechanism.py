"""Nested levels of one attribute, such as blocks in tracts in counties: the same table at each level."""

from __future__ import annotations

from functools import partial
from typing import Any

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import (
    AutoComparison,
    Effort,
    Gram,
    Matrix,
    Mechanism,
    Optimality,
    PlanWorkspace,
    Request,
    Solve,
    Step,
    Strategy,
    Workload,
    effort,
    name_strategy,
    reason_beaten,
)
from dpdist.plugins.geography.level_weights import NestedStrategy, nested, nested_strategy, restore_rows, whole_numbers
from dpdist.plugins.geography.nested_groups import nested_of

NODE_VECTORS, VALUE_VECTORS = 100, 30
"""Vectors over the nodes of nested levels, and over the values of their attribute, that optimising takes (benchmarks/geography.py)."""
NODE_PRODUCTS = 6e5
"""Of one number a node: 20 microseconds a node on the nominal processor, the most that was seen (benchmarks/geography.py)."""


class Nested(Mechanism):
    """One weight a group of values and one scale a value, in linear time."""

    name = "nested"
    follows = "symmetric"
    summary = (
        "weighted sums over the groups of nested levels, in linear time: within 1 % of the optimum, as its certificate shows"
    )
    answers = "the same table at several nested levels of one attribute"
    optimiser = "nested"

    def reason_refused(self, workload: Workload) -> str | None:
        try:
            nested_of(workload)
        except InvalidInput as reason:
            return str(reason)
        return None

    def proves(self, question: AutoComparison) -> Optimality | None:
        """Where the optimum over all cells is out of reach and this one is not."""
        if question.has_special_queries or self.reason_refused(question.workload) is not None:
            return None
        if question.reason_out_of_reach(effort(question.workload, "coa")) is None:
            return None
        return (
            Optimality(question.workload) if question.reason_out_of_reach(self.effort(question.workload)) is None else None
        )

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return reason_beaten(self, question) or question.reason_out_of_reach(self.effort(question.workload))

    def recommendation(self, workload: Workload, memory_bytes: int) -> str | None:
        planning_effort = self.effort(workload)
        gibibytes = planning_effort.memory_bytes / 2**30
        return f"'nested' (within about 1 % of the optimum, {gibibytes:.2f} GiB and {planning_effort.seconds():.0f} s)"

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload

        def find() -> tuple[Matrix, dict[str, Any]]:
            solve = partial(nested, tolerance=request.tolerance, on_step=work.step_callback())
            solved = work.run_on_largest_worker(solve, workload, needed_bytes=self.effort(workload).memory_bytes)
            return whole_numbers(solved.node_rows), _solve_facts(solved)

        values, facts = work.get_or_compute(name_strategy(workload, f"nested-{request.tolerance:g}"), find)
        record = Solve(facts["method"], facts["stop"], (Step(facts["iterations"], facts["cost"], facts["gap"]),))
        return nested_strategy(workload, restore_rows(nested_of(workload), values), facts["bound"], record)


def _solve_facts(solved: NestedStrategy) -> dict[str, Any]:
    """What is kept beside the whole numbers."""
    assert solved.solve is not None
    assert solved.lower_bound is not None
    last_step = solved.solve.history[-1]
    return {
        "method": solved.solve.method,
        "stop": solved.solve.stop,
        "iterations": last_step.iteration,
        "cost": last_step.objective,
        "gap": last_step.gap,
        "bound": last_step.objective / (1.0 + last_step.gap),
    }


def nested_effort(workload: Workload | Gram) -> Effort:
    """Vectors over the nodes of all levels: those that a search remembers, and those of both passes."""
    assert isinstance(workload, Workload)
    levels = nested_of(workload)
    nodes, values = sum(levels.tree.sizes), workload.domain.shape[levels.axis]
    return Effort(nodes, 1, 8 * (NODE_VECTORS * nodes + VALUE_VECTORS * values) + 2**20, NODE_PRODUCTS)


NESTED = Nested()
