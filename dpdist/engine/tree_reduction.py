"""Sums of many stored arrays in a tree: what a task reads does not grow with the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dpdist.engine import Engine
from dpdist.storage.array_store import Array, Store

FAN_IN = 8
"""Arrays that one task adds: a tree writes a seventh more than is read once."""


def fewer(store: Store, engine: Engine, groups: Sequence[Sequence[str]]) -> list[list[str]]:
    """For every group of stored arrays of one shape the names of at most ``FAN_IN`` arrays with the same sum, in the store.

    Sums that a run before this one left under the same names are used as they are.
    """
    left = [list(group) for group in groups]
    while max(map(len, left), default=0) > FAN_IN:
        divided = [[(group[i : i + FAN_IN], f"{group[i]}-sum") for i in range(0, len(group), FAN_IN)] for group in left]
        engine.map(partial(_add, store), [task for tasks in divided for task in tasks])
        left = [[name for _, name in tasks] for tasks in divided]
    return left


def _add(store: Store, task: tuple[list[str], str]) -> None:
    """Write the sum of some arrays; one of them and a block of another are held at a time."""
    (first, *others), name = task
    if store.exists(name):
        return
    total = store.read(store.open(first))
    total = total.astype(np.int64 if total.dtype.kind in "iu" else np.float64, copy=False)
    for other in others:
        for start, block in store.blocks(store.open(other)):
            total[start : start + block.shape[0]] += block.astype(total.dtype, copy=False)
    store.put(name, narrow(total))


def narrow(values: Array) -> Array:
    """Counts in the smallest type that holds them, at most int64: partial counts are small. Other numbers as they are."""
    if values.dtype.kind not in "iu":
        return values
    found = np.min_scalar_type(int(values.max(initial=0)))
    least = int(values.min(initial=0))
    if least < 0:
        found = np.promote_types(found, np.min_scalar_type(least))
    return values.astype(np.int64 if found.itemsize == 8 else found)
