"""Bases of products: residual spaces of marginals, one product of small optima each."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.measurement.dense_measurement import complete_rank
from dpdist.measurement.integer_measurement import GRID_BITS
from dpdist.measurement.integer_terms import PRODUCT_BITS
from dpdist.operators import Matrix, Stack
from dpdist.reconstruction.kronecker_terms import (
    NO_DIRECTIONS,
    Directions,
    Term,
    contrasts,
    oblique_inverse,
    subsets,
    unit_direction,
)
from dpdist.strategies.optimal import coa
from dpdist.strategies.representations import TermStrategy
from dpdist.strategies.strategy import Solve, Step, Strategy, check_workload
from dpdist.strategies.tables.product_bound import product_bound
from dpdist.workloads import Block, Gram, Workload

ROUNDS = 20
SPARE_BITS = 4
"""Bits that a row keeps once it is rounded: with fewer it could become nothing."""
Subset = tuple[int, ...]


def residual(workload: Workload, *, tolerance: float = 1e-6) -> TermStrategy:
    """A strategy for a weighted union of products, over domains of any size.

    Args:
        workload: a weighted union of products, (m, n).
        tolerance: certified relative gap at which the solves of single attributes stop.
    Returns: a strategy with ``terms``, its cost, and a certified lower bound. The bound is the larger of ``product_bound`` and the sum
        of the bounds of all blocks: the optimum of a sum of grams is at least the sum of the optima, and the optimum of each block
        is the product of those of its factors.
    Raises: InvalidInput for queries that are not products over attributes.
    Source: ResidualPlanner+ (Xiao, He, Zhang, Kifer 2023 and its successor), with the optimum of each factor.
    """
    check_workload(workload)
    strange = [block.name for block in workload.blocks if not block.separable]
    if strange:
        raise InvalidInput(f"queries {strange[0]!r} are not a product over attributes; choose mechanism 'coa' or 'identity'")
    grams = Grams(workload, tolerance)
    terms, cost = residual_products(workload, grams)
    lower = max(sum(block.weight**2 * grams.lower_bound(block) for block in workload.blocks), product_bound(workload))
    operator = Stack([term.operator(workload.domain.shape) for term in terms])
    history = (Step(1, cost, cost / lower - 1.0),)
    return TermStrategy("residual", operator, cost, lower, Solve("residual products", "closed form", history), terms=terms)


def residual_products(workload: Workload, grams: Grams) -> tuple[tuple[Term, ...], float]:
    """One term a residual space, the budget split among them, and the cost."""
    spaces = sorted({s for b in workload.blocks for s in subsets(b.asked_axes)}, key=lambda s: (len(s), s))
    space_results = [(subset, *_residual_optimum(workload, grams, subset, grams.tolerance)) for subset in spaces]
    space_results = [(subset, factors, cost) for subset, factors, cost in space_results if cost > 0]
    total = sum(math.sqrt(cost) for _, _, cost in space_results)
    terms = tuple(Term(subset, factors, math.sqrt(math.sqrt(cost) / total)) for subset, factors, cost in space_results)
    return terms, total**2


def stored_optima_count(workload: Workload) -> int:
    """How many solved optima of single attributes are kept: rounds that settle, and attribute sets with equal grams, meet them again."""
    return 4 * len(workload.domain.shape)


class Grams:
    """Grams of factors, and the optima that were asked for last, of which a few are kept.

    ``directions``: what the rows of an attribute are orthogonal to, where that is not all ones.
    """

    def __init__(self, workload: Workload, tolerance: float, directions: Directions = NO_DIRECTIONS) -> None:
        self.directions = directions
        self.tolerance = tolerance
        self.sizes = workload.domain.shape
        self.max_stored = stored_optima_count(workload)
        self._grams: dict[str, Matrix] = {}
        self._solved: dict[str, Strategy] = {}

    def factor_gram(self, block: Block, axis: int) -> Matrix:
        """V_bi, (n_i, n_i)."""
        factor = block.scaled(block.factors)[block.axes.index(axis)]
        if factor.fingerprint not in self._grams:
            self._grams[factor.fingerprint] = factor.gram()
        return self._grams[factor.fingerprint]

    def mean(self, block: Block, axis: int) -> float:
        """u'V_bi u, of equal shares 1'V_bi 1 / n_i^2; 1 where the block sums over the attribute."""
        direction = self.directions.get(axis)
        if direction is None:
            return float(self.factor_gram(block, axis).sum()) / self.sizes[axis] ** 2
        unit = unit_direction(direction, self.sizes[axis])
        return float(unit @ self.factor_gram(block, axis) @ unit)

    def centred(self, block: Block, axis: int) -> Matrix:
        """(I - 1 u') V_bi (I - u 1')."""
        direction, gram = self.directions.get(axis), self.factor_gram(block, axis)
        return _centre(gram) if direction is None else centre_along(gram, unit_direction(direction, self.sizes[axis]))

    def optimum(self, gram: Matrix) -> Strategy:
        """The certified optimum of a gram, up to scale looked up."""
        unit = gram / np.trace(gram)
        key = hashlib.sha256(np.round(unit, 14).tobytes()).hexdigest()
        strategy = self._solved.pop(key, None) or coa(Gram(unit), tolerance=self.tolerance)
        self._solved[key] = strategy  # last: the first one was not asked for longest
        if len(self._solved) > self.max_stored:
            del self._solved[next(iter(self._solved))]
        return strategy

    def lower_bound(self, block: Block) -> float:
        """Of a block's optimum: the product of its factors' bounds."""
        bound = 1.0
        for axis in block.asked_axes:
            gram = self.factor_gram(block, axis)
            solved = self.optimum(gram)
            assert solved.lower_bound is not None
            bound *= solved.lower_bound * float(np.trace(gram))
        return bound


def _residual_optimum(
    workload: Workload, grams: Grams, subset: Subset, tolerance: float
) -> tuple[tuple[Matrix, ...], float]:
    """A_i for the attributes of one residual space, columns at most 1 long, and J_S."""
    blocks = [block for block in workload.blocks if set(subset) <= set(block.asked_axes)]
    block_weights = [
        b.weight**2 * math.prod(grams.mean(b, axis) for axis in b.asked_axes if axis not in subset) for b in blocks
    ]
    if not subset:
        return (), sum(block_weights)
    centred = {(j, axis): grams.centred(b, axis) for j, b in enumerate(blocks) for axis in subset}
    traces = {gram_key: float(np.trace(gram)) for gram_key, gram in centred.items()}  # of X_i = I at first
    if not any(
        block_weight > 0 and all(traces[j, axis] > 0 for axis in subset) for j, block_weight in enumerate(block_weights)
    ):
        return (), 0.0  # nobody asks for it: the ends of a range from -2 to 2 are 0 in the mean
    factors: dict[int, Matrix] = {}
    cost = math.inf
    for _ in range(ROUNDS if len(subset) > 1 else 1):
        for axis in subset:
            partial_weights = [
                block_weight * math.prod(traces[j, other_axis] for other_axis in subset if other_axis != axis)
                for j, block_weight in enumerate(block_weights)
            ]
            gram = np.sum([weight * centred[j, axis] for j, weight in enumerate(partial_weights)], axis=0)
            matrix = grams.optimum(gram).matrix()
            direction = grams.directions.get(axis)
            along = unit_direction(direction, matrix.shape[1])
            matrix = matrix - matrix.mean(axis=1, keepdims=True) if direction is None else matrix - (matrix @ along)[:, None]
            unit = matrix / math.sqrt(float(np.einsum("ij,ij->j", matrix, matrix).max()))
            factors[axis] = _full_rank(unit, len(subset), None if direction is None else along)
            inverse = np.linalg.pinv(factors[axis]) if direction is None else oblique_inverse(factors[axis], direction)
            for j in range(len(blocks)):
                traces[j, axis] = float(np.einsum("ij,ij->", inverse, centred[j, axis] @ inverse))
        renewed = sum(
            block_weight * math.prod(traces[j, axis] for axis in subset) for j, block_weight in enumerate(block_weights)
        )
        if renewed >= cost * (1 - tolerance):
            break
        cost = renewed
    return tuple(factors[axis] for axis in subset), min(cost, renewed)


def _centre(gram: Matrix) -> Matrix:
    """The gram on vectors that sum to zero."""
    rows = gram - gram.mean(axis=0)
    centred = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray((centred + centred.T) / 2)


def centre_along(gram: Matrix, unit: Matrix) -> Matrix:
    """(I - 1 u') V (I - u 1')."""
    rows = gram - (gram @ unit)[:, None]
    centred = rows - unit @ rows
    return np.asarray((centred + centred.T) / 2)


def _full_rank(matrix: Matrix, axes_of_term: int, unit: Matrix | None = None) -> Matrix:
    """Rows orthogonal to u (None: that sum to zero) with the same A'A, n - 1 of them: those that nobody asks for are measured with
    2^-15 of the weight, or with more where a term of so many attributes leaves few bits to each.

    Once rounded they determine the whole residual space, so answers stay unbiased.
    """
    axes = contrasts(matrix.shape[1]) if unit is None else scipy.linalg.null_space(unit[None, :]).T
    _, singular, right_vectors = np.linalg.svd(matrix @ axes.T, full_matrices=False)
    min_weight = 2.0 ** (SPARE_BITS - min(GRID_BITS, PRODUCT_BITS // axes_of_term))
    is_measured = singular > max(matrix.shape[1] * 1e-13, min_weight) * singular[0]
    return np.asarray(complete_rank(singular[is_measured, None] * right_vectors[is_measured], min_weight=min_weight) @ axes)
