"""Bases of products: residual spaces of marginals, and directions that are optimised, too."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.errors import InvalidInput
from dpdist.measurement.dense_measurement import complete_rank
from dpdist.measurement.integer_measurement import GRID_BITS
from dpdist.measurement.integer_terms import PRODUCT_BITS, coprime_pair
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
from dpdist.strategies.dense.trace_problem import EPSILON
from dpdist.strategies.optimal import coa
from dpdist.strategies.representations import ObliqueStrategy, TermStrategy
from dpdist.strategies.strategy import Solve, Step, Strategy, check_workload
from dpdist.strategies.tables.product_bound import BlockGrams, GramKey, Slopes, product_bound, sum_of_roots
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
    terms, cost = _residual_products(workload, grams)
    lower = max(sum(block.weight**2 * grams.lower_bound(block) for block in workload.blocks), product_bound(workload))
    operator = Stack([term.operator(workload.domain.shape) for term in terms])
    history = (Step(1, cost, cost / lower - 1.0),)
    return TermStrategy("residual", operator, cost, lower, Solve("residual products", "closed form", history), terms=terms)


def _residual_products(workload: Workload, grams: Grams) -> tuple[tuple[Term, ...], float]:
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
        return _centre(gram) if direction is None else _centre_along(gram, unit_direction(direction, self.sizes[axis]))

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


def _centre_along(gram: Matrix, unit: Matrix) -> Matrix:
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


STEPS = 40
WORK = 2.0**37
EVALUATION = 150.0
"""Products of matrices that the optimum of one attribute's gram takes, about, from the weights of the last one."""
TOLERANCE = 1e-5
"""Of those optima."""
OBLIQUE_ROUNDS = 20
SETTLED = 1e-6
"""Rounds in which attributes that are asked in several ways agree on their rows, and the relative gain at which they end."""
FINENESS = 64
"""Whole numbers of a direction are about so large."""


def oblique(workload: Workload, *, tolerance: float = 1e-6) -> ObliqueStrategy:
    """A strategy for a weighted union of products, over domains of any size; never worse than ``residual``.

    Args:
        workload: a weighted union of products, (m, n).
        tolerance: certified relative gap at which the solves of single attributes stop.
    Returns: a strategy with ``terms`` and ``directions``, its cost, and a certified lower bound.
    Raises: InvalidInput for queries that are not products over attributes.
    """
    check_workload(workload)
    grams = Grams(workload, tolerance)
    residual_result = _residual_products(workload, grams)
    lower = product_bound(workload) or sum(block.weight**2 * grams.lower_bound(block) for block in workload.blocks)
    directions = _tune_directions(workload)
    terms, cost = _residual_products(workload, Grams(workload, tolerance, directions)) if directions else residual_result
    if cost >= residual_result[1]:
        terms, cost, directions = *residual_result, {}
    operator = Stack([term.operator(workload.domain.shape) for term in terms])
    record = Solve("oblique products", "closed form", (Step(1, cost, cost / lower - 1.0),))
    return ObliqueStrategy("oblique", operator, cost, lower, record, terms=terms, directions=directions)


def _tune_directions(workload: Workload) -> Directions:
    """Whole-number directions of the attributes that are asked otherwise than value by value; none where it takes too long."""
    direction_cost = _DirectionCost.of(workload)
    work = EVALUATION * sum(float(workload.domain.shape[axis]) ** 3 for axis in direction_cost.free)
    steps = int(min(STEPS, WORK // max(work, 1.0)))
    if not direction_cost.free or steps < 2:
        return {}
    sizes = [workload.domain.shape[axis] for axis in direction_cost.free]
    cuts = np.cumsum([0, *sizes])
    best: tuple[float, Matrix] = (math.inf, np.zeros(int(cuts[-1])))

    def value(flat: Matrix) -> tuple[float, Matrix]:
        nonlocal best
        units = {
            free_axis: _direction_from_free(flat[low:high])
            for free_axis, low, high in zip(direction_cost.free, cuts[:-1], cuts[1:], strict=True)
        }
        cost, gradients = direction_cost.cost(units)
        if cost < best[0]:
            best = (cost, flat.copy())
        return cost, np.concatenate([(g - g.mean()) / g.size for g in (gradients[axis] for axis in direction_cost.free)])

    options = {"maxfun": steps, "maxiter": steps, "maxcor": 20}
    scipy.optimize.minimize(value, best[1], jac=True, method="L-BFGS-B", options=options)
    unit_vectors = {
        free_axis: _direction_from_free(best[1][low:high])
        for free_axis, low, high in zip(direction_cost.free, cuts[:-1], cuts[1:], strict=True)
    }
    return {axis: _round_direction(unit) for axis, unit in unit_vectors.items()}


def _direction_from_free(free: Matrix) -> Matrix:
    """u with 1'u = 1 from as many free numbers."""
    return np.asarray((1.0 + free - free.mean()) / free.size)


def _round_direction(unit: Matrix) -> Matrix:
    """Whole numbers along u, two of which have no common divisor, or one of which is one."""
    whole_numbers: Matrix = np.rint(unit * unit.size * FINENESS).astype(np.int64)
    smallest = int(np.argmin(np.abs(whole_numbers)))
    while (np.abs(whole_numbers) != 1).all() and coprime_pair(whole_numbers) is None:
        whole_numbers[smallest] += 1
    return whole_numbers


@dataclass(frozen=True)
class _DirectionCost:
    """The cost as a function of the directions, where an attribute has the same rows in all residual spaces.

    Attributes:
        free: attributes whose directions are optimised: those whose values are not all asked alike.
        contrast_costs: J_bi of every gram under the last rows, from which the next ones are sought.
        dual: of each attribute's last optimum.
    """

    block_grams: BlockGrams
    grams: Mapping[GramKey, Matrix]
    free: tuple[int, ...]
    contrast_costs: dict[GramKey, float] = field(default_factory=dict)
    dual: dict[int, Matrix] = field(default_factory=dict)

    @staticmethod
    def of(workload: Workload) -> _DirectionCost:
        block_grams = BlockGrams.of(workload)
        # of two values J = g max(u)^2 has a kink where it is least, at equal shares
        return _DirectionCost(
            block_grams,
            {gram_key: gram for axis in block_grams.alike for gram_key, gram in block_grams.whole_grams(axis).items()},
            tuple(axis for axis, alike in block_grams.alike.items() if not alike and block_grams.sizes[axis] > 2),
        )

    def cost(self, free: Mapping[int, Matrix]) -> tuple[float, dict[int, Matrix]]:
        """log J and its gradient in every direction."""
        block_grams = self.block_grams
        units = {axis: free.get(axis, unit_direction(None, block_grams.sizes[axis])) for axis in block_grams.alike}
        mean_costs = {
            gram_key: float(units[gram_key[0]] @ gram @ units[gram_key[0]]) for gram_key, gram in self.grams.items()
        }
        contrast_costs = {
            gram_key: self.contrast_costs.get(gram_key, float(np.trace(gram))) for gram_key, gram in self.grams.items()
        }
        total, slopes = sum_of_roots(block_grams.blocks, mean_costs, contrast_costs)
        leans: dict[int, Matrix] = {}
        for _ in range(OBLIQUE_ROUNDS):
            before = total
            for axis, unit in units.items():
                axis_costs, leans[axis] = self._rows(axis, unit, contrast_costs, slopes)
                contrast_costs.update(axis_costs)
            total, slopes = sum_of_roots(block_grams.blocks, mean_costs, contrast_costs)
            if len(contrast_costs) == len(units) or abs(before - total) <= SETTLED * total:
                break
        self.contrast_costs.update(contrast_costs)
        gradients = {}
        for axis in free:
            names = [gram_key for gram_key in self.grams if gram_key[0] == axis]
            gradients[axis] = 2.0 * sum(slopes.contrasts[gram_key] for gram_key in names) * leans[axis]
            for gram_key in names:
                gradients[axis] += 4.0 * slopes.means[gram_key] / mean_costs[gram_key] * self.grams[gram_key] @ units[axis]
        return 2.0 * math.log(total), gradients

    def _rows(
        self, axis: int, unit: Matrix, contrast_costs: Mapping[GramKey, float], slopes: Slopes
    ) -> tuple[dict[GramKey, float], Matrix]:
        """J_bi of an attribute's grams under the rows that are best for all of them together, and the gradient of the logarithm of
        what they cost together: at the optimal dual weights v that is tr((D^1/2 G D^1/2)^1/2)^2 / sum(v)."""
        grams = {gram_key: gram for gram_key, gram in self.grams.items() if gram_key[0] == axis}
        if self.block_grams.alike[axis]:  # value by value: (n - 1)^2 / n
            return {gram_key: float(gram[0, 0]) * (unit.size - 1) ** 2 / unit.size for gram_key, gram in grams.items()}, unit
        mix = {
            gram_key: slopes.contrasts[gram_key] / contrast_costs[gram_key] if contrast_costs[gram_key] > 0 else 0.0
            for gram_key in grams
        }
        together = np.sum([mix[gram_key] * gram for gram_key, gram in grams.items()], axis=0)
        centred = _centre_along(together, unit)
        scale = float(np.trace(centred))
        if scale <= 0:  # nothing varies
            return dict.fromkeys(grams, 0.0), np.zeros_like(unit)
        solved = coa(Gram(centred / scale), tolerance=TOLERANCE, start=self.dual.get(axis))
        assert solved.solve is not None
        assert solved.solve.dual is not None
        weight = np.maximum(solved.solve.dual, 0.0)
        self.dual[axis] = weight
        root = np.sqrt(weight / weight.sum())
        values, vectors = lapack.eigh(root[:, None] * centred * root)
        nonzero = values > values.size * EPSILON * values[-1]
        roots = np.sqrt(values[nonzero])
        scaled_vectors = root[:, None] * vectors[:, nonzero]
        trace = float(roots.sum())
        turned = scaled_vectors - np.outer(unit, scaled_vectors.sum(axis=0))
        inverse = (turned / roots) @ turned.T * trace  # (I - u 1') R (I - 1 u')
        lean = -2.0 * together @ ((turned / roots) @ scaled_vectors.sum(axis=0)) / trace
        return {gram_key: max(float(np.einsum("ij,ij->", gram, inverse)), 0.0) for gram_key, gram in grams.items()}, lean
