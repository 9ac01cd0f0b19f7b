"""Operators over one ordered attribute: identity, totals, prefixes, ranges, Haar wavelets and trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators.dense_matrix import Sparse
from dpdist.operators.linear_operator import Matrix, Operator


def _check_cell_count(n: int) -> int:
    if n != int(n) or n < 1:
        raise InvalidInput(f"the number of cells must be a positive whole number, found {n!r}")
    return int(n)


def _cell_names(n: int, cells: tuple[Sequence[str], ...]) -> Sequence[str]:
    names = cells[0] if cells else [str(cell) for cell in range(n)]
    if len(names) != n:
        raise InvalidInput(f"{n} cells need {n} names, found {len(names)}")
    return names


def _interval_names(ends: Matrix, names: Sequence[str]) -> list[str]:
    return [f"{names[first_cell]} .. {names[last_cell]}" for first_cell, last_cell in ends]


def identity_rows(size: int, dtype: np.dtype[Any] | type = np.float64) -> Matrix:
    """The identity, (size, size), as windows of one line of zeros with a one in the middle: a view that takes no square array."""
    line = np.zeros(2 * size - 1, dtype=dtype)
    line[size - 1] = 1
    return np.lib.stride_tricks.sliding_window_view(line, size)[::-1]


class ZeroOneOperator(Operator):
    """Rows of zeros and ones."""

    def column_norms_l1(self) -> Matrix:
        return self.column_norms_squared()

    @property
    def entry_range(self) -> tuple[float, float]:
        return 0.0, 1.0


class Orthonormal(Operator):
    """A square matrix whose rows are orthonormal."""

    n: int

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        index = np.arange(self.n)
        return np.asarray(index[rows, None] == index[columns], dtype=np.float64)

    def row_norms_squared(self) -> Matrix:
        return np.ones(self.n)

    def column_norms_squared(self) -> Matrix:
        return np.ones(self.n)

    @property
    def l2_sensitivity(self) -> float:
        return 1.0  # without looking at every cell: there may be 10^17


class Identity(Orthonormal, ZeroOneOperator):
    """The count of each cell."""

    def __init__(self, n: int) -> None:
        self.n = _check_cell_count(n)
        self.shape = (self.n, self.n)

    def matvec(self, x: Matrix) -> Matrix:
        return x

    def rmatvec(self, y: Matrix) -> Matrix:
        return y

    def rows(self, start: int, stop: int) -> Matrix:
        return np.eye(stop - start, self.n, k=start)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return list(_cell_names(self.n, cells)[start:stop])

    def weighted_gram(self, weights: Matrix) -> Matrix:
        return np.diag(np.asarray(weights, dtype=np.float64))

    def row_quadratics(self, form: Matrix) -> Matrix:
        return np.diag(form).copy()

    @property
    def longest_row_squared(self) -> float:
        return 1.0

    @property
    def frobenius_squared(self) -> float:
        return float(self.n)

    @property
    def l1_sensitivity(self) -> float:
        return 1.0

    @property
    def sensitivity_bytes(self) -> int:
        return 0

    def description(self) -> tuple[object, ...]:
        return ("identity", self.n)


class Total(ZeroOneOperator):
    """One query that counts every cell."""

    def __init__(self, n: int) -> None:
        self.n = _check_cell_count(n)
        self.shape = (1, self.n)

    def matvec(self, x: Matrix) -> Matrix:
        return np.asarray(x.sum(axis=0, keepdims=True))

    def rmatvec(self, y: Matrix) -> Matrix:
        return np.repeat(y, self.n, axis=0)

    def rows(self, start: int, stop: int) -> Matrix:
        return np.ones((stop - start, self.n))

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return ["all"][start:stop]

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        return np.ones((len(range(self.n)[rows]), len(range(self.n)[columns])))

    def row_norms_squared(self) -> Matrix:
        return np.array([float(self.n)])

    def column_norms_squared(self) -> Matrix:
        return np.ones(self.n)

    @property
    def longest_row_squared(self) -> float:
        return float(self.n)

    def description(self) -> tuple[object, ...]:
        return ("total", self.n)


class Prefix(ZeroOneOperator):
    """Row i counts the cells 0..i: the empirical CDF."""

    def __init__(self, n: int) -> None:
        self.n = _check_cell_count(n)
        self.shape = (self.n, self.n)

    def matvec(self, x: Matrix) -> Matrix:
        return np.cumsum(x, axis=0)

    def rmatvec(self, y: Matrix) -> Matrix:
        return np.cumsum(y[::-1], axis=0)[::-1]

    def rows(self, start: int, stop: int) -> Matrix:
        return np.tri(stop - start, self.n, k=start)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return [f"up to {name}" for name in _cell_names(self.n, cells)[start:stop]]

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        index = np.arange(self.n)
        return (self.n - np.maximum(index[rows, None], index[columns])).astype(np.float64)

    def weighted_gram(self, weights: Matrix) -> Matrix:
        index = np.arange(self.n)
        return np.asarray(np.cumsum(weights[::-1])[::-1][np.maximum(index[:, None], index)], dtype=np.float64)

    def row_quadratics(self, form: Matrix) -> Matrix:
        return np.diag(np.cumsum(np.cumsum(form, axis=0), axis=1)).copy()

    def row_norms_squared(self) -> Matrix:
        return np.arange(1.0, self.n + 1)

    def column_norms_squared(self) -> Matrix:
        return np.arange(self.n, 0, -1, dtype=np.float64)

    @property
    def longest_row_squared(self) -> float:
        return float(self.n)

    def description(self) -> tuple[object, ...]:
        return ("prefix", self.n)


class AllRanges(ZeroOneOperator):
    """Every interval [i, j], 0 <= i <= j < n; rows ordered by i, then j."""

    def __init__(self, n: int) -> None:
        self.n = _check_cell_count(n)
        self.shape = (self.n * (self.n + 1) // 2, self.n)
        index = np.arange(self.n + 1)
        self._first_row = index * self.n - index * (index - 1) // 2

    def ends(self, start: int, stop: int) -> Matrix:
        """First and last cell of the intervals in rows start..stop, (rows, 2) int64."""
        row = np.arange(start, stop)
        first_cells = np.searchsorted(self._first_row, row, side="right") - 1
        return np.stack([first_cells, first_cells + row - self._first_row[first_cells]], axis=1)

    def matvec(self, x: Matrix) -> Matrix:
        sums = np.empty((self.shape[0], *x.shape[1:]), dtype=x.dtype)
        for i in range(self.n):
            np.cumsum(x[i:], axis=0, out=sums[self._first_row[i] : self._first_row[i + 1]])
        return sums

    def rmatvec(self, y: Matrix) -> Matrix:
        sums = np.zeros((self.n, *y.shape[1:]), dtype=y.dtype)
        for i in range(self.n):
            range_values = y[self._first_row[i] : self._first_row[i + 1]]
            sums[i:] += np.cumsum(range_values[::-1], axis=0)[::-1]
        return sums

    def rows(self, start: int, stop: int) -> Matrix:
        ends, cell = self.ends(start, stop), np.arange(self.n)
        return np.asarray((cell >= ends[:, :1]) & (cell <= ends[:, 1:]), dtype=np.float64)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return _interval_names(self.ends(start, stop), _cell_names(self.n, cells))

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        i, j = np.arange(self.n)[rows, None], np.arange(self.n)[columns]
        return np.asarray((np.minimum(i, j) + 1.0) * (self.n - np.maximum(i, j)))

    def weighted_gram(self, weights: Matrix) -> Matrix:
        by_ends = np.zeros((self.n, self.n))
        by_ends[np.triu_indices(self.n)] = weights
        covering = np.cumsum(np.cumsum(by_ends, axis=0)[:, ::-1], axis=1)[:, ::-1]
        upper = np.triu(covering)
        return np.asarray(upper + np.triu(upper, 1).T)

    def row_quadratics(self, form: Matrix) -> Matrix:
        # entry (i, j) of the sums is that of the block before row i and column j
        sums = np.zeros((self.n + 1, self.n + 1))
        np.cumsum(np.cumsum(form, axis=0), axis=1, out=sums[1:, 1:])
        corner = np.diag(sums)
        first_cells, last_cells = np.triu_indices(self.n)
        return np.asarray(
            corner[last_cells + 1]
            + corner[first_cells]
            - sums[first_cells, last_cells + 1]
            - sums[last_cells + 1, first_cells]
        )

    def row_norms_squared(self) -> Matrix:
        i, j = np.triu_indices(self.n)
        return np.asarray(j - i + 1, dtype=np.float64)

    def column_norms_squared(self) -> Matrix:
        index = np.arange(self.n, dtype=np.float64)
        return np.asarray((index + 1) * (self.n - index))

    @property
    def longest_row_squared(self) -> float:
        return float(self.n)

    def description(self) -> tuple[object, ...]:
        return ("all-ranges", self.n)


class ListedRanges(Sparse):
    """The given intervals [first, last] of one attribute, both ends included."""

    def __init__(self, n: int, ends: Matrix) -> None:
        self.n = _check_cell_count(n)
        ends = np.asarray(ends, dtype=np.int64).reshape(-1, 2)
        if ends.size == 0 or (ends[:, 0] > ends[:, 1]).any() or (ends < 0).any() or (ends >= n).any():
            raise InvalidInput(f"ranges need 0 <= first <= last < {n} and at least one row")
        self.ends = ends
        lengths = ends[:, 1] - ends[:, 0] + 1
        pointers = np.concatenate([[0], np.cumsum(lengths)])
        cells = np.arange(pointers[-1]) - np.repeat(pointers[:-1] - ends[:, 0], lengths)
        ones = np.ones(int(pointers[-1]))
        super().__init__(scipy.sparse.csr_array((ones, cells, pointers), shape=(len(ends), self.n)))

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return _interval_names(self.ends[start:stop], _cell_names(self.n, cells))


class Groups(Sparse):
    """The count of each group of cells: cell k is in group ``groups[k]``, or in none where that is negative."""

    def __init__(self, groups: Matrix, count: int) -> None:
        groups = np.asarray(groups, dtype=np.int64)
        cells = np.flatnonzero(groups >= 0)
        if count < 1 or groups.ndim != 1 or (groups >= count).any():
            raise InvalidInput(f"groups of cells are numbered from 0 to {count - 1}, found {int(groups.max(initial=-1))}")
        ones = np.ones(cells.size)
        super().__init__(scipy.sparse.csr_array((ones, (groups[cells], cells)), shape=(count, groups.size)))
        self.groups = groups


class Haar(Sparse):
    """The unnormalised Haar wavelet (entries -1, 0, 1): the total, then one difference of halves a node; n rows.

    A node of odd length has the larger half on its left, so any n will do; powers of two give the classic transform.
    Source: Xiao, Wang, Gehrke 2010 (Privelet): with these weights its generalised sensitivity is 1 + log2 n.
    """

    def __init__(self, n: int) -> None:
        self.n = _check_cell_count(n)
        left_halves: list[tuple[int, int]] = [(0, n - 1)]
        right_halves: list[tuple[int, int]] = []
        nodes = [(0, n)]
        while nodes:
            children = []
            for start, stop in nodes:
                if stop - start > 1:
                    middle = start + (stop - start + 1) // 2
                    left_halves.append((start, middle - 1))
                    right_halves.append((middle, stop - 1))
                    children += [(start, middle), (middle, stop)]
            nodes = children
        rows = ListedRanges(n, np.array(left_halves)).matrix
        if right_halves:
            zero = scipy.sparse.csr_array((1, n))
            rows = rows - scipy.sparse.vstack([zero, ListedRanges(n, np.array(right_halves)).matrix])
        super().__init__(scipy.sparse.csr_array(rows))
        self._halves = np.array(
            [(*left_half, *right_half) for left_half, right_half in zip(left_halves[1:], right_halves, strict=True)],
            dtype=np.int64,
        ).reshape(-1, 4)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        names = _cell_names(self.n, cells)
        half_names = [_interval_names(self._halves[:, half_columns], names) for half_columns in (slice(0, 2), slice(2, 4))]
        return ["all", *(f"{left_name} minus {right_name}" for left_name, right_name in zip(*half_names, strict=True))][
            start:stop
        ]


class Tree(ListedRanges):
    """Counts of the nodes of a tree with b children a node over the cells. The root comes first, the cells are the last level.

    Source: Hay et al. 2010 (hierarchical mechanism); Qardaji et al. 2013 for b > 2.
    """

    def __init__(self, n: int, branching: int = 2) -> None:
        super().__init__(n, np.array(tree_ranges(n, branching)))


def tree_ranges(n: int, branching: int) -> list[tuple[int, int]]:
    """First and last cell of every node of such a tree, each once. Raises: InvalidInput."""
    n = _check_cell_count(n)
    if branching < 2:
        raise InvalidInput(f"a tree needs a branching of at least 2, found {branching}")
    width = 1
    while width < n:
        width *= branching
    ends: list[tuple[int, int]] = []
    while width >= 1:
        ends += [(start, min(start + width, n) - 1) for start in range(0, n, width)]
        width //= branching
    return list(dict.fromkeys(ends))


def count_tree_ranges(n: int, branching: int) -> int:
    """How many nodes such a tree has, without listing them: a level's last node is its own only child where it is as narrow.

    >>> [count_tree_ranges(n, 2) == len(tree_ranges(n, 2)) for n in (1, 5, 8)]
    [True, True, True]
    """
    width, count = 1, n
    while width < n:
        width *= branching
        nodes = -(-n // width)
        count += nodes - (n - (nodes - 1) * width <= width // branching)
    return count
