"""Sums of many stored arrays in a tree: what a task reads does not grow with the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dpdist.engine import Engine
from dpdist.storage.array_store import Array, Store

FAN_IN = 8
"""Arrays that one task adds: a tree writes a seventh more than is read once."""


def reduce_groups(store: Store, engine: Engine, groups: Sequence[Sequence[str]]) -> list[list[str]]:
    """For every group of stored arrays of one shape the names of at most ``FAN_IN`` arrays with the same sum, in the store.

    Sums that a run before this one left under the same names are used as they are.
    """
    remaining_groups = [list(group) for group in groups]
    while max(map(len, remaining_groups), default=0) > FAN_IN:
        divided = [
            [(group[i : i + FAN_IN], f"{group[i]}-sum") for i in range(0, len(group), FAN_IN)] for group in remaining_groups
        ]
        engine.map(partial(_add, store), [task for tasks in divided for task in tasks])
        remaining_groups = [[name for _, name in tasks] for tasks in divided]
    return remaining_groups


def _add(store: Store, task: tuple[list[str], str]) -> None:
    """Write the sum of some arrays; one of them and a block of another are held at a time."""
    (first_name, *other_names), name = task
    if store.exists(name):
        return
    total = store.read_array(store.open(first_name))
    total = total.astype(np.int64 if total.dtype.kind in "iu" else np.float64, copy=False)
    for other_name in other_names:
        for start, block in store.blocks(store.open(other_name)):
            total[start : start + block.shape[0]] += block.astype(total.dtype, copy=False)
    store.put(name, narrow(total))


def narrow(values: Array) -> Array:
    """Counts in the smallest type that holds them, at most int64: partial counts are small. Other numbers as they are."""
    if values.dtype.kind not in "iu":
        return values
    dtype = np.min_scalar_type(int(values.max(initial=0)))
    smallest = int(values.min(initial=0))
    if smallest < 0:
        dtype = np.promote_types(dtype, np.min_scalar_type(smallest))
    return values.astype(np.int64 if dtype.itemsize == 8 else dtype)
