"""Marginals in closed form, with the least largest error, and as their published baselines measure them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dpdist.mechanisms.mechanism import (
    ALONE,
    REACH_BYTES,
    AutoComparison,
    Mechanism,
    PlanWorkspace,
    Request,
    Setting,
    beaten,
    takes_much,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import kept_terms, name_of
from dpdist.mechanisms.symmetric_mechanism import takes_over
from dpdist.reconstruction.kronecker_terms import subsets
from dpdist.strategies.baselines import gaussian, identity
from dpdist.strategies.dual_certificates import DualWeights, LargestBound
from dpdist.strategies.representations import ResidualStrategy
from dpdist.strategies.solver_resources import Effort, Limits, effort, residual_bytes
from dpdist.strategies.strategy import Solve, Step, Strategy
from dpdist.strategies.tables.marginal_optimum import (
    bmax,
    datacube,
    fourier,
    marginal_minimax,
    marginal_optimum,
    marginal_weights,
)
from dpdist.workloads import Workload
from dpdist.workloads.workload_kind import is_marginals

AT_ONCE = Limits(REACH_BYTES, 1.0, whose="beside what is as good 'auto' takes up to")
"""What residual rows may take where noise on cells has as little error, and those of baselines."""


class OfMarginals(Mechanism):
    """A mechanism for marginals, whose rows are written down."""

    answers = "marginals"

    def refuses(self, workload: Workload) -> str | None:
        return None if is_marginals(workload) else "the workload asks for more than marginals"

    def passed_over(self, question: AutoComparison) -> str | None:
        rows = effort(question.workload, "marginals")
        return takes_much(self.planning_bytes(question.workload)) or question.out_of_reach(rows, AT_ONCE)


class Marginals(OfMarginals):
    """The optimal strategy for marginals over domains of any size."""

    name = "marginals"
    summary = "the certified optimum for marginals, in closed form over domains of any size"
    worst = True
    optimiser = "marginals"

    def proves(self, question: AutoComparison) -> Optimality | None:
        taken_over = takes_over(question.workload, self.planning_bytes(question.workload))
        return None if taken_over else Optimality(question.workload)

    def passed_over(self, question: AutoComparison) -> str | None:
        beside = question.beside if question.optimality.of_one_cell else AT_ONCE
        return beaten(self, question) or question.out_of_reach(self.effort(question.workload), beside)

    def effort(self, workload: Workload, setting: Setting = ALONE) -> Effort:
        rows = super().effort(workload)
        cells = Effort(workload.domain.cells, workload.domain.cells, 2**20, 0.0)
        return rows if _directly(workload, rows) is None else cells

    def instead(self, workload: Workload, memory_bytes: int) -> str | None:
        fits = self.planning_bytes(workload) <= memory_bytes
        return "'marginals' (the same optimum in closed form)" if fits else None

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        shortcut = _directly(request.workload, super().effort(request.workload))
        if shortcut is not None:
            return shortcut(request.workload, worst=request.worst)
        if not request.worst:
            return marginal_optimum(request.workload)
        work.tell("optimising marginals")
        found = kept_terms(work, name_of(request.workload, "marginals-worst"), request.workload, marginal_minimax)
        whole = ResidualStrategy(
            found.name, found.operator, found.workload_cost, found.lower_bound, found.solve, terms=found.terms
        )
        assert whole.solve is not None
        sizes = request.workload.domain.shape
        largest = max((block.weight * whole.deviation(sizes, block)) ** 2 for block in request.workload.blocks)
        steps = tuple(replace(step, objective=largest) for step in whole.solve.history)
        return replace(whole, solve=replace(whole.solve, history=steps))


class FourierMechanism(OfMarginals):
    """Fourier over marginals."""

    name = "fourier"
    summary = "equal noise on every needed coefficient of an orthonormal product basis"

    def planning_bytes(self, workload: Workload) -> int:
        return residual_bytes(workload, marginal_weights(workload))

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        return fourier(request.workload)


class DataCube(OfMarginals):
    """DataCube over marginals."""

    name = "datacube"
    summary = "a few marginals with equal noise, from which the asked ones are derived"

    def planning_bytes(self, workload: Workload) -> int:
        return residual_bytes(workload, {space for measured in bmax(workload) for space in subsets(measured)})

    def planned(self, request: Request, work: PlanWorkspace) -> Strategy:
        return datacube(request.workload)


def _directly(workload: Workload, rows: Effort) -> Callable[..., Strategy] | None:
    """What answers one table, of all attributes or of some, without any array: noise on its cells is the optimum.

    Releases of smaller tables have measured residual rows, which have the same errors, since the first version.

    Args:
        rows: what residual rows take.
    """
    tables = {block.asked_axes for block in workload.blocks}
    if len(tables) != 1 or AT_ONCE.exceeded_by(rows) is None:
        return None
    if tables == {tuple(range(len(workload.domain.shape)))}:
        return _cells
    return _table if len(workload.blocks) == 1 else None


def _table(workload: Workload, *, worst: bool) -> Strategy:
    """A = W, the cells of one table: every column has one entry, and all singular values are equal."""
    found = gaussian(workload)
    assert found.workload_cost is not None
    if not worst:
        return replace(found, name="marginals", lower_bound=found.workload_cost * (1 - 1e-12))
    return replace(found, name="marginals", solve=_largest(workload))


def _largest(workload: Workload) -> Solve:
    """That the largest error of one table is least where its cells have equal noise."""
    largest = max(workload.blocks, key=lambda block: block.weight)
    answers = ((float(block is largest) / block.queries, (None,) * len(block.axes)) for block in workload.blocks)
    proof = LargestBound(DualWeights("equal"), tuple(answers))
    return Solve("marginals, least largest error", "converged", (Step(1, largest.weight**2, 1e-12),), largest=proof)


def _cells(workload: Workload, *, worst: bool) -> Strategy:
    """A = I: W'W is a multiple of I, and so is the precision of least total variance, and that of the least largest error."""
    found = identity(workload.shape[1], workload)
    assert found.workload_cost is not None
    if not worst:
        return replace(found, name="marginals", lower_bound=found.workload_cost * (1 - 1e-12))
    return replace(found, name="marginals", solve=_largest(workload))
