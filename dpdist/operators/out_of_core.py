"""A matrix whose rows are read or made when they are needed: many more rows than fit in memory, over columns that do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators.linear_operator import Matrix, Operator
from dpdist.process.threads import map_in_order
from dpdist.size_limits import SIZES, Sizes

EXACT_FLOAT32 = 2**24
"""Whole numbers up to here are exact in single precision, and so are their sums."""
CACHED_ENTRIES = 2**17
"""What one processor keeps close, double precision."""


class RowSource(Protocol):
    """A source of rows, read by their numbers, dense or SciPy sparse. Workers receive the place of the rows, not the rows."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    def read(self, start: int, stop: int) -> Any:
        """Rows start..stop, (stop - start, columns), numbers."""


@dataclass(frozen=True)
class Generated:
    """Rows that a function computes. It must return the same rows at every call.

    Attributes:
        make: called with (start, stop); a function that other processes can import.
    """

    shape: tuple[int, int]
    make: Callable[[int, int], Any]

    def read(self, start: int, stop: int) -> Any:
        return self.make(start, stop)


@dataclass(frozen=True)
class ArrayRows:
    """Rows of an array that gives them by ``array[start:stop]``: NumPy's, a memory map, Zarr's, SciPy's sparse rows."""

    array: Any

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.array.shape
        return int(rows), int(columns)

    def read(self, start: int, stop: int) -> Any:
        return self.array[start:stop]


def as_row_source(source: Any) -> RowSource:
    """A source of rows, or the rows of an array. Raises: InvalidInput for anything else."""
    if hasattr(source, "read") and hasattr(source, "shape"):
        return cast(RowSource, source)
    if scipy.sparse.issparse(source):
        return ArrayRows(scipy.sparse.csr_array(source))
    if hasattr(source, "__getitem__") and len(getattr(source, "shape", ())) == 2:
        return ArrayRows(source)
    raise InvalidInput(
        f"rows are an array of two dimensions, or a source with 'shape' and 'read(start, stop)'; found {type(source).__name__}"
        f"{' of shape ' + str(source.shape) if hasattr(source, 'shape') else ''}; give numpy.load(path, mmap_mode='r'), "
        "dpdist.storage.zarr_matrices.zarr_rows(location) or dp.operators.Generated(shape, function)"
    )


@dataclass(frozen=True)
class Saved:
    """Rows of an .npy file, read from the file when they are needed."""

    path: str
    shape: tuple[int, int]

    def read(self, start: int, stop: int) -> Any:
        return np.load(self.path, mmap_mode="r", allow_pickle=False)[start:stop]


@dataclass(frozen=True)
class RowsScaled:
    """The rows of another source, each multiplied by its own number."""

    source: RowSource
    scales: Matrix

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    def read(self, start: int, stop: int) -> Any:
        rows, scales = self.source.read(start, stop), self.scales[start:stop, None]
        return scipy.sparse.csr_array(rows.multiply(scales)) if scipy.sparse.issparse(rows) else rows * scales


@dataclass(frozen=True)
class EntryProfile:
    """What one look at all rows tells.

    Attributes:
        digest: SHA-256 of the values.
        row_squares: squared L2 norm of every row, (rows,) float64.
        column_squares, column_sums: of every column, (columns,) float64: squared L2 norm, L1 norm.
        integral: whether every entry is whole.
        entry_range: the least and the largest entry.
    """

    digest: str
    row_squares: Matrix
    column_squares: Matrix
    column_sums: Matrix
    integral: bool
    entry_range: tuple[float, float]


class TallMatrix(Operator):
    """An operator over a ``RowSource``. Products read all rows once, in blocks."""

    def __init__(self, source: RowSource) -> None:
        if len(source.shape) != 2 or min(source.shape) < 1:
            raise InvalidInput(f"a matrix of at least one row and one column is needed, found shape {source.shape}")
        self.source = source
        self.shape = (int(source.shape[0]), int(source.shape[1]))

    def __reduce__(self) -> tuple[type[TallMatrix], tuple[RowSource]]:
        return TallMatrix, (self.source,)  # workers read rows: the profile stays here

    @property
    def integral(self) -> bool:  # type: ignore[override]
        return self.profile.integral

    @property
    def entry_range(self) -> tuple[float, float]:
        return self.profile.entry_range

    @cached_property
    def profile(self) -> EntryProfile:
        """Norms, digest and kind of the entries. Raises: InvalidInput for entries that are no finite numbers."""
        block_profiles = list(map_in_order(self._profile_block, _row_ranges(self.shape, 0, self.shape[0])))
        digest = hashlib.sha256("".join(block_profile.digest for block_profile in block_profiles).encode()).hexdigest()
        return EntryProfile(
            digest,
            np.concatenate([block_profile.row_squares for block_profile in block_profiles]),
            np.sum([block_profile.column_squares for block_profile in block_profiles], axis=0),
            np.sum([block_profile.column_sums for block_profile in block_profiles], axis=0),
            all(block_profile.integral for block_profile in block_profiles),
            (
                min(block_profile.entry_range[0] for block_profile in block_profiles),
                max(block_profile.entry_range[1] for block_profile in block_profiles),
            ),
        )

    def _profile_block(self, bounds: tuple[int, int]) -> EntryProfile:
        block = _read_numbers(self.source, *bounds)
        if scipy.sparse.issparse(block):
            squares = block.multiply(block)
            rows, columns = (np.asarray(squares.sum(axis=axis)).ravel() for axis in (1, 0))
            sums, values = np.asarray(abs(block).sum(axis=0)).ravel(), block.data
            content = [block.indptr.astype(np.int64), block.indices.astype(np.int64), block.data.astype(np.float64)]
        else:
            rows, columns, sums = _block_norms(block)
            values, content = block, [block]
        if not np.isfinite(columns).all():
            raise InvalidInput(
                f"rows {bounds[0]} to {bounds[1]} hold NaN or infinite entries; replace them before building a workload"
            )
        digest = hashlib.sha256(repr((bounds, block.dtype.str)).encode())
        for array in content:
            digest.update(np.ascontiguousarray(array).data)
        integral = block.dtype.kind == "i" or bool((values == np.rint(values)).all())
        ends = (float(block.min()), float(block.max()))
        return EntryProfile(digest.hexdigest(), rows, columns, sums, integral, ends)

    def matvec(self, x: Matrix) -> Matrix:
        return np.concatenate(
            list(map_in_order(lambda bounds: self._read_typed(x, *bounds) @ x, _row_ranges(self.shape, 0, self.shape[0])))
        )

    def rmatvec(self, y: Matrix) -> Matrix:
        products = map_in_order(
            lambda b: self._read_typed(y, *b).T @ y[slice(*b)], _row_ranges(self.shape, 0, self.shape[0])
        )
        return np.asarray(sum(products))

    def rows(self, start: int, stop: int) -> Matrix:
        block = self.source.read(start, stop)
        return np.asarray(block.toarray() if scipy.sparse.issparse(block) else block, dtype=np.float64)

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        if rows == columns == slice(0, self.shape[1]):
            return mirror_upper(row_gram(self.source, 0, self.shape[0]))
        return super().gram_block(rows, columns)

    def row_norms_squared(self) -> Matrix:
        return self.profile.row_squares

    def column_norms_squared(self) -> Matrix:
        return self.profile.column_squares

    def column_norms_l1(self) -> Matrix:
        return self.profile.column_sums

    def description(self) -> tuple[object, ...]:
        return ("tall", self.shape, self.profile.digest)

    def _read_typed(self, x: Matrix, start: int, stop: int) -> Any:
        block = self.source.read(start, stop)
        return block.astype(np.int64) if x.dtype.kind == "i" and self.integral else block.astype(np.float64)


def _block_norms(block: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Squared norms of rows and of columns, and L1 norms of columns; some rows at a time, which stay in the cache."""
    rows, columns, sums = np.empty(block.shape[0]), np.zeros(block.shape[1]), np.zeros(block.shape[1])
    step = max(1, CACHED_ENTRIES // block.shape[1])
    for start in range(0, block.shape[0], step):
        real = block[start : start + step].astype(np.float64)
        np.abs(real, out=real)
        sums += real.sum(axis=0)
        np.square(real, out=real)
        rows[start : start + step] = real.sum(axis=1)
        columns += real.sum(axis=0)
    return rows, columns, sums


def row_gram(
    source: RowSource,
    start: int,
    stop: int,
    left_columns: slice = slice(None),
    right_columns: slice | None = None,
    sizes: Sizes = SIZES,
) -> Matrix:
    """Sum of B'B over the rows start..stop, (n, n): its upper half, and zeros below (``mirror_upper`` fills them); with ``right_columns``
    the whole block of it at columns left x right.

    Whole numbers are multiplied in single precision as long as every sum stays exact there (rows * largest^2 < 2^24), and added
    up in double precision: the result is exact below 2^53. It is float32 where all sums fit, else float64. Others are multiplied in
    double precision.
    """
    total = _GramSum(source.shape[1], left_columns, right_columns, sizes.single_rows)
    for bounds in _row_ranges(source.shape, start, stop, sizes.row_block_bytes):
        total.add(_read_numbers(source, *bounds))
    return total.result()


def mirror_upper(upper: Matrix) -> Matrix:
    """The symmetric matrix, float64, whose upper half is given with zeros below; float64 is filled where it is."""
    whole = upper.astype(np.float64, copy=False)
    whole += np.triu(upper, 1).T
    return whole


class _GramSum:
    """B'B of one block of rows after the other; its upper half only where left and right are the same."""

    def __init__(self, columns: int, left_columns: slice, right_columns: slice | None, single_rows: int) -> None:
        self.left_columns, self.right_columns, self.single_rows = left_columns, right_columns, single_rows
        widths = [
            len(range(columns)[selection])
            for selection in (left_columns, left_columns if right_columns is None else right_columns)
        ]
        self.total: Matrix | None = None
        self.single = np.zeros(widths, dtype=np.float32)
        self.pending = 0
        self.conversion_buffer = np.empty(
            (0, columns), dtype=np.float32
        )  # fresh memory for every block costs a tenth of its product

    def add(self, block: Any) -> None:
        if scipy.sparse.issparse(block):
            real = block.astype(np.float64).tocsc()
            product = (
                real[:, self.left_columns].T
                @ real[:, self.left_columns if self.right_columns is None else self.right_columns]
            ).toarray()
            self._double_total()[:] += np.triu(product) if self.right_columns is None else product
            return
        largest = _largest_integer(block)
        rows = block.shape[0] if largest == 0 else int(EXACT_FLOAT32 // largest**2) if largest is not None else 0
        if largest is None or rows < self.single_rows:
            self._add_product(block.astype(np.float64), self._double_total())
            return
        for start in range(0, block.shape[0], rows):
            single_block = self._to_single(block[start : start + rows])
            weight = single_block.shape[0] * int(largest) ** 2
            if self.pending + weight > EXACT_FLOAT32:
                self._double_total()[:] += self.single
                self.single[:] = 0.0
                self.pending = 0
            self._add_product(single_block, self.single)
            self.pending += weight

    def _to_single(self, rows: Matrix) -> Matrix:
        if self.conversion_buffer.shape[0] < rows.shape[0]:
            self.conversion_buffer = np.empty(rows.shape, dtype=np.float32)
        converted = self.conversion_buffer[: rows.shape[0]]
        np.copyto(converted, rows, casting="unsafe")
        return converted

    def result(self) -> Matrix:
        if self.total is None:
            return self.single
        self.total += self.single
        return self.total

    def _double_total(self) -> Matrix:
        """The sum in double precision, zeros at first."""
        if self.total is None:
            self.total = np.zeros(self.single.shape)
        return self.total

    def _add_product(self, block: Matrix, into: Matrix) -> None:
        """Add the product of rows; BLAS goes by columns, for which ``into`` is the transpose of what it computes."""
        double = block.dtype == np.float64
        left_block = np.ascontiguousarray(block[:, self.left_columns])
        if self.right_columns is None:
            multiply = scipy.linalg.blas.dsyrk if double else scipy.linalg.blas.ssyrk
            multiply(1.0, left_block.T, beta=1.0, c=into.T, lower=1, overwrite_c=1)
            return
        multiply = scipy.linalg.blas.dgemm if double else scipy.linalg.blas.sgemm
        right_block = np.ascontiguousarray(block[:, self.right_columns])
        multiply(1.0, right_block.T, left_block.T, beta=1.0, c=into.T, trans_b=1, overwrite_c=1)


def _largest_integer(block: Matrix) -> int | None:
    """The largest magnitude when all entries are whole numbers, else None."""
    if block.dtype.kind == "f" and not (block == np.rint(block)).all():
        return None
    return max(abs(int(block.max())), abs(int(block.min())))


def _read_numbers(source: RowSource, start: int, stop: int) -> Any:
    """Rows as they are stored, checked to be real numbers in the shape that was asked for."""
    block = source.read(start, stop)
    if block.shape != (stop - start, source.shape[1]):
        raise InvalidInput(f"rows {start} to {stop} of {source.shape[1]} columns were asked for, found shape {block.shape}")
    if block.dtype.kind not in "biuf":
        raise InvalidInput(f"a matrix of real numbers is needed, found dtype {block.dtype}")
    return block.astype(np.int64) if block.dtype.kind in "bu" else block


def _row_ranges(
    shape: tuple[int, int], start: int, stop: int, block_bytes: int = SIZES.row_block_bytes
) -> Iterator[tuple[int, int]]:
    """Row ranges of a block each, the same whoever cuts."""
    step = max(1, block_bytes // (8 * shape[1]))
    for block_start in range(start - start % step, stop, step):
        yield max(block_start, start), min(block_start + step, stop)
