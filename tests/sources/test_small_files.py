"""Many small files: each is opened once, their records are looked at together, and what is wrong is said of the file that it is in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from dpdist import engine
from dpdist.counting import record_cells
from dpdist.counting.histogram_counting import count
from dpdist.counting.record_cells import CountSummary
from dpdist.errors import InvalidSpec, UnknownValue
from dpdist.sources.record_sources import source_of
from dpdist.sources.verified_files import HashedFile
from dpdist.storage.array_store import Store
from tests.counting.test_histogram_counting import DOMAIN, ROOT, truth
from tests.support import small_release

FILES, EACH = 30, 100


def written(folder: Path) -> pa.Table:
    """Files of one kind after another: plain, with dictionaries of their own, with wider numbers, and CSV."""
    table = small_release.records(FILES * EACH)
    folder.mkdir()
    for number in range(FILES):
        part = table[number * EACH : (number + 1) * EACH].combine_chunks()
        if number % 10 in (4, 5):
            for name in ("sex", "work"):
                part = part.set_column(part.column_names.index(name), name, part[name].dictionary_encode())
        if number % 10 == 6:
            part = part.set_column(part.column_names.index("age"), "age", part["age"].cast(pa.float32()))
        if number % 10 == 7:
            pyarrow.csv.write_csv(part, folder / f"{number:03}.csv")
            continue
        pyarrow.parquet.write_table(part, folder / f"{number:03}.parquet", row_group_size=30)
    return table


def counted(folder: Path, store: Path) -> tuple[np.ndarray, CountSummary]:
    kept = Store(store)
    stored, tally = count(source_of(folder, columns={}), DOMAIN, kept, engine.inline(), root=ROOT)
    return kept.read_array(stored), tally


@pytest.mark.parametrize("batch_rows", [250_000, 250, 1])
def test_they_are_counted_as_one_file_is(batch_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(tmp_path / "data")
    looked_at, cells_of = [], record_cells.cells_of

    def watched(given: pa.Table, *how: object) -> object:
        looked_at.append(len(given))
        return cells_of(given, *how)

    monkeypatch.setattr(record_cells, "BATCH_ROWS", batch_rows)
    monkeypatch.setattr(record_cells, "cells_of", watched)
    counts, tally = counted(tmp_path / "data", tmp_path / "store")
    np.testing.assert_array_equal(counts, truth(table))
    assert tally == CountSummary(read=FILES * EACH)
    assert max(looked_at) <= max(batch_rows, EACH)
    assert (len(looked_at) < FILES) == (batch_rows > EACH)


def test_each_parquet_file_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "data")
    source, opened, begin = source_of(tmp_path / "data", columns={}), [], HashedFile.__init__

    def watched(self: HashedFile, path: str, *how: object) -> None:
        opened.append(path)
        begin(self, path, *how)

    monkeypatch.setattr(HashedFile, "__init__", watched)
    count(source, DOMAIN, Store(tmp_path / "store"), engine.inline(), root=ROOT)
    every = [path for path, _ in source.files if path.endswith(".parquet")]
    parquet = [path for path in opened if path.endswith(".parquet")]
    assert parquet == [every[0], *every]  # the first one's columns are looked at before anything is prepared


@pytest.mark.parametrize("wrong", ["value", "type", "column", "footer"])
def test_what_is_wrong_is_said_of_its_file(wrong: str, tmp_path: Path) -> None:
    written(tmp_path / "data")
    path = tmp_path / "data" / "012.parquet"
    table = pyarrow.parquet.read_table(path)
    at = table.column_names.index("sex")
    if wrong == "value":
        table = table.set_column(at, "sex", pa.array(["secret", *table["sex"].to_pylist()[1:]]))
    elif wrong == "type":
        table = table.set_column(at, "sex", pa.array([[1]] * len(table)))
    elif wrong == "column":
        table = table.drop_columns(["sex"])
    pyarrow.parquet.write_table(table, path)
    if wrong == "footer":
        path.write_bytes(path.read_bytes()[:-8] + b"12345678")
    expected = UnknownValue if wrong == "value" else InvalidSpec
    with pytest.raises(expected, match="file 13 of") as refused:
        counted(tmp_path / "data", tmp_path / "store")
    assert "secret" not in str(refused.value)
