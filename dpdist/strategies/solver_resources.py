"""The memory and time that optimising a workload takes, predicted before it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpdist.measurement.orbit_measurement import PAIRED_ORBITS, PAIRS_AT_ONCE
from dpdist.operators import AllRanges, Identity, Prefix, Total
from dpdist.operators.linear_operator import ROW_BLOCK_BYTES
from dpdist.plugin_registry import installed_plugins, load_object
from dpdist.reconstruction.kronecker_terms import subsets
from dpdist.strategies import linear_algebra
from dpdist.strategies.dense.coa_barrier import HESSIAN_CELLS
from dpdist.strategies.dense.completing_rows import POWERS, completion_steps
from dpdist.strategies.group_optimum import UNLIKE_CELLS
from dpdist.strategies.representations import WORST_ANSWERS, WORST_ROWS, WORST_WORK
from dpdist.strategies.strategy import check_gram
from dpdist.strategies.symmetric_optimum import starts_from_orbits, symmetry_for
from dpdist.strategies.tables.marginal_optimum import marginal_weights
from dpdist.strategies.tables.residual_bases import stored_optima_count
from dpdist.workloads import Gram, Workload, integer_basis
from dpdist.workloads.orbits import LOOKED_THROUGH, is_tabled
from dpdist.workloads.product_form import merge_blocks

EIGENDECOMPOSITION_PRODUCTS = 5.0
ROUNDING_COPIES = 4
"""Copies of a factor while it is rounded and its columns are distinguished."""
TERM_COPIES = 6
"""Copies of a term over tables while it is written down, read back and made whole."""
MAX_IDENTITY_VALUES = 2**14
"""Values up to which an identity, which takes no memory, is looked through entry by entry: five seconds of a release of 10,000 groups
(benchmarks/group_statistics.py)."""
SOLVE_COPIES = 12
"""Arrays over pairs of values while an attribute's optimum is solved and completed."""
WORST_SQUARES, WORST_VECTORS = 14, 40
"""Arrays over pairs of coordinates, and over queries and cells, that minimising the worst query holds at once."""
WORST_STEPS = 40
"""Iterations to a certified 1e-4 on most workloads (benchmarks/worst_query.py)."""
TYPICAL_STEPS = 12
"""Iterations to a certified 1e-6 on most workloads (benchmarks/optimisers.py)."""
FULL_RANK_PRODUCTS = 30.0
"""Of a full-rank solve to 1e-6: 2.6 eigen-decompositions of about 8 products each and 8 products (benchmarks/optimisers.py)."""
REVERSIBLE_PRODUCTS, CHAIN_SQUARES = 8.0, 8192.0
"""The same where reversing the cells changes nothing, which halves them; and of a chain, times the number of cells."""
THIN_PRODUCTS, NEAR_PRODUCTS = 70.0, 10.0
"""Of a solve over a thin factor, times the root of the cells a rank; and where it starts at the optimum: marginals, and orbits of cells."""
PERSONS_SQUARES, PERSONS_PRODUCTS, PERSONS_ROWS, CUT_ROWS = 12, 50.0, 5e8, 1.4e9
"""Arrays over pairs of cells that a strategy for persons takes; products of two dozen blends, each bounded by its gram in whole numbers;
and those of its search, and of cutting planes over few cells, times the square of the number of cells."""
RESIDUAL_PRODUCTS = 10.0
"""Of the largest attribute's rows: columns are distinguished and rows inverted once for each table."""
EIGEN_ARRAYS, ERROR_PRODUCTS, DESIGN_START_PRODUCTS = 16, 12.0, 26.0
"""Arrays over pairs of cells that weighting eigen-queries holds; products of an error of a completed design and its gradient; and of what
comes before: an eigen-decomposition, weights, and a design of each."""
VARIANCE_COPIES = 8
"""Arrays over all queries that predicting the worst error over orbits holds."""
HESSIAN_PRODUCTS = 20
"""Products with the Hessian in each of them."""


@dataclass(frozen=True)
class Effort:
    """The memory and time that optimising a workload will take, predicted before it runs.

    Attributes:
        products: matrix products of a typical solve: its time over that of one product of the rank, the rank and the cells.
    """

    cells: int
    rank: int
    memory_bytes: int
    products: float

    @property
    def nominal_seconds(self) -> float:
        """Time that it takes on the nominal processor: within a factor of two on most workloads (benchmarks/planning_effort.py)."""
        return self.products * 2.0 * self.rank**2 * self.cells / NOMINAL_RATE

    def seconds(self) -> float:
        """Estimated wall time, from a matrix product timed on this machine."""
        size = 512
        block = np.ones((size, size))
        block @ block
        started = time.perf_counter()
        for _ in range(4):
            block @ block
        rate = 4 * 2.0 * size**3 / (time.perf_counter() - started)
        return self.products * 2.0 * self.rank**2 * self.cells / rate


@dataclass(frozen=True)
class Limits:
    """The most memory and time that optimising may take. Time is that of a nominal processor, so that every machine decides alike.

    Attributes:
        memory_bytes, seconds: None for no limit.
        whose: who sets them, in messages.
    """

    memory_bytes: int | None = None
    seconds: float | None = None
    whose: str = "the spec allows"

    def fill_from(self, reach: Limits) -> Limits:
        """What of a reach holds where these limits say nothing."""
        memory = reach.memory_bytes if self.memory_bytes is None else None
        return replace(reach, memory_bytes=memory, seconds=reach.seconds if self.seconds is None else None)

    def exceeded_by(self, solve_effort: Effort) -> str | None:
        """Why an optimisation does not fit, None if it does."""
        if self.memory_bytes is not None and solve_effort.memory_bytes > self.memory_bytes:
            return f"needs {solve_effort.memory_bytes / 2**30:.2f} GiB, {self.whose} {self.memory_bytes / 2**30:.2f}"
        if self.seconds is not None and solve_effort.nominal_seconds > self.seconds:
            return (
                f"needs about {solve_effort.nominal_seconds / 60:.1f} nominal minutes, {self.whose} {self.seconds / 60:.1f}"
            )
        return None


NO_LIMITS = Limits()
NOMINAL_RATE = 6e10
"""Floating-point operations a second, in products of matrices, of the processor that limits are counted on: two cores of a laptop of
2020, or one of a server of 2023."""


def effort(workload: Workload | Gram, optimiser: str = "coa") -> Effort:
    """The bytes and matrix products that an optimiser needs, predicted before it runs.

    Memory is an upper bound (tests compare it with the measured peak); products are those of a typical solve to 1e-6.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
        optimiser: which optimiser is asked about.
    """
    for plugin in installed_plugins():
        if optimiser in plugin.efforts:
            estimate: Callable[[Workload | Gram], Effort] = load_object(plugin.efforts[optimiser])
            return estimate(workload)
    return _EFFORTS[optimiser](workload)


def _size(workload: Workload | Gram) -> tuple[int, int, bool]:
    """Cells, rank, and whether the workload has a thin factor."""
    if isinstance(workload, Workload):
        basis = integer_basis(workload)
        return basis.cells, basis.rank, basis.operator is not None
    cells = int(linear_algebra.as_array(check_gram(workload).values).shape[0])
    return cells, cells, False


def _coa_effort(workload: Workload | Gram) -> Effort:
    """A thin factor, its rotation and the work of both, or arrays over pairs of cells; fewer products where less is searched."""
    cells, rank, factored = _size(workload)
    if factored:
        memory = 8 * (6 * rank**2 + 5 * rank * cells) + 2**20
        found = Effort(cells, rank, memory, THIN_PRODUCTS * math.sqrt(cells / rank))
    else:
        found = _effort_over_cells(cells)
    if isinstance(workload, Workload):
        if workload.kind.is_marginals or starts_from_orbits(workload):
            return replace(found, products=NEAR_PRODUCTS)
        if not factored and _is_chain(workload):
            return replace(found, products=CHAIN_SQUARES / cells)
        if not factored and _is_reversible(workload):
            return replace(found, products=REVERSIBLE_PRODUCTS)
    return found


def _effort_over_cells(cells: int) -> Effort:
    """V, the scaled V, its eigenvectors twice and LAPACK's work."""
    return Effort(cells, cells, 8 * 6 * cells**2 + 2**20, FULL_RANK_PRODUCTS)


def _is_chain(workload: Workload) -> bool:
    """Whether the queries are all prefixes, or all ranges, of one attribute."""
    factors = [factor for block in workload.blocks for factor in block.factors]
    return len(factors) == 1 and isinstance(factors[0], Prefix | AllRanges) and not workload.blocks[0].scales


def _is_reversible(workload: Workload) -> bool:
    """Whether no query tells the order of an attribute's values from its reverse."""
    symmetric = (Identity, Total, AllRanges)
    return all(
        block.separable and not block.scales and all(isinstance(factor, symmetric) for factor in block.factors)
        for block in workload.blocks
    )


def _persons_effort(workload: Workload | Gram) -> Effort:
    """Arrays over pairs of cells; blends of strategies, and the search for long persons, which takes longer than they do for few cells."""
    cells = _size(workload)[0]
    rows = CUT_ROWS if cells <= UNLIKE_CELLS else PERSONS_ROWS
    return array_effort(PERSONS_SQUARES, PERSONS_PRODUCTS + rows / cells**2, workload)


def _symmetric_effort(workload: Workload | Gram) -> Effort:
    """The factors of all components and their rotations, the squares of the largest, and the Hessian where it is formed."""
    assert isinstance(workload, Workload)
    symmetry = symmetry_for(workload)
    sizes = [(component.basis.rank, component.orbit_cells.size) for component in symmetry.components]
    weights, rank = symmetry.sizes.size, max(rank for rank, _ in sizes)
    factor_doubles = sum(4 * rank * cells + 4 * rank**2 for rank, cells in sizes)
    largest = max(3 * rank * cells + 6 * rank**2 for rank, cells in sizes)
    hessian = 4 * weights**2 if weights <= max(HESSIAN_CELLS, 4 * rank) else 0
    pairs = 4 * PAIRS_AT_ONCE if weights <= PAIRED_ORBITS else 0
    memory = 8 * (factor_doubles + max(largest + hessian, pairs)) + worst_orbit_bytes(workload) + 2**20
    step = sum(2.0 * rank**2 * cells * (2 + 2 * HESSIAN_PRODUCTS) + 20.0 * rank**3 for rank, cells in sizes)
    return Effort(weights, rank, memory, TYPICAL_STEPS * step / (2.0 * rank**2 * weights))


def _minimax_effort(workload: Workload | Gram) -> Effort:
    """Grams, roots and eigenvectors over the coordinates, factors over the cells, and weights of all queries with those of before."""
    assert isinstance(workload, Workload)
    cells, rank, factored = _size(workload)
    doubles = WORST_SQUARES * rank**2 + 4 * rank * cells * factored + WORST_VECTORS * (workload.shape[0] + cells)
    products = WORST_STEPS * (5.0 + EIGENDECOMPOSITION_PRODUCTS)
    return Effort(cells, rank, 8 * doubles + 3 * ROW_BLOCK_BYTES + 2**20, products)


def _of_eigen(workload: Workload | Gram) -> Effort:
    """Eigen-queries with their squares, and the errors that are followed down once completing rows are part of them."""
    cells = _size(workload)[0]
    errors = 1.2 * len(POWERS) * completion_steps(cells)
    return array_effort(EIGEN_ARRAYS, DESIGN_START_PRODUCTS + ERROR_PRODUCTS * errors, workload)


def array_effort(arrays: int, products: float, workload: Workload | Gram) -> Effort:
    """So many arrays over pairs of cells, and so many products of them."""
    cells, rank, factored = _size(workload)
    return Effort(cells, rank if factored else cells, 8 * arrays * cells**2 + 2**20, products)


def _kronecker_effort(workload: Workload | Gram) -> Effort:
    """The largest factor's memory, and the products of all."""
    if not isinstance(workload, Workload):
        return _coa_effort(workload)
    product = merge_blocks(workload.blocks) or workload.blocks[0]
    cells_of_factors = [factor.shape[1] for factor in product.factors if not isinstance(factor, Identity | Total)]
    factor_efforts = [_effort_over_cells(cells) for cells in cells_of_factors]  # before any of their grams is computed
    largest = max(factor_efforts, key=lambda factor_effort: factor_effort.cells, default=Effort(1, 1, 2**20, 0.0))
    return replace(largest, products=largest.products * sum((each.cells / largest.cells) ** 3 for each in factor_efforts))


def _marginal_effort(workload: Workload | Gram) -> Effort:
    """A closed form over the residual basis, whose rows are rounded and inverted attribute by attribute."""
    assert isinstance(workload, Workload)
    shape = workload.domain.shape
    spaces = marginal_weights(workload)
    largest = max((shape[axis] for space in spaces for axis in space), default=1)
    return Effort(largest, largest, residual_bytes(workload, spaces), RESIDUAL_PRODUCTS)


def residual_bytes(workload: Workload, spaces: Iterable[tuple[int, ...]]) -> int:
    """What orthonormal rows of residual spaces take: a basis an attribute, whole numbers for each term, and rounding one of them."""
    squares = [size**2 for size in workload.domain.shape]
    whole = sum(squares[axis] for space in spaces for axis in space)
    return 8 * (sum(squares) + whole + ROUNDING_COPIES * max(squares)) + 2**20


def product_bytes(workload: Workload) -> int:
    """What residual products take: grams and optima of single attributes, the terms while they are kept and rounded, and a solve."""
    shape = workload.domain.shape
    terms = {subset for block in workload.blocks for subset in subsets(block.asked_axes)}
    grams = sum(shape[axis] ** 2 for block in workload.blocks for axis in block.asked_axes)
    term_doubles = sum(shape[axis] ** 2 for subset in terms for axis in subset)
    largest = max(size**2 for size in shape)
    doubles = 2 * grams + TERM_COPIES * term_doubles + (stored_optima_count(workload) + SOLVE_COPIES) * largest
    return 8 * doubles + 2**20 + worst_factor_bytes(workload, len(terms))


def product_copy_bytes(workload: Workload) -> int:
    """Copies of the factors of one product while they are written down, read back and made whole."""
    identities = identity_axes(workload)
    return 8 * TERM_COPIES * sum(size**2 for axis, size in enumerate(workload.domain.shape) if axis not in identities)


def identity_axes(workload: Workload) -> frozenset[int]:
    """The attributes of a product that are asked value by value, of so few values that the identity is looked through in seconds."""
    product = merge_blocks(workload.blocks)
    asked = () if product is None else zip(product.axes, product.scaled(product.factors), strict=True)
    return frozenset(axis for axis, f in asked if isinstance(f, Identity) and f.n <= MAX_IDENTITY_VALUES)


def worst_row_bytes(workload: Workload, measured: int | None = None) -> int:
    """What predicting the worst error takes of a strategy whose rows (as many as cells, or ``measured``) are written down."""
    queries, cells = workload.shape
    if queries * cells**2 + cells**3 > WORST_WORK:
        return 0
    rows = cells if measured is None else measured
    return 8 * (min(queries, WORST_ROWS) * (3 * cells + rows) + 4 * cells * max(rows, cells)) + 2**20


def worst_factor_bytes(workload: Workload, terms: int = 1, omitted_axes: frozenset[int] = frozenset()) -> int:
    """What predicting the worst error takes of a strategy over so many tables: inverses, rows of a factor, and variances.

    Args:
        omitted_axes: attributes whose factors are not written down.
    """
    factor_shapes = [
        f.shape for b in workload.blocks for axis, f in zip(b.axes, b.factors, strict=True) if axis not in omitted_axes
    ]
    factor_shapes = factor_shapes or [(1, 1)]
    rows = max(3 * min(8 * queries * values, ROW_BLOCK_BYTES + 8 * values) for queries, values in factor_shapes)
    answers = 0 if terms == 1 or workload.shape[0] * terms > WORST_ANSWERS else workload.shape[0]
    inverses = 4 * max(values**2 for _, values in factor_shapes)
    return rows + 8 * (inverses + 4 * answers + 4 * max(queries for queries, _ in factor_shapes))


def worst_orbit_bytes(workload: Workload) -> int:
    """What predicting the worst error takes of a strategy over orbits: of attributes with very many values only vectors are held."""
    large = frozenset(
        axis for axis, size in enumerate(workload.domain.shape) if size > LOOKED_THROUGH and is_tabled(workload.blocks, axis)
    )
    few = worst_factor_bytes(workload, omitted_axes=large)
    return few + 8 * VARIANCE_COPIES * workload.shape[0] if large else few


_EFFORTS: dict[str, Callable[[Workload | Gram], Effort]] = {
    "coa": _coa_effort,
    "persons": _persons_effort,
    "worst": _minimax_effort,
    "newton": partial(array_effort, 14, 100 * (2 * 5 + 3.0)),
    "eigen": _of_eigen,
    "p_identity": partial(array_effort, 9, 3 * 500 * 0.3),
    "kronecker": _kronecker_effort,
    "marginals": _marginal_effort,
    "symmetric": _symmetric_effort,
}
"""The optimisers' public names with what each takes."""
