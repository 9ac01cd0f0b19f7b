"""A new format of files is one file and one line of the registry: here a toy, read by a whole release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pytest

from dpdist.errors import InvalidSpec
from dpdist.publish import release_folder
from dpdist.sources import file_listing
from dpdist.sources.formats.format_registry import FORMATS
from dpdist.sources.formats.record_format import Partition, RowFormat, WantedRows, check_names
from dpdist.sources.source_labels import File
from dpdist.sources.verified_files import HashedFile
from dpdist.storage.array_store import Store
from tests.support import small_release


class Blanks(RowFormat):
    """Values between blanks, names in the first line."""

    name = "blanks"
    endings = (".blanks",)

    def column_names(self, file: HashedFile | IO[bytes], source_file: File, reading: WantedRows) -> Sequence[str]:
        return file.read().decode().splitlines()[0].split()

    def batches(self, file: HashedFile, partition: Partition, reading: WantedRows) -> Iterator[pa.RecordBatch]:
        names, *rows = (line.split() for line in file.read().decode().splitlines())
        check_names(names, reading.columns, partition.source_label)
        columns = {name: pa.array([row[names.index(name)] for row in rows], pa.string()) for name in reading.columns}
        yield pa.record_batch(columns)

    def is_empty(self, file: HashedFile, source_file: File, reading: WantedRows) -> bool:
        return len(file.read().decode().splitlines()) < 2


@pytest.fixture
def blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.sources.formats.format_registry.FORMATS", FORMATS.copy())
    from dpdist.sources.formats import format_registry

    format_registry.FORMATS.append(Blanks())


def written(home: Path) -> tuple[Path, Path]:
    """A spec with records as Parquet, and the same records in the toy's format."""
    path = small_release.write(home.parent / "data")
    table = small_release.records()
    lines = [" ".join(table.column_names), *(" ".join(map(str, row.values())) for row in table.to_pylist())]
    (path.parent / "records.blanks").write_text("\n".join(lines) + "\n")
    return path, path.parent / "records.blanks"


def test_a_format_of_one_file_is_released(home: Path, blanks: None) -> None:
    """The same counts as those of the same records in another format: exact, before noise."""
    path, records = written(home)
    first = small_release.run(path, home)
    path.write_text(path.read_text().replace("records.parquet", records.name).replace(first.job.release, "in-blanks"))
    second = small_release.run(path, home)
    assert second.tally.read == first.tally.read == small_release.records().num_rows
    store = Store(home / "store")
    one, other = (store.read_array(store.open(f"histograms/{name}")) for name in store.folders("histograms"))
    np.testing.assert_array_equal(one, other)
    certificate = release_folder.certificate_of(Path(second.folder))
    assert certificate["release"] == "in-blanks"


def test_a_format_that_nobody_registered_is_refused(home: Path) -> None:
    path, records = written(home)
    path.write_text(path.read_text().replace("records.parquet", records.name))
    with pytest.raises(InvalidSpec, match=r"cannot be read: allowed are \.parquet, "):
        small_release.run(path, home)
    with pytest.raises(InvalidSpec, match="cannot be read"):
        file_listing.list_files(records)


def test_columns_that_it_lacks_are_refused_before_the_charge(home: Path, blanks: None) -> None:
    path, records = written(home)
    records.write_text("other columns\n1 2\n")
    path.write_text(path.read_text().replace("records.parquet", records.name))
    with pytest.raises(InvalidSpec, match="has no column"):
        small_release.run(path, home)
