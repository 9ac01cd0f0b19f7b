from __future__ import annotations

import gzip
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpdist import engine
from dpdist.counting import histogram_counting, record_cells
from dpdist.errors import InvalidInput
from dpdist.privacy.keys import Secret
from dpdist.privacy.ledger.budget_ledger import open_ledger
from dpdist.sources import verified_files
from dpdist.sources.formats.record_format import Partition
from dpdist.sources.record_sources import source_of
from dpdist.sources.verified_files import BLOCK_BYTES, HashedFile, hash_with_tags
from dpdist.storage.array_store import Store
from tests.counting.test_histogram_counting import DOMAIN, truth
from tests.support import small_release

ROOT = Secret(bytes(range(32)))


def test_any_part_of_a_file_comes_back(tmp_path: Path) -> None:
    path, state = tmp_path / "x", np.random.default_rng(0)
    for size in (0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 17):
        data = state.bytes(size)
        path.write_bytes(data)
        file, plain = HashedFile(str(path), hash_with_tags(path)[1]), io.BytesIO(data)
        for _ in range(30):
            start, length = int(state.integers(0, size + 2)), int(state.integers(0, size + 2))
            assert file.seek(start) == plain.seek(start)
            assert file.read(length) == plain.read(length)
        file.seek(-size // 2, os.SEEK_END)
        plain.seek(-size // 2, os.SEEK_END)
        assert file.read() == plain.read()


def test_no_altered_bit_is_ever_read(tmp_path: Path) -> None:
    path, state = tmp_path / "x", np.random.default_rng(1)
    data = state.bytes(2 * BLOCK_BYTES + 5)
    path.write_bytes(data)
    _, tags = hash_with_tags(path)
    for place in (0, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES, len(data) - 1):
        altered = bytearray(data)
        altered[place] ^= 1 << int(state.integers(8))
        path.write_bytes(altered)
        with HashedFile(str(path), tags) as file:
            file.seek(place)
            with pytest.raises(InvalidInput, match="the file of records was changed or replaced"):
                file.read(1)
    swapped = data[BLOCK_BYTES : 2 * BLOCK_BYTES] + data[:BLOCK_BYTES] + data[2 * BLOCK_BYTES :]
    for other in (swapped, data[:-1], b"", data + b"x"):
        path.write_bytes(other)
        with HashedFile(str(path), tags) as file, pytest.raises(InvalidInput, match="was changed or replaced"):
            file.read()


def written(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=500)
    else:
        plain = io.BytesIO()
        pyarrow.csv.write_csv(table, plain)
        path.write_bytes(gzip.compress(plain.getvalue()) if path.suffix == ".gz" else plain.getvalue())


def replaced_whole(path: Path, other: Path) -> None:
    other.replace(path)


def rewritten_in_place(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def removed(path: Path, other: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("form", ["x.parquet", "x.csv", "x.csv.gz"])
@pytest.mark.parametrize("change", [replaced_whole, rewritten_in_place, removed])
@pytest.mark.parametrize("person", [None, "person"])
def test_records_replaced_after_they_were_hashed_are_not_counted(
    tmp_path: Path, form: str, change: Callable[[Path, Path], None], person: str | None
) -> None:
    """Nothing is kept under the name of the first content, which is then counted as it is."""
    path, other, saved = tmp_path / form, tmp_path / "other", tmp_path / "saved"
    table = small_release.records()
    written(table, path)
    shutil.copy(path, saved)
    source = source_of(path, columns={}, **small_release.whose(person, most_records=9))
    written(table[:300], tmp_path / f"small-{form}")
    (tmp_path / f"small-{form}").rename(other)
    change(path, other)
    store = Store(tmp_path / "store")
    with pytest.raises(InvalidInput, match="was changed or replaced since this run hashed it; the run charged nothing"):
        histogram_counting.count(source, DOMAIN, store, engine.inline(), root=ROOT)
    assert not store.folders("histograms")
    saved.replace(path)
    stored, _ = histogram_counting.count(source, DOMAIN, store, engine.inline(), root=ROOT)
    np.testing.assert_array_equal(store.read_array(stored), truth(table))


def test_a_file_of_one_block_is_counted_as_one_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read at once, others piece by piece."""
    table = small_release.records()
    pyarrow.parquet.write_table(table, tmp_path / "records.parquet", row_group_size=100)
    for block_bytes in (2**20, 64):
        store = Store(tmp_path / str(block_bytes))
        monkeypatch.setattr(verified_files, "BLOCK_BYTES", block_bytes)
        source = source_of(tmp_path / "records.parquet", columns={})
        assert (source.tags[0].size <= block_bytes) == (block_bytes == 2**20)
        stored, _ = histogram_counting.count(source, DOMAIN, store, engine.inline(), root=ROOT)
        np.testing.assert_array_equal(store.read_array(stored), truth(table))


@pytest.mark.parametrize(("block_bytes", "group"), [(2**20, None), (4096, 1)])
def test_a_release_of_replaced_records_charges_nothing(
    block_bytes: int, group: int | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file changes between two tasks of the count, or before its only one, and comes back before anybody could look again."""
    monkeypatch.setattr(verified_files, "BLOCK_BYTES", block_bytes)
    path = small_release.write(home.parent / "data")
    data = home.parent / "data" / "records.parquet"
    original, table = data.read_bytes(), small_release.records()
    pyarrow.parquet.write_table(table.slice(0, 300), home.parent / "few.parquet")
    reading = record_cells.tables_of

    def swapped(source: object, domain: object, partition: Partition) -> object:
        data.write_bytes((home.parent / "few.parquet").read_bytes() if partition.group == group else original)
        try:
            return iter(list(reading(source, domain, partition)))
        finally:
            data.write_bytes(original)

    monkeypatch.setattr("dpdist.counting.record_cells.tables_of", swapped)
    with pytest.raises(InvalidInput, match="was changed or replaced"):
        small_release.run(path, home)
    with open_ledger(home) as ledger:
        assert not ledger.budgets()
    monkeypatch.setattr("dpdist.counting.record_cells.tables_of", reading)
    assert small_release.run(path, home).tally.read == table.num_rows


def test_tags_show_no_key(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"records")
    _, tags = hash_with_tags(path)
    assert tags.key.hex() not in repr(tags)
    assert repr(tags.key) not in repr(tags)
    assert hash_with_tags(path)[1].tags != tags.tags
    assert len(tags.tags) == verified_files.TAG_BYTES
