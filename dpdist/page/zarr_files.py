"""The files of plain Zarr groups, made in memory: any Zarr reader opens them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
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
    rows, level, files = min(chunk_rows, size), _level(size, chunk_rows), {}
    for name, column in values.items():
        if column.any():  # a chunk of zeros is no file
            encode = _encoded_number if column.strides == (0,) and column.size == rows else _encoded
            files[f"{name}/c/{start // chunk_rows}"] = encode(column, rows, level)
    return files


def _encoded(column: NDArray[np.float64], rows: int, level: int) -> bytes:
    """The object of a chunk, padded with zeros."""
    import numcodecs

    whole = np.pad(column, (0, rows - column.size)) if column.size < rows else column
    return bytes(numcodecs.Zstd(level).encode(np.ascontiguousarray(whole)))


def _encoded_number(column: NDArray[np.float64], rows: int, level: int) -> bytes:
    """The object of a whole chunk of one number, which is encoded once for all chunks."""
    return _of_number(float(column[0]), rows, level)


@lru_cache(maxsize=2)  # standard errors and half widths
def _of_number(number: float, rows: int, level: int) -> bytes:
    return _encoded(np.full(rows, number), rows, level)


def _level(size: int, chunk_rows: int) -> int:
    return 3 if size <= chunk_rows else 1
