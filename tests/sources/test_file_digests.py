"""Digests of files are made once, on workers, and never stand for other bytes than those that they were made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import obstore.store
import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml
import zarr
from distributed import LocalCluster

from dpdist import engine
from dpdist.errors import InvalidInput
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.sources import file_digests
from dpdist.sources.file_digests import DigestCache, hashing, read_file_state, verify
from dpdist.sources.formats import record_format
from dpdist.sources.record_sources import hash_in_process, source_of
from dpdist.sources.source_labels import File, SourceLabel, label_of_location
from dpdist.sources.verified_files import BLOCK_BYTES, hash_with_tags
from dpdist.storage.array_store import Store
from dpdist.storage.objects import folder
from tests.support import small_release

ROOT = Secret(bytes(range(32)))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were written a moment ago count as old ones."""
    monkeypatch.setattr(folder, "SETTLED_SECONDS", -1.0)


@pytest.fixture
def memory(tmp_path: Path) -> DigestCache:
    return DigestCache(Store(tmp_path / "store"), ROOT)


def file_at(path: Path) -> File:
    return File(str(path), label_of_location(path))


def recalled(memory: DigestCache, path: Path) -> Any:
    return memory.recall([file_at(path)], [read_file_state(file_at(path))])[0]


def none(*_: object) -> Any:
    raise AssertionError("a file was hashed")


@pytest.mark.usefixtures("settled")
def test_a_file_is_hashed_again_when_anything_says_that_it_was_written(
    tmp_path: Path, memory: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, by = tmp_path / "x.parquet", hashing(memory, engine.inline())
    pyarrow.parquet.write_table(small_release.records(), path)
    first = source_of(path, columns={}, hashing=by)
    assert not any(tags.remembered for tags in first.tags)
    with monkeypatch.context() as amid:
        amid.setattr(record_format, "hash_with_tags", none)
        again = source_of(path, columns={}, hashing=by)
    assert again.files == first.files
    assert [(tags.key, tags.tags) for tags in again.tags] == [(tags.key, tags.tags) for tags in first.tags]
    assert all(tags.remembered for tags in again.tags)
    found, content = path.stat(), bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))  # of the same size and time
    assert source_of(path, columns={}, hashing=by).files[0][1] == hash_with_tags(path)[0] != first.files[0][1]
    path.with_name("other").write_bytes(content)
    path.with_name("other").replace(path)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    monkeypatch.setattr(record_format, "hash_with_tags", none)
    with pytest.raises(AssertionError, match="hashed"):
        source_of(path, columns={}, hashing=by)


def test_a_file_that_was_just_written_is_not_remembered(
    tmp_path: Path, memory: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be written again within the same tick of the clock."""
    path, by = tmp_path / "x.parquet", hashing(memory, engine.inline())
    monkeypatch.setattr(folder, "SETTLED_SECONDS", 3600.0)
    pyarrow.parquet.write_table(small_release.records(), path)
    source_of(path, columns={}, hashing=by)
    assert memory.store.names(file_digests.FOLDER) == []


@pytest.mark.usefixtures("settled")
def test_a_file_that_changes_while_it_is_hashed_is_not_remembered(
    tmp_path: Path, memory: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, by = tmp_path / "x.parquet", hashing(memory, engine.inline())
    pyarrow.parquet.write_table(small_release.records(), path)

    def amid(place: str, called: SourceLabel) -> Any:
        found = hash_with_tags(place, called)
        os.utime(place)
        return found

    monkeypatch.setattr(record_format, "hash_with_tags", amid)
    source_of(path, columns={}, hashing=by)
    assert memory.store.names(file_digests.FOLDER) == []


@pytest.mark.usefixtures("settled")
def test_what_is_remembered_tells_nothing(tmp_path: Path, memory: DigestCache) -> None:
    """No guess of a file, or of its name, can be tested by whoever reads the store; another root key opens nothing."""
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(small_release.records(), path)
    (_, digest), tags = (
        (found := source_of(path, columns={}, hashing=hashing(memory, engine.inline()))).files[0],
        found.tags[0],
    )
    (name,) = memory.store.names(file_digests.FOLDER)
    content = (tmp_path / "store" / name).read_text()
    sealed = memory.store.read_document(name)["sealed"]
    for secret in (digest.encode(), bytes.fromhex(digest), tags.key, tags.tags, str(path).encode(), b"x.parquet"):
        assert secret not in content.encode()
        assert secret not in file_digests.base64.b64decode(sealed)
        assert secret.hex() not in name + content
    assert recalled(memory, path)
    other = DigestCache(memory.store, Secret(bytes(32)))
    (theirs,) = other._names([str(path)])
    assert theirs != name
    memory.store.write_document(theirs, {"sealed": sealed})
    assert recalled(other, path) is None
    path.parent.joinpath("folder").mkdir()
    moved = path.replace(path.parent / "folder" / path.name)
    (mine,) = memory._names([str(moved)])
    memory.store.write_document(mine, {"sealed": sealed})  # what is known of one folder's files, for another's
    assert memory._read_document(name)
    assert memory._read_document(mine) == {}
    assert recalled(memory, moved) is None


@pytest.mark.usefixtures("settled")
def test_many_files_are_remembered_in_few_documents(
    tmp_path: Path, memory: DigestCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is written again is hashed again and the others are not; those of another source stay known while there is room."""
    folder, by, counted = tmp_path / "data", hashing(memory, engine.inline()), list[str]()
    folder.mkdir()
    for number in range(100):
        (folder / f"{number:03}.csv").write_text(f"age\n{number}\n")

    def noted(path: str, called: SourceLabel) -> Any:
        counted.append(Path(path).name)
        return hash_with_tags(path, called)

    monkeypatch.setattr(record_format, "hash_with_tags", noted)
    first = source_of(folder, columns={}, hashing=by)
    assert len(counted) == 100
    assert (
        12 <= len(memory.store.names(file_digests.FOLDER)) <= 16
    )  # by digests of names: less than 12 once in 10 million runs
    (folder / "007.csv").write_text("age\n107\n")
    (folder / "100.csv").write_text("age\n100\n")
    again = source_of(folder, columns={}, hashing=by)
    assert counted[100:] == ["007.csv", "100.csv"]
    assert [each.remembered for each in again.tags] == [i not in (7, 100) for i in range(101)]
    assert {*first.files} - {*again.files} == {first.files[7]}
    source_of(folder / "100.csv", columns={}, hashing=by)
    assert source_of(folder, columns={}, hashing=by).files == again.files
    assert len(counted) == 102
    monkeypatch.setattr(file_digests, "MOST_REMEMBERED", 1)
    (folder / "100.csv").write_text("age\n1000\n")
    source_of(folder / "100.csv", columns={}, hashing=by)
    source_of(folder, columns={}, hashing=by)
    beside = [
        name
        for name, each in zip(again.files, memory._names([path for path, _ in again.files]), strict=True)
        if each == memory._names([str(folder / "100.csv")])[0]
    ]
    assert len(counted) == 103 + len(beside) - 1


@pytest.mark.parametrize(
    "before", [{}, {"quantiles": {"of": {"age": {"from": 0, "to": 11}}, "share": 0.1}}], ids=["", "quantiles"]
)
@pytest.mark.usefixtures("settled")
def test_no_charge_binds_to_bytes_that_changed_unseen(
    before: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that says nothing of a write: the histogram of the old bytes is there, and so is their digest. What a part of the
    budget finds first is not charged either, though it reads no column of the block that changed."""
    notes = pa.array([np.random.default_rng(1).bytes(3 * BLOCK_BYTES // 2).hex()] + [None] * 2999)
    path = small_release.write(home.parent / "data", table=small_release.records().append_column("note", notes))
    data = home.parent / "data" / "records.parquet"
    small_release.run(path, home)
    seen = read_file_state(file_at(data))
    content = data.read_bytes()
    at = len(content) - 2 * BLOCK_BYTES
    data.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    second = home.parent / "data" / "second.yaml"
    second.write_text(yaml.safe_dump(small_release.spec(release="small-2", **before)))
    with monkeypatch.context() as amid:
        amid.setattr(file_digests, "read_file_state", lambda _: seen)
        with pytest.raises(InvalidInput, match="was changed or replaced since this run hashed it; the run charged nothing"):
            small_release.run(second, home)
    with open_ledger(home) as ledger:
        assert [entry["release"] for entry in ledger.entries() if entry["event"] == "reserved"] == ["small-1"]
    assert Store(home / "store").names(file_digests.FOLDER) == []
    data.write_bytes(content)
    assert small_release.run(second, home).charged


@pytest.mark.usefixtures("settled")
def test_a_finished_release_reads_no_records(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_release.write(home.parent / "data")
    small_release.run(path, home)
    monkeypatch.setattr(record_format, "hash_with_tags", none)
    monkeypatch.setattr(file_digests, "_verify_blocks", none)
    assert not small_release.run(path, home).charged


@pytest.mark.usefixtures("settled")
def test_every_block_is_compared(tmp_path: Path, memory: DigestCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_digests, "VERIFIED_BLOCKS", 2)
    path, by = tmp_path / "x.csv", hashing(memory, engine.inline())
    content = b"age\n" + b"1\n" * (5 * BLOCK_BYTES // 4)
    path.write_bytes(content)
    source_of(path, columns={}, hashing=by)
    source = source_of(path, columns={}, hashing=by)
    verify(memory, engine.inline(), source)
    for place in range(0, len(content), BLOCK_BYTES):
        altered = bytearray(content)
        altered[place] ^= 2
        path.write_bytes(altered)
        with pytest.raises(InvalidInput, match="changed"):
            verify(memory, engine.inline(), source)


@pytest.mark.usefixtures("without_tls")
def test_workers_hash_and_the_scheduler_sees_no_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read on workers; what they answer lies sealed in the store."""
    monkeypatch.setattr(file_digests, "hash_in_process", none)
    kept: list[bytes] = []
    put = Store.put_values
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        pyarrow.parquet.write_table(small_release.records(100 + number), folder / f"{number}.parquet")
    zarr.save_array(tmp_path / "counts.zarr", np.arange(6))
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        engine.open_engine(cluster.scheduler_address) as started,
    ):
        started.exchange = Store(tmp_path / "store")

        def noted(self: Store, name: str, block: Any) -> None:
            kept.append(bytes(block))
            put(self, name, block)

        monkeypatch.setattr(Store, "put_values", noted)
        assert started.elsewhere
        by = hashing(DigestCache(Store(tmp_path / "store"), ROOT), started)
        found, array = (source_of(place, columns={}, hashing=by) for place in (folder, tmp_path / "counts.zarr"))
    expected = [(str(path), hash_with_tags(path)[0]) for path in sorted(folder.iterdir())]
    assert list(found.files) == expected
    assert array.tags[0].members
    assert array.files == source_of(tmp_path / "counts.zarr", columns={}, hashing=hash_in_process).files
    assert len(kept) == 4 + 2 * 2  # and of both stages what they do, and what their worker is asked to read
    assert not any(digest.encode() in each or bytes.fromhex(digest) in each for each in kept for _, digest in expected)


def test_objects_are_known_by_their_etag(memory: DigestCache, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, by = obstore.store.from_url(s3), hashing(memory, engine.inline())
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(small_release.records(), sink)
    content = sink.getvalue().to_pybytes()
    obstore.put(place, "records-etag/x.parquet", content)
    url = f"{s3}/records-etag/x.parquet"
    first = source_of(url, columns={}, hashing=by)
    with monkeypatch.context() as amid:
        amid.setattr(record_format, "hash_with_tags", none)
        again = source_of(url, columns={}, hashing=by)
        assert again.files == first.files
    verify(memory, engine.inline(), again)
    obstore.put(place, "records-etag/x.parquet", content + b"x")
    with pytest.raises(InvalidInput, match="changed"):
        verify(memory, engine.inline(), again)
    obstore.put(place, "records-etag/x.parquet", bytes([content[0] ^ 1]) + content[1:])
    assert source_of(url, columns={}, hashing=by).files != first.files
