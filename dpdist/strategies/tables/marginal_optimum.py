"""The optimal strategy for marginals, in closed form over the residual basis, however many cells there are.

W'W of a weighted union of marginals is a sum of v_T P_T over attribute sets T, with P_T the projector onto tables of T whose
every margin is zero. All diagonal entries of each P_T are equal, so the singular value bound is attained: X = sum of x_T P_T
with x_T proportional to v_T^(1/2). (Xiao, He, Zhang, Kifer 2023: ResidualPlanner; Li & Miklau 2013: the bound.)
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.operators import Identity, Stack, Total
from dpdist.reconstruction.kronecker_terms import Term, contrasts, subsets
from dpdist.strategies.dual_certificates import DualWeights, LargestBound
from dpdist.strategies.representations import ResidualStrategy
from dpdist.strategies.strategy import CLOSED_FORM, Solve, Step, Stop, check_workload
from dpdist.workloads import Workload

Subset = tuple[int, ...]


def marginal_weights(workload: Workload) -> dict[Subset, float]:
    """v_T for every attribute set inside one of the workload's: W'W = sum of v_T P_T.

    Raises: InvalidInput when the workload asks for anything but marginals.
    """
    check_workload(workload)
    if not workload.kind.is_marginals:
        strange = next(b.name for b in workload.blocks if not all(isinstance(f, Identity | Total) for f in b.factors))
        raise InvalidInput(
            f"a strategy for marginals answers marginals only, and {strange!r} is not one; choose 'coa' or 'auto'"
        )
    sizes = workload.domain.shape
    weights: dict[Subset, float] = {}
    for block in workload.blocks:
        axes = block.asked_axes
        # a marginal sums over the other cells: I on its attributes, J = n_i (J / n_i) on the others
        weight = block.weight**2 * math.prod(size for axis, size in enumerate(sizes) if axis not in axes)
        for subset in subsets(axes):
            weights[subset] = weights.get(subset, 0.0) + weight
    return {subset: weights[subset] for subset in sorted(weights, key=lambda s: (len(s), s))}


def marginal_optimum(workload: Workload) -> ResidualStrategy:
    """The strategy of least total variance for a workload of marginals; its cost is the lower bound.

    Args:
        workload: a union of marginals, (m, n).
    Returns: a strategy with one term for every attribute set, of unit sensitivity.
    Raises: InvalidInput when the workload asks for anything but marginals.
    Source: Xiao, He, Zhang, Kifer 2023 (ResidualPlanner), in closed form.
    """
    strategy = residual_strategy("marginals", workload, _least_total(workload))
    assert strategy.workload_cost is not None
    return replace(strategy, lower_bound=strategy.workload_cost * (1 - 1e-12))


def marginal_minimax(workload: Workload, *, tolerance: float = 1e-4, max_iterations: int = 10_000) -> ResidualStrategy:
    """The strategy whose largest error of a cell (standard error times the marginal's weight) is least.

    Multiplicative weights on the marginals: for weights l on their cells' variances, the least weighted sum is known in closed
    form and bounds the largest variance of any strategy from below (the weights sum to one); marginals with larger
    variances get more weight until both meet.

    Args:
        workload: a union of marginals, (m, n).
        tolerance: certified relative gap of the largest variance at which it stops.
        max_iterations: of the multiplicative weights.
    Returns: a strategy for ``workload``; ``solve`` records the certified gap of the largest variance.
    Raises: InvalidInput when the workload asks for anything but marginals.
    Source: ResidualPlanner's maximum variance objective (Xiao et al. 2023), by duality instead of a solver.
    """
    marginal_weights(workload)  # refuses other workloads
    blocks = [replace(block, weight=1.0) for block in workload.blocks]
    cells = np.array([float(block.queries) for block in blocks])
    squares = np.array([block.weight**2 for block in workload.blocks])
    block_weights = np.full(len(blocks), 1.0 / len(blocks))
    best: tuple[float, dict[Subset, float]] | None = None
    lower, proving = 0.0, block_weights
    history: list[Step] = []
    for iteration in range(1, max_iterations + 1):
        # a marginal's total variance is its cells times the variance of each: weights are given a cell
        weighted = Workload(
            workload.domain,
            tuple(replace(b, weight=math.sqrt(v)) for b, v in zip(blocks, block_weights * squares / cells, strict=True)),
        )
        strategy = marginal_optimum(weighted)
        variances = squares * np.array([strategy.deviation(workload.domain.shape, block) ** 2 for block in blocks])
        bound = float(strategy.workload_cost or 0.0) * (1 - 1e-12)
        lower, proving = max((lower, proving), (bound, block_weights), key=lambda candidate: candidate[0])
        largest = float(variances.max())
        if best is None or largest < best[0]:
            best = (largest, _least_total(weighted))
        gap = best[0] / lower - 1.0
        history.append(Step(iteration, best[0], gap))
        if gap <= tolerance:
            break
        block_weights = block_weights * (variances / largest)
        block_weights = np.maximum(block_weights / block_weights.sum(), 1e-12)
    assert best is not None
    stop: Stop = "converged" if history[-1].gap <= tolerance else "iteration limit"
    proof = LargestBound(
        DualWeights("equal"),
        tuple(
            (float(block_weight / n), (None,) * len(b.axes))
            for block_weight, n, b in zip(proving, cells, blocks, strict=True)
        ),
    )
    record = Solve("marginals, least largest error", stop, tuple(history), largest=proof)
    return replace(residual_strategy("marginals", workload, best[1]), solve=record)


def _least_total(workload: Workload) -> dict[Subset, float]:
    """x_T of the least total variance, up to a common factor."""
    return {subset: math.sqrt(weight) for subset, weight in marginal_weights(workload).items()}


def residual_strategy(name: str, workload: Workload, precision: dict[Subset, float]) -> ResidualStrategy:
    """The strategy X = sum of x_T P_T for given x_T (up to a common factor), with its cost tr(V X^+) = sum v_T rank_T / x_T.

    Args:
        precision: x_T of every attribute set that the workload needs, and of those that are measured without being needed.
    """
    sizes, cells = workload.domain.shape, workload.domain.cells
    weights = marginal_weights(workload)
    ranks = {s: math.prod(sizes[axis] - 1 for axis in s) for s in precision}
    measured_sets = [s for s in sorted(precision, key=lambda s: (len(s), s)) if ranks[s] > 0]
    # every P_T has rank_T / cells on its diagonal: scaled so that X has ones there
    total = sum(precision[s] * ranks[s] for s in measured_sets) / cells
    cost = total * sum(weights[s] * ranks[s] / precision[s] for s in measured_sets if s in weights)
    bases = {axis: contrasts(sizes[axis]) for axis in sorted({axis for subset in measured_sets for axis in subset})}
    terms = []
    for subset in measured_sets:
        # x_T P_T = A'A with A = (x_T / prod of the n_i outside T)^(1/2) (kron of contrasts) over T's table
        outside = math.prod(size for axis, size in enumerate(sizes) if axis not in subset)
        scale = math.sqrt(precision[subset] / total / outside)
        terms.append(Term(subset, tuple(bases[axis] for axis in subset), scale))
    operator = Stack([term.operator(sizes) for term in terms])
    return ResidualStrategy(name, operator, cost, None, CLOSED_FORM, terms=tuple(terms))
