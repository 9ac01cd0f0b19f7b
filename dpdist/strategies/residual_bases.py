"""Unions of products beyond n x n: one product of small optima for every attribute set, over the residual spaces.

The cells' space is the sum of residual spaces R_S: tables of the attributes S all of whose margins vanish. A strategy that
measures each R_S by itself, with rows A_1 kron A_2 kron ... that sum to zero, has the error

    sum over S of J_S / scale_S^2,   J_S = sum over blocks b of c_bS prod_{i in S} tr(V_bi (A_i'A_i)^+),

where V_bi is the gram of block b along attribute i and c_bS = weight_b^2 prod_{i not in S} 1'V_bi 1 / n_i^2. Each A_i is the
certified optimum of a gram n_i x n_i given the others (alternating, as HDMM's OPT_Kron); the budget is split by J_S^(1/2). On
marginals this is the optimum; elsewhere it costs the coupling between residual spaces, which only a dense strategy can use.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.grids.dense import completed
from dpdist.grids.terms import NO_DIRECTIONS, Directions, Term, contrasts, oblique_inverse, share_of, subsets
from dpdist.operators import Matrix, Stack
from dpdist.strategies.base import Solve, Step, Strategy, queries_of
from dpdist.strategies.optimum import coa
from dpdist.strategies.product_bound import product_bound
from dpdist.strategies.representations import TermStrategy
from dpdist.workloads import Block, Workload

ROUNDS = 20
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
    queries_of(workload)
    strange = [block.name for block in workload.blocks if not block.separable]
    if strange:
        raise InvalidInput(f"queries {strange[0]!r} are not a product over attributes; choose mechanism 'coa' or 'identity'")
    grams = Grams(workload, tolerance)
    terms, cost = products_over(workload, grams)
    lower = max(sum(block.weight**2 * grams.lower_bound(block) for block in workload.blocks), product_bound(workload))
    operator = Stack([term.operator(workload.domain.shape) for term in terms])
    history = (Step(1, cost, cost / lower - 1.0),)
    return TermStrategy("residual", operator, cost, lower, Solve("residual products", "closed form", history), terms=terms)


def products_over(workload: Workload, grams: Grams) -> tuple[tuple[Term, ...], float]:
    """One term a residual space, the budget split among them, and the cost."""
    spaces = sorted({s for b in workload.blocks for s in subsets(b.asked_axes)}, key=lambda s: (len(s), s))
    found = [(subset, *_residual_optimum(workload, grams, subset, grams.tolerance)) for subset in spaces]
    found = [(subset, factors, cost) for subset, factors, cost in found if cost > 0]
    total = sum(math.sqrt(cost) for _, _, cost in found)
    terms = tuple(Term(subset, factors, math.sqrt(math.sqrt(cost) / total)) for subset, factors, cost in found)
    return terms, total**2


def optima_kept(workload: Workload) -> int:
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
        self.kept = optima_kept(workload)
        self._grams: dict[str, Matrix] = {}
        self._solved: dict[str, Strategy] = {}

    def of(self, block: Block, axis: int) -> Matrix:
        """V_bi, (n_i, n_i)."""
        factor = block.scaled(block.factors)[block.axes.index(axis)]
        if factor.fingerprint not in self._grams:
            self._grams[factor.fingerprint] = factor.gram()
        return self._grams[factor.fingerprint]

    def mean(self, block: Block, axis: int) -> float:
        """u'V_bi u, of equal shares 1'V_bi 1 / n_i^2; 1 where the block sums over the attribute."""
        direction = self.directions.get(axis)
        if direction is None:
            return float(self.of(block, axis).sum()) / self.sizes[axis] ** 2
        share = share_of(direction, self.sizes[axis])
        return float(share @ self.of(block, axis) @ share)

    def centred(self, block: Block, axis: int) -> Matrix:
        """(I - 1 u') V_bi (I - u 1')."""
        direction, gram = self.directions.get(axis), self.of(block, axis)
        return _centred(gram) if direction is None else centred_along(gram, share_of(direction, self.sizes[axis]))

    def optimum(self, gram: Matrix) -> Strategy:
        """The certified optimum of a gram, up to scale looked up."""
        unit = gram / np.trace(gram)
        key = hashlib.sha256(np.round(unit, 14).tobytes()).hexdigest()
        found = self._solved.pop(key, None) or coa(unit, tolerance=self.tolerance)
        self._solved[key] = found  # last: the first one was not asked for longest
        if len(self._solved) > self.kept:
            del self._solved[next(iter(self._solved))]
        return found

    def lower_bound(self, block: Block) -> float:
        """Of a block's optimum: the product of its factors' bounds."""
        out = 1.0
        for axis in block.asked_axes:
            gram = self.of(block, axis)
            solved = self.optimum(gram)
            assert solved.lower_bound is not None
            out *= solved.lower_bound * float(np.trace(gram))
        return out


def _residual_optimum(
    workload: Workload, grams: Grams, subset: Subset, tolerance: float
) -> tuple[tuple[Matrix, ...], float]:
    """A_i for the attributes of one residual space, columns at most 1 long, and J_S."""
    blocks = [block for block in workload.blocks if set(subset) <= set(block.asked_axes)]
    shares = [b.weight**2 * math.prod(grams.mean(b, axis) for axis in b.asked_axes if axis not in subset) for b in blocks]
    if not subset:
        return (), sum(shares)
    centred = {(j, axis): grams.centred(b, axis) for j, b in enumerate(blocks) for axis in subset}
    traces = {place: float(np.trace(gram)) for place, gram in centred.items()}  # of X_i = I at first
    if not any(share > 0 and all(traces[j, axis] > 0 for axis in subset) for j, share in enumerate(shares)):
        return (), 0.0  # nobody asks for it: the ends of a range from -2 to 2 are 0 in the mean
    factors: dict[int, Matrix] = {}
    cost = math.inf
    for _ in range(ROUNDS if len(subset) > 1 else 1):
        for axis in subset:
            others = [share * math.prod(traces[j, a] for a in subset if a != axis) for j, share in enumerate(shares)]
            gram = np.sum([weight * centred[j, axis] for j, weight in enumerate(others)], axis=0)
            matrix = grams.optimum(gram).matrix()
            direction = grams.directions.get(axis)
            along = share_of(direction, matrix.shape[1])
            matrix = matrix - matrix.mean(axis=1, keepdims=True) if direction is None else matrix - (matrix @ along)[:, None]
            unit = matrix / math.sqrt(float(np.einsum("ij,ij->j", matrix, matrix).max()))
            factors[axis] = _full_rank(unit, None if direction is None else along)
            inverse = np.linalg.pinv(factors[axis]) if direction is None else oblique_inverse(factors[axis], direction)
            for j in range(len(blocks)):
                traces[j, axis] = float(np.einsum("ij,ij->", inverse, centred[j, axis] @ inverse))
        renewed = sum(share * math.prod(traces[j, axis] for axis in subset) for j, share in enumerate(shares))
        if renewed >= cost * (1 - tolerance):
            break
        cost = renewed
    return tuple(factors[axis] for axis in subset), min(cost, renewed)


def _centred(gram: Matrix) -> Matrix:
    """The gram on vectors that sum to zero."""
    rows = gram - gram.mean(axis=0)
    out = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray((out + out.T) / 2)


def centred_along(gram: Matrix, share: Matrix) -> Matrix:
    """(I - 1 u') V (I - u 1')."""
    rows = gram - (gram @ share)[:, None]
    out = rows - share @ rows
    return np.asarray((out + out.T) / 2)


def _full_rank(matrix: Matrix, share: Matrix | None = None) -> Matrix:
    """Rows orthogonal to u (None: that sum to zero) with the same A'A, n - 1 of them: those that nobody asks for are measured with
    2^-15 of the weight.

    Once rounded they determine the whole residual space, so answers stay unbiased.
    """
    axes = contrasts(matrix.shape[1]) if share is None else scipy.linalg.null_space(share[None, :]).T
    _, singular, right = np.linalg.svd(matrix @ axes.T, full_matrices=False)
    kept = singular > matrix.shape[1] * 1e-13 * singular[0]
    return np.asarray(completed(singular[kept, None] * right[kept]) @ axes)
