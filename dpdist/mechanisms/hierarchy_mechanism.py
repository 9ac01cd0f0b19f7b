"""Nested levels of one attribute, such as blocks in tracts in counties: the same table at each level."""

from __future__ import annotations

from functools import partial
from typing import Any

from dpdist.errors import InvalidInput
from dpdist.mechanisms.mechanism import AutoComparison, Mechanism, PlanWorkspace, Request, beaten
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import name_of
from dpdist.operators import Matrix
from dpdist.strategies.solver_resources import effort
from dpdist.strategies.strategy import Solve, Step, Strategy
from dpdist.strategies.tables.level_weights import NestedStrategy, kept_rows, nested, nested_strategy, whole_numbers
from dpdist.workloads import Workload
from dpdist.workloads.nested_groups import nested_of


class Nested(Mechanism):
    """One weight a group of values and one scale a value, in linear time."""

    name = "nested"
    summary = (
        "weighted sums over the groups of nested levels, in linear time: within 1 % of the optimum, as its certificate shows"
    )
    answers = "the same table at several nested levels of one attribute"
    optimiser = "nested"

    def refuses(self, workload: Workload) -> str | None:
        try:
            nested_of(workload)
        except InvalidInput as reason:
            return str(reason)
        return None

    def proves(self, question: AutoComparison) -> Optimality | None:
        """Where the optimum over all cells is out of reach and this one is not."""
        if question.special or self.refuses(question.workload) is not None:
            return None
        if question.out_of_reach(effort(question.workload, "coa")) is None:
            return None
        return Optimality(question.workload) if question.out_of_reach(self.effort(question.workload)) is None else None

    def passed_over(self, question: AutoComparison) -> str | None:
        return beaten(self, question) or question.out_of_reach(self.effort(question.workload))

    def instead(self, workload: Workload, memory_bytes: int) -> str | None:
        needs = self.effort(workload)
        return (
            f"'nested' (within about 1 % of the optimum, {needs.memory_bytes / 2**30:.2f} GiB and {needs.seconds():.0f} s)"
        )

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload

        def find() -> tuple[Matrix, dict[str, Any]]:
            solve = partial(nested, tolerance=request.tolerance, on_step=work.watcher())
            solved = work.largest(solve, workload, needed_bytes=self.effort(workload).memory_bytes)
            return whole_numbers(solved.node_rows), _facts(solved)

        values, facts = work.found_once(name_of(workload, f"nested-{request.tolerance:g}"), find)
        record = Solve(facts["method"], facts["stop"], (Step(facts["iterations"], facts["cost"], facts["gap"]),))
        return nested_strategy(workload, kept_rows(nested_of(workload), values), facts["bound"], record)


def _facts(solved: NestedStrategy) -> dict[str, Any]:
    """What is kept beside the whole numbers."""
    assert solved.solve is not None
    assert solved.lower_bound is not None
    last = solved.solve.history[-1]
    return {
        "method": solved.solve.method,
        "stop": solved.solve.stop,
        "iterations": last.iteration,
        "cost": last.objective,
        "gap": last.gap,
        "bound": last.objective / (1.0 + last.gap),
    }
