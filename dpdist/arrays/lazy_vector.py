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
class Held:
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
    parts: tuple[Vector, ...]
    make: Callable[..., Matrix]
    bytes_each: int
    about: str = ""
    dtype: np.dtype[Any] = FLOAT

    @property
    def digest(self) -> str:
        """SHA-256 over what it is computed from."""
        return hashlib.sha256(repr((self.size, self.about, [part.digest for part in self.parts])).encode()).hexdigest()

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        return self.make(start, stop - start, *(_padded(part, start, stop) for part in self.parts))


def _padded(part: Vector, start: int, stop: int) -> Matrix:
    """Values start..stop of a vector that ends in zeros."""
    end = max(start, min(stop, part.size))
    rows = part.read(min(start, part.size), min(end, part.size))
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
    """Every ``stride``-th value of a vector, from ``first``."""

    first: int
    stride: int
    size: int

    @property
    def bytes_each(self) -> int:
        """Bytes that a value takes while it is read."""
        return self.stride * (self.vector.bytes_each + self.dtype.itemsize) if self.stride > 1 else self.vector.bytes_each

    @property
    def digest(self) -> str:
        """Tells it from other parts."""
        return f"{self.vector.digest}[{self.first}::{self.stride}][:{self.size}]"

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        if start >= stop:
            return self.vector.read(self.first, self.first)
        low = self.first + start * self.stride
        return self.vector.read(low, self.first + (stop - 1) * self.stride + 1)[..., :: self.stride]


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
        first = self.vector.read(0, min(1, stop)) if start == 0 else self.vector.read(0, 0)
        low, high = max(start, 1), max(stop, 1)
        rest = self.vector.read(self.size - high + 1, self.size - low + 1)[..., ::-1]
        return np.concatenate([first, rest], axis=-1)


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
    """One number for every group of ``each`` values."""

    values: tuple[float, ...]
    each: int
    dtype: np.dtype[Any] = FLOAT
    bytes_each: int = 8

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values) * self.each

    @property
    def digest(self) -> str:
        """Tells it from other vectors."""
        return f"{self.values!r} * {self.each}"

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        return np.array(self.values, dtype=self.dtype)[np.arange(start, stop) // self.each]


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
        out = [self.vector.read(0, 0)]
        while start < stop:
            end, base = min(stop, (start // lane + 1) * lane), start // lane * lane
            low, high = (start - base) // self.after, -(-(end - base) // self.after)
            rows = np.repeat(self.vector.read(low, high), self.after)
            out.append(rows[start - base - low * self.after : end - base - low * self.after])
            start = end
        return np.concatenate(out)


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
        content = [self.steps, [[part.digest for part in group] for group in self.groups]]
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop."""
        out, begin = [self.groups[0][0].read(0, 0)], 0
        for group in self.groups:
            width, size = len(group), len(group) * self.steps
            first, last = max(start - begin, 0), min(stop - begin, size)
            if first < last:
                low, high = first // width, -(-last // width)
                alternating = np.stack([part.read(low, high) for part in group], axis=1).ravel()
                out.append(alternating[first - low * width : last - low * width])
            begin += size
        return np.concatenate(out)


def scaled(vector: Vector, factor: float, added: float = 0.0, *, whole: bool = False) -> Vector:
    """A vector times ``factor``, plus ``added``, float64; rounded to whole numbers if ``whole``."""
    about = f"{factor!r} times, plus {added!r}, {'rounded' if whole else 'real'}"
    return LazyVector(vector.size, (vector,), partial(_scaled, factor, added, whole), vector.bytes_each + 32, about)


def _scaled(factor: float, added: float, whole: bool, start: int, count: int, values: Matrix) -> Matrix:
    made = values * factor
    if whole:
        made = np.rint(made)
    return np.asarray(made + added if added else made, dtype=np.float64)


def held(vector: Vector) -> Matrix:
    """All values of a vector that fits in memory."""
    return vector.read(0, vector.size)


def rows_of(vector: Vector) -> list[Vector]:
    """Vectors that are held together, one by one."""
    if isinstance(vector, Held) and vector.values.ndim > 1:
        return [Held(row) for row in vector.values.reshape(-1, vector.size)]
    return [vector]


def least_positive(vector: Vector) -> float:
    """The smallest value above zero, 1 if there is none."""
    if isinstance(vector, Constant):
        return vector.value
    parts = (vector.read(start, stop) for start, stop in batches(vector.size))
    found = min(float(part.min(initial=np.inf, where=part > 0)) for part in parts)
    return found if np.isfinite(found) else 1.0


def batches(size: int, step: int = BATCH) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of ``step`` values."""
    for start in range(0, size, step):
        yield start, min(size, start + step)
