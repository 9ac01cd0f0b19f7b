"""The optimisation problem min tr(V X^-1), diag X <= 1, made as small as it can be before it is solved.

Cells without queries are dropped; cells with equal columns are one cell (docs/mathematics.md, section 2); a workload's integer
basis gives a thin factor without an n x n gram.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.errors import InvalidInput, NotPositiveDefinite
from dpdist.operators import Dense, Matrix, Operator, Product
from dpdist.strategies import linear_algebra
from dpdist.strategies.dense.chain import ILL_CONDITIONED, Chain, chain_of
from dpdist.strategies.strategy import check_not_empty, gram_in_place
from dpdist.workloads import Basis, Gram, Workload, integer_basis
from dpdist.workloads.integer_basis import SubsetBasis

CLEAR_PIVOT = 100.0
"""Least square of a pivot at full rank, in roundings of its cell's diagonal entry."""
NEARLY_FULL, NEARLY_FULL_CELLS = 0.1, 200
"""Part of the eigenvalues that may be zero: then hardly any constraint is slack, and weights are found by their logarithms; and
the cells from which that saves time."""
EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Summand:
    """A diagonal block of V: F'F over some of the dual weights, as often as it occurs.

    Attributes:
        factor: F, (rank, cells).
        weight_indices: the weights that it is over; None for all.
    """

    factor: Matrix
    weight_indices: Matrix | None = None
    copies: float = 1.0

    @property
    def cells(self) -> Matrix | slice:
        """The weights that it is over, as an index."""
        return slice(None) if self.weight_indices is None else self.weight_indices


@dataclass(frozen=True)
class Problem(ABC):
    """V over the distinct, queried cells, with V scaled to a mean diagonal of 1.

    Attributes:
        initial_dual: the first guess of the dual weights: diag(V)^1/2 at full rank, where it takes no eigen-decomposition, else
            diag(V^1/2).
        scale: costs of the scaled problem times this are costs of the original.
        cell_class: kept cell of every original cell, -1 for cells without queries.
    """

    initial_dual: Matrix
    scale: float
    cell_class: Matrix

    @property
    @abstractmethod
    def factor(self) -> Matrix:
        """F with V = F'F, (rank, k)."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Numerical rank of V."""

    @property
    def cells(self) -> int:
        """Number of distinct, queried cells."""
        return int(self.initial_dual.size)

    @property
    def summands(self) -> tuple[Summand, ...]:
        """V as one block."""
        return (Summand(self.factor),)

    def expand(self, dual: Matrix) -> Matrix:
        """Dual weights of the kept cells as weights of all cells: each class of equal cells shares its weight."""
        counts = np.bincount(self.cell_class[self.cell_class >= 0], minlength=self.cells)
        weights = np.zeros(self.cell_class.size)
        weights[self.cell_class >= 0] = (dual / counts)[self.cell_class[self.cell_class >= 0]]
        return weights

    def restrict(self, dual: Matrix) -> Matrix:
        """The reverse of ``expand``: a checkpoint of all cells as weights of the kept ones."""
        if dual.shape != self.cell_class.shape or not np.isfinite(dual).all() or (dual < 0).any():
            raise InvalidInput(
                f"the checkpoint 'start' must hold {self.cell_class.size} finite, non-negative dual weights, found shape {dual.shape}"
            )
        return np.bincount(self.cell_class[self.cell_class >= 0], weights=dual[self.cell_class >= 0], minlength=self.cells)

    def expand_mixing(self, mixing: Matrix) -> Operator:
        """A = mixing F over all original cells."""
        return self.expand_rows(mixing @ self.factor)

    def expand_rows(self, rows: Matrix) -> Operator:
        """A over all original cells, from A over the kept ones."""
        kept_rows = linear_algebra.on_host(rows)
        if self.cell_class.size == kept_rows.shape[1] and (self.cell_class == np.arange(self.cell_class.size)).all():
            return Dense(kept_rows)
        full = np.zeros((kept_rows.shape[0], self.cell_class.size))
        full[:, self.cell_class >= 0] = kept_rows[:, self.cell_class[self.cell_class >= 0]]
        return Dense(full)


@dataclass(frozen=True)
class FullRankProblem(Problem):
    """V of full rank, or of nearly full rank, numerically.

    Attributes:
        gram: V of the kept cells, (k, k).
        chain: V's closed form where its inverse is tridiagonal.
        nullity: how many eigenvalues of V are zero: few.
    """

    gram: Matrix
    chain: Chain | None = None
    nullity: int = 0

    @cached_property
    def factor(self) -> Matrix:
        """Of an eigen-decomposition: it is rarely needed."""
        return self._rows(overwrite=False)

    @property
    def rank(self) -> int:
        return self.cells - self.nullity

    def thin_problem(self) -> ThinProblem:
        """The same by its factor, which takes the place of the gram in memory."""
        return ThinProblem(self.initial_dual, self.scale, self.cell_class, self._rows(overwrite=True))

    def _rows(self, *, overwrite: bool) -> Matrix:
        values, vectors = linear_algebra.eigh(self.gram.T, overwrite=overwrite)
        rows = vectors.T[self.nullity :, :]
        rows *= linear_algebra.like(vectors, np.sqrt(np.maximum(values[self.nullity :], 0.0)))[:, None]
        return linear_algebra.contiguous(rows)


@dataclass(frozen=True)
class ThinProblem(Problem):
    """V = F'F.

    Attributes:
        thin: F, (rank, k), of full row rank.
    """

    thin: Matrix

    @property
    def factor(self) -> Matrix:
        return self.thin

    @property
    def rank(self) -> int:
        return int(self.thin.shape[0])


@dataclass(frozen=True)
class SquareProblem(ThinProblem):
    """V = F'F of full rank, but ill-conditioned."""


@dataclass(frozen=True)
class BasisProblem(ThinProblem):
    """V by a workload's integer basis.

    Attributes:
        operator: B.
        coordinates: the map from its coordinates to the factor.
    """

    operator: Operator
    coordinates: Matrix

    def nearly_full_problem(self) -> FullRankProblem | None:
        """The same by V itself, where it lacks few ranks; None elsewhere."""
        nullity = self.cells - self.rank
        if not _is_nearly_full(self.cells, nullity):
            return None
        gram = self.thin.T @ self.thin
        return FullRankProblem(self.initial_dual, self.scale, self.cell_class, gram, nullity=max(nullity, 1))

    def expand_mixing(self, mixing: Matrix) -> Operator:
        return Product(Dense(mixing @ self.coordinates), self.operator)


def _is_nearly_full(cells: int, nullity: int) -> bool:
    """Whether a gram lacks few ranks."""
    return cells >= NEARLY_FULL_CELLS and nullity <= NEARLY_FULL * cells


def problem_of(workload: Workload | Gram, start: Matrix | None = None) -> Problem:
    """The reduced problem of a workload or of a gram.

    Args:
        workload: a workload, or its gram W'W, (n, n).
        start: weights of all cells, (n,), which spare an integer basis the eigen-decomposition of a first guess.
    Raises: InvalidInput for a malformed gram or one without any query; NotPositiveDefinite for an indefinite one.
    """
    if isinstance(workload, Workload):
        basis = integer_basis(workload)
        if basis.operator is not None:
            return _from_basis(basis, basis.operator, start)
    return _from_gram(gram_in_place(workload))


def _from_gram(gram: Matrix) -> Problem:
    diagonal = linear_algebra.diagonal(gram)
    queried = np.flatnonzero(diagonal > EPSILON * diagonal.max(initial=0.0))
    check_not_empty(queried.size)
    representatives, group = _equal_cells(gram if queried.size == gram.shape[0] else linear_algebra.submatrix(gram, queried))
    kept_cells = queried[representatives]
    cell_class = np.full(gram.shape[0], -1, dtype=np.int64)
    cell_class[queried] = group
    small = linear_algebra.submatrix(gram, kept_cells) if kept_cells.size < gram.shape[0] else gram
    scale = float(linear_algebra.diagonal(small).mean())
    small /= scale  # gram_in_place made a copy
    chain = chain_of(small) if linear_algebra.is_numpy(small) else None
    if chain is not None or _safely_definite(small):
        return FullRankProblem(np.sqrt(linear_algebra.diagonal(small)), scale, cell_class, small, chain)
    factorisation = _pivoted_factor(small)
    if factorisation is not None:
        thin, pivots = factorisation
        if thin.shape == small.shape:
            return SquareProblem(np.cbrt(linear_algebra.diagonal(small) * pivots) ** 2, scale, cell_class, thin)
        dual = _root_diagonal(thin)
        return ThinProblem(np.maximum(dual, EPSILON * dual.sum()), scale, cell_class, thin)
    values, vectors = linear_algebra.eigh(small.T)
    factor, dual = _spectrum(values, vectors)
    nullity = 0 if factor is None else values.size - factor.shape[0]
    if factor is None or _is_nearly_full(values.size, nullity):
        return FullRankProblem(dual, scale, cell_class, small, nullity=nullity)
    return ThinProblem(dual, scale, cell_class, factor)


def _from_basis(basis: Basis, operator: SubsetBasis, start: Matrix | None) -> Problem:
    coordinate_factor = root_of(basis.gram())
    cells = basis.representatives
    factor = coordinate_factor @ basis.columns(cells)
    scale = float(np.einsum("ai,ai->", factor, factor) / cells.size)
    factor, coordinate_factor = factor / math.sqrt(scale), coordinate_factor / math.sqrt(scale)
    queried = np.einsum("ai,ai->i", factor, factor) > EPSILON
    if not queried.all():
        cells, factor = cells[queried], np.ascontiguousarray(factor[:, queried])
    cell_class = _class_of_cells(operator, cells)
    problem = BasisProblem(np.ones(cells.size), scale, cell_class, factor, operator, coordinate_factor)
    return replace(problem, initial_dual=_root_diagonal(factor) if start is None else problem.restrict(start))


def _root_diagonal(factor: Matrix) -> Matrix:
    """diag (F'F)^1/2."""
    values, vectors = lapack.eigh(factor @ factor.T, driver="evd", overwrite_a=True)
    rotated = vectors.T @ factor
    roots = np.sqrt(np.maximum(values, EPSILON * values[-1]))
    return np.asarray(np.einsum("ai,ai,a->i", rotated, rotated, 1.0 / roots))


def root_of(gram: Matrix) -> Matrix:
    """A factor R with G = R'R of full row rank: Cholesky's where G is safely positive definite, else the spectral one."""
    try:
        triangle = lapack.cholesky(gram, lower=False)
    except scipy.linalg.LinAlgError:
        triangle = np.zeros_like(gram)
    diagonal = np.abs(np.diag(triangle))
    if diagonal.min() > 1e-5 * diagonal.max():
        return np.asarray(triangle)
    values, vectors = lapack.eigh(gram, driver="evd")
    nonzero = values > gram.shape[0] * EPSILON * max(values[-1], 0.0)
    check_not_empty(nonzero.any())
    return np.asarray(np.sqrt(values[nonzero])[:, None] * vectors[:, nonzero].T)


def _class_of_cells(operator: SubsetBasis, cells: Matrix) -> Matrix:
    """For every cell of the domain, the index among ``cells`` of its representative, or -1."""
    raw = np.unravel_index(np.arange(operator.shape[1]), operator.domain_shape)
    first_values = [np.unique(code, return_index=True)[1] for code in operator.codes]
    merged = tuple(first_values[axis][operator.codes[axis][index]] for axis, index in enumerate(raw))
    representative = np.ravel_multi_index(merged, operator.domain_shape)
    position = np.full(operator.shape[1], -1, dtype=np.int64)
    position[cells] = np.arange(cells.size)
    return position[representative]


def _safely_definite(gram: Matrix) -> bool:
    """Whether Cholesky's factor shows a gram of full rank, far from singular."""
    try:
        diagonal = linear_algebra.diagonal(linear_algebra.cholesky(gram))
    except NotPositiveDefinite:
        return False  # singular: find out how far
    return bool(diagonal.min() > ILL_CONDITIONED * diagonal.max())


def _pivoted_factor(gram: Matrix) -> tuple[Matrix, Matrix] | None:
    """F with V = F'F from Cholesky with pivots, when V's rank is safely n or clearly below: n r^2 instead of n^3 operations.

    Beside it the pivots, in the order of their cells. None in between, for arrays that LAPACK does not know, and when F'F misses V
    (an indefinite V, or a tail that pivots cannot resolve): the eigen-decomposition then decides.
    """
    if not linear_algebra.is_numpy(gram):
        return None
    n, diagonal = gram.shape[0], np.diag(gram)
    factor, order, rank, _ = scipy.linalg.lapack.dpstrf(gram, tol=n * EPSILON * float(diagonal.max()), lower=0)
    pivots, cells = np.diag(factor)[:rank], order[:rank] - 1
    if rank > 0.9 * n and (rank < n or (pivots**2 <= CLEAR_PIVOT * n * EPSILON * diagonal[cells]).any()):
        return None
    thin = np.zeros((rank, n))
    thin[:, order - 1] = np.triu(factor[:rank])
    del factor
    blocks = (slice(start, start + 512) for start in range(0, n, 512))
    missed = max(float(np.abs(gram[rows] - thin[:, rows].T @ thin).max()) for rows in blocks)
    return (thin, pivots[np.argsort(cells)]) if missed <= 1e-11 * float(diagonal.max()) else None


def _spectrum(values: Matrix, vectors: Matrix) -> tuple[Matrix | None, Matrix]:
    """Thin factor (None at full rank) and diag(V^1/2) from V's eigen-decomposition."""
    n = values.size
    top = max(float(values[-1]), 0.0)
    if values[0] < -1e-8 * top or top == 0.0:
        raise NotPositiveDefinite(
            f"the gram has the eigenvalue {values[0]:.3g} beside {top:.3g}; a gram W'W has none below zero"
        )
    nonzero = values > n * EPSILON * top
    if nonzero.all():
        return None, linear_algebra.weighted_rows(vectors, np.sqrt(values))
    roots = np.sqrt(values[nonzero])
    thin = linear_algebra.columns(vectors, nonzero)
    dual = np.maximum(linear_algebra.weighted_rows(thin, roots), EPSILON * roots.sum())
    return linear_algebra.contiguous(linear_algebra.like(thin, roots)[:, None] * thin.T), dual


def _equal_cells(gram: Matrix) -> tuple[Matrix, Matrix]:
    """First cell of each class of cells with equal workload columns, and the class of every cell."""
    n = int(gram.shape[0])
    sketch = linear_algebra.on_host(gram @ linear_algebra.like(gram, np.random.default_rng(20160813).standard_normal(n)))
    diagonal = linear_algebra.diagonal(gram)
    order = np.argsort(sketch, kind="stable")
    close = np.abs(np.diff(sketch[order])) <= 1e-12 * np.abs(sketch).max()
    group = np.arange(n)
    for position in np.flatnonzero(close):
        first_cell, second_cell = order[position], order[position + 1]
        norm_sum = float(diagonal[first_cell] + diagonal[second_cell])
        distance = norm_sum - 2 * float(gram[int(first_cell), int(second_cell)])
        if distance <= 4 * EPSILON * norm_sum and np.allclose(
            linear_algebra.row(gram, first_cell), linear_algebra.row(gram, second_cell), rtol=1e-13, atol=0.0
        ):
            group[second_cell] = group[first_cell]
    _, representatives, label = np.unique(group, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(representatives))
    return np.sort(representatives), rank[label]


__all__ = ["FullRankProblem", "Problem", "Summand", "problem_of", "root_of"]
