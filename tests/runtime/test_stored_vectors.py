"""Vectors that are kept under a name: whoever has one can rest on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dpdist import engine
from dpdist.arrays.array_workspace import Workspace
from dpdist.arrays.lazy_vector import ArrayVector, LazyVector, Vector, to_array
from dpdist.operators import Matrix
from dpdist.runtime.stored_vectors import KeepingWorkspace, StoreWorkspace
from dpdist.storage.array_store import Store

HELD = ArrayVector(np.arange(6.0))


def multiply(factor: float, start: int, count: int, values: Matrix) -> Matrix:
    return factor * values


VECTORS: dict[str, tuple[Vector, Vector]] = {
    "held": (HELD, ArrayVector(np.zeros(6))),
    "computed": (
        LazyVector(6, (HELD,), partial(multiply, 2.0), 16, "doubled"),
        LazyVector(6, (HELD,), partial(multiply, 3.0), 16, "tripled"),
    ),
}
"""A vector, and another one that comes too late."""
WORKSPACES: dict[str, Callable[[Store], Workspace]] = {
    "stored": lambda store: StoreWorkspace(store, engine.inline()),
    "kept": KeepingWorkspace,
}


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("name", WORKSPACES)
def test_a_vector_survives_a_power_loss_before_anybody_has_it(
    name: str, vector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that another process wrote, of which nobody knows whether the disk has it."""
    work, synced, sync = WORKSPACES[name](Store(tmp_path)), list[str](), Store.sync

    def record(store: Store, array: str) -> None:
        sync(store, array)
        synced.append(array)

    monkeypatch.setattr(Store, "sync", record)
    assert work.find_vector("there") is None
    first, late = VECTORS[vector]
    for use in (
        lambda: work.write(first, "there", {"errors": [1.0]}),
        lambda: work.write(late, "there"),
        lambda: (work.find_vector("there") or [])[0],
    ):
        synced.clear()
        np.testing.assert_array_equal(to_array(use()), to_array(first))
        assert synced[-1:] == ["there"]
    found = work.find_vector("there")
    assert found is not None
    assert found[1] == {"errors": [1.0]}
