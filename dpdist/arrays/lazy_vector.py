"""Vectors: numbers that are read by range, wherever they are and however many there are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
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
    """A vector that is computed where it is read, from others of the same length (shorter ones end in zeros) or from none.

    Attributes:
        make: called with the number of the first value, how many are wanted, and that range of every part.
        bytes_each: bytes that a value takes while it is computed, all arrays together.
        about: a description that, with the digests of the parts, identifies the vector.
    """

    size: int
    sources: tuple[Vector, ...]
    make: Callable[..., Matrix]
    bytes_each: int
    about: str = ""
    dtype: np.dtype[Any] = FLOAT

    @property
    def digest(self) -> str:
        """SHA-256 over what it is computed from."""
        return hashlib.sha256(repr((self.size, self.about, [source.digest for source in self.sources])).encode()).hexdigest()

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        return self.make(start, stop - start, *(_padded(source, start, stop) for source in self.sources))


def _padded(source: Vector, start: int, stop: int) -> Matrix:
    """Values start..stop of a vector that ends in zeros."""
    end = max(start, min(stop, source.size))
    rows = source.read(min(start, source.size), min(end, source.size))
    missing = stop - end
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, missing)]) if missing else rows


@dataclass(frozen=True)
class _Rearranged:
    """The values of a vector in another order."""

    vector: Vector

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.vector.dtype

    @property
    def bytes_each(self) -> int:
        """Bytes that a value takes while it is read."""
        return self.vector.bytes_each + 2 * self.dtype.itemsize


@dataclass(frozen=True)
class Strided(_Rearranged):
    """Every ``stride``-th value of a vector, from ``offset``."""

    offset: int
    stride: int
    size: int

    @property
    def bytes_each(self) -> int:
        """Bytes that a value takes while it is read."""
        return self.stride * (self.vector.bytes_each + self.dtype.itemsize) if self.stride > 1 else self.vector.bytes_each

    @property
    def digest(self) -> str:
        """Tells it from other parts."""
        return f"{self.vector.digest}[{self.offset}::{self.stride}][:{self.size}]"

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        if start >= stop:
            return self.vector.read(self.offset, self.offset)
        low = self.offset + start * self.stride
        return self.vector.read(low, self.offset + (stop - 1) * self.stride + 1)[..., :: self.stride]


@dataclass(frozen=True)
class Reversed(_Rearranged):
    """A vector around a circle, backwards: value k is the vector's value -k."""

    @property
    def size(self) -> int:
        """Number of values."""
        return self.vector.size

    @property
    def digest(self) -> str:
        """Tells it from other vectors."""
        return f"{self.vector.digest}[::-1]"

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        first_value = self.vector.read(0, min(1, stop)) if start == 0 else self.vector.read(0, 0)
        low, high = max(start, 1), max(stop, 1)
        rest = self.vector.read(self.size - high + 1, self.size - low + 1)[..., ::-1]
        return np.concatenate([first_value, rest], axis=-1)


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


@dataclass(frozen=True)
class Blocks:
    """One number for every group of ``group_size`` values."""

    values: tuple[float, ...]
    group_size: int
    dtype: np.dtype[Any] = FLOAT
    bytes_each: int = 8

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values) * self.group_size

    @property
    def digest(self) -> str:
        """Tells it from other vectors."""
        return f"{self.values!r} * {self.group_size}"

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        return np.array(self.values, dtype=self.dtype)[np.arange(start, stop) // self.group_size]


@dataclass(frozen=True)
class Repeated(_Rearranged):
    """Every value of a vector ``after`` times side by side, and all of that ``before`` times, one after the other."""

    after: int
    before: int

    @property
    def size(self) -> int:
        """Number of values."""
        return self.vector.size * self.after * self.before

    @property
    def digest(self) -> str:
        """Tells it from other vectors."""
        return f"({self.vector.digest} each {self.after}) * {self.before}"

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        lane = self.vector.size * self.after
        segments = [self.vector.read(0, 0)]
        while start < stop:
            end, base = min(stop, (start // lane + 1) * lane), start // lane * lane
            low, high = (start - base) // self.after, -(-(end - base) // self.after)
            rows = np.repeat(self.vector.read(low, high), self.after)
            segments.append(rows[start - base - low * self.after : end - base - low * self.after])
            start = end
        return np.concatenate(segments)


@dataclass(frozen=True)
class Interleaved:
    """Groups of vectors, one group after the other; the first ``steps`` values of a group's vectors alternate."""

    groups: tuple[tuple[Vector, ...], ...] = field(repr=False)
    steps: int

    @property
    def size(self) -> int:
        """Number of values."""
        return self.steps * sum(len(group) for group in self.groups)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return self.groups[0][0].dtype

    @property
    def bytes_each(self) -> int:
        """Bytes that a value takes while it is read."""
        return self.groups[0][0].bytes_each + 2 * self.dtype.itemsize

    @property
    def digest(self) -> str:
        """SHA-256 over the vectors' digests."""
        content = [self.steps, [[vector.digest for vector in group] for group in self.groups]]
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        segments, begin = [self.groups[0][0].read(0, 0)], 0
        for group in self.groups:
            width, size = len(group), len(group) * self.steps
            group_start, group_stop = max(start - begin, 0), min(stop - begin, size)
            if group_start < group_stop:
                low, high = group_start // width, -(-group_stop // width)
                alternating = np.stack([vector.read(low, high) for vector in group], axis=1).ravel()
                segments.append(alternating[group_start - low * width : group_stop - low * width])
            begin += size
        return np.concatenate(segments)


def scaled(vector: Vector, factor: float, added: float = 0.0, *, whole: bool = False) -> Vector:
    """A vector times ``factor``, plus ``added``, float64; rounded to whole numbers if ``whole``."""
    about = f"{factor!r} times, plus {added!r}, {'rounded' if whole else 'real'}"
    return LazyVector(vector.size, (vector,), partial(_scaled, factor, added, whole), vector.bytes_each + 32, about)


def _scaled(factor: float, added: float, whole: bool, start: int, count: int, values: Matrix) -> Matrix:
    result = values * factor
    if whole:
        result = np.rint(result)
    return np.asarray(result + added if added else result, dtype=np.float64)


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
