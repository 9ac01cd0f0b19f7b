"""Compressed blocks of Zarr arrays, as one object each: decoded into the array that is wanted, without copies of them on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEAD = 16
"""Bytes of a Blosc frame's head: those from 4 to 8 say how many the values take, those from 12 to 16 how many the frame takes."""

SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
"""How numcodecs counts what Zarr names."""


def holds_frames(array: Any) -> bool:
    """Whether every chunk of an opened Zarr array is one Blosc frame of little-endian values in the order of C."""
    import zarr.codecs

    metadata = array.metadata
    if metadata.zarr_format != 3 or len(metadata.codecs) != 2:
        return False
    serializer, compressor = metadata.codecs
    plain = isinstance(serializer, zarr.codecs.BytesCodec) and serializer.to_dict() == zarr.codecs.BytesCodec().to_dict()
    return plain and isinstance(compressor, zarr.codecs.BloscCodec)


def encoded(array: Any, block: NDArray[Any]) -> bytes | None:
    """The frame that Zarr would write for a chunk of an opened array, padded with zeros; None for zeros, which it does not write."""
    import numcodecs

    block = np.ascontiguousarray(block)  # the codec takes values in the order in which they lie
    if not block.reshape(-1).view(np.uint8).any():
        return None
    if block.shape != array.chunks:
        block, rows = np.zeros(array.chunks, dtype=block.dtype), block
        block[: rows.shape[0]] = rows
    # Plain values in every version of zarr: the attributes are enumerations in some.
    options = array.metadata.codecs[1].to_dict()["configuration"]
    shuffle = SHUFFLES.index(options["shuffle"])
    frame = numcodecs.Blosc(options["cname"], options["clevel"], shuffle, options["blocksize"]).encode(block)
    return bytes(frame)


def decoded(frame: Any, shape: Sequence[int], dtype: str) -> NDArray[Any]:
    """The values of a frame.

    Raises: ValueError, RuntimeError when it is not whole, or of another number of bytes: the codec reads beyond the end of a cut one.
    """
    import numcodecs

    out = np.empty(tuple(shape), dtype=dtype)
    head = bytes(memoryview(frame)[:HEAD])
    sizes = int.from_bytes(head[4:8], "little"), int.from_bytes(head[12:16], "little")
    if sizes != (out.nbytes, len(frame)):
        raise ValueError("not the frame of such an array")
    numcodecs.Blosc().decode(frame, out.reshape(-1))
    return out
