"""The files of plain Zarr groups, made in memory: any Zarr reader opens them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def exported(names: Sequence[str], size: int, facts: dict[str, Any], *, chunk_rows: int) -> dict[str, bytes]:
    """The files of a plain Zarr v3 group that any Zarr reader opens, without its values: float64 columns of one length."""
    import zarr.codecs

    files: dict[str, Any] = {}
    group = zarr.create_group(zarr.storage.MemoryStore(files), attributes=facts)
    for name in names:
        compressed = zarr.codecs.ZstdCodec(level=_level(size, chunk_rows))
        group.create_array(name, shape=(size,), chunks=(min(chunk_rows, size),), dtype="float64", compressors=compressed)
    return {name: found.to_bytes() for name, found in files.items()}


def exported_chunk(values: dict[str, NDArray[np.float64]], start: int, size: int, *, chunk_rows: int) -> dict[str, bytes]:
    """The files of one chunk of every column of such a group: the bytes that Zarr writes, which itself takes half as long again."""
    import numcodecs

    rows, codec, files = min(chunk_rows, size), numcodecs.Zstd(_level(size, chunk_rows)), {}
    for name, column in values.items():
        if column.any():  # a chunk of zeros is no file
            whole = np.ascontiguousarray(column) if column.size == rows else np.pad(column, (0, rows - column.size))
            files[f"{name}/c/{start // chunk_rows}"] = bytes(codec.encode(whole))
    return files


def _level(size: int, chunk_rows: int) -> int:
    return 3 if size <= chunk_rows else 1
