"""Unions of products with oblique contrasts: every attribute's rows are orthogonal to a direction u_i of its own.

``residual`` fixes u_i = 1/n_i. Any u with 1'u = 1 is as exact: a table is the sum of its parts in u 1' and I - u 1', rows A_i with
A_i u_i = 0 measure the second, and J_S = sum over blocks b of w_b^2 prod_{i in S} J_bi(u_i) prod_{i in b, not in S} u_i'V_bi u_i. The
directions are optimised with the exact gradient (docs/mathematics.md, section 6), then made whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy

from dpdist.grids.terms import Directions, share_of, subsets
from dpdist.operators import Identity, Matrix, Stack, Total
from dpdist.strategies.base import Solve, Step
from dpdist.strategies.optimum import coa
from dpdist.strategies.problem import EPSILON
from dpdist.strategies.product_bound import product_bound
from dpdist.strategies.representations import ObliqueStrategy
from dpdist.strategies.residual_bases import Grams, centred_along, products_over
from dpdist.workloads import Workload

STEPS = 40
WORK = 2.0**37
EVALUATION = 150.0
"""Products of matrices that the optimum of one attribute's gram takes, about, from the weights of the last one."""
TOLERANCE = 1e-5
"""Of those optima."""
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
    """Whole-number directions of the attributes that are asked in one way, other than value by value; none where it takes too long."""
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
    """Whole numbers along u, two of which differ by one."""
    out: Matrix = np.rint(share * share.size * FINENESS).astype(np.int64)
    order = np.argsort(out, kind="stable")
    if not (np.diff(out[order]) == 1).any():
        closest = int(np.argmin(np.diff(share[order])))
        out[order[closest + 1]] = out[order[closest]] + 1
    return out


@dataclass(frozen=True)
class _DirectionCost:
    """The cost as a function of the directions.

    Attributes:
        grams: of the free attributes: those asked in one way.
        blocks: squared weight, and the asked attributes.
        fixed: (J, mean) of the other attributes in each block.
        dual: of each attribute's last optimum, from which the next one starts.
    """

    grams: Mapping[int, Matrix]
    blocks: tuple[tuple[float, tuple[int, ...]], ...]
    fixed: tuple[Mapping[int, tuple[float, float]], ...]
    dual: dict[int, Matrix] = field(default_factory=dict)

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(self.grams)

    @staticmethod
    def of(workload: Workload) -> _DirectionCost:
        kinds: dict[int, dict[str, Matrix]] = {}
        plain: set[int] = set()
        places = []
        for block in workload.blocks:
            given = {}
            for axis, raw, factor in zip(block.axes, block.factors, block.scaled(block.factors), strict=True):
                if isinstance(raw, Total) and raw is factor:
                    continue
                known = kinds.setdefault(axis, {})
                if factor.fingerprint not in known:
                    known[factor.fingerprint] = factor.gram()
                given[axis] = factor.fingerprint
                plain |= {axis} if isinstance(factor, Identity) else set()
            places.append((block.weight**2, given))
        free = {a: next(iter(known.values())) for a, known in kinds.items() if len(known) == 1 and a not in plain}
        free = {axis: gram for axis, gram in free.items() if gram.shape[0] > 2}
        fixed = [
            {axis: _alike(kinds[axis][name]) for axis, name in given.items() if axis not in free} for _, given in places
        ]
        return _DirectionCost(free, tuple((square, tuple(sorted(given))) for square, given in places), tuple(fixed))

    def cost(self, shares: Mapping[int, Matrix]) -> tuple[float, dict[int, Matrix]]:
        """log J and its gradient in every direction."""
        parts = {axis: self._part(axis, share) for axis, share in shares.items()}
        inner: dict[tuple[int, ...], list[tuple[float, tuple[int, ...]]]] = {}
        for (square, axes), fixed in zip(self.blocks, self.fixed, strict=True):
            values = {a: fixed[a] if a in fixed else (parts[a].apart, parts[a].along) for a in axes}
            for subset in subsets(axes):
                product = square * math.prod(values[a][0] if a in subset else values[a][1] for a in axes)
                inner.setdefault(subset, []).append((product, axes))
        roots = {subset: math.sqrt(sum(product for product, _ in found)) for subset, found in inner.items()}
        total = sum(roots.values())
        gradients = {axis: np.zeros(share.size) for axis, share in shares.items()}
        for subset, found in inner.items():
            for product, axes in found:
                for axis in axes:
                    if axis in parts and roots[subset] > 0:
                        part = parts[axis]
                        of_log = part.apart_gradient / part.apart if axis in subset else part.along_gradient / part.along
                        gradients[axis] += product / (roots[subset] * total) * of_log
        return 2.0 * math.log(total), gradients

    def _part(self, axis: int, share: Matrix) -> _AlongDirection:
        """J and mean of an attribute along u. At the optimal dual weights v, J is tr((D^1/2 G D^1/2)^1/2)^2 / sum(v)."""
        gram = self.grams[axis]
        centred = centred_along(gram, share)
        scale = float(np.trace(centred))
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
        inverse = (spread / roots) @ spread.sum(axis=0) * trace  # R 1
        turned = inverse - share * inverse.sum()
        return _AlongDirection(float(share @ gram @ share), trace**2, 2.0 * gram @ share, -2.0 * gram @ turned)


@dataclass(frozen=True)
class _AlongDirection:
    """u'V u and J of one attribute, with their gradients in u."""

    along: float
    apart: float
    along_gradient: Matrix
    apart_gradient: Matrix


def _alike(gram: Matrix) -> tuple[float, float]:
    """J and mean of a gram along equal shares."""
    share = share_of(None, gram.shape[0])
    centred = centred_along(gram, share)
    scale = float(np.trace(centred))
    if scale <= 0:
        return 0.0, float(share @ gram @ share)
    off = gram - np.diag(np.diag(gram))
    if not off.any() and np.ptp(np.diag(gram)) == 0:  # value by value: (n - 1)^2 / n
        return float(gram[0, 0]) * (gram.shape[0] - 1) ** 2 / gram.shape[0], float(share @ gram @ share)
    cost = coa(centred / scale, tolerance=TOLERANCE).workload_cost
    assert cost is not None
    return cost * scale, float(share @ gram @ share)
