"""AM in stages on the engine: eigen-decomposition, groups side by side, their merge, the completing rows.

Every stage leaves what it found in the store: a killed design goes on with the groups that are missing.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from dpdist.errors import StoreError
from dpdist.machine.engine import Engine, OnDone
from dpdist.machine.store import Store, StoredArray
from dpdist.operators import Matrix
from dpdist.strategies.base import ignore
from dpdist.strategies.eigen_queries import designed, eigen_queries, group_weights, merged_weights, separation
from dpdist.strategies.representations import DenseStrategy


def separated_design(
    store: Store,
    engine: Engine,
    gram: Matrix,
    name: str,
    *,
    group_size: int,
    tolerance: float,
    on_done: OnDone | None = None,
) -> DenseStrategy:
    """``eigen_design(gram, group_size=)``, its groups solved by the workers.

    Args:
        name: scratch that calls with the same gram and options share; the caller deletes it when the strategy is kept.
    """
    queries = _decomposed(store, engine, gram, f"{name}/queries")
    costs, bound = np.array(queries.facts["costs"]), float(queries.facts["bound"])
    groups = separation(costs, group_size)
    work = partial(_solve_group, store, queries, name, groups, tolerance)
    solved = [_read_group(store, part) for part in engine.map(work, list(range(len(groups))), on_done=on_done)]
    weights = merged_weights(groups, solved, tolerance, ignore)
    return engine.on_largest_worker(designed, store.read(queries), weights, gram, bound)


def _decomposed(store: Store, engine: Engine, gram: Matrix, name: str) -> StoredArray:
    """Eigen-queries as rows; facts: their eigenvalues and the singular value bound."""
    try:
        return store.open(name)
    except StoreError:
        queries, costs, bound = engine.on_largest_worker(eigen_queries, gram)
        return store.put_if_absent(name, queries, {"costs": costs.tolist(), "bound": bound})


def _solve_group(
    store: Store, queries: StoredArray, name: str, groups: list[Matrix], tolerance: float, number: int
) -> StoredArray:
    """Weights, loads and cost of one group, in a row."""
    kept = f"{name}/group-{number}"
    if store.exists(kept):
        return store.open(kept)
    group = groups[number]
    low, high = int(group.min()), int(group.max()) + 1
    rows = store.read_rows(queries, low, high)[group - low]
    costs = np.array(queries.facts["costs"])[group]
    weight, load, cost = group_weights(np.ascontiguousarray(np.square(rows.T)), costs, tolerance)
    return store.put_if_absent(kept, np.concatenate([weight, load, [cost]]), {"queries": int(group.size)})


def _read_group(store: Store, stored: StoredArray) -> tuple[Matrix, Matrix, float]:
    values, size = store.read(stored), stored.facts["queries"]
    return values[:size], values[size:-1], float(values[-1])
