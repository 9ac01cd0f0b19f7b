"""Strategy: the queries that are measured, and what is proven about them. Solve: the record of the optimisation that found it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from dpdist.errors import InvalidInput, NotPositiveDefinite
from dpdist.measurement.integer_measurement import IntegerMeasurement, Norm
from dpdist.measurement.sensitivity.bounded_totals import Totals
from dpdist.notebook_tables import html_table
from dpdist.operators import Kronecker, Matrix, Operator
from dpdist.stability import Distance, Neighbours
from dpdist.strategies import linear_algebra
from dpdist.strategies.dual_certificates import LargestBound, PersonsBound
from dpdist.workloads import Gram, Workload
from dpdist.workloads.workload import count_phrase

Stop = Literal["converged", "iteration limit", "stalled", "closed form"]


@dataclass(frozen=True)
class Step:
    """One iteration of an optimiser.

    Attributes:
        objective: cost of the best strategy so far.
        gap: objective / best lower bound - 1; infinite while unknown.
        gradient_norm: ||G||_F for the primal methods (Figure 1 of the COA paper), else nan.
        checkpoint: what ``start`` resumes from: the n dual weights for "dual" and AM, the current matrix for the others.
    """

    iteration: int
    objective: float
    gap: float
    gradient_norm: float = float("nan")
    checkpoint: Matrix | None = field(default=None, repr=False, compare=False)


OnStep = Callable[[Step], None]
"""Called after every iteration. It may raise ``Cancelled``; the last checkpoint it saw resumes the solve."""


def ignore_step(_: Step) -> None:
    """The callback that does nothing."""


def check_not_empty(queries: object) -> None:
    """Accept what is asked of some cell. Raises: InvalidInput where it is nothing (0, False, an empty tuple)."""
    if not queries:
        raise InvalidInput(
            "every query of the workload is zero, so there is nothing to answer; give queries that count some cell"
        )


def check_start(start: Matrix, shape: tuple[int, ...]) -> Matrix:
    """A checkpoint as float64. Raises: InvalidInput when it cannot belong to this problem."""
    array = np.asarray(start, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidInput(f"the checkpoint 'start' must hold finite numbers of shape {shape}, found shape {array.shape}")
    return array


@dataclass(frozen=True)
class Solve:
    """The record of an optimisation. One that does not converge raises no error: read ``stop`` and the strategy's ``gap``.

    Attributes:
        largest: proof of what no strategy's largest error is below, where that was optimised.
        eigendecompositions: of matrices of the problem's size; those of half size count an eighth.
        products: matrix products (or matrix-vector products, for AM) beside them.
    """

    method: str
    stop: Stop
    history: tuple[Step, ...]
    dual: Matrix | None = field(default=None, repr=False)
    largest: LargestBound | None = field(default=None, repr=False, kw_only=True)
    eigendecompositions: float = 0
    products: float = 0


CLOSED_FORM = Solve("closed form", "closed form", ())
UNIT_VARIANCE: dict[Norm, float] = {"l2": 1.0, "l1": 2.0}
"""Variance of a Gaussian and of a Laplace draw of scale 1: costs are counted in it."""


@dataclass(frozen=True, repr=False)
class Strategy(ABC):
    """The linear queries A that are measured with noise, and from which all answers are computed. Each form of A has its own subclass.

    Attributes:
        name: the mechanism.
        operator: A, (p, n).
        workload_cost: J(A) = Delta^2 tr(V (A'A)^+), total variance of all (weighted) answers at noise multiplier 1;
            None when no workload was given.
        lower_bound: no strategy has a lower cost for that workload; None when no workload was given.
        norm: "l2" is measured with Gaussian noise; "l1" with Laplace noise, its cost is the variance at epsilon = 1.
        biased: whether answers have an error besides the noise; standard errors do not include it.
    """

    name: str
    operator: Operator
    workload_cost: float | None = None
    lower_bound: float | None = None
    solve: Solve | None = None

    biased: ClassVar[bool] = False
    supports_fractional_records: ClassVar[bool] = False
    supports_sums: ClassVar[bool] = False

    @property
    def norm(self) -> Norm:
        return "l2"

    @property
    def persons(self) -> PersonsBound | None:
        """What no strategy can beat for persons in several cells or steps, with its proof; None where it is not known."""
        return None

    @property
    def consistent(self) -> bool:
        """Whether all answers are read from one estimate, so that they agree with each other."""
        return True

    def __repr__(self) -> str:
        return f"<strategy {', '.join(text for _, text in self._facts())}>"

    def _repr_html_(self) -> str:
        """A notebook's view: what the strategy costs and what is proven about it."""
        return html_table(f"strategy {self.name}", ("", ""), [(label, text) for label, text in self._facts()[1:]])

    def _facts(self) -> list[tuple[str, str]]:
        rows, cells = self.operator.shape
        facts = [
            (
                "mechanism",
                f"{self.name}: {count_phrase(rows, 'measured query', 'measured queries')} over {count_phrase(cells, 'cell', 'cells')}",
            )
        ]
        if self.workload_cost is not None:
            facts.append(("cost", f"cost {self.workload_cost:.6g}"))
        if self.workload_cost is not None and self.lower_bound is not None:
            ratio_text = f"1 + {max(self.gap, 0.0):.1e}" if self.gap < 1e-3 else f"{1 + self.gap:.4g}"
            facts.append(("certificate", f"certified at most {ratio_text} times the least"))
        if self.solve is not None and self.solve.stop not in ("converged", "closed form"):
            facts.append(("solve", f"not converged ({self.solve.stop})"))
        return facts

    @abstractmethod
    def worst(self, workload: Workload) -> float | None:
        """Largest standard error of a query at noise multiplier 1, None where it takes more than ``WORST_WORK`` operations."""

    @abstractmethod
    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        """The strategy in whole numbers."""

    def measurement(self, workload: Workload, *, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        """The strategy in whole numbers, with its exact sensitivity.

        Args:
            neighbours: one record more or less, or one record replaced (which may also enter or leave the domain).
            most_records: k, the most records of one person: multiplies the sensitivity.
        """
        if most_records < 1:
            raise InvalidInput(f"a person has at least one record, found most_records={most_records}")
        if not workload.domain.measurable(fractional_records=self.supports_fractional_records, sums=self.supports_sums):
            raise InvalidInput(f"strategy {self.name!r} measures whole records, and the domain divides them into shares")
        totals = Totals.of(workload.domain)
        if totals is not None and most_records != totals.records * totals.shares_per_record:
            raise InvalidInput(
                f"the domain bounds totals of persons with up to {totals.records} records of {totals.shares_per_record} shares, found "
                f"{most_records} shares; give both the same bound"
            )
        return self._measurement(workload, neighbours, most_records)

    def measurement_for(self, workload: Workload, moved: Distance) -> IntegerMeasurement:
        """The strategy in whole numbers, for counts that one change moves by a distance.

        Where records lie in several cells or steps, a measurement that knows how these add up takes less than the triangle inequality does.
        """
        neighbours, totals = moved.neighbours, Totals.of(workload.domain) is not None
        several = moved.groups * (moved.participations or 1)
        if several > 1 and not totals:
            of_one = self.measurement(workload, neighbours=neighbours, most_records=moved.records)
            if (of_several := of_one.with_contributions(moved)) is not None:
                return of_several
        return self.measurement(workload, neighbours=neighbours, most_records=several * moved.records)

    @cached_property
    def l2_sensitivity(self) -> float:
        """Largest column norm of A: for a product over an integer basis, half of the seconds of a plan that is repeated."""
        return self.operator.l2_sensitivity

    @property
    def l1_sensitivity(self) -> float:
        """Largest sum of absolute values in a column of A."""
        return self.operator.l1_sensitivity

    @property
    def sensitivity(self) -> float:
        """The sensitivity in the strategy's norm."""
        return self.l1_sensitivity if self.norm == "l1" else self.l2_sensitivity

    @property
    def unit_error(self) -> float:
        """Standard error of a measured value at noise multiplier 1."""
        return self.sensitivity * math.sqrt(UNIT_VARIANCE[self.norm])

    @property
    def gap(self) -> float:
        """cost / lower_bound - 1: how far the strategy can at most be from the optimum. nan without a workload."""
        if self.workload_cost is None or self.lower_bound is None:
            return float("nan")
        return self.workload_cost / self.lower_bound - 1.0 if self.lower_bound > 0 else 0.0

    def matrix(self) -> Matrix:
        """A as a dense array."""
        return self.operator.dense()

    def cost(self, workload: Workload | Gram) -> float:
        """J(A) for a workload or its gram; infinite when A does not span the workload.

        Source: Li & Miklau 2012, Prop. 4, scaled to noise multiplier 1.
        """
        variance = _variance_by_attribute(self.operator, workload)
        if variance is not None:
            # of the rows as they are
            sensitivity = self.l1_sensitivity if self.norm == "l1" else self.operator.l2_sensitivity
            return UNIT_VARIANCE[self.norm] * sensitivity**2 * variance
        precision = self.operator.gram()
        cost = matrix_mechanism_cost(precision, gram_of(workload))
        return laplace_cost(cost, precision, self.l1_sensitivity) if self.norm == "l1" else cost


def _variance_by_attribute(strategy: Operator, workload: Workload | Gram) -> float | None:
    """tr(V X^-1) of products over attributes, from that of each attribute; None of others, and where X is not safely definite."""
    if not isinstance(strategy, Kronecker) or not isinstance(workload, Workload):
        return None
    if tuple(factor.shape[1] for factor in strategy.factors) != workload.domain.shape:
        return None
    queries = [(block.weight, block.operator(workload.domain.shape, scaled=True)) for block in workload.blocks]
    spectra = [linear_algebra.eigh(factor.gram()) for factor in strategy.factors]
    if any(values[0] <= SAFE_EIGENVALUE * values[-1] for values, _ in spectra):
        return None
    total = 0.0
    for weight, query_operator in queries:
        if not isinstance(query_operator, Kronecker):
            return None
        traces = (
            (linear_algebra.column_products(vectors, factor.gram() @ vectors) / values).sum()
            for factor, (values, vectors) in zip(query_operator.factors, spectra, strict=True)
        )
        total += weight**2 * math.prod(map(float, traces))
    return total


WELL_CONDITIONED = 0.01
"""Ratio of Cholesky's pivots above which a precision is inverted by them, in a fifth of an eigen-decomposition's time."""


def matrix_mechanism_cost(precision: Matrix, gram: Matrix) -> float:
    """max_i X_ii * tr(V X^+); infinite when the range of V is not inside the range of X.

    Args:
        precision: X = A'A, (n, n), positive semidefinite.
        gram: V = W'W, (n, n).
    """
    n = precision.shape[0]
    if gram.shape != (n, n):
        raise InvalidInput(f"a strategy over {n} cells cannot answer a workload over {gram.shape[0]} cells")
    largest = float(linear_algebra.diagonal(precision).max())
    try:
        pivots = linear_algebra.diagonal(linear_algebra.cholesky(precision))
        if pivots.min() > WELL_CONDITIONED * pivots.max():
            return largest * float(linear_algebra.trace(linear_algebra.factor_matrix(precision)(gram)))
    except NotPositiveDefinite:
        pass
    values, vectors = linear_algebra.eigh(precision)
    weight = linear_algebra.column_products(vectors, gram @ vectors)
    nonzero = values > n * np.finfo(float).eps * max(values[-1], 0.0)
    if weight[~nonzero].sum() > 1e-9 * max(linear_algebra.trace(gram), np.finfo(float).tiny):
        return float("inf")
    return largest * float((weight[nonzero] / values[nonzero]).sum())


def laplace_cost(gaussian_cost: float, precision: Matrix, l1_sensitivity: float) -> float:
    """2 Delta_1^2 tr(V X^+) from Delta_2^2 tr(V X^+): total variance under Laplace noise at epsilon = 1."""
    return 2.0 * gaussian_cost * l1_sensitivity**2 / float(np.diag(precision).max())


def proven_root_trace(values: Matrix) -> float:
    """A number not above tr K^1/2, from computed eigenvalues of K >= 0.

    LAPACK's eigenvalues are off by about eps ||K|| (measured on prefix sums, whose eigenvalues are known: up to 1.9 eps
    ||K|| for the largest, 0.03 eps ||K|| for the smaller half). Square roots blow that up near zero (a zero read as 1e-16
    would add 1e-8), so those below n eps ||K|| count as zero and eps ||K|| is taken off the others.
    """
    rounding = np.finfo(np.float64).eps * max(float(values[-1]), 0.0)
    significant = values[values > values.size * rounding]
    return float(np.sqrt(np.maximum(significant - rounding, 0.0)).sum())


SAFE_EIGENVALUE = 1e-8
"""Least eigenvalue of an attribute's precision, in its largest, that is no rounding."""
EXPLICIT = "dp.workloads.explicit(matrix)"
EITHER = f"{EXPLICIT} for the queries W, or dp.workloads.gram(matrix) for their gram W'W"
"""The names of what a matrix may be, which its numbers do not say: a matrix of queries may be symmetric, too."""


def check_workload(workload: Workload) -> Workload:
    """The workload itself. Raises: InvalidInput for anything else, such as an array of queries."""
    if not isinstance(workload, Workload):
        raise InvalidInput(f"a workload is needed, found {type(workload).__name__}; make one of an array by {EXPLICIT}")
    return workload


def check_gram(gram: object) -> Gram:
    """The gram itself. Raises: InvalidInput for anything else, such as an array, which may be one or queries."""
    if not isinstance(gram, Gram):
        raise InvalidInput(f"a workload or its gram is needed, found {type(gram).__name__}; say what a matrix is: {EITHER}")
    return gram


def gram_of(workload: Workload | Gram) -> Matrix:
    """The gram of a workload, or a checked copy of a gram, as a NumPy array. Raises: see ``gram_in_place``."""
    return linear_algebra.on_host(gram_in_place(workload))


def gram_in_place(workload: Workload | Gram) -> Matrix:
    """The gram of a workload, or a checked copy of a gram in its array's library and on its device.

    Raises: InvalidInput for what is neither, entries whose squares overflow, a shape that is not square, NaN, Inf or
        asymmetry; NotPositiveDefinite for a negative eigenvalue direction visible on the diagonal.
    """
    if isinstance(workload, Workload):
        with np.errstate(over="ignore", invalid="ignore"):
            workload_gram = workload.gram()
        if not np.isfinite(workload_gram).all():
            raise InvalidInput("the squares of the queries' entries overflow; divide all queries by their largest entry")
        return workload_gram
    gram = linear_algebra.as_array(check_gram(workload).values)
    xp = linear_algebra.namespace(gram)
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or gram.shape[0] == 0:
        raise InvalidInput(
            f"a gram W'W is a non-empty square matrix, found shape {tuple(gram.shape)}; for the queries W themselves pass {EXPLICIT}"
        )
    if not xp.isdtype(gram.dtype, ("real floating", "integral")):
        raise InvalidInput(f"a gram holds real numbers, found dtype {gram.dtype}")
    gram = linear_algebra.to_double(gram)
    if not xp.all(xp.isfinite(gram)):
        raise InvalidInput("the gram holds NaN or infinite entries")
    scale = float(xp.max(xp.abs(gram)))
    if float(xp.max(xp.abs(gram - gram.T))) > 1e-10 * scale:
        raise InvalidInput(
            f"a gram W'W is symmetric, and this matrix is not; for the queries W themselves pass {EXPLICIT}; "
            "if rounding made a gram so, pass (V + V') / 2"
        )
    if float(linear_algebra.diagonal(gram).min()) < -1e-10 * scale:
        raise NotPositiveDefinite("the gram has a negative diagonal entry; it must be W'W of a real workload")
    gram += linear_algebra.copy_matrix(gram.T)
    gram *= 0.5
    return gram
