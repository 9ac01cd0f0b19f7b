"""Marginals in closed form, and with the least largest error."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpdist.mechanisms.base import REACH, AutoComparison, Mechanism, PlanWorkspace, Request, beaten, takes_much
from dpdist.mechanisms.kept import kept_terms, name_of
from dpdist.mechanisms.symmetric import takes_over
from dpdist.strategies.base import Solve, Step, Strategy
from dpdist.strategies.fixed import identity
from dpdist.strategies.marginal_optima import marginal_minimax, marginal_optimum
from dpdist.strategies.needs import Effort, effort
from dpdist.strategies.proofs import DualWeights, LargestBound
from dpdist.strategies.representations import ResidualStrategy
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_marginals

ONLY = "the workload asks for more than marginals"


class Marginals(Mechanism):
    """The optimal strategy for marginals over domains of any size."""

    name = "marginals"
    summary = "the certified optimum for marginals, in closed form over domains of any size"
    answers = "marginals"
    worst = True

    def refuses(self, workload: Workload) -> str | None:
        return None if is_marginals(workload) else ONLY

    def certifies(self, question: AutoComparison) -> bool:
        return not takes_over(question.workload, self.planning_bytes(question.workload))

    def passed_over(self, question: AutoComparison) -> str | None:
        return beaten(self, question) or (
            None if self.certifies(question) else takes_much(self.planning_bytes(question.workload))
        )

    def effort(self, workload: Workload) -> Effort:
        if _of_cells(workload):
            return Effort(workload.domain.cells, workload.domain.cells, 2**20, 0.0)
        return effort(workload, "marginals")

    def instead(self, workload: Workload, memory_bytes: int) -> str | None:
        fits = self.planning_bytes(workload) <= memory_bytes
        return "'marginals' (the same optimum in closed form)" if fits else None

    def plan(self, request: Request, work: PlanWorkspace) -> Strategy:
        if _of_cells(request.workload):
            return _cells(request.workload, worst=request.worst)
        work.check_memory("writing down the rows of 'marginals'", self.planning_bytes(request.workload), request.workload)
        if not request.worst:
            return marginal_optimum(request.workload)
        work.tell("optimising marginals")
        found = kept_terms(work, name_of(request.workload, "marginals-worst"), request.workload, partial(marginal_minimax))
        whole = ResidualStrategy(
            found.name, found.operator, found.workload_cost, found.lower_bound, found.solve, terms=found.terms
        )
        assert whole.solve is not None
        sizes = request.workload.domain.shape
        largest = max((block.weight * whole.deviation(sizes, block)) ** 2 for block in request.workload.blocks)
        steps = tuple(replace(step, objective=largest) for step in whole.solve.history)
        return replace(whole, solve=replace(whole.solve, history=steps))


def _of_cells(workload: Workload) -> bool:
    """Whether noise on every cell is the optimum, because only whole tables are asked for, and residual rows are out of reach.

    Releases of smaller tables have measured residual rows, which have the same errors, since the first version.
    """
    everything = tuple(range(len(workload.domain.shape)))
    if any(block.asked_axes != everything for block in workload.blocks):
        return False
    return REACH.exceeded_by(effort(workload, "marginals")) is not None


def _cells(workload: Workload, *, worst: bool) -> Strategy:
    """A = I: W'W is a multiple of I, and so is the precision of least total variance, and that of the least largest error."""
    found = identity(workload.shape[1], workload)
    assert found.workload_cost is not None
    if not worst:
        return replace(found, name="marginals", lower_bound=found.workload_cost * (1 - 1e-12))
    largest = max(workload.blocks, key=lambda block: block.weight)
    answers = ((float(block is largest) / block.queries, (None,) * len(block.axes)) for block in workload.blocks)
    proof = LargestBound(DualWeights("equal"), tuple(answers))
    record = Solve("marginals, least largest error", "converged", (Step(1, largest.weight**2, 1e-12),), largest=proof)
    return replace(found, name="marginals", solve=record)
