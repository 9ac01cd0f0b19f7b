"""Columns of answers: read by rows, wherever they are, however long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpdist.arrays.vector import Constant
from dpdist.operators import Matrix
from dpdist.store import Store, StoredArray

COLUMN_BATCH = 2**22
"""Rows that are looked at at once: those of a stored shard."""


class Column(Protocol):
    """Numbers, one a query."""

    @property
    def size(self) -> int:
        """How many."""

    def read(self, start: int, stop: int) -> Matrix:
        """Rows start..stop, (stop - start,) float64."""


@dataclass(frozen=True)
class StoredColumn:
    """``factor`` times an array in the store, rounded to whole numbers if ``whole``."""

    store: Store
    array: StoredArray
    factor: float = 1.0
    whole: bool = False

    @property
    def size(self) -> int:
        """How many."""
        return self.array.plan.shape[0]

    def read(self, start: int, stop: int) -> Matrix:
        """Rows start..stop, checked against the array's digests."""
        values = self.store.read_rows(self.array, start, stop) * self.factor
        return np.rint(values) if self.whole else np.asarray(values, dtype=np.float64)


@dataclass(frozen=True)
class BlocksColumn:
    """The same number for every query of a group, groups of one size."""

    values: tuple[float, ...]
    each: int

    @property
    def size(self) -> int:
        """How many."""
        return len(self.values) * self.each

    def read(self, start: int, stop: int) -> Matrix:
        """Rows start..stop."""
        return np.array(self.values)[np.arange(start, stop) // self.each]


@dataclass(frozen=True)
class SeriesColumn:
    """A stored number a step, for every one of several series: ``after`` of them stand side by side, ``before`` one after another."""

    store: Store
    array: StoredArray
    after: int
    before: int
    factor: float = 1.0
    added: float = 0.0

    @property
    def size(self) -> int:
        """How many."""
        return self.array.plan.shape[0] * self.after * self.before

    def read(self, start: int, stop: int) -> Matrix:
        """Rows start..stop, checked against the array's digests."""
        lane = self.array.plan.shape[0] * self.after
        out = []
        while start < stop:
            end, base = min(stop, (start // lane + 1) * lane), start // lane * lane
            low, high = (start - base) // self.after, -(-(end - base) // self.after)
            rows = np.repeat(self.store.read_rows(self.array, low, high), self.after)
            out.append(rows[start - base - low * self.after : end - base - low * self.after])
            start = end
        return np.concatenate(out) * self.factor + self.added if out else np.zeros(0)


def least_positive(column: Column) -> float:
    """The smallest value of a column above zero, 1 if there is none."""
    if isinstance(column, Constant):
        return column.value
    parts = (column.read(start, stop) for start, stop in batches(column.size))
    found = min(float(part.min(initial=np.inf, where=part > 0)) for part in parts)
    return found if np.isfinite(found) else 1.0


def batches(size: int, step: int = COLUMN_BATCH) -> Iterator[tuple[int, int]]:
    """Row ranges of ``step`` rows."""
    for start in range(0, size, step):
        yield start, min(size, start + step)
