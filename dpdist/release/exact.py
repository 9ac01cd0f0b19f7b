"""y = A x + noise: exact integers from the workspace, noise added where the key is."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpdist.arrays.vector import Vector
from dpdist.arrays.workspace import OnDone, Workspace
from dpdist.domain import Layout
from dpdist.grids.base import Counts, Grid
from dpdist.machine.store import Store, StoredArray
from dpdist.process.threads import in_order
from dpdist.release.workspace import StoredVector


def exact_measurement(
    work: Workspace, store: Store, grid: Grid, counts: StoredArray, layout: Layout, on_done: OnDone | None = None
) -> Vector:
    """z without noise: private. It is computed where it is read, held, or scratch of the workspace.

    Args:
        layout: what the counts hold.
    Raises: InvalidInput when the histogram holds more records than the grid can count without overflow.
    """
    summary = counts.facts.get("private_tally")
    given = Counts(StoredVector(store, counts), layout, None if summary is None else int(summary["read"]))
    return grid.exact(given, work, on_done)


def draw(store: Store, name: str, noisy: Vector, facts: dict[str, Any]) -> StoredArray:
    """Write noisy values shard by shard, a few at once. The key exists in this process only, and so does z unless it is too large."""
    target = store.plan(name, (noisy.size,), np.int64)
    store.begin(target)
    digests = list(
        in_order(lambda shard: store.write_shard(target, shard, noisy.read(*target.bounds(shard))), range(target.shards))
    )
    return store.finish(target, digests, facts)
