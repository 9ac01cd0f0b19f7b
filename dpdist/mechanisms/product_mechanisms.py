"""Products of queries of single attributes, over domains of any size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from dpdist.mechanisms.mechanism import (
    AUTO_MEMORY_BYTES,
    SINGLE_RECORD,
    AutoComparison,
    Mechanism,
    PlanSetting,
    PlanWorkspace,
    Request,
    reason_beaten,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import WORST_TOLERANCE, get_term_strategy, name_strategy
from dpdist.mechanisms.symmetric_mechanism import prefers_symmetric
from dpdist.strategies.representations import TermStrategy
from dpdist.strategies.solver_resources import (
    FULL_RANK_PRODUCTS,
    Effort,
    Limits,
    effort,
    identity_axes,
    product_bytes,
    product_copy_bytes,
    worst_factor_bytes,
)
from dpdist.strategies.strategy import Strategy
from dpdist.strategies.tables.product_optimum import kronecker, kronecker_worst
from dpdist.strategies.tables.residual_bases import residual
from dpdist.workloads import Workload

ALONE_OR_SPECIAL = "is for several attributes, of each of which there is an optimum; ask for it by name"
SMALL_SOLVE = 512
"""Values of an attribute below which its optima take time by their number more than by theirs."""
SOON_SECONDS = 1.0
"""Of the nominal processor: up to here ``auto`` solves several groups over the cells, as it did before it knew them as one product."""
REASON_SLOW_ATTRIBUTE = "an attribute has so many values that their optimum takes long; ask for it by name"


class KroneckerMechanism(Mechanism):
    """The product of the certified optima of a product's factors."""

    name = "kronecker"
    summary = "the certified optimum of a product of queries of single attributes, one optimum a factor"
    answers = "one product of queries of single attributes, or several that differ in one of them alone, such as statistics of groups"
    worst = True
    supports_fractional_records = True
    optimiser = "kronecker"

    def reason_refused(self, workload: Workload) -> str | None:
        if not workload.kind.is_product:
            return "the workload is not one product of queries of single attributes, nor several that differ in one attribute alone"
        most_cells = workload.domain.sizes.streamed_cells
        if len(workload.blocks) > 1 and workload.domain.cells > most_cells:
            return f"several groups of queries over more than {most_cells:,} cells cannot be read in two passes"
        return None

    def proves(self, question: AutoComparison) -> Optimality | None:
        return Optimality(question.workload) if self._other_reason(question) is None else None

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return reason_beaten(self, question) or self._other_reason(question)

    def _other_reason(self, question: AutoComparison) -> str | None:
        """What else answers a product, or why its optima are out of reach."""
        workload = question.workload
        has_several_groups = len(workload.blocks) > 1
        if workload.kind.is_dyadic or max(len(block.axes) for block in workload.blocks) < 2:
            return "of one factor it is 'coa'; ask for it by name to compare"
        if has_several_groups and self._is_soon_solved(question):
            return "has the same optimum as 'coa', which takes less than a second; ask for it by name"
        if has_several_groups and not self.fits(workload, AUTO_MEMORY_BYTES):
            return REASON_SLOW_ATTRIBUTE
        if not question.optimality.of_one_cell and workload.kind.is_marginals and not has_several_groups:
            return "measures the cells of one table, as 'gaussian' does; ask for it by name to compare"
        if prefers_symmetric(workload, self.planning_bytes(workload)):
            return "has the same optimum as 'symmetric', which takes less; ask for it by name"
        return question.reason_out_of_reach(self.effort(workload)) if workload.kind.is_filters else None

    def _is_soon_solved(self, question: AutoComparison) -> bool:
        """Whether 'coa' finds the same optimum over the cells within a second and what the spec allows."""
        over_cells = effort(question.workload, "coa")
        return over_cells.nominal_seconds <= SOON_SECONDS and question.limits.exceeded_by(over_cells) is None

    def recommendation(self, workload: Workload, memory_bytes: int) -> str | None:
        if max(len(block.axes) for block in workload.blocks) < 2:
            return None
        needed_bytes = self.planning_bytes(workload)
        if needed_bytes > memory_bytes:
            return None
        return f"'kronecker' (the same optimum in {needed_bytes / 2**30:.2f} GiB)"

    def planning_bytes(self, workload: Workload) -> int:
        largest_error = worst_factor_bytes(workload, omitted_axes=identity_axes(workload))
        return super().planning_bytes(workload) + product_copy_bytes(workload) + largest_error

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload
        work.show_message("optimising kronecker")
        if request.worst:
            tolerance = max(request.tolerance, WORST_TOLERANCE)
            solve_minimax = partial(kronecker_worst, tolerance=tolerance, on_step=work.step_callback())
            return get_term_strategy(
                work, name_strategy(workload, f"kronecker-worst-{tolerance:g}"), workload, solve_minimax, worst=True
            )
        solve = partial(kronecker, tolerance=request.tolerance, on_step=work.step_callback())
        return get_term_strategy(work, name_strategy(workload, f"kronecker-{request.tolerance:g}"), workload, solve)


class UnionMechanism(Mechanism):
    """A mechanism for unions of products, whose strategy is found in one call and kept by its tables."""

    answers = "unions of products of queries of single attributes"

    def reason_refused(self, workload: Workload) -> str | None:
        return None if workload.kind.is_separable else "the workload holds queries that are no product over attributes"

    def effort_text(self, workload: Workload) -> str:
        return "seconds"


class Residual(UnionMechanism):
    """One product of small optima for every attribute set, over the residual spaces."""

    name = "residual"
    summary = "products of small optima over the residual spaces of marginals, for domains of any size"
    supports_fractional_records = True
    solves: ClassVar[int] = 8
    """Optima of the largest attribute that planning takes."""
    find: ClassVar[Callable[..., TermStrategy]] = staticmethod(residual)
    form: ClassVar[type[TermStrategy]] = TermStrategy

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        has_one_attribute = len(question.workload.domain.shape) == 1
        reason = reason_beaten(self, question) or (
            ALONE_OR_SPECIAL if has_one_attribute or question.has_special_queries else None
        )
        soon = Limits(seconds=question.comparison_limits.seconds).exceeded_by(self.effort(question.workload)) is None
        return reason or (None if soon and self.fits(question.workload, AUTO_MEMORY_BYTES) else REASON_SLOW_ATTRIBUTE)

    def effort(self, workload: Workload, setting: PlanSetting = SINGLE_RECORD) -> Effort:
        """The optima of single attributes."""
        largest = max(workload.domain.shape)
        products = self.solves * FULL_RANK_PRODUCTS * (1.0 + (SMALL_SOLVE / largest) ** 2)
        return Effort(largest, largest, product_bytes(workload), products)

    def fits(self, workload: Workload, memory_bytes: int) -> bool:
        """Whether there are several attributes, whose optima by themselves take no longer than ``auto`` spends."""
        return len(workload.domain.shape) > 1 and super().fits(workload, memory_bytes)

    def recommendation(self, workload: Workload, memory_bytes: int) -> str | None:
        return "'residual' (seconds; certified by 'dpdist plan')"

    def planning_bytes(self, workload: Workload) -> int:
        return product_bytes(workload)

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        work.show_message(f"optimising {self.name}")
        solve = partial(self.find, tolerance=request.tolerance)
        return get_term_strategy(
            work,
            name_strategy(request.workload, f"{self.name}-{request.tolerance:g}"),
            request.workload,
            solve,
            form=self.form,
        )
