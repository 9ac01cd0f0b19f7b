"""Matrices that somebody else wrote in Zarr, read by rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from dpdist.errors import StoreError
from dpdist.storage.objects import place_at


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
        found = self._opened
        if not self.sparse:
            return np.asarray(found[start:stop])
        pointers = np.asarray(found["indptr"][start : stop + 1]).astype(np.int64)
        values, columns = (np.asarray(found[part][int(pointers[0]) : int(pointers[-1])]) for part in ("data", "indices"))
        return scipy.sparse.csr_array((values, columns, pointers - pointers[0]), shape=(stop - start, self.shape[1]))

    @cached_property
    def _opened(self) -> Any:
        import zarr

        return zarr.open(place_at(self.location).zarr(), mode="r")

    def __reduce__(self) -> tuple[type[ZarrRows], tuple[str, tuple[int, int], bool]]:
        return ZarrRows, (self.location, self.shape, self.sparse)


def zarr_rows(location: str) -> ZarrRows:
    """The rows of a matrix in Zarr. Raises: StoreError when there is none."""
    import zarr

    wanted = "a Zarr array (queries, cells), or a group with indptr, indices, data and the attribute shape"
    try:
        found = zarr.open(place_at(location).zarr(), mode="r")
    except Exception as error:  # noqa: BLE001 - stores and codecs raise many types
        raise StoreError(f"{location!r} is not {wanted} ({type(error).__name__})") from None
    if isinstance(found, zarr.Array):
        if found.ndim != 2:
            raise StoreError(f"{location!r} is not {wanted}: the array has {found.ndim} dimensions")
        return ZarrRows(location, (int(found.shape[0]), int(found.shape[1])))
    shape = found.attrs.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or not {"indptr", "indices", "data"} <= set(found.array_keys()):
        raise StoreError(f"{location!r} is not {wanted}")
    return ZarrRows(location, (int(shape[0]), int(shape[1])), sparse=True)
