"""Sums of stored arrays in a tree against their plain sum."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dpdist.engine import inline
from dpdist.engine.tree_reduction import FAN_IN, narrow, reduce_groups
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import Store


@pytest.mark.parametrize("parts", [1, FAN_IN, FAN_IN + 1, FAN_IN**2 + 3])
def test_trees_sum_as_much_as_their_leaves(tmp_path: Path, parts: int) -> None:
    """Counts of several widths, which a sum may exceed; shards of a few values; a second call finds the first one's sums."""
    store, state = Store(tmp_path, Sizes(shard_bytes=16)), np.random.default_rng(parts)
    leaves = [state.integers(0, 200, 11) * (300 if part % 3 == 0 else 1) for part in range(parts)]
    names = [store.put(f"leaves/{part}", narrow(values)).name for part, values in enumerate(leaves)]
    (left,) = reduce_groups(store, inline(), [names])
    assert len(left) <= FAN_IN
    total = sum((store.read_array(store.open(name)).astype(np.int64) for name in left), np.zeros(11, np.int64))
    np.testing.assert_array_equal(total, np.sum(leaves, axis=0))
    assert reduce_groups(store, inline(), [names]) == [left]
    added = math.ceil(parts / FAN_IN) if parts > FAN_IN else 0
    assert sum(store.exists(f"{names[i]}-sum") for i in range(0, parts, FAN_IN)) == added


def test_groups_are_added_each_by_itself(tmp_path: Path) -> None:
    store = Store(tmp_path)
    groups = [[store.put(f"{group}/{i}", np.full((2, 2), 10.0**group)).name for i in range(20)] for group in range(2)]
    for group, left in enumerate(reduce_groups(store, inline(), groups)):
        assert len(left) == 3
        np.testing.assert_array_equal(
            sum(store.read_array(store.open(name)) for name in left), np.full((2, 2), 20 * 10.0**group)
        )


def test_single_precision_is_added_in_double(tmp_path: Path) -> None:
    """A part is exact to 2^24 in single precision, and their sum is beyond it."""
    store = Store(tmp_path)
    parts = [2**24 - 1, *[2] * (FAN_IN - 1), 0]
    names = [store.put(str(i), np.full(3, part, np.float32)).name for i, part in enumerate(parts)]
    ((first, _),) = reduce_groups(store, inline(), [names])
    assert int(store.read_array(store.open(first))[0]) == sum(parts)


def test_counts_are_narrow_but_never_unsigned_and_wide() -> None:
    """A sum of int64 and uint64 would be a float."""
    kinds = {3: np.uint8, 300: np.uint16, 2**20: np.uint32, 2**40: np.int64}
    assert all(narrow(np.array([0, most])).dtype == kind for most, kind in kinds.items())
    assert narrow(np.array([0.5])).dtype == np.float64
