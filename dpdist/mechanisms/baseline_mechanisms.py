"""Strategies that are the same for every workload: cells, their trees and wavelets, and the queries themselves."""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar

from dpdist.mechanisms.mechanism import (
    ANY_NOISE,
    AUTO_LIMITS,
    LAPLACE,
    SINGLE_RECORD,
    SOON,
    AutoComparison,
    Mechanism,
    PlanSetting,
    PlanWorkspace,
    Request,
    reason_beaten,
    reason_large,
)
from dpdist.operators import Dense, Haar, Matrix, Operator
from dpdist.strategies.baselines import (
    attribute_rows,
    formula_strategy,
    gaussian,
    hierarchical,
    identity,
    laplace,
    largest_tree_rows,
)
from dpdist.strategies.solver_resources import NOMINAL_RATE, Effort, worst_row_bytes
from dpdist.strategies.strategy import Strategy
from dpdist.workloads import Workload


class IdentityMechanism(Mechanism):
    """The cells themselves."""

    name = "identity"
    summary = "noise on every cell"
    noises = ANY_NOISE
    supports_fractional_records = True

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return None

    def fits(self, workload: Workload, memory_bytes: int) -> bool:
        """Whether answers, each a sum over cells, take no longer than ``auto`` spends."""
        queries, cells = workload.shape
        seconds = 0.0 if workload.kind.is_cells else 2.0 * queries * cells / NOMINAL_RATE
        return seconds <= (AUTO_LIMITS.seconds or 0.0) and super().fits(workload, memory_bytes)

    def recommendation(self, workload: Workload, memory_bytes: int) -> str:
        error = math.sqrt(workload.operator.frobenius_squared / workload.shape[0])
        return f"'identity' (RMSE {error:.4g} at noise multiplier 1)"

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        return identity(request.workload.shape[1], request.workload, norm=request.norm)


class Gaussian(Mechanism):
    """The queries themselves."""

    name = "gaussian"
    summary = "Gaussian noise on every answer; answers are not consistent with each other"

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return reason_large(self.planning_bytes(question.workload))

    def recommendation(self, workload: Workload, memory_bytes: int) -> str:
        return f"'gaussian' (RMSE {workload.operator.l2_sensitivity:.4g} at noise multiplier 1)"

    def planning_bytes(self, workload: Workload) -> int:
        return workload.operator.sensitivity_bytes

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        return gaussian(request.workload)


class Laplace(Mechanism):
    """The queries themselves."""

    name = "laplace"
    summary = "Laplace noise on every answer; answers are not consistent with each other"
    noises = LAPLACE

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return None

    def planning_bytes(self, workload: Workload) -> int:
        return workload.operator.sensitivity_bytes

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        return laplace(request.workload)


class FormulaMechanism(Mechanism):
    """Rows over the cells that a formula gives, which are not optimised: a declaration of the rows and of what they are called.

    Attributes:
        products: of matrices over the cells that the cost of the rows takes.
    """

    noises = ANY_NOISE
    products: ClassVar[float] = 4.0

    def rows(self, workload: Workload) -> Matrix | Operator:
        """The rows over the cells, (p, n), whatever their lengths: an array, or an operator that is known by its structure.

        Not asked for where ``build_strategy`` is another one.
        """
        raise NotImplementedError

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        rows = self.rows(request.workload)
        operator = rows if isinstance(rows, Operator) else Dense(rows)
        return work.run_on_largest_worker(
            partial(formula_strategy, self.name, operator, norm=request.norm), request.workload
        )

    def planning_bytes(self, workload: Workload) -> int:
        return max(8 * 8 * workload.shape[1] ** 2, worst_row_bytes(workload))

    def reason_not_compared(self, question: AutoComparison) -> str | None:
        return reason_beaten(self, question) or question.reason_out_of_reach(self.effort(question.workload), SOON)

    def effort(self, workload: Workload, setting: PlanSetting = SINGLE_RECORD) -> Effort:
        """The cost takes an eigen-decomposition over the cells, or over each attribute of products."""
        sizes = workload.domain.shape
        cells = max(sizes) if len(sizes) > 1 and workload.kind.is_separable else workload.shape[1]
        return Effort(cells, cells, self.planning_bytes(workload), self.products)


class Wavelet(FormulaMechanism):
    """Haar wavelets."""

    name = "wavelet"
    summary = "noise on Haar wavelet coefficients along each ordered attribute"

    def rows(self, workload: Workload) -> Operator:
        return attribute_rows(Haar, workload.domain)


class Hierarchical(FormulaMechanism):
    """Trees."""

    name = "hierarchical"
    summary = "noise on the counts of every node of a tree along each ordered attribute"
    products = 36.0  # a tree has twice as many rows as cells

    def planning_bytes(self, workload: Workload) -> int:
        return max(
            8 * 8 * workload.shape[1] * largest_tree_rows(workload), worst_row_bytes(workload, largest_tree_rows(workload))
        )

    def build_strategy(self, request: Request, work: PlanWorkspace) -> Strategy:
        build = partial(hierarchical, request.workload.domain.shape, branching=None, norm=request.norm)
        return work.run_on_largest_worker(build, request.workload)
