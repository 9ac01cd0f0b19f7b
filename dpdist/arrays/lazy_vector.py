"""Vectors: numbers that are read by range, wherever they are and however many there are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from dpdist.operators import Matrix

BATCH = 2**22
"""Values that are looked at at once: those of a stored shard."""


class Vector(Protocol):
    """Numbers that are read by range: held in memory, stored, or computed where they are read.

    Vectors of one length that are treated alike may be held together, as rows of one array: reading them returns the same range of
    every row, (..., stop - start).
    """

    @property
    def size(self) -> int:
        """Number of values."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""

    @property
    def digest(self) -> str:
        """Tells it from other vectors."""

    @property
    def bytes_each(self) -> int:
        """Bytes that a value takes while it is read, beyond the value itself."""

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""


FLOAT = np.dtype(np.float64)


@dataclass(frozen=True, eq=False)
class ArrayVector:
    """An array in memory; its last axis is the vector's."""

    values: Matrix = field(repr=False)
    bytes_each: int = 0

    @property
    def size(self) -> int:
        """Number of values."""
        return int(self.values.shape[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.values.dtype

    @property
    def digest(self) -> str:
        """SHA-256 over type, shape and values."""
        content = hashlib.sha256(repr((self.values.dtype.str, self.values.shape)).encode())
        content.update(np.ascontiguousarray(self.values).data)
        return content.hexdigest()

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        return self.values[..., start:stop]


@dataclass(frozen=True)
class LazyVector:
    """A vector that is computed where it is read, from other vectors or from none.

    Attributes:
        make: called with the number of the first value, how many are wanted, and that range of every source (shorter ones end in zeros);
            with the sources themselves where it reads other ranges of them.
        bytes_each: bytes that a value takes while it is computed, all arrays together.
        about: a description that, with the digests of the sources, identifies the vector.
        reads_sources: whether ``make`` is given the sources themselves.
    """

    size: int
    sources: tuple[Vector, ...] = field(repr=False)
    make: Callable[..., Matrix]
    bytes_each: int
    about: str = ""
    dtype: np.dtype[Any] = FLOAT
    reads_sources: bool = False

    @property
    def digest(self) -> str:
        """SHA-256 over what it is computed from."""
        return hashlib.sha256(repr((self.size, self.about, [source.digest for source in self.sources])).encode()).hexdigest()

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        if self.reads_sources:
            return self.make(start, stop - start, *self.sources)
        return self.make(start, stop - start, *(_padded(source, start, stop) for source in self.sources))


def _padded(source: Vector, start: int, stop: int) -> Matrix:
    """Values start..stop of a vector that ends in zeros."""
    end = max(start, min(stop, source.size))
    rows = source.read(min(start, source.size), min(end, source.size))
    missing = stop - end
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, missing)]) if missing else rows


def _rearrangement(
    size: int, sources: tuple[Vector, ...], make: Callable[..., Matrix], about: str, bytes_each: int
) -> LazyVector:
    """The values of vectors in another order."""
    return LazyVector(size, sources, make, bytes_each, about, sources[0].dtype, reads_sources=True)


def slice_vector(vector: Vector, offset: int, stride: int, size: int) -> LazyVector:
    """Every ``stride``-th value of a vector, from ``offset``."""
    value_bytes = vector.bytes_each + vector.dtype.itemsize
    bytes_each = stride * value_bytes if stride > 1 else vector.bytes_each
    return _rearrangement(
        size, (vector,), partial(_read_slice, offset, stride), f"[{offset}::{stride}][:{size}]", bytes_each
    )


def _read_slice(offset: int, stride: int, start: int, count: int, vector: Vector) -> Matrix:
    if count <= 0:
        return vector.read(offset, offset)
    low = offset + start * stride
    return vector.read(low, low + (count - 1) * stride + 1)[..., ::stride]


def reverse_circle(vector: Vector) -> LazyVector:
    """A vector around a circle, backwards: value k is the vector's value -k."""
    return _rearrangement(vector.size, (vector,), _read_backwards, "[::-1]", vector.bytes_each + 2 * vector.dtype.itemsize)


def _read_backwards(start: int, count: int, vector: Vector) -> Matrix:
    first_value = vector.read(0, min(1, start + count)) if start == 0 else vector.read(0, 0)
    low, high = max(start, 1), max(start + count, 1)
    rest = vector.read(vector.size - high + 1, vector.size - low + 1)[..., ::-1]
    return np.concatenate([first_value, rest], axis=-1)


def repeat_values(vector: Vector, after: int, before: int) -> LazyVector:
    """Every value of a vector ``after`` times side by side, and all of that ``before`` times, one after the other."""
    size, bytes_each = vector.size * after * before, vector.bytes_each + 2 * vector.dtype.itemsize
    return _rearrangement(size, (vector,), partial(_read_repeated, after), f"(each {after}) * {before}", bytes_each)


def _read_repeated(after: int, start: int, count: int, vector: Vector) -> Matrix:
    stop, lane, segments = start + count, vector.size * after, [vector.read(0, 0)]
    while start < stop:
        end, base = min(stop, (start // lane + 1) * lane), start // lane * lane
        low, high = (start - base) // after, -(-(end - base) // after)
        rows = np.repeat(vector.read(low, high), after)
        segments.append(rows[start - base - low * after : end - base - low * after])
        start = end
    return np.concatenate(segments)


def interleave_vectors(groups: Sequence[Sequence[Vector]], steps: int) -> LazyVector:
    """Groups of vectors, one group after the other; the first ``steps`` values of a group's vectors alternate."""
    widths, first_vector = [len(group) for group in groups], groups[0][0]
    size, bytes_each = steps * sum(widths), first_vector.bytes_each + 2 * first_vector.dtype.itemsize
    sources = tuple(vector for group in groups for vector in group)
    return _rearrangement(size, sources, partial(_read_interleaved, widths, steps), f"{steps} of {widths}", bytes_each)


def _read_interleaved(widths: Sequence[int], steps: int, start: int, count: int, *vectors: Vector) -> Matrix:
    segments, begin, remaining = [vectors[0].read(0, 0)], 0, iter(vectors)
    for width in widths:
        group = [next(remaining) for _ in range(width)]
        group_start, group_stop = max(start - begin, 0), min(start + count - begin, width * steps)
        if group_start < group_stop:
            low, high = group_start // width, -(-group_stop // width)
            alternating = np.stack([vector.read(low, high) for vector in group], axis=1).ravel()
            segments.append(alternating[group_start - low * width : group_stop - low * width])
        begin += width * steps
    return np.concatenate(segments)


def group_constants(values: Sequence[float], group_size: int) -> LazyVector:
    """One number for every group of ``group_size`` values."""
    group_values = tuple(values)
    return LazyVector(
        len(group_values) * group_size, (), partial(_read_groups, group_values, group_size), 16, f"{group_values!r}"
    )


def _read_groups(values: tuple[float, ...], group_size: int, start: int, count: int) -> Matrix:
    return np.array(values, dtype=FLOAT)[np.arange(start, start + count) // group_size]


@dataclass(frozen=True)
class Constant:
    """The same number ``size`` times."""

    value: float
    size: int
    dtype: np.dtype[Any] = FLOAT
    bytes_each: int = 0

    @property
    def digest(self) -> str:
        """Tells it from other vectors."""
        return f"{self.value!r} * {self.size}"

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        return np.full(stop - start, self.value, dtype=self.dtype)


def scaled(vector: Vector, factor: float) -> Vector:
    """A vector times ``factor``, float64."""
    about = f"{factor!r} times, plus 0.0, real"  # digests of strategies that are stored have these words
    return LazyVector(vector.size, (vector,), partial(_scaled, factor), vector.bytes_each + 32, about)


def _scaled(factor: float, start: int, count: int, values: Matrix) -> Matrix:
    return np.asarray(values * factor, dtype=np.float64)


def to_array(vector: Vector) -> Matrix:
    """All values of a vector that fits in memory."""
    return vector.read(0, vector.size)


def rows_of(vector: Vector) -> list[Vector]:
    """Vectors that are held together, one by one."""
    if isinstance(vector, ArrayVector) and vector.values.ndim > 1:
        return [ArrayVector(row) for row in vector.values.reshape(-1, vector.size)]
    return [vector]


def least_positive(vector: Vector) -> float:
    """The smallest value above zero, 1 if there is none."""
    if isinstance(vector, Constant):
        return vector.value
    value_batches = (vector.read(start, stop) for start, stop in batches(vector.size))
    smallest = min(float(value_batch.min(initial=np.inf, where=value_batch > 0)) for value_batch in value_batches)
    return smallest if np.isfinite(smallest) else 1.0


def batches(size: int, step: int = BATCH) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of ``step`` values."""
    for start in range(0, size, step):
        yield start, min(size, start + step)
