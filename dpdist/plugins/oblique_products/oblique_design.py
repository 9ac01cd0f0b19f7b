"""Products of rows that are orthogonal to a direction of each attribute, which is optimised, instead of summing to zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy

from dpdist.api.mechanisms import (
    EPSILON,
    BlockGrams,
    Directions,
    Gram,
    GramKey,
    Grams,
    Matrix,
    Slopes,
    Solve,
    Stack,
    Step,
    TermStrategy,
    Workload,
    centre_along,
    check_workload,
    coa,
    coprime_pair,
    lapack,
    product_bound,
    residual_products,
    sum_of_roots,
    unit_direction,
)

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


@dataclass(frozen=True, repr=False)
class ObliqueStrategy(TermStrategy):
    """Terms whose rows are orthogonal to a direction of each attribute instead of summing to zero."""

    supports_fractional_records: ClassVar[bool] = False

    def form_facts(self) -> dict[str, Any]:
        return {"directions": {str(axis): numbers.tolist() for axis, numbers in self.directions.items()}}

    @classmethod
    def restored_options(cls, facts: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        return {"directions": {int(axis): np.array(row, dtype=np.int64) for axis, row in facts["directions"].items()}}


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
    residual_result = residual_products(workload, grams)
    lower = product_bound(workload) or sum(block.weight**2 * grams.lower_bound(block) for block in workload.blocks)
    directions = _tune_directions(workload)
    terms, cost = residual_products(workload, Grams(workload, tolerance, directions)) if directions else residual_result
    if cost >= residual_result[1]:
        terms, cost, directions = *residual_result, {}
    operator = Stack([term.operator(workload.domain.shape) for term in terms])
    record = Solve("oblique products", "closed form", (Step(1, cost, cost / lower - 1.0),))
    return ObliqueStrategy("oblique", operator, cost, lower, record, terms=terms, directions=directions)


def _tune_directions(workload: Workload) -> Directions:
    """Whole-number directions of the attributes that are asked otherwise than value by value; none where it takes too long."""
    direction_cost = _DirectionCost.for_workload(workload)
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
    def for_workload(workload: Workload) -> _DirectionCost:
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
        centred = centre_along(together, unit)
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
