"""A folder and an object store hold the same arrays and documents, under the same digests, and refuse the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import StoreError
from dpdist.size_limits import Sizes
from dpdist.storage.array_store import Store, StoredArray

ROWS = np.arange(24, dtype=np.int64).reshape(12, 2)
SIZES = Sizes(shard_bytes=8 * 6)


def in_shards(store: Store) -> StoredArray:
    plan = store.plan("whole", ROWS.shape, ROWS.dtype)
    store.begin(plan)
    digests = [store.write_shard(plan, shard, ROWS[slice(*plan.bounds(shard))]) for shard in range(plan.shards)]
    return store.finish(plan, digests, {"fact": [1, 2.5, "x"]})


def half(store: Store) -> None:
    plan = store.plan("half", ROWS.shape, ROWS.dtype)
    store.begin(plan)
    store.write_shard(plan, 0, ROWS[slice(*plan.bounds(0))])


SCRIPT: list[Callable[[Store], Any]] = [
    in_shards,
    lambda store: store.open("whole").facts,
    lambda store: store.read_array(store.open("whole")),
    lambda store: store.read_rows(store.open("whole"), 2, 9),
    lambda store: store.read_shard(store.open("whole"), 1),
    lambda store: [block for _, block in store.blocks(store.open("whole"))],
    half,
    lambda store: store.exists("half"),
    lambda store: store.open("half"),
    lambda store: store.put("real", np.linspace(0.0, 1.0, 5)),
    lambda store: store.put("real", np.linspace(0.0, 2.0, 5)),
    lambda store: store.put_if_absent("real", np.linspace(0.0, 3.0, 5)),
    lambda store: store.put("folder/under/it", np.zeros((2, 0))),
    lambda store: store.put("folder/one", np.array([True, False])),
    lambda store: store.put_block("a block", ROWS),
    lambda store: store.get_block("a block", ROWS.shape, ROWS.dtype, store.put_block("a block", ROWS)),
    lambda store: store.get_block("a block", ROWS.shape, ROWS.dtype, "0" * 64),
    lambda store: store.write_shard(store.plan("whole", ROWS.shape, ROWS.dtype), 99, ROWS),
    lambda store: store.write_document("told.json", {"one": [1, None]}),
    lambda store: store.read_document("told.json"),
    lambda store: store.read_document("untold.json"),
    lambda store: store.check(store.open("whole")),
    lambda store: sorted(store.folders("folder")),
    lambda store: store.delete("folder/one"),
    lambda store: sorted(store.folders("folder")),
    lambda store: store.exists("folder/one"),
    lambda store: store.open("folder/one"),
    lambda store: store.read_array(store.open("real")),
]


def lived(store: Store) -> list[Any]:
    """What every step returned, or how it was refused."""
    out = []
    for step in SCRIPT:
        try:
            found: Any = step(store)
        except StoreError as error:
            found = f"refused: {error}".replace(store.location, "STORE")
        out.append((replace(found.plan, attempt=""), found.digest, found.facts) if isinstance(found, StoredArray) else found)
    return out


def test_a_folder_and_an_object_store_hold_the_same(tmp_path: Path, s3: str) -> None:
    one, other = lived(Store(tmp_path / "store", SIZES)), lived(Store(f"{s3}/{tmp_path.name}", SIZES))
    for step, (found, expected) in enumerate(zip(one, other, strict=True)):
        np.testing.assert_equal(found, expected, err_msg=f"step {step}")
    refused = [found for found in one if isinstance(found, str) and found.startswith("refused")]
    assert len(refused) == 6
    with pytest.raises(StoreError):
        Store(tmp_path / "store", SIZES).open("nothing")
