"""Some rows of a published table, without the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dpdist.publish.release_folder import open_parquet_file, parquet_files

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
