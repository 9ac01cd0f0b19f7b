"""Unions of products with oblique contrasts: every attribute's rows are orthogonal to a direction u_i of its own.

``residual`` fixes u_i = 1/n_i. Any u with 1'u = 1 is as exact: a table is the sum of its parts in u 1' and I - u 1', rows A_i with
A_i u_i = 0 measure the second, and J_S = sum over blocks b of w_b^2 prod_{i in S} J_bi prod_{i in b, not in S} u_i'V_bi u_i, where J_bi is
the variance that A_i leaves. Directions and rows are optimised together with the exact gradient (docs/mathematics.md, section 6), then the
directions are made whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy

from dpdist.grids.integer_terms import coprime_pair
from dpdist.grids.terms import Directions, share_of
from dpdist.operators import Matrix, Stack
from dpdist.strategies.base import Solve, Step
from dpdist.strategies.optimum import coa
from dpdist.strategies.problem import EPSILON
from dpdist.strategies.product_bound import BlockGrams, Place, Slopes, product_bound, sum_of_roots
from dpdist.strategies.representations import ObliqueStrategy
from dpdist.strategies.residual_bases import Grams, centred_along, products_over
from dpdist.workloads import Workload

STEPS = 40
WORK = 2.0**37
EVALUATION = 150.0
"""Products of matrices that the optimum of one attribute's gram takes, about, from the weights of the last one."""
TOLERANCE = 1e-5
"""Of those optima."""
ROUNDS = 20
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
    grams = Grams(workload, tolerance)
    plain = products_over(workload, grams)
    lower = product_bound(workload) or sum(block.weight**2 * grams.lower_bound(block) for block in workload.blocks)
    directions = tuned(workload)
    terms, cost = products_over(workload, Grams(workload, tolerance, directions)) if directions else plain
    if cost >= plain[1]:
        terms, cost, directions = *plain, {}
    operator = Stack([term.operator(workload.domain.shape) for term in terms])
    record = Solve("oblique products", "closed form", (Step(1, cost, cost / lower - 1.0),))
    return ObliqueStrategy("oblique", operator, cost, lower, record, terms=terms, directions=directions)


def tuned(workload: Workload) -> Directions:
    """Whole-number directions of the attributes that are asked otherwise than value by value; none where it takes too long."""
    asked = _DirectionCost.of(workload)
    work = EVALUATION * sum(float(workload.domain.shape[axis]) ** 3 for axis in asked.free)
    steps = int(min(STEPS, WORK // max(work, 1.0)))
    if not asked.free or steps < 2:
        return {}
    sizes = [workload.domain.shape[axis] for axis in asked.free]
    cuts = np.cumsum([0, *sizes])
    best: tuple[float, Matrix] = (math.inf, np.zeros(int(cuts[-1])))

    def value(flat: Matrix) -> tuple[float, Matrix]:
        nonlocal best
        shares = {a: _share(flat[low:high]) for a, low, high in zip(asked.free, cuts[:-1], cuts[1:], strict=True)}
        cost, gradients = asked.cost(shares)
        if cost < best[0]:
            best = (cost, flat.copy())
        return cost, np.concatenate([(g - g.mean()) / g.size for g in (gradients[axis] for axis in asked.free)])

    options = {"maxfun": steps, "maxiter": steps, "maxcor": 20}
    scipy.optimize.minimize(value, best[1], jac=True, method="L-BFGS-B", options=options)
    parts = {a: _share(best[1][low:high]) for a, low, high in zip(asked.free, cuts[:-1], cuts[1:], strict=True)}
    return {axis: _whole(share) for axis, share in parts.items()}


def _share(free: Matrix) -> Matrix:
    """u with 1'u = 1 from as many free numbers."""
    return np.asarray((1.0 + free - free.mean()) / free.size)


def _whole(share: Matrix) -> Matrix:
    """Whole numbers along u, two of which have no common divisor, or one of which is one."""
    out: Matrix = np.rint(share * share.size * FINENESS).astype(np.int64)
    smallest = int(np.argmin(np.abs(out)))
    while (np.abs(out) != 1).all() and coprime_pair(out) is None:
        out[smallest] += 1
    return out


@dataclass(frozen=True)
class _DirectionCost:
    """The cost as a function of the directions, where an attribute has the same rows in all residual spaces.

    Attributes:
        free: attributes whose directions are optimised: those whose values are not all asked alike.
        apart: J_bi of every gram under the last rows, from which the next ones are sought.
        dual: of each attribute's last optimum.
    """

    asked: BlockGrams
    free: tuple[int, ...]
    apart: dict[Place, float] = field(default_factory=dict)
    dual: dict[int, Matrix] = field(default_factory=dict)

    @staticmethod
    def of(workload: Workload) -> _DirectionCost:
        asked = BlockGrams.of(workload)
        # of two values J = g max(u)^2 has a kink where it is least, at equal shares
        return _DirectionCost(asked, tuple(a for a, alike in asked.alike.items() if not alike and asked.sizes[a] > 2))

    def cost(self, free: Mapping[int, Matrix]) -> tuple[float, dict[int, Matrix]]:
        """log J and its gradient in every direction."""
        asked = self.asked
        shares = {axis: free.get(axis, share_of(None, asked.sizes[axis])) for axis in asked.alike}
        along = {place: float(shares[place[0]] @ gram @ shares[place[0]]) for place, gram in asked.grams.items()}
        apart = {place: self.apart.get(place, float(np.trace(gram))) for place, gram in asked.grams.items()}
        total, slopes = sum_of_roots(asked.blocks, along, apart)
        leans: dict[int, Matrix] = {}
        for _ in range(ROUNDS):
            before = total
            for axis, share in shares.items():
                found, leans[axis] = self._rows(axis, share, apart, slopes)
                apart.update(found)
            total, slopes = sum_of_roots(asked.blocks, along, apart)
            if len(apart) == len(shares) or abs(before - total) <= SETTLED * total:
                break
        self.apart.update(apart)
        gradients = {}
        for axis in free:
            names = [place for place in asked.grams if place[0] == axis]
            gradients[axis] = 2.0 * sum(slopes.apart[place] for place in names) * leans[axis]
            for place in names:
                gradients[axis] += 4.0 * slopes.along[place] / along[place] * asked.grams[place] @ shares[axis]
        return 2.0 * math.log(total), gradients

    def _rows(
        self, axis: int, share: Matrix, apart: Mapping[Place, float], slopes: Slopes
    ) -> tuple[dict[Place, float], Matrix]:
        """J_bi of an attribute's grams under the rows that are best for all of them together, and the gradient of the logarithm of
        what they cost together: at the optimal dual weights v that is tr((D^1/2 G D^1/2)^1/2)^2 / sum(v)."""
        grams = {place: gram for place, gram in self.asked.grams.items() if place[0] == axis}
        if self.asked.alike[axis]:  # value by value: (n - 1)^2 / n
            return {place: float(gram[0, 0]) * (share.size - 1) ** 2 / share.size for place, gram in grams.items()}, share
        mix = {place: slopes.apart[place] / apart[place] if apart[place] > 0 else 0.0 for place in grams}
        together = np.sum([mix[place] * gram for place, gram in grams.items()], axis=0)
        centred = centred_along(together, share)
        scale = float(np.trace(centred))
        if scale <= 0:  # nothing varies
            return dict.fromkeys(grams, 0.0), np.zeros_like(share)
        solved = coa(centred / scale, tolerance=TOLERANCE, start=self.dual.get(axis))
        assert solved.solve is not None
        assert solved.solve.dual is not None
        weight = np.maximum(solved.solve.dual, 0.0)
        self.dual[axis] = weight
        root = np.sqrt(weight / weight.sum())
        values, vectors = scipy.linalg.eigh(root[:, None] * centred * root, check_finite=False)
        kept = values > values.size * EPSILON * values[-1]
        roots = np.sqrt(values[kept])
        spread = root[:, None] * vectors[:, kept]
        trace = float(roots.sum())
        turned = spread - np.outer(share, spread.sum(axis=0))
        inverse = (turned / roots) @ turned.T * trace  # (I - u 1') R (I - 1 u')
        lean = -2.0 * together @ ((turned / roots) @ spread.sum(axis=0)) / trace
        return {place: max(float(np.einsum("ij,ij->", gram, inverse)), 0.0) for place, gram in grams.items()}, lean
