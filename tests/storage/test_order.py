"""The order in which files are synced, named and removed: whatever a run did before it ended, nothing stands for what is not there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpdist.errors import StoreError
from dpdist.storage import leases
from dpdist.storage.array_store import Store
from tests.support.file_effects import end_early, record_effects

VALUES = np.arange(1, 13)


def begin_array(store: Store, name: str) -> Callable[[], object]:
    """Begin an array of three shards and write them; gives what declares it whole."""
    plan = store.plan(name, VALUES.shape, VALUES.dtype, shard_rows=4)
    store.begin(plan)
    digests = [store.write_shard(plan, shard, VALUES[slice(*plan.bounds(shard))]) for shard in range(plan.shards)]
    return lambda: store.finish(plan, digests)


def check_whole_or_not_there(store: Store, name: str) -> None:
    if store.exists(name):
        stored = store.open(name)
        store.check(stored)
        np.testing.assert_array_equal(store.read_array(stored), VALUES)


def test_a_run_that_is_taken_for_dead_never_declares_an_array_of_which_something_is_gone(tmp_path: Path) -> None:
    """However far the other run came with clearing it away: the lease is what it gives up first."""
    store, names = Store(tmp_path / "store"), itertools.count()
    finish: list[Callable[[], object]] = []

    def prepare() -> Callable[[], object]:
        run = Store(store.location)
        finish[:] = [begin_array(run, f"measurements/{next(names)}"), run.close]
        return lambda: leases.clear(store, run.lease)

    for most in end_early(tmp_path, prepare):
        declare, close = finish
        if most == 0:
            declare()
        else:
            with pytest.raises(StoreError):
                declare()
        for name in store.folders("measurements"):
            check_whole_or_not_there(store, f"measurements/{name}")
        close()


def test_an_array_that_is_half_removed_is_not_there(tmp_path: Path) -> None:
    store, names = Store(tmp_path / "store"), itertools.count()

    def prepare() -> Callable[[], object]:
        name = f"arrays/{next(names)}"
        begin_array(store, name)()
        return lambda: store.delete(name)

    for _ in end_early(tmp_path, prepare):
        for name in store.folders("arrays"):
            check_whole_or_not_there(store, f"arrays/{name}")


def test_an_array_that_is_half_written_is_not_there(tmp_path: Path) -> None:
    store, names = Store(tmp_path / "store"), itertools.count()
    for _ in end_early(tmp_path, lambda: lambda: begin_array(store, f"arrays/{next(names)}")()):
        for name in store.folders("arrays"):
            check_whole_or_not_there(store, f"arrays/{name}")


def test_a_record_is_named_after_all_that_it_stands_for_is_on_the_disk(tmp_path: Path) -> None:
    """Every block, every folder that holds one, and every folder on the way: a name in a folder that was not synced can be lost."""
    store = Store(tmp_path / "deep" / "store")
    finish = begin_array(store, "measurements/a/b")
    with record_effects(tmp_path) as found:
        finish()
    (named,) = [place for place, (done, path) in enumerate(found.done) if done == "named" and path.endswith("manifest.json")]
    synced = {path for done, path in found.done[:named] if done == "synced"}
    array = tmp_path / "deep/store/measurements/a/b"
    below = [path for path in array.rglob("*") if path.name != "manifest.json"]
    assert len([path for path in below if path.is_file()]) > 3
    for path in (*below, array, *array.parents):
        assert str(path) in {str((tmp_path / each).resolve()) for each in synced}, path
