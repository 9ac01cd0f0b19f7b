"""Marginals in closed form, with the least largest error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from dpdist.mechanisms.mechanism import (
    AUTO_LIMITS,
    AUTO_MEMORY_BYTES,
    SINGLE_RECORD,
    AutoComparison,
    Mechanism,
    PlanSetting,
    PlanWorkspace,
    Request,
    reason_beaten,
    reason_large,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import get_term_strategy, name_strategy
from dpdist.mechanisms.symmetric_mechanism import prefers_symmetric
from dpdist.strategies.baselines import gaussian, identity
from dpdist.strategies.dual_certificates import DualWeights, LargestBound
from dpdist.strategies.representations import DirectStrategy, ResidualStrategy
from dpdist.strategies.solver_resources import Effort, Limits, effort
from dpdist.strategies.strategy import CLOSED_FORM, Solve, Step, Strategy
from dpdist.strategies.tables.marginal_optimum import (
    marginal_minimax,
    marginal_optimum,
    marginal_weights,
)
from dpdist.workloads import Workload

AT_ONCE = Limits(AUTO_MEMORY_BYTES, 1.0, whose="beside what is as good 'auto' takes up to")
"""What residual rows may take where noise on cells has as little error, and those of baselines."""


LITTLE_GAP = 1e-3
"""Up to which cells of disjoint tables are measured by themselves."""


class MarginalMechanism(Mechanism):
    """A mechanism for marginals, whose rows are written down."""

    answers = "marginals"

    def reason_refused(self, workload: Workload) -> str | None:
        return None if workload.kind.is_marginals else "the workload asks for more than marginals"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        rows = effort(question.workload, "marginals")
        return reason_large(self.planning_bytes(question.workload)) or question.reason_out_of_reach(rows, AT_ONCE)


class Marginals(MarginalMechanism):
    """The optimal strategy for marginals over domains of any size."""

    name = "marginals"
    summary = "the certified optimum for marginals, in closed form over domains of any size"
    worst = True
    optimiser = "marginals"

    def proves(self, question: AutoComparison) -> Optimality | None:
        taken_over = prefers_symmetric(question.workload, self.planning_bytes(question.workload))
        return None if taken_over else Optimality(question.workload)

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        limits = question.comparison_limits if question.optimality.of_one_cell else AT_ONCE
        return reason_beaten(self, question) or question.reason_out_of_reach(self.effort(question.workload), limits)

    def effort(self, workload: Workload, setting: PlanSetting = SINGLE_RECORD) -> Effort:
        rows = super().effort(workload)
        cells = Effort(workload.domain.cells, workload.domain.cells, 2**20, 0.0)
        return rows if _directly(workload, rows) is None else cells

    def recommendation(self, workload: Workload, memory_bytes: int) -> str | None:
        fits = self.planning_bytes(workload) <= memory_bytes
        return "'marginals' (the same optimum in closed form)" if fits else None

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        shortcut = _directly(request.workload, super().effort(request.workload))
        if shortcut is not None and not (request.worst and shortcut is _disjoint_tables):
            return shortcut(request.workload, worst=request.worst)
        if not request.worst:
            return marginal_optimum(request.workload)
        work.show_message("optimising marginals")
        workload, name = request.workload, name_strategy(request.workload, "marginals-worst")
        strategy = get_term_strategy(work, name, workload, marginal_minimax, form=ResidualStrategy)
        assert isinstance(strategy, ResidualStrategy)
        assert strategy.solve is not None
        largest = max((block.weight * strategy.deviation(workload.domain.shape, block)) ** 2 for block in workload.blocks)
        steps = tuple(replace(step, objective=largest) for step in strategy.solve.history)
        return replace(strategy, solve=replace(strategy.solve, history=steps))


def _directly(workload: Workload, rows: Effort) -> Callable[..., Strategy] | None:
    """What answers one table, of all attributes or of some, without any array: noise on its cells is the optimum.

    Releases of smaller tables have measured residual rows, which have the same errors, since the first version.

    Args:
        rows: what residual rows take.
    """
    tables = {block.asked_axes for block in workload.blocks}
    if AUTO_LIMITS.exceeded_by(rows) is not None and _are_disjoint(workload):
        if prefers_symmetric(workload, rows.memory_bytes):
            return None
        return _disjoint_tables if (_disjoint_tables(workload).gap or 0.0) <= LITTLE_GAP else None
    if len(tables) != 1 or AT_ONCE.exceeded_by(rows) is None:
        return None
    if tables == {tuple(range(len(workload.domain.shape)))}:
        return _identity_strategy
    return _table if len(workload.blocks) == 1 else None


def _are_disjoint(workload: Workload) -> bool:
    """Whether several tables are asked for of which no two have an attribute in common, and none is the number of all records."""
    axes = [axis for block in workload.blocks for axis in block.asked_axes]
    return len(workload.blocks) > 1 and len(axes) == len(set(axes)) and all(block.asked_axes for block in workload.blocks)


def _disjoint_tables(workload: Workload, *, worst: bool = False) -> DirectStrategy:
    """The cells of tables that share no attribute, with squared scales in the ratio of w_k n_k^1/2: n_k cells of weight w_k.

    Of what the optimum knows it lacks that the tables tell of the same number of records, which is one number beside all cells. Rows of the
    optimum would take time by the cube of the largest attribute.
    """
    assert not worst
    squares = [block.weight * math.sqrt(block.queries) for block in workload.blocks]
    scales = tuple(math.sqrt(square / sum(squares)) for square in squares)
    scaled = Workload(
        workload.domain, tuple(replace(block, weight=scale) for block, scale in zip(workload.blocks, scales, strict=True))
    )
    sizes, weights = workload.domain.shape, marginal_weights(workload)
    spaces = (math.prod(sizes[axis] - 1 for axis in space) * math.sqrt(weight) for space, weight in weights.items())
    bound = sum(spaces) ** 2 / workload.domain.cells
    return DirectStrategy("marginals", scaled.operator, sum(squares) ** 2, bound * (1 - 1e-12), CLOSED_FORM, scales=scales)


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


def _identity_strategy(workload: Workload, *, worst: bool) -> Strategy:
    """A = I: W'W is a multiple of I, and so is the precision of least total variance, and that of the least largest error."""
    strategy = identity(workload.shape[1], workload)
    assert strategy.workload_cost is not None
    if not worst:
        return replace(strategy, name="marginals", lower_bound=strategy.workload_cost * (1 - 1e-12))
    return replace(strategy, name="marginals", solve=_largest(workload))
