"""The optimisation problem min tr(V X^-1), diag X <= 1, made as small as it can be before it is solved.

Cells without queries are dropped; cells with equal columns are one cell (docs/mathematics.md, section 2); a workload's integer
basis gives a thin factor without an n x n gram.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from dpdist.errors import InvalidInput, NotPositiveDefinite
from dpdist.operators import Dense, Matrix, Operator, Product
from dpdist.strategies import linear
from dpdist.strategies.base import gram_in_place
from dpdist.strategies.chain import Chain, chain_of
from dpdist.workloads import Basis, Workload, integer_basis

EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Summand:
    """A diagonal block of V: F'F over some of the dual weights, as often as it occurs.

    Attributes:
        factor: F, (rank, cells).
        places: the weights that it is over; None for all.
    """

    factor: Matrix
    places: Matrix | None = None
    copies: float = 1.0

    @property
    def cells(self) -> Matrix | slice:
        """The weights that it is over, as an index."""
        return slice(None) if self.places is None else self.places


@dataclass(frozen=True)
class Problem:
    """V over the distinct, queried cells, with V scaled to a mean diagonal of 1.

    Attributes:
        gram: V of the kept cells, (k, k); None when only the factor is at hand.
        thin: F with V = F'F, (rank, k), full row rank; None for a full-rank gram, whose factor is rarely needed.
        initial_dual: the first guess of the dual weights: diag(V)^1/2 at full rank, where it takes no eigen-decomposition, else
            diag(V^1/2).
        scale: costs of the scaled problem times this are costs of the original.
        place: kept cell of every original cell, -1 for cells without queries.
        chain: V's closed form where its inverse is tridiagonal.
        basis: the workload's integer basis, when there is one, and the map from its coordinates to the factor.
    """

    gram: Matrix | None
    thin: Matrix | None
    initial_dual: Matrix
    scale: float
    place: Matrix
    chain: Chain | None = None
    basis: Basis | None = None
    coordinate_factor: Matrix | None = None

    @property
    def cells(self) -> int:
        """Number of distinct, queried cells."""
        return int(self.initial_dual.size)

    @property
    def full_rank(self) -> bool:
        """Whether V is numerically of full rank."""
        return self.thin is None

    @cached_property
    def factor(self) -> Matrix:
        """F with V = F'F, (rank, k)."""
        if self.thin is not None:
            return self.thin
        assert self.gram is not None
        values, vectors = linear.eigh(self.gram)
        return linear.contiguous(linear.like(vectors, np.sqrt(np.maximum(values, 0.0)))[:, None] * vectors.T)

    @property
    def summands(self) -> tuple[Summand, ...]:
        """V as one block."""
        return (Summand(self.factor),)

    @property
    def rank(self) -> int:
        """Numerical rank of V."""
        return self.cells if self.thin is None else int(self.thin.shape[0])

    def expand(self, dual: Matrix) -> Matrix:
        """Dual weights of the kept cells as weights of all cells: each class of equal cells shares its weight."""
        counts = np.bincount(self.place[self.place >= 0], minlength=self.cells)
        out = np.zeros(self.place.size)
        out[self.place >= 0] = (dual / counts)[self.place[self.place >= 0]]
        return out

    def restrict(self, dual: Matrix) -> Matrix:
        """The reverse of ``expand``: a checkpoint of all cells as weights of the kept ones."""
        if dual.shape != self.place.shape or not np.isfinite(dual).all() or (dual < 0).any():
            raise InvalidInput(
                f"the checkpoint 'start' must hold {self.place.size} finite, non-negative dual weights, found shape {dual.shape}"
            )
        return np.bincount(self.place[self.place >= 0], weights=dual[self.place >= 0], minlength=self.cells)

    def strategy_operator(self, mixing: Matrix, *, on_cells: bool) -> Operator:
        """A over all original cells, from A over the kept cells or from A = mixing F (``on_cells=False``)."""
        if not on_cells and self.basis is not None and self.basis.operator is not None:
            assert self.coordinate_factor is not None
            return Product(Dense(mixing @ self.coordinate_factor), self.basis.operator)
        kept = linear.on_host(mixing if on_cells else mixing @ self.factor)
        if self.place.size == kept.shape[1] and (self.place == np.arange(self.place.size)).all():
            return Dense(kept)
        full = np.zeros((kept.shape[0], self.place.size))
        full[:, self.place >= 0] = kept[:, self.place[self.place >= 0]]
        return Dense(full)


def problem_of(workload: Workload | Matrix) -> Problem:
    """The reduced problem of a workload or of a gram.

    Raises: InvalidInput for a malformed gram or one without any query; NotPositiveDefinite for an indefinite one.
    """
    if isinstance(workload, Workload):
        basis = integer_basis(workload)
        if basis.operator is not None:
            return _from_basis(basis)
    return _from_gram(gram_in_place(workload))


def _from_gram(gram: Matrix) -> Problem:
    diagonal = linear.diagonal(gram)
    queried = np.flatnonzero(diagonal > EPSILON * diagonal.max(initial=0.0))
    if queried.size == 0:
        raise InvalidInput(
            "every query of the workload is zero, so there is nothing to answer; give queries that count some cell"
        )
    first, group = _equal_cells(gram if queried.size == gram.shape[0] else linear.among(gram, queried))
    kept = queried[first]
    place = np.full(gram.shape[0], -1, dtype=np.int64)
    place[queried] = group
    small = linear.among(gram, kept) if kept.size < gram.shape[0] else gram
    scale = float(linear.diagonal(small).mean())
    small /= scale  # gram_in_place made a copy
    chain = chain_of(small) if linear.is_numpy(small) else None
    if chain is not None or _safely_definite(small):
        return Problem(small, None, np.sqrt(linear.diagonal(small)), scale, place, chain)
    thin = _pivoted_factor(small)
    if thin is not None:
        values, vectors = scipy.linalg.eigh(thin @ thin.T, driver="evd", overwrite_a=True, check_finite=False)
        right = vectors.T @ thin
        roots = np.sqrt(np.maximum(values, EPSILON * values[-1]))
        dual = np.einsum("ai,ai,a->i", right, right, 1.0 / roots)
        return Problem(None, thin, np.maximum(dual, EPSILON * roots.sum()), scale, place)
    values, vectors = linear.eigh(small.T)
    factor, dual = _spectrum(values, vectors)
    return Problem(small if factor is None else None, factor, dual, scale, place)


def _from_basis(basis: Basis) -> Problem:
    coordinate_factor = root_of(basis.gram())
    cells = basis.representatives
    factor = coordinate_factor @ basis.columns(cells)
    scale = float(np.einsum("ai,ai->", factor, factor) / cells.size)
    root = float(np.sqrt(scale))
    factor, coordinate_factor = factor / root, coordinate_factor / root
    queried = np.einsum("ai,ai->i", factor, factor) > EPSILON
    if not queried.all():
        cells, factor = cells[queried], np.ascontiguousarray(factor[:, queried])
    outer_values, outer_vectors = scipy.linalg.eigh(factor @ factor.T, driver="evd", check_finite=False)
    right = outer_vectors.T @ factor
    roots = np.sqrt(np.maximum(outer_values, EPSILON * outer_values[-1]))
    dual = np.einsum("ai,ai,a->i", right, right, 1.0 / roots)
    place = _class_of_cells(basis, cells)
    return Problem(None, factor, dual, scale, place, None, basis, coordinate_factor)


def root_of(gram: Matrix) -> Matrix:
    """A factor R with G = R'R of full row rank: Cholesky's where G is safely positive definite, else the spectral one."""
    try:
        triangle = scipy.linalg.cholesky(gram, lower=False, check_finite=False)
    except scipy.linalg.LinAlgError:
        triangle = np.zeros_like(gram)
    diagonal = np.abs(np.diag(triangle))
    if diagonal.min() > 1e-5 * diagonal.max():
        return np.asarray(triangle)
    values, vectors = scipy.linalg.eigh(gram, driver="evd", check_finite=False)
    kept = values > gram.shape[0] * EPSILON * max(values[-1], 0.0)
    if not kept.any():
        raise InvalidInput(
            "every query of the workload is zero, so there is nothing to answer; give queries that count some cell"
        )
    return np.asarray(np.sqrt(values[kept])[:, None] * vectors[:, kept].T)


def _class_of_cells(basis: Basis, cells: Matrix) -> Matrix:
    """For every cell of the domain, the index among ``cells`` of its representative, or -1."""
    operator = basis.operator
    assert operator is not None
    raw = np.unravel_index(np.arange(operator.shape[1]), operator.domain_shape)
    first = [np.unique(code, return_index=True)[1] for code in operator.codes]
    merged = tuple(first[axis][operator.codes[axis][index]] for axis, index in enumerate(raw))
    representative = np.ravel_multi_index(merged, operator.domain_shape)
    position = np.full(operator.shape[1], -1, dtype=np.int64)
    position[cells] = np.arange(cells.size)
    return position[representative]


def _safely_definite(gram: Matrix) -> bool:
    """Whether Cholesky's factor shows a gram of full rank, far from singular."""
    try:
        diagonal = linear.diagonal(linear.cholesky(gram))
    except NotPositiveDefinite:
        return False  # singular: find out how far
    return bool(diagonal.min() > 1e-6 * diagonal.max())


def _pivoted_factor(gram: Matrix) -> Matrix | None:
    """F with V = F'F from Cholesky with pivots, when V's rank is clearly below n: n r^2 instead of n^3 operations.

    None for (nearly) full rank, for arrays that LAPACK does not know, and when F'F misses V (an indefinite V, or a tail that
    pivots cannot resolve): the eigen-decomposition then decides.
    """
    if not linear.is_numpy(gram):
        return None
    n = gram.shape[0]
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(gram, tol=n * EPSILON * float(np.diag(gram).max()), lower=0)
    if rank > 0.9 * n:
        return None
    thin = np.zeros((rank, n))
    thin[:, pivots - 1] = np.triu(factor[:rank])
    del factor
    blocks = (slice(start, start + 512) for start in range(0, n, 512))
    missed = max(float(np.abs(gram[rows] - thin[:, rows].T @ thin).max()) for rows in blocks)
    return thin if missed <= 1e-11 * float(np.diag(gram).max()) else None


def _spectrum(values: Matrix, vectors: Matrix) -> tuple[Matrix | None, Matrix]:
    """Thin factor (None at full rank) and diag(V^1/2) from V's eigen-decomposition."""
    n = values.size
    top = max(float(values[-1]), 0.0)
    if values[0] < -1e-8 * top or top == 0.0:
        raise NotPositiveDefinite(
            f"the gram has the eigenvalue {values[0]:.3g} beside {top:.3g}; a gram W'W has none below zero"
        )
    kept = values > n * EPSILON * top
    if kept.all():
        return None, linear.weighted_rows(vectors, np.sqrt(values))
    roots = np.sqrt(values[kept])
    thin = linear.columns(vectors, kept)
    dual = np.maximum(linear.weighted_rows(thin, roots), EPSILON * roots.sum())
    return linear.contiguous(linear.like(thin, roots)[:, None] * thin.T), dual


def _equal_cells(gram: Matrix) -> tuple[Matrix, Matrix]:
    """First cell of each class of cells with equal workload columns, and the class of every cell."""
    n = int(gram.shape[0])
    sketch = linear.on_host(gram @ linear.like(gram, np.random.default_rng(20160813).standard_normal(n)))
    diagonal = linear.diagonal(gram)
    order = np.argsort(sketch, kind="stable")
    close = np.abs(np.diff(sketch[order])) <= 1e-12 * np.abs(sketch).max()
    group = np.arange(n)
    for position in np.flatnonzero(close):
        a, b = order[position], order[position + 1]
        both = float(diagonal[a] + diagonal[b])
        distance = both - 2 * float(gram[int(a), int(b)])
        if distance <= 4 * EPSILON * both and np.allclose(linear.row(gram, a), linear.row(gram, b), rtol=1e-13, atol=0.0):
            group[b] = group[a]
    classes, label = np.unique(group, return_inverse=True)
    del classes
    first = np.unique(label, return_index=True)[1]
    rank = np.argsort(np.argsort(first))
    return np.sort(first), rank[label]


__all__ = ["Problem", "Summand", "problem_of", "root_of"]
