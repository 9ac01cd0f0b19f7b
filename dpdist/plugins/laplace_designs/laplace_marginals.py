"""Marginals for pure epsilon: which ones to measure and how well, under Laplace noise.

With weights theta_S >= 0 on the marginals of attribute sets S the L1 sensitivity is the sum of theta_S, and A'A = sum of x_T P_T over
the residual basis with x_T = sum over S that hold T of theta_S^2 prod of n_i over the attributes outside S. The cost
2 (sum theta)^2 sum over T of tr(V P_T) / x_T has a closed form for every union of products V; it is smooth and not convex.
"""

from __future__ import annotations

import math
from itertools import chain, combinations

import numpy as np
import scipy

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import Matrix, Solve, Step, Workload, check_workload, subsets
from dpdist.api.pages import Block
from dpdist.plugins.laplace_designs.laplace_products import (
    Subset,
    WeightedMarginalsStrategy,
    marginal_terms,
    marginals_cost,
    residual_precisions,
    residual_traces,
    stack_terms,
)

ALL_SUBSETS = 10
"""Up to so many asked attributes every marginal may be measured; beyond, those inside asked ones, unions of two, and all together."""
MOST_VALUES = 2**22
"""Cells of all marginals that may be measured."""
NEGLIGIBLE_WEIGHT = 1e-5
"""Weights below this share of all are left out where the rest determines everything."""
MIN_WEIGHT = 1e-9
"""A weight is never quite zero while it is optimised, so that every attribute set is determined."""
STARTS = 4


def weighted_marginals(workload: Workload, *, seed: int = 0, max_iterations: int = 2000) -> WeightedMarginalsStrategy:
    """The best marginals and weights under Laplace noise (by total error) that several starts lead to, for unions of products.

    Args:
        workload: a weighted union of products, (m, n).
        seed: fixes the random starts.
        max_iterations: of L-BFGS from each start.
    Returns: a strategy for Laplace noise, with its cost at epsilon = 1.
    Raises: InvalidInput for queries that are not products over attributes, or whose marginals are too large to be measured.
    Source: McKenna, Miklau, Hay, Machanavajjhala 2018 (HDMM), OPT_M.
    """
    check_workload(workload)
    if not workload.kind.is_separable:
        raise InvalidInput(
            "the workload holds queries that are no product over attributes; choose 'p-identity' or 'identity'"
        )
    reason = reason_unmeasurable(workload)
    if reason is not None:
        raise InvalidInput(f"{reason}; choose 'laplace', or ask for fewer attributes together")
    sizes, subset_traces = workload.domain.shape, residual_traces(workload)
    able = candidates_of(workload)
    needed_subsets = list(subset_traces)
    holds = np.array([[set(subset) <= set(candidate) for candidate in able] for subset in needed_subsets], dtype=np.float64)
    cells = np.array(
        [math.prod(n for axis, n in enumerate(sizes) if axis not in candidate) for candidate in able], dtype=np.float64
    )
    traces = np.array([subset_traces[subset] for subset in needed_subsets])
    state = np.random.default_rng(seed)
    points = [np.ones(len(able)), *(state.uniform(0.0, 1.0, len(able)) for _ in range(STARTS - 1))]
    tops = [
        not any(set(subset) < set(candidate) for candidate in needed_subsets) and subset in needed_subsets for subset in able
    ]
    points.append(np.where(tops, 1.0, 1e-3))
    # the program is far from convex: from equal weights a single table that holds all others is hardly ever reached
    points += [np.where(holding, 1.0, 1e-4) for holding in np.eye(len(able), dtype=bool)[holds.all(axis=0)][:STARTS]]
    best, steps = (math.inf, points[0]), list[Step]()
    for point in points:
        result = scipy.optimize.minimize(
            log_cost, point / point.sum(), (holds, cells, traces), jac=True, method="L-BFGS-B",
            bounds=scipy.optimize.Bounds(MIN_WEIGHT, np.inf), options={"maxiter": max_iterations, "maxfun": 2 * max_iterations},
        )  # fmt: skip
        if result.fun < best[0]:
            best = (float(result.fun), result.x / result.x.sum())
        steps.append(Step(len(steps) + 1, 2.0 * math.exp(best[0]), math.inf))
    weights = {subset: float(weight) for subset, weight in zip(able, best[1], strict=True) if weight > NEGLIGIBLE_WEIGHT}
    subset_precisions = residual_precisions(weights, sizes)
    if any(subset not in subset_precisions for subset in needed_subsets):
        weights = {subset: float(weight) for subset, weight in zip(able, best[1], strict=True) if weight > 0}
    whole = sum(weights.values())
    terms = marginal_terms({subset: weight / whole for subset, weight in weights.items()}, sizes)
    record = Solve("weighted marginals", "converged", tuple(steps))
    cost = marginals_cost(terms, workload)
    return WeightedMarginalsStrategy(
        "weighted-marginals", stack_terms(terms, sizes), cost, solve=record, terms=terms, sizes=sizes
    )


def reason_unmeasurable(workload: Workload) -> str | None:
    """Why marginals cannot determine a workload's answers; None if they can."""
    if any(_without_contrast(block, workload.domain.shape) for block in workload.blocks):
        return "the workload asks for a level of one group, which says what a total says; leave the level out"
    able = candidates_of(workload)
    if all(any(set(block.asked_axes) <= set(axes) for axes in able) for block in workload.blocks):
        return None
    return f"the asked marginals have more than {MOST_VALUES:,} cells together"


def _without_contrast(block: Block, sizes: tuple[int, ...]) -> bool:
    """Whether all rows of a factor that is no total are constant: no marginal of its attribute is of use, so none is measured."""
    for axis, factor in zip(block.axes, block.factors, strict=True):
        ones = factor.matvec(np.ones(sizes[axis]))
        constant = factor.frobenius_squared * sizes[axis] <= float(ones @ ones) * (1 + 1e-12)
        if axis in block.asked_axes and sizes[axis] > 1 and constant:
            return True
    return False


def candidates_of(workload: Workload) -> list[Subset]:
    """The marginals that may be measured, small attribute sets first."""
    sizes = workload.domain.shape
    tops = [block.asked_axes for block in workload.blocks]
    attributes = tuple(sorted({axis for axes in tops for axis in axes}))
    if len(attributes) <= ALL_SUBSETS:
        allowed_subsets = set(subsets(attributes))
    else:
        pairs = chain(((top,) for top in set(tops)), combinations(set(tops), 2) if len(set(tops)) <= 64 else ())
        joined = {tuple(sorted(set().union(*pair))) for pair in pairs}
        allowed_subsets = {attributes} | joined | {subset for axes in set(tops) for subset in subsets(axes)}
    measurable, values = [], 0
    inside = {subset for axes in tops for subset in subsets(axes)}
    for subset in sorted(allowed_subsets, key=lambda s: (s not in inside, len(s), s)):
        values += math.prod(sizes[axis] for axis in subset)
        if values <= MOST_VALUES:
            measurable.append(subset)
        else:
            values -= math.prod(sizes[axis] for axis in subset)
    return sorted(measurable, key=lambda s: (len(s), s))


def log_cost(weights: Matrix, holds: Matrix, cells: Matrix, traces: Matrix) -> tuple[float, Matrix]:
    """log of (sum theta)^2 sum of tr(V P_T) / x_T, and its gradient in theta."""
    subset_precisions = holds @ (weights**2 * cells)
    subset_costs = traces / subset_precisions
    total, whole = float(subset_costs.sum()), float(weights.sum())
    inner = (subset_costs / subset_precisions) @ holds
    return 2.0 * math.log(whole) + math.log(total), 2.0 / whole - 2.0 * weights * cells * inner / total
