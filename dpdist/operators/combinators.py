"""Operators made of operators: scaled, stacked, multiplied, put in another order, padded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpdist.domain.labels import LazySequence
from dpdist.errors import InvalidInput
from dpdist.operators.kronecker_product import Kronecker, Marginal
from dpdist.operators.linear_operator import Matrix, Operator

EXACT_NORM_COLUMNS = 2**22
"""Up to here columns are looked at one by one."""


class _MultipliedNorms(Operator):
    """Rows that are those of another operator times a constant, with or without zeros for further cells: so are their norms.

    Attributes:
        factor: the constant.
    """

    operator: Operator
    factor: float = 1.0

    def row_norms_squared(self) -> Matrix:
        return self.factor**2 * self.operator.row_norms_squared()

    @property
    def longest_row_squared(self) -> float:
        return self.factor**2 * self.operator.longest_row_squared

    @property
    def frobenius_squared(self) -> float:
        return self.factor**2 * self.operator.frobenius_squared

    @property
    def l2_sensitivity(self) -> float:
        return abs(self.factor) * self.operator.l2_sensitivity

    @property
    def l1_sensitivity(self) -> float:
        return abs(self.factor) * self.operator.l1_sensitivity

    @property
    def sensitivity_bytes(self) -> int:
        return self.operator.sensitivity_bytes


class Scaled(_MultipliedNorms):
    """A constant times an operator."""

    def __init__(self, factor: float, operator: Operator) -> None:
        if not np.isfinite(factor):
            raise InvalidInput(f"a finite factor is needed, found {factor!r}")
        self.factor, self.operator = float(factor), operator
        self.shape = operator.shape
        self.integral = operator.integral and self.factor.is_integer()

    def matvec(self, x: Matrix) -> Matrix:
        return self._constant(x) * self.operator.matvec(x)

    def rmatvec(self, y: Matrix) -> Matrix:
        return self._constant(y) * self.operator.rmatvec(y)

    def rows(self, start: int, stop: int) -> Matrix:
        return self.factor * self.operator.rows(start, stop)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return self.operator.row_names(start, stop, *cells)

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        return self.factor**2 * self.operator.gram_block(rows, columns)

    def column_norms_squared(self) -> Matrix:
        return self.factor**2 * self.operator.column_norms_squared()

    def column_norms_l1(self) -> Matrix:
        return abs(self.factor) * self.operator.column_norms_l1()

    def description(self) -> tuple[object, ...]:
        return ("scaled", self.factor, self.operator)

    def _constant(self, x: Matrix) -> float | int:
        return int(self.factor) if x.dtype.kind == "i" and self.factor.is_integer() else self.factor


class RowScaled(Operator):
    """The rows of an operator, each multiplied by its own positive number."""

    def __init__(self, scales: Matrix, operator: Operator) -> None:
        scales = np.asarray(scales, dtype=np.float64)
        if scales.shape != (operator.shape[0],) or not np.isfinite(scales).all() or (scales <= 0).any():
            raise InvalidInput(f"{operator.shape[0]} rows need as many positive finite scales, found shape {scales.shape}")
        self.scales, self.operator = scales, operator
        self.shape = operator.shape
        self.integral = operator.integral and bool((scales == np.rint(scales)).all())

    def matvec(self, x: Matrix) -> Matrix:
        return self._typed_scales(x) * self.operator.matvec(x)

    def rmatvec(self, y: Matrix) -> Matrix:
        return self.operator.rmatvec(self._typed_scales(y) * y)

    def rows(self, start: int, stop: int) -> Matrix:
        return self.scales[start:stop, None] * self.operator.rows(start, stop)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return self.operator.row_names(start, stop, *cells)

    def weighted_gram(self, weights: Matrix) -> Matrix:
        return self.operator.weighted_gram(weights * self.scales**2)

    def row_quadratics(self, form: Matrix) -> Matrix:
        return np.asarray(self.scales**2 * self.operator.row_quadratics(form))

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        return self.operator.weighted_gram(self.scales**2)[rows, columns]

    def row_norms_squared(self) -> Matrix:
        return np.asarray(self.scales**2 * self.operator.row_norms_squared())

    def column_norms_squared(self) -> Matrix:
        return np.diag(self.gram()).copy()

    def description(self) -> tuple[object, ...]:
        return ("row-scaled", self.scales, self.operator)

    def _typed_scales(self, x: Matrix) -> Matrix:
        scales = self.scales.astype(np.int64) if x.dtype.kind == "i" and self.integral else self.scales
        return scales.reshape(-1, *(1,) * (x.ndim - 1))


class Stack(Operator):
    """Operators over the same cells, one above the other."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        columns = {operator.shape[1] for operator in operators}
        if len(columns) != 1:
            raise InvalidInput(f"stacked operators need the same number of cells, found {sorted(columns)}")
        self.operators = tuple(operators)
        self.starts = np.concatenate([[0], np.cumsum([operator.shape[0] for operator in operators])]).astype(np.int64)
        self.shape = (int(self.starts[-1]), columns.pop())
        self.integral = all(operator.integral for operator in operators)

    def matvec(self, x: Matrix) -> Matrix:
        return np.concatenate([operator.matvec(x) for operator in self.operators])

    def rmatvec(self, y: Matrix) -> Matrix:
        products = (operator.rmatvec(y[self.starts[i] : self.starts[i + 1]]) for i, operator in enumerate(self.operators))
        total = next(products).copy()
        for product in products:
            total = total + product
        return total

    def rows(self, start: int, stop: int) -> Matrix:
        picked = []
        for i, operator in enumerate(self.operators):
            low, high = max(start, int(self.starts[i])), min(stop, int(self.starts[i + 1]))
            if low < high:
                picked.append(operator.rows(low - int(self.starts[i]), high - int(self.starts[i])))
        return np.concatenate(picked) if picked else np.zeros((0, self.shape[1]))

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        names: list[str] = []
        for i, operator in enumerate(self.operators):
            low, high = max(start, int(self.starts[i])), min(stop, int(self.starts[i + 1]))
            if low < high:
                inside = operator.row_names(low - int(self.starts[i]), high - int(self.starts[i]), *cells)
                names += [f"part {i}, {name}" for name in inside]
        return names

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        gram = self.operators[0].gram_block(rows, columns)
        for operator in self.operators[1:]:
            gram = gram + operator.gram_block(rows, columns)
        return gram

    def row_norms_squared(self) -> Matrix:
        return np.concatenate([operator.row_norms_squared() for operator in self.operators])

    def column_norms_squared(self) -> Matrix:
        return np.asarray(np.sum([operator.column_norms_squared() for operator in self.operators], axis=0))

    def column_norms_l1(self) -> Matrix:
        return np.asarray(np.sum([operator.column_norms_l1() for operator in self.operators], axis=0))

    @property
    def longest_row_squared(self) -> float:
        return max(operator.longest_row_squared for operator in self.operators)

    @property
    def frobenius_squared(self) -> float:
        return sum(operator.frobenius_squared for operator in self.operators)

    @property
    def l2_sensitivity(self) -> float:
        """Largest column norm; beyond ``COLUMNS`` columns an upper bound: as if all parts had theirs in one place."""
        if self.shape[1] <= EXACT_NORM_COLUMNS:
            return super().l2_sensitivity
        return math.sqrt(sum(operator.l2_sensitivity**2 for operator in self.operators))

    @property
    def l1_sensitivity(self) -> float:
        """Largest L1 norm of a column; beyond ``COLUMNS`` columns an upper bound."""
        if self.shape[1] <= EXACT_NORM_COLUMNS:
            return super().l1_sensitivity
        return sum(operator.l1_sensitivity for operator in self.operators)

    @property
    def sensitivity_bytes(self) -> int:
        norms = 0 if self.shape[1] > EXACT_NORM_COLUMNS else 8 * self.shape[1] * (len(self.operators) + 2)
        return norms + max(operator.sensitivity_bytes for operator in self.operators)

    def description(self) -> tuple[object, ...]:
        return ("stack", *self.operators)


class Product(Operator):
    """left @ right, applied one after the other."""

    def __init__(self, left_factor: Operator, right_factor: Operator) -> None:
        if left_factor.shape[1] != right_factor.shape[0]:
            raise InvalidInput(f"shapes {left_factor.shape} and {right_factor.shape} do not chain")
        self.left_factor, self.right_factor = left_factor, right_factor
        self.shape = (left_factor.shape[0], right_factor.shape[1])
        self.integral = left_factor.integral and right_factor.integral

    def matvec(self, x: Matrix) -> Matrix:
        return self.left_factor.matvec(self.right_factor.matvec(x))

    def rmatvec(self, y: Matrix) -> Matrix:
        return self.right_factor.rmatvec(self.left_factor.rmatvec(y))

    def rows(self, start: int, stop: int) -> Matrix:
        return np.ascontiguousarray(self.right_factor.rmatvec(np.ascontiguousarray(self.left_factor.rows(start, stop).T)).T)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return self.left_factor.row_names(start, stop)

    def row_norms_squared(self) -> Matrix:
        if not isinstance(self.right_factor, Marginal):
            return super().row_norms_squared()
        # cells that each entry is for
        return self.left_factor.row_norms_squared() * (self.right_factor.shape[1] // self.right_factor.shape[0])

    def column_norms_squared(self) -> Matrix:
        if not isinstance(self.right_factor, Marginal):
            return super().column_norms_squared()
        return self.left_factor.column_norms_squared()[self._table_cells(self.right_factor)]

    def column_norms_l1(self) -> Matrix:
        if not isinstance(self.right_factor, Marginal):
            return super().column_norms_l1()
        return self.left_factor.column_norms_l1()[self._table_cells(self.right_factor)]

    @staticmethod
    def _table_cells(marginal: Marginal) -> Matrix:
        """The cell of the table that each cell of the domain adds to: columns of a marginal hold a single one."""
        return marginal.rmatvec(np.arange(marginal.shape[0]))

    def gram(self) -> Matrix:
        if self.left_factor.shape[0] <= self.left_factor.shape[1]:
            return super().gram()
        return np.asarray(
            self.right_factor.rmatvec(np.ascontiguousarray(self.right_factor.rmatvec(self.left_factor.gram()).T))
        )

    def description(self) -> tuple[object, ...]:
        return ("product", self.left_factor, self.right_factor)


class Permuted(Operator):
    """An operator over cells in another order: cell ``order[j]`` of this one is cell j of the inner one."""

    def __init__(self, operator: Operator, order: Matrix) -> None:
        order = np.asarray(order)
        if order.shape != (operator.shape[1],) or (np.sort(order) != np.arange(order.size)).any():
            raise InvalidInput(f"an order of {operator.shape[1]} cells names each of them once")
        self.operator, self.order = operator, order.astype(np.int64)
        self.shape, self.integral = operator.shape, operator.integral

    def matvec(self, x: Matrix) -> Matrix:
        return self.operator.matvec(x[self.order])

    def rmatvec(self, y: Matrix) -> Matrix:
        inner = self.operator.rmatvec(y)
        permuted = np.empty_like(inner)
        permuted[self.order] = inner
        return permuted

    def rows(self, start: int, stop: int) -> Matrix:
        inner = self.operator.rows(start, stop)
        permuted = np.empty_like(inner)
        permuted[:, self.order] = inner
        return permuted

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        if isinstance(self.operator, Kronecker):  # its cells have no names of their own in another order
            return self.operator.row_names(start, stop)
        names = cells[0] if cells else [str(cell) for cell in range(self.shape[1])]
        return self.operator.row_names(start, stop, [names[cell] for cell in self.order])

    def row_norms_squared(self) -> Matrix:
        return self.operator.row_norms_squared()

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        positions = np.argsort(self.order)
        return np.asarray(self.operator.gram()[np.ix_(positions[rows], positions[columns])])

    def weighted_gram(self, weights: Matrix) -> Matrix:
        positions = np.argsort(self.order)
        return np.asarray(self.operator.weighted_gram(weights)[np.ix_(positions, positions)])

    def column_norms_squared(self) -> Matrix:
        return self.operator.column_norms_squared()[np.argsort(self.order)]

    def column_norms_l1(self) -> Matrix:
        return self.operator.column_norms_l1()[np.argsort(self.order)]

    @property
    def longest_row_squared(self) -> float:
        return self.operator.longest_row_squared

    def description(self) -> tuple[object, ...]:
        return ("permuted", self.operator, self.order)


class Padded(_MultipliedNorms):
    """[A | 0]: the rows of an operator over the first cells, with zeros for ``extra`` cells after them."""

    def __init__(self, operator: Operator, extra: int) -> None:
        if extra != int(extra) or extra < 1:
            raise InvalidInput(f"the number of cells that are left out is a positive whole number, found {extra!r}")
        self.operator, self.extra = operator, int(extra)
        self.counted_cells = operator.shape[1]
        self.shape = (operator.shape[0], self.counted_cells + self.extra)
        self.integral = operator.integral

    @property
    def unpadded(self) -> Operator:
        return self.operator

    def matvec(self, x: Matrix) -> Matrix:
        return self.operator.matvec(x[: self.counted_cells])

    def rmatvec(self, y: Matrix) -> Matrix:
        return self._pad_columns(self.operator.rmatvec(y))

    def rows(self, start: int, stop: int) -> Matrix:
        return np.ascontiguousarray(self._pad_columns(self.operator.rows(start, stop).T).T)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return self.operator.row_names(start, stop, *(_NamePrefix(names, self.counted_cells) for names in cells))

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        block_cells = [np.arange(self.shape[1])[picked] for picked in (rows, columns)]
        inner = [cells[cells < self.counted_cells] for cells in block_cells]
        block = np.zeros((block_cells[0].size, block_cells[1].size))
        if inner[0].size and inner[1].size:
            inner_slices = [slice(int(cells[0]), int(cells[-1]) + 1) for cells in inner]
            whole = self.operator.gram_block(*inner_slices)
            inner_block = whole[np.ix_(inner[0] - inner_slices[0].start, inner[1] - inner_slices[1].start)]
            block[np.ix_(block_cells[0] < self.counted_cells, block_cells[1] < self.counted_cells)] = inner_block
        return block

    def weighted_gram(self, weights: Matrix) -> Matrix:
        gram = np.zeros((self.shape[1], self.shape[1]))
        gram[: self.counted_cells, : self.counted_cells] = self.operator.weighted_gram(weights)
        return gram

    def row_quadratics(self, form: Matrix) -> Matrix:
        return self.operator.row_quadratics(form[: self.counted_cells, : self.counted_cells])

    def column_norms_squared(self) -> Matrix:
        return self._pad_columns(self.operator.column_norms_squared())

    def column_norms_l1(self) -> Matrix:
        return self._pad_columns(self.operator.column_norms_l1())

    @property
    def entry_range(self) -> tuple[float, float]:
        smallest, largest = self.operator.entry_range
        return min(smallest, 0.0), max(largest, 0.0)

    def description(self) -> tuple[object, ...]:
        return ("padded", self.extra, self.operator)

    def _pad_columns(self, columns: Matrix) -> Matrix:
        return np.concatenate([columns, np.zeros((self.extra, *columns.shape[1:]), dtype=columns.dtype)])


@dataclass(frozen=True)
class _NamePrefix(LazySequence[str]):
    """The first of some names, which may be made when they are asked for."""

    names: Sequence[str]
    max_names: int

    def __len__(self) -> int:
        return min(self.max_names, len(self.names))

    def value_at(self, index: int) -> str:
        return self.names[index]

    def slice_values(self, start: int, stop: int) -> Sequence[str]:
        return self.names[start:stop]
