"""The files of plain Zarr groups, made in memory: any Zarr reader opens them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def exported(names: Sequence[str], size: int, facts: dict[str, Any], *, chunk_rows: int) -> dict[str, bytes]:
    """The files of a plain Zarr v3 group that any Zarr reader opens, without its values: float64 columns of one length."""
    return {name: found.to_bytes() for name, found in _group(names, size, facts, chunk_rows)[1].items()}


def exported_chunk(values: dict[str, NDArray[np.float64]], start: int, size: int, *, chunk_rows: int) -> dict[str, bytes]:
    """The files of one chunk of every column of such a group: the same values give the same bytes."""
    group, files = _group(list(values), size, {}, chunk_rows)
    others = set(files)
    for name, column in values.items():
        group[name][start : start + column.size] = column
    return {name: found.to_bytes() for name, found in files.items() if name not in others}


def _group(names: Sequence[str], size: int, facts: dict[str, Any], chunk_rows: int) -> tuple[Any, dict[str, Any]]:
    """A Zarr group in memory, and its files."""
    import zarr.codecs

    files: dict[str, Any] = {}
    group = zarr.create_group(zarr.storage.MemoryStore(files), attributes=facts)
    for name in names:
        compressed = zarr.codecs.ZstdCodec(level=3 if size <= chunk_rows else 1)
        group.create_array(name, shape=(size,), chunks=(min(chunk_rows, size),), dtype="float64", compressors=compressed)
    return group, files
