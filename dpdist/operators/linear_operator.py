"""The contract every linear operator keeps."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.size_limits import SIZES

Matrix = NDArray[Any]

ROW_BLOCK_BYTES = 64 * 2**20
NORM_COPIES = 5
"""Of a block of rows whose norms are summed: whole numbers, their absolute values and squares."""


class Operator(ABC):
    """A real matrix of shape (rows, columns), applied without being written down where structure allows.

    ``matvec`` and ``rmatvec`` take a vector or a matrix of columns, and keep int64 exact when both sides are integers.
    """

    shape: tuple[int, int]
    integral: bool = True
    """Whether every entry is an integer: such operators map integer counts to integers without rounding."""

    @abstractmethod
    def matvec(self, x: Matrix) -> Matrix:
        """A x for x of shape (columns,) or (columns, k)."""

    @abstractmethod
    def rmatvec(self, y: Matrix) -> Matrix:
        """A'y for y of shape (rows,) or (rows, k)."""

    @abstractmethod
    def description(self) -> tuple[object, ...]:
        """What determines the matrix, as nested tuples of names, numbers and bytes; feeds ``fingerprint``."""

    def rows(self, start: int, stop: int) -> Matrix:
        """Rows start..stop as a dense float64 array."""
        selector = np.zeros((self.shape[0], stop - start))
        selector[np.arange(start, stop), np.arange(stop - start)] = 1.0
        return np.ascontiguousarray(self.rmatvec(selector).T)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        """Names of rows start..stop.

        Args:
            cells: names of the columns, one sequence a Kronecker factor; default their numbers.
        """
        return [f"row {row}" for row in range(start, stop)]

    @property
    def unpadded(self) -> Operator:
        """The rows over the cells that count, without those that are left out after them."""
        return self

    def row_blocks(self, block_bytes: int = ROW_BLOCK_BYTES) -> Iterator[tuple[int, int]]:
        """Consecutive (start, stop) row ranges whose dense form fits in ``block_bytes``."""
        step = max(1, block_bytes // (8 * max(1, self.shape[1])))
        for start in range(0, self.shape[0], step):
            yield start, min(self.shape[0], start + step)

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        """The block of A'A at the given rows and columns, float64."""
        gram = np.zeros((len(range(self.shape[1])[rows]), len(range(self.shape[1])[columns])))
        for start, stop in self.row_blocks():
            block = self.rows(start, stop)
            gram += block[:, rows].T @ block[:, columns]
        return gram

    def gram(self) -> Matrix:
        """A'A, (columns, columns) float64."""
        all_cells = slice(0, self.shape[1])
        return self.gram_block(all_cells, all_cells)

    def weighted_gram(self, weights: Matrix) -> Matrix:
        """A' diag(weights) A, (columns, columns) float64, for one weight >= 0 a row."""
        gram = np.zeros((self.shape[1], self.shape[1]))
        for start, stop in self.row_blocks():
            block = self.rows(start, stop)
            gram += block.T @ (weights[start:stop, None] * block)
        return gram

    def row_quadratics(self, form: Matrix) -> Matrix:
        """a form a' of every row a, (rows,) float64, for a symmetric form, (columns, columns)."""
        blocks = (self.rows(start, stop) for start, stop in self.row_blocks())
        return np.concatenate([np.einsum("ij,ij->i", block @ form, block) for block in blocks])

    def row_norms_squared(self) -> Matrix:
        """Squared L2 norm of every row, (rows,) float64."""
        blocks = (self.rows(start, stop) for start, stop in self.row_blocks())
        return np.concatenate([np.einsum("ij,ij->i", block, block) for block in blocks])

    def column_norms_squared(self) -> Matrix:
        """Squared L2 norm of every column, (columns,) float64."""
        norms = np.zeros(self.shape[1])
        for start, stop in self.row_blocks():
            block = self.rows(start, stop)
            norms += np.einsum("ij,ij->j", block, block)
        return norms

    def column_norms_l1(self) -> Matrix:
        """L1 norm of every column, (columns,) float64."""
        norms = np.zeros(self.shape[1])
        for start, stop in self.row_blocks():
            norms += np.abs(self.rows(start, stop)).sum(axis=0)
        return norms

    @property
    def longest_row_squared(self) -> float:
        """Largest squared L2 norm of a row."""
        return float(self.row_norms_squared().max(initial=0.0))

    @property
    def entry_range(self) -> tuple[float, float]:
        """The least and the largest entry, or ends between which all entries lie."""
        ends = np.array([(rows.min(), rows.max()) for rows in (self.rows(*bounds) for bounds in self.row_blocks())])
        return float(ends[:, 0].min()), float(ends[:, 1].max())

    @property
    def frobenius_squared(self) -> float:
        """Sum of all squared entries."""
        return float(self.column_norms_squared().sum())

    @property
    def l2_sensitivity(self) -> float:
        """Largest column norm: how far one added or removed record moves A x."""
        return float(np.sqrt(self.column_norms_squared().max(initial=0.0)))

    @property
    def l1_sensitivity(self) -> float:
        """Largest L1 norm of a column: how far one added or removed record moves A x, summed over the answers."""
        return float(self.column_norms_l1().max(initial=0.0))

    @property
    def sensitivity_bytes(self) -> int:
        """What finding a sensitivity takes: copies of a block of rows, or less where the structure gives it."""
        rows, columns = self.shape
        return NORM_COPIES * min(8 * rows * columns, ROW_BLOCK_BYTES + 8 * columns)

    def dense(self) -> Matrix:
        """The whole matrix as float64."""
        return self.rows(0, self.shape[0])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the description, 64 hex digits: equal for equal matrices built the same way."""
        digest = hashlib.sha256()
        _update_digest(digest, self.description())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape}"


class Entries(ABC):
    """A vector (``dpdist.arrays.Vector``) of an operator: written down, or computed where it is read."""

    size: int
    dtype = np.dtype(np.float64)
    bytes_each = 24

    @abstractmethod
    def read(self, start: int, stop: int) -> Matrix:
        """Entries start..stop, float64."""

    @property
    def values(self) -> Matrix:
        """All of them, (size,) float64."""
        return self.read(0, self.size)

    @property
    def constant(self) -> bool:
        """Whether all are the same."""
        return False

    @property
    def integral(self) -> bool:
        """Whether all are whole."""
        return False

    @property
    def digest(self) -> str:
        """SHA-256 of the content, the same however it is held."""
        content = hashlib.sha256()
        self.feed(content)
        return content.hexdigest()

    def feed(self, digest: Any) -> None:
        """The content into a digest, the same however it is held."""
        digest.update(repr((np.dtype(np.float64).str, (self.size,))).encode())
        for start in range(0, self.size, SIZES.listed_values):
            digest.update(self.read(start, min(start + SIZES.listed_values, self.size)).tobytes())


@dataclass(frozen=True, eq=False)
class StoredEntries(Entries):
    """Entries that are written down."""

    array: Matrix = field(repr=False)

    @property
    def size(self) -> int:  # type: ignore[override]
        return int(self.array.size)

    def read(self, start: int, stop: int) -> Matrix:
        return self.array[start:stop]

    @property
    def values(self) -> Matrix:
        return self.array

    @property
    def constant(self) -> bool:
        return bool((self.array == self.array[0]).all())

    @property
    def integral(self) -> bool:
        return bool((self.array == np.rint(self.array)).all())


def _update_digest(digest: Any, item: object) -> None:
    if isinstance(item, tuple):
        digest.update(b"(")
        for element in item:
            _update_digest(digest, element)
        digest.update(b")")
    elif isinstance(item, Operator):
        _update_digest(digest, item.description())
    elif isinstance(item, Entries):
        item.feed(digest)
    elif isinstance(item, np.ndarray):
        digest.update(repr((item.dtype.str, item.shape)).encode())
        digest.update(np.ascontiguousarray(item).tobytes())
    else:
        digest.update(repr(item).encode() + b";")
