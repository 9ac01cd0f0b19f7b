"""Layout: what a count holds, every cell of a domain or the tables of some attributes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidInput


@dataclass(frozen=True)
class Layout:
    """What a count holds: every cell of a domain, or (with ``tables``) the marginal tables of some attribute sets in a row.

    >>> Layout((2, 3, 4), ((0, 1), (2,))).size
    10

    Attributes:
        shares_per_record: into how many every record is divided (``Domain.divided``): a record raises all counts together by so much.
        max_abs_shares: the most shares of a record, whatever their signs; 0 where none is negative.
    """

    shape: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...] = ()
    shares_per_record: int = 1
    max_abs_shares: int = 0

    @property
    def size(self) -> int:
        """Number of counts."""
        return sum(self._sizes) if self.tables else math.prod(self.shape)

    @property
    def _sizes(self) -> list[int]:
        return [math.prod(self.shape[axis] for axis in axes) for axes in self.tables]

    def positions(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which counts the records of the given cells of the domain raise by one; negative cells are left out."""
        kept = cells[cells >= 0]
        if not self.tables:
            return kept
        codes = np.unravel_index(kept, self.shape)
        parts, first = [], 0
        for axes, size in zip(self.tables, self._sizes, strict=True):
            flat = np.zeros(kept.size, dtype=np.int64)
            for axis in axes:
                flat = flat * self.shape[axis] + codes[axis]
            parts.append(first + flat)
            first += size
        return np.concatenate(parts)

    def table(self, counts: NDArray[np.int64], axes: tuple[int, ...]) -> NDArray[np.int64]:
        """The table of some attributes, from the first counted table that holds them. Raises: InvalidInput if none does."""
        start = 0
        held = self.tables or (tuple(range(len(self.shape))),)
        for of, size in zip(held, self._sizes or [self.size], strict=True):
            if set(axes) <= set(of):
                whole = counts[start : start + size].reshape([self.shape[axis] for axis in of])
                return np.asarray(whole.sum(axis=tuple(i for i, axis in enumerate(of) if axis not in axes)))
            start += size
        raise InvalidInput(f"no counted table holds the attributes {axes}")
