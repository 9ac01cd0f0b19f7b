"""Arrow's arrays of Python's and NumPy's values, and back.

``pa.array``, ``pa.scalar`` and ``to_numpy`` import pandas where it is installed, only to see whether a value is one of its own: an eighth
of a small release in Python (benchmarks/command_start.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def texts(values: Iterable[str | None]) -> pa.Array:
    """An array of texts, of which some may be missing."""
    built = pa.lib.StringBuilder()
    built.append_values(values)
    return built.finish()


def text(value: str | None) -> pa.StringScalar:
    """One text, or a missing one, as functions of columns take it."""
    return texts([value])[0]


def numbers(values: NDArray[Any], *, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """An array of numbers, or of yes and no, which shares the memory of the former.

    Args:
        values: one axis.
        missing: of each value whether it is missing; None where all are there.
    """
    valid = None if missing is None else pa.py_buffer(_bits(~missing))
    content = _bits(values) if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [valid, pa.py_buffer(content)])


def _bits(values: NDArray[np.bool_]) -> NDArray[np.uint8]:
    return np.packbits(values, bitorder="little")


def values_of(numbers: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The values of numbers none of which is missing, without a copy of those of one chunk."""
    values: NDArray[Any] = np.from_dlpack(_whole(numbers))
    return values


def flags_of(flags: pa.BooleanArray) -> NDArray[np.bool_]:
    """Values of yes and no none of which is missing."""
    _, content = flags.buffers()
    bits = np.frombuffer(content, dtype=np.uint8) if content is not None else np.zeros(0, dtype=np.uint8)
    return np.unpackbits(bits, bitorder="little")[flags.offset : flags.offset + len(flags)].astype(bool)


def floats_of(array: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """The values of floating-point numbers, NaN where one is missing."""
    return values_of(_whole(array).fill_null(numbers(np.array([np.nan]))[0]))


def dictionary_indices(encoded: pa.DictionaryArray) -> NDArray[np.int32]:
    """The place of each value in the dictionary, -1 where one is missing."""
    return values_of(encoded.indices.fill_null(numbers(np.array([-1], dtype=np.int32))[0]))


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
