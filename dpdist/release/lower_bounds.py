"""What no strategy can beat, found while a release is planned, and the weights that prove it to readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpdist.errors import OutOfMemory
from dpdist.grids.base import Norm
from dpdist.mechanisms.base import DENSE_CELLS
from dpdist.mechanisms.kept import name_of
from dpdist.operators import Matrix
from dpdist.release.context import Context
from dpdist.release.planning import Planning
from dpdist.strategies import Strategy, laplace_bound
from dpdist.strategies.base import UNIT_VARIANCE
from dpdist.strategies.bounds import dual_weights, separate_tables_bound
from dpdist.strategies.product_bound import bound_bytes, bound_steps, product_weights
from dpdist.strategies.proofs import DualWeights
from dpdist.workloads import Workload
from dpdist.workloads.kinds import is_long, is_separable

NEAR = 0.01
"""Where an optimum is certified this closely no other bound is computed."""
BOUND_COPIES = 6
"""Of the gram, whose eigenvalues bound what strategies with Laplace noise can reach."""


def lower_bound(context: Context, workload: Workload, norm: Norm, compared: Sequence[Strategy]) -> float | None:
    """What no strategy can beat, beside what the strategies know themselves: under Laplace noise of few cells and of tables that share no
    attribute, and of unions of products over several attributes. Under Laplace noise every cost is at least twice that of Gaussian noise.
    """
    found = [separate_tables_bound(workload)] if norm == "l1" else []
    if _over_cells(workload, norm):
        found.append(_laplace_bound(context, workload))
    if _of_products(workload, norm, compared):
        found.append(UNIT_VARIANCE[norm] * _product_weights(context, workload)[0])
    return max((bound for bound in found if bound > 0), default=None)


def lower_bound_bytes(workload: Workload, norm: Norm, compared: Sequence[Strategy]) -> int:
    """What ``lower_bound`` holds at once."""
    over_cells = BOUND_COPIES * 8 * workload.shape[1] ** 2 if _over_cells(workload, norm) else 0
    return max(over_cells, bound_bytes(workload) if _of_products(workload, norm, compared) else 0)


def _over_cells(workload: Workload, norm: Norm) -> bool:
    return norm == "l1" and workload.shape[1] <= DENSE_CELLS


def _of_products(workload: Workload, norm: Norm, compared: Sequence[Strategy]) -> bool:
    certified = norm == "l2" and any(strategy.gap <= NEAR for strategy in compared)
    return not certified and len(workload.domain.shape) > 1 and is_separable(workload) and not is_long(workload)


def _laplace_bound(context: Context, workload: Workload) -> float:
    """``laplace_bound``, computed once: a run plans more than once."""
    work, name = Planning(context), name_of(workload, "laplace", "bounds")
    values, _ = work.found_once(name, lambda: (np.array([laplace_bound(work.gram(workload))]), {}))
    return float(values[0])


def _product_weights(context: Context, workload: Workload) -> tuple[float, dict[int, Matrix]]:
    """``product_weights``, computed once."""
    if not bound_steps(workload):
        return 0.0, {}
    work = Planning(context)

    def find() -> tuple[Matrix, dict[str, Any]]:
        work.tell("bounding the optimum")
        bound, weights = work.largest(product_weights, workload)
        facts = {
            "attributes": [[axis, each.size] for axis, each in weights.items()]
        }  # a list: keys of objects would be sorted
        return np.concatenate([[bound], *weights.values()]), facts

    values, facts = work.found_once(name_of(workload, "product", "bounds"), find)
    sizes = dict(facts["attributes"])
    parts = np.split(values, np.cumsum([1, *sizes.values()])[:-1])
    return float(values[0]), dict(zip(sizes, parts[1:], strict=True))


def proving_weights(context: Context, workload: Workload, compared: Sequence[Strategy], lower: float) -> DualWeights | None:
    """Weights of the cells that prove a lower bound to readers; None where none that are at hand do."""

    def asked() -> Matrix:
        try:
            return Planning(context).gram(workload)
        except OutOfMemory:  # of planning: the stage that publishes has memory of its own for the proof
            return workload.gram()

    return dual_weights(workload, compared, lower, asked, lambda: _product_weights(context, workload))
