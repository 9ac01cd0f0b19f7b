from __future__ import annotations

import errno
import hashlib
import pickle
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zarr
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from dpdist.errors import StoreError
from dpdist.storage.array_store import LEAST_CODED, ArrayPlan, Store, decoded, encoded
from dpdist.storage.objects import parse_location
from tests.case_selection import always


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return Store(tmp_path / "store")
    return Store(f"{request.getfixturevalue('s3')}/{tmp_path.name}")


def folder_only(store: Store) -> None:
    if "://" in store.location:
        pytest.skip("damages files on disk")


@pytest.mark.parametrize("shard_rows", always([1, 8, 1000], [1, 7, 8, 20, 1000]))
def test_arrays_come_back(store: Store, shard_rows: int) -> None:
    array = np.arange(90, dtype=np.int64).reshape(30, 3)
    plan = store.plan("a/b", array.shape, array.dtype, shard_rows=shard_rows)
    store.begin(plan)
    digests = [store.write_shard(plan, i, array[slice(*plan.bounds(i))]) for i in range(plan.shards)]
    assert not store.exists("a/b")
    stored = store.finish(plan, digests, {"fact": 1})
    np.testing.assert_array_equal(store.read_array(stored), array)
    again = pickle.loads(pickle.dumps(store)).open("a/b")
    assert again == stored
    assert again.facts == {"fact": 1}


def test_a_sent_handle_touches_nothing_before_it_is_used(tmp_path: Path) -> None:
    """Dask's scheduler unpickles what it passes on, and sees no folder of a store."""
    store = Store(tmp_path / "store")
    sent = pickle.dumps(store)
    (tmp_path / "store").rmdir()
    again = pickle.loads(sent)
    assert not (tmp_path / "store").exists()
    assert again.location == store.location
    again.put("a", np.arange(3.0))
    assert again.exists("a")


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple),
    st.integers(1, 8),
)
def test_shards_are_all_rows_each_once(shape: tuple[int, ...], shard_rows: int) -> None:
    """Rows are those of the first axis, whatever the others hold."""
    plan = ArrayPlan("a", shape, "<i8", shard_rows, "w")
    parts = [range(*plan.bounds(shard)) for shard in range(plan.shards)]
    assert [row for part in parts for row in part] == list(range(shape[0]))
    assert all(len(part) == shard_rows for part in parts[:-1])
    assert all(parts)  # none is empty


def test_a_copy_holds_every_file_where_it_was(tmp_path: Path, s3: str) -> None:
    """Those in folders too, and whole where they come in many parts; nothing beside the URL is copied."""
    base, state = tmp_path.name, np.random.default_rng(0)
    files = {"a.json": b"{}", "tables/b.csv": b"1,2", "tables/deep/er/c.bin": state.bytes(3 * 2**20), "tables/empty": b""}
    for folder, held in ((base, files), (f"{base}-2", {"d": b"d"})):
        for name, content in held.items():
            parse_location(f"{s3}/{folder}").write(name, content)
    with parse_location(f"{s3}/{base}").local_copy() as copy:
        copied = {str(path.relative_to(copy)): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert copied == files
    with pytest.raises(StoreError, match="there is nothing at"), parse_location(f"{s3}/{base}-3").local_copy():
        pass


def test_digest_is_of_content(store: Store) -> None:
    a, b = store.put("a", np.arange(5)), store.put("b", np.arange(5))
    assert a.digest == b.digest
    assert store.put("c", np.arange(1, 6)).digest != a.digest
    assert store.put("d", np.arange(5).astype(np.float64)).digest != a.digest


def test_half_written_is_never_whole(store: Store) -> None:
    plan = store.plan("a", (10,), np.int64, shard_rows=5)
    store.begin(plan)
    store.write_shard(plan, 0, np.arange(5))
    with pytest.raises(StoreError, match="incomplete"):
        store.open("a")
    with pytest.raises(StoreError, match="2 shards, digests of 1"):
        store.finish(plan, ["x"])
    assert store.put("a", np.arange(10)).plan.shards == 1


def test_arrays_are_written_once(store: Store) -> None:
    first = store.put("a", np.arange(10))
    assert store.put("a", np.arange(10)) == first
    with pytest.raises(StoreError, match="written once"):
        store.put("a", np.arange(1, 11))


def test_the_first_of_equals_is_kept(store: Store) -> None:
    first = store.put_if_absent("a", np.arange(3))
    assert store.put_if_absent("a", np.arange(4)) == first


def test_a_writer_owns_whole_shards(store: Store) -> None:
    plan = store.plan("a", (10,), np.int64, shard_rows=5)
    store.begin(plan)
    for shard, block in ((0, np.arange(4)), (0, np.arange(5.0)), (2, np.arange(5)), (1, np.arange(6))):
        with pytest.raises(StoreError, match="owns whole shards"):
            store.write_shard(plan, shard, block)


def test_racing_writers_leave_one_whole_array(store: Store) -> None:
    array = np.arange(50_000)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: store.put("raced", array), range(16)))
    assert len({r.digest for r in results}) == 1
    np.testing.assert_array_equal(store.read_array(store.open("raced")), array)
    plans = [store.plan("other", (4,), np.int64) for _ in range(2)]
    for plan in plans:
        store.begin(plan)
    for plan, offset in zip(plans, (0, 1), strict=True):
        digest = store.write_shard(plan, 0, np.arange(offset, offset + 4))
        if offset == 0:
            store.finish(plan, [digest])
        else:
            with pytest.raises(StoreError, match="other content"):
                store.finish(plan, [digest])
    assert store.folders("other") == [plans[0].attempt]  # what the other one wrote is gone
    assert store.finish(plans[0], [store.open("other").shard_digests[0]]) == store.open("other")
    assert store.read_array(store.open("other")).tolist() == [0, 1, 2, 3]


def shard_files(store: Store, plan: ArrayPlan) -> list[Path]:
    return sorted(
        p for p in Path(store.location, plan.name, plan.attempt).rglob("*") if p.is_file() and p.name != "zarr.json"
    )


@pytest.mark.parametrize("damage", ["truncate", "alter", "remove"])
def test_damaged_blocks_are_found(store: Store, damage: str) -> None:
    folder_only(store)
    stored = store.put("a", np.random.default_rng(0).integers(0, 10**9, 5000))
    file = shard_files(store, stored.plan)[0]
    content = bytearray(file.read_bytes())
    if damage == "truncate":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "alter":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    else:
        file.unlink()
    with pytest.raises(StoreError, match="shard 0"):
        store.read_array(store.open("a"))


SHAPES, KINDS = ((11,), (9, 3), (9, 2, 2)), ("<i8", "<f8", "<c16", "|i1", "|b1")
READ = [*product(["folder"], SHAPES, KINDS), ("s3", (11,), "|b1"), ("s3", (9, 2, 2), "<f8")]
"""Frames are the same bytes wherever they lie: objects are written, missed and read in one and in three dimensions."""


@pytest.mark.parametrize(
    ("store", "shape", "kind"),
    always(list(READ)[::2], READ),
    indirect=["store"],
)
def test_what_is_read_is_what_zarr_reads(store: Store, shape: tuple[int, ...], kind: str) -> None:
    """Objects are written and read without Zarr: compressed and plain, with blocks of zeros, in whatever order values lie in memory."""
    array = np.resize([0, 1, 1, 0, 1], shape).astype(kind)
    array[:4] = 0
    for compressed, lies in product((True, False), (np.ascontiguousarray, np.asfortranarray, strided_copy)):
        array = lies(array)
        plan = replace(store.plan(f"a/{compressed}/{lies.__name__}", shape, kind, shard_rows=4), compressed=compressed)
        store.begin(plan)
        stored = store.finish(plan, [store.write_shard(plan, i, array[slice(*plan.bounds(i))]) for i in range(plan.shards)])
        np.testing.assert_array_equal(zarr.open_array(store.storage.zarr(f"{plan.name}/{plan.attempt}"), mode="r")[:], array)
        np.testing.assert_array_equal(store.read_array(stored), array)
        assert store.read_array(stored).dtype.str == kind
        ours = {name: bytes(store.storage.read_bytes(name)) for name in chunks(store, plan)}
        store.storage.delete(list(ours))
        zarr.open_array(store.storage.zarr(f"{plan.name}/{plan.attempt}"), mode="r+")[:] = array
        assert ours == {name: bytes(store.storage.read_bytes(name)) for name in chunks(store, plan)}


def test_small_objects_are_plain_and_large_ones_compressed(store: Store) -> None:
    """By the bytes of a whole shard, just within and just beyond the limit; whoever asks for plain ones gets them."""
    for rows, compressed, plain in (
        (LEAST_CODED // 8, True, False),
        (LEAST_CODED // 8 - 1, True, True),
        (4096, False, True),
    ):
        plan = store.plan(f"a/{rows}/{compressed}", (2 * rows,), "<i8", shard_rows=rows, compressed=compressed)
        store.begin(plan)
        array = np.arange(2 * rows) + 1
        stored = store.finish(plan, [store.write_shard(plan, i, array[slice(*plan.bounds(i))]) for i in range(2)])
        assert {len(store.storage.read_bytes(name)) == 8 * rows for name in chunks(store, plan)} == {plain}
        np.testing.assert_array_equal(store.read_array(stored), array)


def test_zeros_take_the_place_of_what_was_written(store: Store) -> None:
    """A shard of zeros is no object: one that an attempt wrote before goes."""
    plan = store.plan("a", (8,), "<i8", shard_rows=4)
    store.begin(plan)
    for value in (0, 7, 0):
        digests = [store.write_shard(plan, i, np.full(4, value)) for i in range(2)]
    assert store.read_array(store.finish(plan, digests)).tolist() == [0] * 8


def strided_copy(array: np.ndarray) -> np.ndarray:
    """The same values, with others between them in memory."""
    return np.repeat(array, 2, axis=-1)[..., ::2]


def chunks(store: Store, plan: ArrayPlan) -> list[str]:
    """The names of the objects that hold an array's values."""
    return [name for name in store.names(f"{plan.name}/{plan.attempt}") if not name.endswith("zarr.json")]


def test_a_frame_that_was_cut_or_is_of_other_values_is_not_decoded() -> None:
    """The codec reads beyond the end of a frame that was cut; what lies there may be the missing bytes."""
    values = np.random.default_rng(0).integers(0, 2**62, 100)
    plan = ArrayPlan("a", (100,), "<i8", 100, "w")
    frame = encoded(plan, values)
    assert decoded(plan, frame).tolist() == values.tolist()
    for wrong, size in ((frame[:-1], 100), (frame[:20], 100), (b"", 100), (frame + b"x", 100), (frame, 99), (frame, 101)):
        with pytest.raises(ValueError, match="not the frame"):
            decoded(replace(plan, shape=(size,), shard_rows=size), wrong)


def test_altered_records_are_found(store: Store) -> None:
    folder_only(store)
    store.put("a", np.arange(5))
    path = Path(store.location, "a", "manifest.json")
    path.write_text(path.read_text().replace('"shard_rows": 5', '"shard_rows": 4'))
    with pytest.raises(StoreError, match="altered"):
        store.open("a")
    path.write_text("{")
    with pytest.raises(StoreError, match="not readable"):
        store.open("a")


@pytest.mark.parametrize("hashed", ["sha256", "blake3"])
def test_digests_are_of_the_function_that_the_record_names(store: Store, hashed: str) -> None:
    """Of values in their order, whatever function; a record that names none of them is refused."""
    array = np.arange(12).reshape(6, 2)
    plan = store.plan("a", array.shape, array.dtype, hashed=hashed)
    store.begin(plan)
    stored = store.finish(plan, [store.write_shard(plan, 0, np.asfortranarray(array))])
    assert stored.shard_digests == ({"sha256": hashlib.sha256, "blake3": blake3}[hashed](array.tobytes()).hexdigest(),)
    assert store.put("a", array) == store.open("a")
    store.write_shard(plan, 0, array + 1)
    with pytest.raises(StoreError, match="truncated or altered"):
        store.read_array(store.open("a"))
    store.write_document("a/manifest.json", {**store.read_document("a/manifest.json"), "hashed": "md5"})
    with pytest.raises(StoreError, match="its record was altered"):
        store.open("a")


def test_delete(store: Store) -> None:
    store.put("a1", np.arange(3))
    store.put("a", np.arange(3))
    store.delete("a")
    assert not store.exists("a")
    assert store.exists("a1")


def test_a_failed_write_is_told_as_what_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "obstore.put" if "://" in store.location else "os.replace",
        lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")),
    )
    with pytest.raises(StoreError, match="No space left on device"):
        store.put_if_absent("a", np.arange(3))


def test_facts_are_part_of_the_digest(store: Store) -> None:
    first = store.put("a", np.arange(5), {"scale": 3})
    other = store.put("b", np.arange(5), {"scale": 4})
    assert first.content_digest == other.content_digest
    assert first.digest != other.digest
    assert store.open("a").digest == first.digest


def test_any_altered_bit_of_a_record_is_found(store: Store) -> None:
    """A bit of every byte of a record, in turn: it is a StoreError or the very array (white space says nothing)."""
    folder_only(store)
    stored = store.put("a", np.arange(5), {"scale": 3})
    path = Path(store.location, "a", "manifest.json")
    whole = path.read_bytes()
    found = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert store.open("a") == stored
        except StoreError:
            found += 1
    assert found > 0.8 * len(whole)
    for content in (b"", b"[]", b"{}", b"null", b"[" * 100_000, whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(StoreError):
            store.open("a")


@pytest.fixture
def vfat(tmp_path: Path) -> Iterator[Path]:
    """A file system without hard links."""
    image, folder = tmp_path / "image", tmp_path / "vfat"
    folder.mkdir()
    image.write_bytes(bytes(8 * 2**20))
    made = subprocess.run(["mkfs.vfat", str(image)], capture_output=True, check=False) if shutil.which("mkfs.vfat") else None
    if (
        made is None
        or subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True, check=False).returncode
    ):
        pytest.skip("needs mkfs.vfat and the right to mount")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def raced_documents(folder: Path) -> list[bool]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda i: Store(folder).create_document("only", {"by": i}), range(32)))


def test_one_of_many_writers_is_the_first_on_a_file_system_without_hard_links(vfat: Path) -> None:
    assert sum(raced_documents(vfat)) == 1
    stored = Store(vfat).put("a", np.arange(9))
    np.testing.assert_array_equal(Store(vfat).read_array(stored), np.arange(9))


def test_one_of_many_writers_is_the_first_where_links_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    assert sum(raced_documents(tmp_path)) == 1
    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(StoreError, match="neither hard links nor locks"):
        Store(tmp_path).create_document("another", {})


def test_a_document_in_the_place_of_another_is_altered(store: Store) -> None:
    """Each is whole and sealed: swapped ones were taken as they were, and ended in the name of an exception."""
    store.write_document("one.json", {"first": 1})
    store.write_document("other.json", {"attempt": "x"})
    store.storage.write("one.json", bytes(store.storage.read_bytes("other.json")))
    with pytest.raises(StoreError, match="'one.json' in the store .* was altered"):
        store.read_document("one.json")
    assert store.read_document("other.json") == {"attempt": "x"}
