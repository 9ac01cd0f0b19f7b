"""Representations of strategies: each says its sensitivity, the error of its worst query, and what is measured of it in whole numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpdist.arrays import lapack
from dpdist.measurement.coefficient_vectors import Coefficients, FilterCoefficients
from dpdist.measurement.dense_measurement import DirectMeasurement, direct_rows, integer_rows, round_dense_strategy
from dpdist.measurement.filter_measurement import filter_measurement
from dpdist.measurement.hadamard_measurement import hadamard_measurement
from dpdist.measurement.integer_measurement import IntegerMeasurement, Norm
from dpdist.measurement.term_measurement import term_measurement
from dpdist.operators import Dense, Identity, Matrix, Product, Total
from dpdist.reconstruction.kronecker_terms import (
    Directions,
    Term,
    block_variances,
    is_identity,
    oblique_inverse,
    row_squares,
)
from dpdist.stability import Neighbours
from dpdist.strategies.dual_certificates import PersonsBound
from dpdist.strategies.strategy import UNIT_VARIANCE, Strategy
from dpdist.workloads import Block, Gram, Workload, integer_basis

WORST_WORK = 2**34
"""Multiplications that predicting the worst query's error may take: seconds."""
WORST_ROWS = 4096
"""Queries over the cells that it looks at together."""
WORST_ANSWERS = 2**26
"""Variances that it may look at."""
FAR_FROM_DEPENDENT = 1e-6
"""Least ratio within the diagonal of R at which an inverse from a QR decomposition keeps nine digits."""


def _inverse(matrix: Matrix) -> Matrix:
    """The pseudo-inverse; of columns that are far from dependent by a QR decomposition, in a fraction of the time."""
    if matrix.shape[0] >= matrix.shape[1]:
        q, r = lapack.qr(matrix, mode="economic")
        diagonal = np.abs(np.diag(r))
        if diagonal.min() > FAR_FROM_DEPENDENT * diagonal.max():
            return np.asarray(lapack.solve_triangular(r, q.T))
    return np.asarray(np.linalg.pinv(matrix))


@dataclass(frozen=True, repr=False)
class DenseStrategy(Strategy):
    """Rows over the cells, or over the rows of a basis: an operator that is applied as it is."""

    supports_fractional_records: ClassVar[bool] = True
    norm: Norm = "l2"
    persons: PersonsBound | None = field(default=None, kw_only=True)

    def worst(self, workload: Workload) -> float | None:
        if isinstance(self.operator, Identity):
            operators = (block.operator(workload.domain.shape) for block in workload.blocks)
            return self.unit_error * math.sqrt(max(operator.longest_row_squared for operator in operators))
        queries, operator = workload.shape[0], self.operator
        basis = integer_basis(workload)
        mixing = None
        if isinstance(operator, Product) and isinstance(operator.left_factor, Dense) and basis.operator is not None:
            mixing = operator.left_factor.array
        width = workload.shape[1] if mixing is None else basis.rank
        if queries * width**2 + width**3 > WORST_WORK:
            return None
        inverse = _inverse(self.matrix() if mixing is None else mixing)
        worst = 0.0
        for start in range(0, queries, WORST_ROWS):
            stop = min(queries, start + WORST_ROWS)
            rows = (
                workload.unweighted.rows(start, stop) if mixing is None else basis.coordinates(start, stop, weighted=False)
            )
            noise_weights = rows @ inverse
            worst = max(worst, float(np.einsum("ij,ij->i", noise_weights, noise_weights).max()))
        return self.unit_error * math.sqrt(worst)

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        base, real = integer_rows(self.operator, workload, self.norm)
        unit, domain = self.sensitivity, workload.domain
        return round_dense_strategy(base, real, unit, self.norm, domain, neighbours=neighbours, most_records=most_records)


@dataclass(frozen=True, repr=False)
class DirectStrategy(Strategy):
    """The workload's own queries, each with noise: answers are the measurements themselves, without least squares.

    Attributes:
        scales: what the rows of each block are multiplied with, in place of its weight, so that each of several tables has noise of a size
            for itself; None: its weight.
    """

    norm: Norm = "l2"
    scales: tuple[float, ...] | None = field(default=None, kw_only=True)

    @property
    def consistent(self) -> bool:
        return False

    def cost(self, workload: Workload | Gram) -> float:
        """The weighted variances of all queries for rows of unit sensitivity: m Delta^2 of a row each under its weight."""
        queries: float = self.operator.shape[0]
        if self.scales is not None:
            assert isinstance(workload, Workload)
            errors = zip(workload.blocks, self.scales, strict=True)
            queries = sum(block.queries * (block.weight / scale) ** 2 for block, scale in errors)
        return queries * self.sensitivity**2 * UNIT_VARIANCE[self.norm]

    def worst(self, workload: Workload) -> float | None:
        return self.unit_error / min(self.scales or (float(block.weights.min()) for block in workload.blocks))

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        if self.scales is None:
            base, real = direct_rows(self.operator, workload)
        else:
            base, real = workload.unweighted, np.repeat(self.scales, [block.queries for block in workload.blocks])
        return round_dense_strategy(
            base,
            real,
            self.sensitivity,
            self.norm,
            workload.domain,
            neighbours=neighbours,
            most_records=most_records,
            form=DirectMeasurement,
        )


@dataclass(frozen=True, repr=False)
class TermStrategy(Strategy):
    """Kronecker rows over marginal tables, where A is too large to be written down.

    Attributes:
        directions: of attributes whose rows are orthogonal to something else than all ones.
    """

    supports_fractional_records: ClassVar[bool] = True
    terms: tuple[Term, ...] = field(kw_only=True)
    directions: Directions = field(default_factory=dict, kw_only=True)

    def form_facts(self) -> dict[str, Any]:
        """What is kept of the strategy beside its terms, for JSON."""
        return {}

    @classmethod
    def restored_options(cls, facts: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        """What the constructor takes beside the terms, from what was kept; shape: of the domain."""
        return {}

    @property
    def l2_sensitivity(self) -> float:
        return float(np.sqrt(sum(term.square for term in self.terms)))

    def worst(self, workload: Workload) -> float | None:
        identities = {axis for term in self.terms for axis, f in zip(term.axes, term.factors, strict=True) if is_identity(f)}
        axis_factors = [(a, f) for b in workload.blocks for a, f in zip(b.axes, b.factors, strict=True)]
        work = sum(f.shape[0] * f.shape[1] ** 2 for axis, f in axis_factors if axis not in identities)
        if work * len(self.terms) > WORST_WORK:
            return None
        directions = self.directions
        if len(self.terms) == 1 and workload.kind.is_product and not directions:
            return self.unit_error * math.sqrt(max(map(self._largest_of_product, workload.blocks)))
        if workload.shape[0] * len(self.terms) > WORST_ANSWERS:
            return None
        inverted_terms = []
        for term in self.terms:
            directed_factors = [(f, directions.get(axis)) for axis, f in zip(term.axes, term.factors, strict=True)]
            inverses = tuple(np.linalg.pinv(f) if u is None else oblique_inverse(f, u) for f, u in directed_factors)
            inverted_terms.append((term.axes, inverses, 1.0 / term.scale))
        variances = (float(block_variances(block, inverted_terms, directions).max()) for block in workload.blocks)
        return self.unit_error * math.sqrt(max(variances))

    def _largest_of_product(self, block: Block) -> float:
        """The largest variance of a product of queries, which is the product of the largest ones, for noise of variance 1 in one term."""
        (term,) = self.terms
        queries, largest = dict(zip(block.axes, block.factors, strict=True)), 1.0
        for axis, factor in zip(term.axes, term.factors, strict=True):
            inverse = factor if is_identity(factor) else np.linalg.pinv(factor)
            largest *= float(row_squares(queries.get(axis, Total(factor.shape[1])), inverse).max())
        return largest / term.scale**2

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        directions, domain = self.directions, workload.domain
        return term_measurement(self.terms, domain, neighbours=neighbours, most_records=most_records, directions=directions)


@dataclass(frozen=True, repr=False)
class ResidualStrategy(TermStrategy):
    """Orthonormal rows of the residual spaces of marginals: every cell of a marginal has the same error, in closed form."""

    def worst(self, workload: Workload) -> float | None:
        if not workload.kind.is_marginals:
            return super().worst(workload)
        return max(self.deviation(workload.domain.shape, block) for block in workload.blocks)

    def deviation(self, sizes: tuple[int, ...], block: Block) -> float:
        """Standard error of every cell of a marginal at noise multiplier 1."""
        axes = set(block.asked_axes)
        variance = 0.0
        for term in self.terms:
            if set(term.axes) <= axes:
                inside = math.prod(1 - 1 / sizes[axis] for axis in term.axes)
                outside = math.prod(sizes[axis] for axis in axes - set(term.axes))
                variance += inside / (term.scale * outside) ** 2
        return self.l2_sensitivity * math.sqrt(variance)


@dataclass(frozen=True, repr=False)
class CoefficientStrategy(Strategy):
    """One vector of coefficients, in memory or in the store: every query of a block has about the same error."""

    coefficients: Coefficients = field(kw_only=True)

    @property
    def l2_sensitivity(self) -> float:
        return self.coefficients.length

    def worst(self, workload: Workload) -> float | None:
        return self.unit_error * max(self.coefficients.deviations)


@dataclass(frozen=True, repr=False)
class FilterStrategy(CoefficientStrategy):
    """A filter along one attribute."""

    supports_sums: ClassVar[bool] = True
    coefficients: FilterCoefficients = field(kw_only=True)

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        return filter_measurement(self.coefficients, neighbours=neighbours, most_records=most_records)


@dataclass(frozen=True, repr=False)
class CharacterStrategy(CoefficientStrategy):
    """Rows of the Hadamard matrix of some binary attributes, each times its scale."""

    def _measurement(self, workload: Workload, neighbours: Neighbours, most_records: int) -> IntegerMeasurement:
        return hadamard_measurement(self.coefficients, neighbours=neighbours, most_records=most_records)
