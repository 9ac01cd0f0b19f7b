"""Rows that are dealt out come back by part, in their order, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpdist.engine.result_encoding import encode
from dpdist.engine.shuffle import DealtObject, RunKey, ShuffleIndex, deal, gather
from dpdist.errors import StoreError
from dpdist.storage.array_store import Store

ROWS = np.dtype([("part", "<i8"), ("number", "<u4")])


def dealt_out(store: Store, key: RunKey, parts: int, sizes: list[int]) -> tuple[list[DealtObject], np.ndarray]:
    """Objects of so many rows each, and all rows in their order."""
    rows = np.empty(sum(sizes), dtype=ROWS)
    rows["part"], rows["number"] = (
        np.random.default_rng(sum(sizes)).integers(0, parts, rows.size) ** 2 % parts,
        np.arange(rows.size),
    )
    some = np.split(rows, np.cumsum(sizes)[:-1])
    return [deal(store, "scratch/x", key, parts, each["part"], each) for each in some], rows


@settings(max_examples=20, deadline=None)
@given(parts=st.integers(1, 40), sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5))
def test_every_part_gets_its_rows_in_order(tmp_path_factory: pytest.TempPathFactory, parts: int, sizes: list[int]) -> None:
    store, key = Store(tmp_path_factory.mktemp("store")), RunKey.generate()
    dealt, rows = dealt_out(store, key, parts, sizes)
    opened = gather(store, "scratch/x", key, parts, dealt).open_parts(store, key)
    for part in range(parts):
        found = np.concatenate([np.zeros(0, dtype=ROWS), *opened.rows_of_part(part)])
        np.testing.assert_array_equal(found, rows[rows["part"] == part])


def everything(gathered: ShuffleIndex, store: Store, key: RunKey) -> list[np.ndarray]:
    opened = gathered.open_parts(store, key)
    return [rows for part in range(gathered.part_count) for rows in opened.rows_of_part(part)]


def test_nothing_altered_or_of_another_run_is_read(tmp_path: Path) -> None:
    store, key = Store(tmp_path / "store"), RunKey.generate()
    dealt, _ = dealt_out(store, key, 3, [50, 50])
    gathered = gather(store, "scratch/x", key, 3, dealt)
    with pytest.raises(StoreError, match="was truncated or altered"):
        gathered.open_parts(store, RunKey.generate())
    for name in (dealt[1].name, gathered.name):
        path = tmp_path / "store" / name
        data = path.read_bytes()
        for place in (0, len(data) // 2, len(data) - 1):
            altered = bytearray(data)
            altered[place] ^= 4
            for other in (bytes(altered), data[:place]):
                path.write_bytes(other)
                with pytest.raises(StoreError, match="altered|could not be read"):
                    everything(gathered, store, key)
        path.write_bytes(data)
    first, second = (tmp_path / "store" / each.name for each in dealt)
    second.write_bytes(first.read_bytes())  # an object in place of another one of the same run
    with pytest.raises(StoreError, match="altered|could not be read"):
        everything(gathered, store, key)


def test_a_task_that_runs_twice_seals_nothing_twice(tmp_path: Path) -> None:
    """The same rows under the same key and number would tell that they are the same, and others what they differ in."""
    store, key = Store(tmp_path / "store"), RunKey.generate()
    (one,), _ = dealt_out(store, key, 3, [50])
    (two,), _ = dealt_out(store, key, 3, [50])
    assert one.name != two.name
    assert one.seed != two.seed
    assert (tmp_path / "store" / one.name).read_bytes() != (tmp_path / "store" / two.name).read_bytes()


def test_what_a_task_returns_tells_no_number_of_rows(tmp_path: Path) -> None:
    """It goes through the store as a document and arrays."""
    store, key = Store(tmp_path), RunKey.generate()
    rows = np.zeros(48_611, dtype=[("cell", "<i8")])
    part_numbers = np.repeat([0, 1], [19_457, 29_154])
    dealt, again = (deal(store, "work", key, 2, part_numbers, rows) for _ in range(2))
    returned = encode(dealt)
    for number in (19_457, 29_154, 48_611):
        assert all(int(number).to_bytes(width, "little") not in returned for width in (4, 8))
        assert str(number).encode() not in returned
    assert dealt.sealed_ends != again.sealed_ends
    assert [each.sum() for each in dealt.index_lines(key)] == [1, 48_611, 8 * 19_457 + 16]
    altered = dealt._replace(sealed_ends=again.sealed_ends)
    for other, its_key in ((altered, key), (dealt, RunKey.generate())):
        with pytest.raises(StoreError, match="truncated or altered"):
            gather(store, "work", its_key, 2, [other])
