"""Operators made of operators: scaled, stacked, multiplied, put in another order, padded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpdist.domain.labels import Made
from dpdist.errors import InvalidInput
from dpdist.operators.kronecker_product import Kronecker, Marginal
from dpdist.operators.linear_operator import Matrix, Operator

COLUMNS = 2**22
"""Up to here columns are looked at one by one."""


class Scaled(Operator):
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

    def row_norms_squared(self) -> Matrix:
        return self.factor**2 * self.operator.row_norms_squared()

    def column_norms_squared(self) -> Matrix:
        return self.factor**2 * self.operator.column_norms_squared()

    def column_norms_l1(self) -> Matrix:
        return abs(self.factor) * self.operator.column_norms_l1()

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
        return self._like(x) * self.operator.matvec(x)

    def rmatvec(self, y: Matrix) -> Matrix:
        return self.operator.rmatvec(self._like(y) * y)

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

    def _like(self, x: Matrix) -> Matrix:
        scales = self.scales.astype(np.int64) if x.dtype.kind == "i" and self.integral else self.scales
        return scales.reshape(-1, *(1,) * (x.ndim - 1))


class Stack(Operator):
    """Operators over the same cells, one above the other."""

    def __init__(self, parts: Sequence[Operator]) -> None:
        columns = {part.shape[1] for part in parts}
        if len(columns) != 1:
            raise InvalidInput(f"stacked operators need the same number of cells, found {sorted(columns)}")
        self.parts = tuple(parts)
        self.starts = np.concatenate([[0], np.cumsum([part.shape[0] for part in parts])]).astype(np.int64)
        self.shape = (int(self.starts[-1]), columns.pop())
        self.integral = all(part.integral for part in parts)

    def matvec(self, x: Matrix) -> Matrix:
        return np.concatenate([part.matvec(x) for part in self.parts])

    def rmatvec(self, y: Matrix) -> Matrix:
        pieces = (part.rmatvec(y[self.starts[i] : self.starts[i + 1]]) for i, part in enumerate(self.parts))
        out = next(pieces).copy()
        for piece in pieces:
            out = out + piece
        return out

    def rows(self, start: int, stop: int) -> Matrix:
        picked = []
        for i, part in enumerate(self.parts):
            low, high = max(start, int(self.starts[i])), min(stop, int(self.starts[i + 1]))
            if low < high:
                picked.append(part.rows(low - int(self.starts[i]), high - int(self.starts[i])))
        return np.concatenate(picked) if picked else np.zeros((0, self.shape[1]))

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        names: list[str] = []
        for i, part in enumerate(self.parts):
            low, high = max(start, int(self.starts[i])), min(stop, int(self.starts[i + 1]))
            if low < high:
                inside = part.row_names(low - int(self.starts[i]), high - int(self.starts[i]), *cells)
                names += [f"part {i}, {name}" for name in inside]
        return names

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        out = self.parts[0].gram_block(rows, columns)
        for part in self.parts[1:]:
            out = out + part.gram_block(rows, columns)
        return out

    def row_norms_squared(self) -> Matrix:
        return np.concatenate([part.row_norms_squared() for part in self.parts])

    def column_norms_squared(self) -> Matrix:
        return np.asarray(np.sum([part.column_norms_squared() for part in self.parts], axis=0))

    def column_norms_l1(self) -> Matrix:
        return np.asarray(np.sum([part.column_norms_l1() for part in self.parts], axis=0))

    @property
    def longest_row_squared(self) -> float:
        return max(part.longest_row_squared for part in self.parts)

    @property
    def frobenius_squared(self) -> float:
        return sum(part.frobenius_squared for part in self.parts)

    @property
    def l2_sensitivity(self) -> float:
        """Largest column norm; beyond ``COLUMNS`` columns an upper bound: as if all parts had theirs in one place."""
        if self.shape[1] <= COLUMNS:
            return super().l2_sensitivity
        return math.sqrt(sum(part.l2_sensitivity**2 for part in self.parts))

    @property
    def l1_sensitivity(self) -> float:
        """Largest L1 norm of a column; beyond ``COLUMNS`` columns an upper bound."""
        if self.shape[1] <= COLUMNS:
            return super().l1_sensitivity
        return sum(part.l1_sensitivity for part in self.parts)

    @property
    def sensitivity_bytes(self) -> int:
        norms = 0 if self.shape[1] > COLUMNS else 8 * self.shape[1] * (len(self.parts) + 2)
        return norms + max(part.sensitivity_bytes for part in self.parts)

    def description(self) -> tuple[object, ...]:
        return ("stack", *self.parts)


class Product(Operator):
    """left @ right, applied one after the other."""

    def __init__(self, left: Operator, right: Operator) -> None:
        if left.shape[1] != right.shape[0]:
            raise InvalidInput(f"shapes {left.shape} and {right.shape} do not chain")
        self.left, self.right = left, right
        self.shape = (left.shape[0], right.shape[1])
        self.integral = left.integral and right.integral

    def matvec(self, x: Matrix) -> Matrix:
        return self.left.matvec(self.right.matvec(x))

    def rmatvec(self, y: Matrix) -> Matrix:
        return self.right.rmatvec(self.left.rmatvec(y))

    def rows(self, start: int, stop: int) -> Matrix:
        return np.ascontiguousarray(self.right.rmatvec(np.ascontiguousarray(self.left.rows(start, stop).T)).T)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return self.left.row_names(start, stop)

    def row_norms_squared(self) -> Matrix:
        if not isinstance(self.right, Marginal):
            return super().row_norms_squared()
        # cells that each entry is for
        return self.left.row_norms_squared() * (self.right.shape[1] // self.right.shape[0])

    def column_norms_squared(self) -> Matrix:
        if not isinstance(self.right, Marginal):
            return super().column_norms_squared()
        return self.left.column_norms_squared()[self._table_cells(self.right)]

    def column_norms_l1(self) -> Matrix:
        if not isinstance(self.right, Marginal):
            return super().column_norms_l1()
        return self.left.column_norms_l1()[self._table_cells(self.right)]

    @staticmethod
    def _table_cells(right: Marginal) -> Matrix:
        """The cell of the table that each cell of the domain adds to: columns of a marginal hold a single one."""
        return right.rmatvec(np.arange(right.shape[0]))

    def gram(self) -> Matrix:
        if self.left.shape[0] <= self.left.shape[1]:
            return super().gram()
        return np.asarray(self.right.rmatvec(np.ascontiguousarray(self.right.rmatvec(self.left.gram()).T)))

    def description(self) -> tuple[object, ...]:
        return ("product", self.left, self.right)


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
        out = np.empty_like(inner)
        out[self.order] = inner
        return out

    def rows(self, start: int, stop: int) -> Matrix:
        inner = self.operator.rows(start, stop)
        out = np.empty_like(inner)
        out[:, self.order] = inner
        return out

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        if isinstance(self.operator, Kronecker):  # its cells have no names of their own in another order
            return self.operator.row_names(start, stop)
        names = cells[0] if cells else [str(cell) for cell in range(self.shape[1])]
        return self.operator.row_names(start, stop, [names[cell] for cell in self.order])

    def row_norms_squared(self) -> Matrix:
        return self.operator.row_norms_squared()

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        place = np.argsort(self.order)
        return np.asarray(self.operator.gram()[np.ix_(place[rows], place[columns])])

    def weighted_gram(self, weights: Matrix) -> Matrix:
        place = np.argsort(self.order)
        return np.asarray(self.operator.weighted_gram(weights)[np.ix_(place, place)])

    def column_norms_squared(self) -> Matrix:
        return self.operator.column_norms_squared()[np.argsort(self.order)]

    def column_norms_l1(self) -> Matrix:
        return self.operator.column_norms_l1()[np.argsort(self.order)]

    @property
    def longest_row_squared(self) -> float:
        return self.operator.longest_row_squared

    def description(self) -> tuple[object, ...]:
        return ("permuted", self.operator, self.order)


class Padded(Operator):
    """[A | 0]: the rows of an operator over the first cells, with zeros for ``extra`` cells after them."""

    def __init__(self, operator: Operator, extra: int) -> None:
        if extra != int(extra) or extra < 1:
            raise InvalidInput(f"the number of cells that are left out is a positive whole number, found {extra!r}")
        self.operator, self.extra = operator, int(extra)
        self.counted = operator.shape[1]
        self.shape = (operator.shape[0], self.counted + self.extra)
        self.integral = operator.integral

    @property
    def unpadded(self) -> Operator:
        return self.operator

    def matvec(self, x: Matrix) -> Matrix:
        return self.operator.matvec(x[: self.counted])

    def rmatvec(self, y: Matrix) -> Matrix:
        return self._widened(self.operator.rmatvec(y))

    def rows(self, start: int, stop: int) -> Matrix:
        return np.ascontiguousarray(self._widened(self.operator.rows(start, stop).T).T)

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        return self.operator.row_names(start, stop, *(_First(names, self.counted) for names in cells))

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        places = [np.arange(self.shape[1])[picked] for picked in (rows, columns)]
        inner = [place[place < self.counted] for place in places]
        out = np.zeros((places[0].size, places[1].size))
        if inner[0].size and inner[1].size:
            kept = [slice(int(place[0]), int(place[-1]) + 1) for place in inner]
            whole = self.operator.gram_block(*kept)
            within = whole[np.ix_(inner[0] - kept[0].start, inner[1] - kept[1].start)]
            out[np.ix_(places[0] < self.counted, places[1] < self.counted)] = within
        return out

    def weighted_gram(self, weights: Matrix) -> Matrix:
        out = np.zeros((self.shape[1], self.shape[1]))
        out[: self.counted, : self.counted] = self.operator.weighted_gram(weights)
        return out

    def row_quadratics(self, form: Matrix) -> Matrix:
        return self.operator.row_quadratics(form[: self.counted, : self.counted])

    def row_norms_squared(self) -> Matrix:
        return self.operator.row_norms_squared()

    def column_norms_squared(self) -> Matrix:
        return self._widened(self.operator.column_norms_squared())

    def column_norms_l1(self) -> Matrix:
        return self._widened(self.operator.column_norms_l1())

    @property
    def entry_range(self) -> tuple[float, float]:
        least, largest = self.operator.entry_range
        return min(least, 0.0), max(largest, 0.0)

    @property
    def longest_row_squared(self) -> float:
        return self.operator.longest_row_squared

    @property
    def frobenius_squared(self) -> float:
        return self.operator.frobenius_squared

    @property
    def l2_sensitivity(self) -> float:
        return self.operator.l2_sensitivity

    @property
    def l1_sensitivity(self) -> float:
        return self.operator.l1_sensitivity

    @property
    def sensitivity_bytes(self) -> int:
        return self.operator.sensitivity_bytes

    def description(self) -> tuple[object, ...]:
        return ("padded", self.extra, self.operator)

    def _widened(self, columns: Matrix) -> Matrix:
        return np.concatenate([columns, np.zeros((self.extra, *columns.shape[1:]), dtype=columns.dtype)])


@dataclass(frozen=True)
class _First(Made[str]):
    """The first of some names, which may be made when they are asked for."""

    names: Sequence[str]
    most: int

    def __len__(self) -> int:
        return min(self.most, len(self.names))

    def at(self, place: int) -> str:
        return self.names[place]

    def between(self, start: int, stop: int) -> Sequence[str]:
        return self.names[start:stop]
