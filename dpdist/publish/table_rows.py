"""Some rows of a published table, without the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpdist.publish.release_folder import open_parquet_files

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


def load_rows(folder: Path, places: Sequence[int] | NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
    """Some rows and columns of the published table; other groups of rows are not read. Raises: StoreError when there is no table.

    Args:
        places: of the rows, ascending.
    """
    import numpy as np
    import pyarrow as pa

    start, wanted, parts = 0, np.asarray(places, dtype=np.int64), list[pa.Table]()
    for table in open_parquet_files(folder):
        for number in range(table.num_row_groups):
            end = start + table.metadata.row_group(number).num_rows
            inside = wanted[(wanted >= start) & (wanted < end)] - start
            if inside.size or not parts:
                parts.append(table.read_row_group(number, list(columns)).take(inside))
            start = end
    return pa.concat_tables(parts)
