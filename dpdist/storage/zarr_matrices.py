"""Matrices that somebody else wrote in Zarr, read by rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from dpdist.errors import StoreError
from dpdist.storage.objects import parse_location


@dataclass(frozen=True)
class ZarrRows:
    """Rows of a matrix in a Zarr array that somebody else wrote, dense, or sparse as a group of indptr, indices and data.

    Attributes:
        location: a folder or an object store URL.
        sparse: whether it is a group in compressed sparse rows.
    """

    location: str
    shape: tuple[int, int]
    sparse: bool = False

    def read(self, start: int, stop: int) -> Any:
        """Rows start..stop, dense or SciPy sparse."""
        array = self._opened
        if not self.sparse:
            return np.asarray(array[start:stop])
        pointers = np.asarray(array["indptr"][start : stop + 1]).astype(np.int64)
        values, columns = (np.asarray(array[member][int(pointers[0]) : int(pointers[-1])]) for member in ("data", "indices"))
        return scipy.sparse.csr_array((values, columns, pointers - pointers[0]), shape=(stop - start, self.shape[1]))

    @cached_property
    def _opened(self) -> Any:
        import zarr

        return zarr.open(parse_location(self.location).zarr(), mode="r")

    def __reduce__(self) -> tuple[type[ZarrRows], tuple[str, tuple[int, int], bool]]:
        return ZarrRows, (self.location, self.shape, self.sparse)


def zarr_rows(location: str) -> ZarrRows:
    """The rows of a matrix in Zarr. Raises: StoreError when there is none."""
    import zarr

    expectation = "a Zarr array (queries, cells), or a group with indptr, indices, data and the attribute shape"
    try:
        node = zarr.open(parse_location(location).zarr(), mode="r")
    except Exception as error:  # noqa: BLE001 - stores and codecs raise many types
        raise StoreError(f"{location!r} is not {expectation} ({type(error).__name__})") from None
    if isinstance(node, zarr.Array):
        if node.ndim != 2:
            raise StoreError(f"{location!r} is not {expectation}: the array has {node.ndim} dimensions")
        return ZarrRows(location, (int(node.shape[0]), int(node.shape[1])))
    shape = node.attrs.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or not {"indptr", "indices", "data"} <= set(node.array_keys()):
        raise StoreError(f"{location!r} is not {expectation}")
    return ZarrRows(location, (int(shape[0]), int(shape[1])), sparse=True)
