"""Rows over the cells that an optimiser finds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from dpdist.mechanisms.mechanism import (
    AUTO_MEMORY_BYTES,
    DENSE_CELLS,
    LAPLACE,
    SINGLE_RECORD,
    SOON,
    AutoComparison,
    Mechanism,
    PlanSetting,
    PlanWorkspace,
    Request,
    reason_beaten,
    reason_slow,
)
from dpdist.mechanisms.optimality import Optimality
from dpdist.mechanisms.strategy_cache import WORST_TOLERANCE, get_dense_strategy, name_person_strategy, name_strategy
from dpdist.strategies.dense.adaptive_mechanism import eigen_design
from dpdist.strategies.dense.completing_rows import completed_design
from dpdist.strategies.dense.minimax import least_worst
from dpdist.strategies.group_optimum import persons_by_cell
from dpdist.strategies.optimal import coa
from dpdist.strategies.p_identity_design import p_identity
from dpdist.strategies.solver_resources import FULL_RANK_PRODUCTS, Effort, Limits, effort, worst_row_bytes
from dpdist.strategies.strategy import Strategy
from dpdist.workloads import Gram, Workload, integer_basis

LEARNT_CELLS = 1024
"""Up to here ``auto`` optimises p-Identity, which takes seconds; beyond, it must be asked for."""
REPLACED = Limits(AUTO_MEMORY_BYTES, 5.0, whose="to compare it for replaced records 'auto' takes up to")
"""What it may take where records are replaced."""


class DenseRowsMechanism(Mechanism):
    """A mechanism whose rows over the cells are written down, as many as cells."""

    supports_fractional_records = True

    def planning_bytes(self, workload: Workload) -> int:
        return max(super().planning_bytes(workload), worst_row_bytes(workload))


class Coa(DenseRowsMechanism):
    """The least-error strategy, with a proof of how close it is."""

    name = "coa"
    summary = "the certified optimum: no matrix mechanism with Gaussian noise has less error"
    worst = True
    optimiser = "coa"

    def proves(self, question: AutoComparison) -> Optimality | None:
        """For persons in several cells a gap is not known beforehand, unless all cells are alike."""
        workload, setting = question.workload, question.setting
        if workload.kind.is_dyadic or self.exceeds(question) is not None:
            return None
        if not self.optimises_for_persons(workload, setting):
            return Optimality(workload)
        return Optimality(workload, setting.moved) if workload.kind.is_cells else None

    def effort(self, workload: Workload, setting: PlanSetting = SINGLE_RECORD) -> Effort:
        return effort(workload, "persons" if self.optimises_for_persons(workload, setting) else "coa")

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return reason_beaten(self, question) or self.exceeds(question)

    def exceeds(self, question: AutoComparison) -> str | None:
        """Why its solve is out of reach. Formulas have an optimum in closed form: this one is a baseline beside it."""
        if question.workload.kind.is_dyadic:
            cells = question.cells
            return question.reason_out_of_reach(Effort(cells, cells, 6 * 8 * cells**2, FULL_RANK_PRODUCTS), SOON)
        return question.reason_out_of_reach(self.effort(question.workload, question.setting))

    def needed_bytes(self, request: Request) -> int:
        if request.worst:
            return effort(request.workload, "worst").memory_bytes
        if self.optimises_for_persons(request.workload, request.setting):
            return effort(request.workload, "persons").memory_bytes
        return super().needed_bytes(request)

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload, moved, needed_bytes = request.workload, request.setting.moved, self.needed_bytes(request)
        if not request.worst and self.optimises_for_persons(workload, request.setting):
            for_persons = partial(persons_by_cell, moved=moved, tolerance=request.tolerance)
            name = name_person_strategy(workload, f"coa-{request.tolerance:g}", moved)
            return get_dense_strategy(
                work, name, self.name, lambda: work.run_on_largest_worker(for_persons, Gram(work.gram(workload)))
            )
        base_operator = integer_basis(workload).operator
        tolerance = max(request.tolerance, WORST_TOLERANCE) if request.worst else request.tolerance
        name = name_strategy(workload, f"coa-worst-{tolerance:g}" if request.worst else f"coa-{tolerance:g}")

        def solve() -> Strategy:
            # the solve takes the bulk of a release's time: a killed one resumes from its last dual weights
            if request.worst:
                return work.resume_solve(name, partial(least_worst, tolerance=tolerance), workload, needed_bytes)
            problem: Workload | Gram = workload if base_operator is not None else Gram(work.gram(workload))
            return work.resume_solve(name, partial(coa, tolerance=tolerance), problem, needed_bytes)

        strategy = get_dense_strategy(work, name, self.name, solve, base_operator=base_operator, worst=request.worst)
        work.forget(name)
        return strategy

    def optimises_for_persons(self, workload: Workload, setting: PlanSetting) -> bool:
        """Whether the optimum is that for persons in several cells, whose records are counted: else it is that for one record."""
        several = setting.moved.groups > 1 and not setting.moved.signed and workload.domain.whole_records
        return several and not workload.kind.is_long and SOON.exceeded_by(effort(workload, "persons")) is None


class Eigen(DenseRowsMechanism):
    """AM: the adaptive eigen-design, by groups of eigen-queries for many cells."""

    name = "eigen"
    summary = "the best weights for the workload's eigenvectors, by groups of them for many cells"
    optimiser = "eigen"

    def recommendation(self, workload: Workload, memory_bytes: int) -> str | None:
        needed_bytes = self.effort(workload).memory_bytes
        if needed_bytes > memory_bytes:
            return None
        cost = f"a tenth of the time, {needed_bytes / 2**30:.2f} GiB, 0 to 12 % more squared error"
        return f"'eigen' with eigen.group_size ({cost})"

    def planning_bytes(self, workload: Workload) -> int:
        return max(self.effort(workload).memory_bytes + 2 * 8 * workload.shape[1] ** 2, worst_row_bytes(workload))

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        """The design is solved once for each workload and way of separation; groups are solved by the workers."""
        workload = request.workload
        group = request.group_size or (None if request.principal else _default_group(workload))
        completed = group is None and request.principal is None
        kind = "completed" if completed else f"{group}-{request.principal}"
        name = name_strategy(workload, f"eigen-{kind}-{request.tolerance:g}")

        def solve() -> Strategy:
            gram = work.gram(workload)
            if group is not None:
                return work.solve_by_groups(gram, f"scratch/{name}", group_size=group, tolerance=request.tolerance)
            work.show_message("weighting eigen-queries")
            if completed:
                return work.run_on_largest_worker(partial(completed_design, tolerance=request.tolerance), Gram(gram))
            return work.run_on_largest_worker(
                partial(eigen_design, principal=request.principal, tolerance=request.tolerance), Gram(gram)
            )

        return get_dense_strategy(work, name, self.name, solve)


def _default_group(workload: Workload) -> int | None:
    """Eigen-queries a group when the spec does not say: none up to ``DENSE_CELLS`` cells."""
    cells = workload.shape[1]
    return None if cells <= DENSE_CELLS else round(cells ** (1 / 3))


class GramMechanism(DenseRowsMechanism):
    """A mechanism whose rows are found from W'W in one solve.

    Attributes:
        progress_message: what planning shows meanwhile.
    """

    progress_message: ClassVar[str]

    @abstractmethod
    def solver(self, request: Request) -> Callable[[Gram], Strategy]:
        """The solve, of W'W."""

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        workload = request.workload

        def solve() -> Strategy:
            work.show_message(self.progress_message)
            return work.run_on_largest_worker(self.solver(request), Gram(work.gram(workload)))

        return get_dense_strategy(
            work, name_strategy(workload, self.strategy_method(request)), self.name, solve, norm=request.norm
        )

    def strategy_method(self, request: Request) -> str:
        """What the strategy is kept under."""
        return self.name


class PIdentity(GramMechanism):
    """p-Identity: the cells and a few learnt queries, for pure epsilon."""

    name = "p-identity"
    summary = "Laplace noise on every cell and on a few learnt queries beside: the best of several local optima"
    noises = LAPLACE
    optimiser = "p_identity"
    progress_message = "optimising a p-Identity strategy"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return None if question.cells <= LEARNT_CELLS else reason_slow(LEARNT_CELLS)

    def planning_bytes(self, workload: Workload) -> int:
        return max(self.effort(workload).memory_bytes, worst_row_bytes(workload, 2 * workload.shape[1]))

    def solver(self, request: Request) -> Callable[[Gram], Strategy]:
        return p_identity
