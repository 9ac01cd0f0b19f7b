"""The objects of an array as Zarr has them, made and read without it: frames of Blosc, or the plain values of scratch.

Zarr would copy the values on the way, and takes longer to open an array than a small one takes to be read.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.machine.stored import ArrayPlan

HEAD = 16
"""Bytes of a Blosc frame's head: those from 4 to 8 say how many the values take, those from 12 to 16 how many the frame takes."""
COMPRESSOR: Literal["lz4"] = "lz4"
LEVEL = 5


@cache
def codec(dtype: str) -> Any:
    """How blocks of a type are compressed, for Zarr."""
    import zarr.codecs

    return zarr.codecs.BloscCodec(cname=COMPRESSOR, clevel=LEVEL, shuffle="bitshuffle" if _by_bits(dtype) else "shuffle")


def _by_bits(dtype: str) -> bool:
    """Whether bits of a kind lie together, as for whole numbers.

    The signs of noisy values then do: they take 0.61 of their bytes in place of 0.76 (benchmarks/drawing.py).
    """
    return np.dtype(dtype).kind == "i"


def encoded(plan: ArrayPlan, block: NDArray[Any]) -> Any:
    """The object of a shard, padded with zeros as Zarr does; None for zeros, which it does not write."""
    import numcodecs

    block = np.ascontiguousarray(block)  # the codec takes values in the order in which they lie
    if not block.reshape(-1).view(np.uint8).any():
        return None
    if block.shape[0] < plan.shard_rows:
        block, rows = np.zeros(plan.chunk, dtype=block.dtype), block
        block[: rows.shape[0]] = rows
    if not plan.framed:
        return block.reshape(-1).view(np.uint8).data
    shuffle = numcodecs.Blosc.BITSHUFFLE if _by_bits(plan.dtype) else numcodecs.Blosc.SHUFFLE
    return bytes(numcodecs.Blosc(COMPRESSOR, LEVEL, shuffle).encode(block))


def decoded(plan: ArrayPlan, data: Any) -> NDArray[Any]:
    """The values of a shard's object, with what pads them.

    Raises: ValueError, RuntimeError when it is not whole, or of another number of bytes: the codec reads beyond the end of a cut one.
    """
    import numcodecs

    if not plan.framed:
        return np.frombuffer(data, dtype=plan.dtype).reshape(plan.chunk).copy()
    out = np.empty(plan.chunk, dtype=plan.dtype)
    head = bytes(memoryview(data)[:HEAD])
    sizes = int.from_bytes(head[4:8], "little"), int.from_bytes(head[12:16], "little")
    if sizes != (out.nbytes, len(data)):
        raise ValueError("not the frame of such an array")
    numcodecs.Blosc().decode(data, out.reshape(-1))
    return out
