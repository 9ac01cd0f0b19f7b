"""An integer basis of everything a workload asks.

W = C B with B an integer matrix of full row rank: B x is exact in int64, a strategy A = M B lies in the row space of W
(so answers are unbiased however coarse the grid), and all dense algebra happens in rank(B) <= n dimensions. Cells with
equal columns in W have equal columns in B: merging them happens here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators import (
    AllRanges,
    Dense,
    Groups,
    Identity,
    Kronecker,
    Matrix,
    Operator,
    Padded,
    Permuted,
    Prefix,
    Product,
    Sparse,
    TallMatrix,
    Toeplitz,
    Total,
)
from dpdist.operators.linear_operator import ROW_BLOCK_BYTES
from dpdist.size_limits import Sizes
from dpdist.workloads.block import Block
from dpdist.workloads.workload import Workload

Subset = tuple[int, ...]


class SubsetBasis(Operator):
    """B: for every attribute set T of a downward-closed family, the cells of the T-marginal without first values.

    ``codes[i]`` maps the values of attribute i to merged values; the first merged value is the left-out one.
    """

    def __init__(self, shape: tuple[int, ...], codes: tuple[Matrix, ...], family: tuple[Subset, ...]) -> None:
        self.domain_shape, self.codes, self.family = shape, codes, family
        self.sizes = tuple(int(code.max()) + 1 for code in codes)
        widths = [math.prod(self.sizes[axis] - 1 for axis in subset) for subset in family]
        self.starts = np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)
        self.shape = (int(self.starts[-1]), math.prod(shape))

    def positions(self, cells: Matrix) -> Matrix:
        """For the given cells, the row of each subset that counts the cell, or -1; (family, len(cells)) int64."""
        raw = np.unravel_index(cells, self.domain_shape)
        merged = [self.codes[axis][index] for axis, index in enumerate(raw)]
        row_numbers = np.empty((len(self.family), cells.size), dtype=np.int64)
        for k, subset in enumerate(self.family):
            flat = np.zeros(cells.size, dtype=np.int64)
            counted = np.ones(cells.size, dtype=bool)
            for axis in subset:
                flat = flat * (self.sizes[axis] - 1) + merged[axis] - 1
                counted &= merged[axis] > 0
            row_numbers[k] = np.where(counted, self.starts[k] + flat, -1)
        return row_numbers

    def matvec_cells(self, start: int, x: Matrix) -> Matrix:
        """The part of B x that the cells start.. contribute: sums over chunks are exact."""
        product = np.zeros((self.shape[0], *x.shape[1:]), dtype=x.dtype)
        for row in self.positions(np.arange(start, start + x.shape[0])):
            np.add.at(product, row[row >= 0], x[row >= 0])
        return product

    def matvec(self, x: Matrix) -> Matrix:
        return self.matvec_cells(0, x)

    def rmatvec_cells(self, start: int, stop: int, y: Matrix) -> Matrix:
        """Rows start..stop of B'y."""
        product = np.zeros((stop - start, *y.shape[1:]), dtype=y.dtype)
        padded = np.concatenate([y, np.zeros_like(y[:1])])  # at -1 of cells that are not counted
        row_values = np.empty_like(product)
        for row in self.positions(np.arange(start, stop)):
            product += np.take(padded, row, axis=0, out=row_values, mode="wrap")  # -1 is the last; "raise" copies first
        return product

    def rmatvec(self, y: Matrix) -> Matrix:
        return self.rmatvec_cells(0, self.shape[1], y)

    def description(self) -> tuple[object, ...]:
        return ("subset-basis", self.domain_shape, self.family, *self.codes)


@dataclass(frozen=True)
class Basis:
    """W = C B: the integer basis B of a workload and the coordinates C of its rows.

    Attributes:
        operator: B, (r, n); ``None`` means the identity (r = n).
        workload: the workload it belongs to.
    """

    workload: Workload
    operator: SubsetBasis | None

    @cached_property
    def blocks(self) -> tuple[tuple[tuple[Operator, ...], Matrix], ...]:
        """For each block its factors in local coordinates and the rows of B that they refer to; none where B is the identity.

        Planning asks for the sizes of a basis many times before anything is computed in its coordinates.
        """
        if self.operator is None:
            return ()
        return tuple(_local(block, self.operator, self.workload.domain.sizes) for block in self.workload.blocks)

    @property
    def rank(self) -> int:
        """r, the number of rows of B; at least rank(W)."""
        return self.operator.shape[0] if self.operator is not None else self.workload.domain.cells

    @property
    def cells(self) -> int:
        """Number of distinct columns of B."""
        return math.prod(self.operator.sizes) if self.operator is not None else self.workload.domain.cells

    @cached_property
    def representatives(self) -> Matrix:
        """One cell for each distinct column of B, ascending."""
        if self.operator is None:
            return np.arange(self.workload.domain.cells)
        first_values = [np.unique(code, return_index=True)[1] for code in self.operator.codes]
        grid = np.ix_(*first_values)
        return np.sort(np.ravel_multi_index(np.broadcast_arrays(*grid), self.workload.domain.shape).ravel())

    def columns(self, cells: Matrix) -> Matrix:
        """Columns of B at the given cells, dense (r, len(cells)) float64."""
        if self.operator is None:
            dense = np.zeros((self.rank, cells.size))
            dense[cells, np.arange(cells.size)] = 1.0
            return dense
        dense = np.zeros((self.rank, cells.size))
        for row in self.operator.positions(cells):
            dense[row[row >= 0], np.flatnonzero(row >= 0)] = 1.0
        return dense

    def coordinates(self, start: int, stop: int, *, weighted: bool) -> Matrix:
        """Rows start..stop of C, dense (stop - start, r) float64."""
        if self.operator is None:
            source = self.workload.operator if weighted else self.workload.unweighted
            return source.rows(start, stop)
        dense = np.zeros((stop - start, self.rank))
        for (first_row, block), (factors, basis_rows) in zip(self.workload.block_starts(), self.blocks, strict=True):
            low, high = max(start, first_row), min(stop, first_row + block.queries)
            if low < high:
                rows = _kronecker(factors).rows(low - first_row, high - first_row)
                scales = block.weights[low - first_row : high - first_row, None] if weighted else 1.0
                dense[low - start : high - start, basis_rows] = rows * scales
        return dense

    def coordinates_of(self, block: Block) -> Matrix:
        """Rows of further queries over the same domain in terms of B, dense (queries, r) float64.

        Raises: InvalidInput when they are no combination of B's rows: no measurement of B says anything exact about them.
        """
        if self.operator is None:
            return block.operator(self.workload.domain.shape).dense()
        axes = tuple(axis for axis in block.axes if self.operator.sizes[axis] > 1)
        merged = all(self._constant_where_merged(block, axis) for axis in block.axes)
        if axes not in self.operator.family or not merged:
            raise InvalidInput(f"{block.name!r} cannot be computed from the workload's queries; add it to the workload")
        factors, basis_rows = _local(block, self.operator, self.workload.domain.sizes)
        dense = np.zeros((block.queries, self.rank))
        dense[:, basis_rows] = _kronecker(factors).dense()
        return dense

    def _constant_where_merged(self, block: Block, axis: int) -> bool:
        assert self.operator is not None
        signature = _signature(self.workload, block, axis)
        codes = self.operator.codes[axis]
        _, first_values = np.unique(codes, return_index=True)
        return bool((signature == signature[first_values][codes]).all())

    def gram(self) -> Matrix:
        """C'C of the weighted coordinates, (r, r) float64, in closed form block by block."""
        if self.operator is None:
            return self.workload.gram()
        total = np.zeros((self.rank, self.rank))
        for number in range(len(self.workload.blocks)):
            basis_rows, gram = self.block_gram(number)
            total[np.ix_(basis_rows, basis_rows)] += gram
        return total

    def block_gram(self, number: int) -> tuple[Matrix, Matrix]:
        """The rows of B that a block of queries refers to, and the block's share of ``gram`` over them."""
        block = self.workload.blocks[number]
        if self.operator is None:
            rows = block.operator(self.workload.domain.shape, scaled=True)
            return np.arange(self.rank), block.weight**2 * rows.gram()
        factors, basis_rows = self.blocks[number]
        return basis_rows, block.weight**2 * _kronecker(block.scaled(factors)).gram()


def integer_basis(workload: Workload) -> Basis:
    """The integer basis of a workload's row space, with equal cells merged, or the identity if no smaller basis is known.

    Rows that are read when they are needed are not looked through for equal cells.

    Args:
        workload: the queries, (m, n).
    """
    if any(isinstance(factor, TallMatrix) for block in workload.blocks for factor in block.factors):
        return Basis(workload, None)
    sizes = workload.domain.shape
    codes = tuple(_merged_codes(workload, axis) for axis in range(len(sizes)))
    merged = tuple(int(code.max()) + 1 for code in codes)
    tops = {tuple(axis for axis in block.axes if merged[axis] > 1) for block in workload.blocks}
    closed = {subset for top in tops for k in range(len(top) + 1) for subset in combinations(top, k)}
    family = tuple(sorted(closed, key=lambda subset: (len(subset), subset)))
    operator = SubsetBasis(sizes, codes, family)
    return Basis(workload, None if operator.shape[0] == workload.domain.cells else operator)


def _merged_codes(workload: Workload, axis: int) -> Matrix:
    """Equal values of an attribute get equal codes, numbered by first appearance."""
    size = workload.domain.shape[axis]
    touching = [block for block in workload.blocks if axis in block.axes]
    if not touching:
        return np.zeros(size, dtype=np.int64)
    if any(block.separable and isinstance(block.factors[block.axes.index(axis)], Identity) for block in touching):
        return np.arange(size)  # no two values are equal
    stacked = np.concatenate([_signature(workload, block, axis) for block in touching], axis=1)
    _, first_positions, inverse = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(first_positions.size, dtype=np.int64)
    rank[np.argsort(first_positions)] = np.arange(first_positions.size)
    return np.asarray(rank[inverse.ravel()])


def _signature(workload: Workload, block: Block, axis: int) -> Matrix:
    """One row of codes a value of the attribute: values with equal rows are treated alike by the block."""
    position = block.axes.index(axis)
    if block.separable:
        return column_codes(block.factors[position])[:, None]
    shape = tuple(workload.domain.shape[block_axis] for block_axis in block.axes)
    codes = column_codes(block.factors[0]).reshape(shape)
    return np.moveaxis(codes, position, 0).reshape(shape[position], -1)


def column_codes(operator: Operator, block_bytes: int = ROW_BLOCK_BYTES) -> Matrix:
    """Equal columns get equal codes, (columns,) int64; rows are looked at block by block."""
    columns = operator.shape[1]
    if isinstance(operator, Identity | Prefix | AllRanges) or (isinstance(operator, Toeplitz) and operator.first_lag == 0):
        return np.arange(columns)
    if columns == 1 or isinstance(operator, Total):
        return np.zeros(columns, dtype=np.int64)
    if isinstance(operator, Groups):
        return operator.groups
    if isinstance(operator, Permuted):
        return column_codes(operator.operator)[np.argsort(operator.order)]
    if isinstance(operator, Padded):
        counted = column_codes(operator.operator, block_bytes)
        empty = np.flatnonzero(operator.operator.column_norms_l1() == 0)
        code = counted[empty[0]] if empty.size else counted.max() + 1
        return np.concatenate([counted, np.full(operator.extra, code)])
    codes = np.zeros(columns, dtype=np.int64)
    for start, stop in operator.row_blocks(block_bytes):
        stacked = np.column_stack([codes, operator.rows(start, stop).T])
        codes = np.unique(stacked, axis=0, return_inverse=True)[1].ravel()
        if int(codes.max()) == columns - 1:
            break
    return np.asarray(codes)


def _local(block: Block, operator: SubsetBasis, limits: Sizes) -> tuple[tuple[Operator, ...], Matrix]:
    """The block's rows in local coordinates, and where those stand in B."""
    varying_axes = [axis for axis in block.axes if operator.sizes[axis] > 1]
    sizes = tuple(operator.sizes[axis] for axis in varying_axes)
    if block.separable:
        factors: tuple[Operator, ...] = tuple(
            _in_coordinates(factor, operator.codes[axis], limits)
            for axis, factor in zip(block.axes, block.factors, strict=True)
        )
    else:
        shape = tuple(operator.domain_shape[axis] for axis in block.axes)
        tensor = block.factors[0].dense().reshape(-1, *shape)
        for position, axis in enumerate(block.axes):
            tensor = np.moveaxis(_differences(np.moveaxis(tensor, position + 1, -1), operator.codes[axis]), -1, position + 1)
        factors = (Dense(tensor.reshape(tensor.shape[0], -1)),)
    index = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=np.int64)
    basis_rows = np.empty(index.shape[1], dtype=np.int64)
    is_counted = index > 0
    for pattern in {tuple(column) for column in is_counted.T}:
        columns = np.flatnonzero((is_counted == np.array(pattern, dtype=bool)[:, None]).all(axis=0))
        subset = tuple(axis for axis, here in zip(varying_axes, pattern, strict=True) if here)
        flat = np.zeros(columns.size, dtype=np.int64)
        for position, axis in enumerate(varying_axes):
            if pattern[position]:
                flat = flat * (operator.sizes[axis] - 1) + index[position, columns] - 1
        basis_rows[columns] = operator.starts[operator.family.index(subset)] + flat
    return factors, basis_rows


def _in_coordinates(factor: Operator, codes: Matrix, sizes: Sizes) -> Operator:
    """A factor's rows in the coordinates of ``_differences``; large ones by a product that picks and subtracts columns."""
    if factor.shape[0] * factor.shape[1] <= sizes.factor_entries:
        return Dense(_differences(factor.dense(), codes))
    _, first_values = np.unique(codes, return_index=True)
    merged_values = np.arange(1, first_values.size)
    rows = np.concatenate([first_values, np.full(merged_values.size, first_values[0])])
    columns = np.concatenate([np.arange(first_values.size), merged_values])
    signs = np.concatenate([np.ones(first_values.size), -np.ones(merged_values.size)])
    return Product(
        factor, Sparse(scipy.sparse.csr_array((signs, (rows, columns)), shape=(factor.shape[1], first_values.size)))
    )


def _differences(rows: Matrix, codes: Matrix) -> Matrix:
    """q = q_1 * (all cells) + sum_k (q_k - q_1) * (merged cell k), along the last axis."""
    _, first_values = np.unique(codes, return_index=True)
    picked = rows[..., first_values].copy()
    picked[..., 1:] -= picked[..., :1]
    return np.asarray(picked)


def _kronecker(factors: tuple[Operator, ...]) -> Operator:
    return factors[0] if len(factors) == 1 else Kronecker(factors)
