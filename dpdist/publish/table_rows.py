"""The Parquet files of a published table, and some of its rows without the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dpdist.errors import StoreError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet
    from numpy.typing import NDArray


@dataclass(frozen=True)
class PublishedTable:
    """The Parquet table of a release: what its files hold is read once, and none of them stays open.

    Attributes:
        files: in order, each with its metadata.
    """

    files: tuple[tuple[Path, pyarrow.parquet.FileMetaData], ...] = field(repr=False)

    @staticmethod
    def of_release(folder: Path) -> PublishedTable:
        """That of a published release. Raises: StoreError when it has none."""
        return PublishedTable(tuple((path, open_parquet_file(path).metadata) for path in parquet_files(folder)))

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return list(self.files[0][1].schema.to_arrow_schema().names)

    @cached_property
    def row_count(self) -> int:
        """How many rows it has."""
        return sum(metadata.num_rows for _, metadata in self.files)

    def load_rows(self, places: Sequence[int] | NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Some rows and columns; other groups of rows are not read.

        Args:
            places: of the rows, ascending.
        """
        import numpy as np
        import pyarrow as pa

        start, wanted, parts = 0, np.asarray(places, dtype=np.int64), list[pa.Table]()
        for path, metadata in self.files:
            ends = start + np.cumsum(
                [0, *(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))]
            )
            bounds = np.searchsorted(wanted, ends)
            numbers = np.flatnonzero(np.diff(bounds)).tolist() or ([0] if not wanted.size and not parts else [])
            if numbers:
                file = open_parquet_file(path, metadata)
                parts += [
                    file.read_row_group(number, list(columns)).take(
                        wanted[bounds[number] : bounds[number + 1]] - ends[number]
                    )
                    for number in numbers
                ]
            start = int(ends[-1])
        return pa.concat_tables(parts)


def open_parquet_files(folder: Path) -> list[pyarrow.parquet.ParquetFile]:
    """The files of the published table, in order. Raises: StoreError when the release has none.

    They are read one by one: ``read_table`` and ``pyarrow.dataset`` import pandas, which takes longer than the reading.
    """
    return [open_parquet_file(file) for file in parquet_files(folder)]


def open_parquet_file(path: Path, metadata: pyarrow.parquet.FileMetaData | None = None) -> pyarrow.parquet.ParquetFile:
    """One file of a published table; of which the metadata are known, these are not read again."""
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path, read_dictionary=["group"], metadata=metadata)


def parquet_files(folder: Path) -> list[Path]:
    """The files of the published table, in order. Raises: StoreError when the release has none."""
    table = folder / "answers.parquet"
    if not table.exists():
        other_files = " or ".join(
            file_name for file_name in ("answers.csv", "answers.zarr") if (folder / file_name).exists()
        )
        raise StoreError(
            f"{folder} has no Parquet table, which is the one that is read here (output.formats left it out); read its {other_files}"
        )
    return sorted(table.glob("*.parquet")) if table.is_dir() else [table]
