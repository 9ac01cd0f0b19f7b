"""Kronecker products: one factor an attribute."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.operators.linear_operator import Matrix, Operator
from dpdist.operators.range_operators import Identity, Total


class Kronecker(Operator):
    """The Kronecker product A1 kron A2 kron ..., applied factor by factor. Its gram is the product of the factors' grams."""

    def __init__(self, factors: Sequence[Operator]) -> None:
        if not factors:
            raise InvalidInput("a Kronecker product needs at least one factor")
        self.factors = tuple(factors)
        self.shape = (math.prod(f.shape[0] for f in factors), math.prod(f.shape[1] for f in factors))
        self.integral = all(f.integral for f in factors)

    def matvec(self, x: Matrix) -> Matrix:
        return self._apply(x, transpose=False)

    def rmatvec(self, y: Matrix) -> Matrix:
        return self._apply(y, transpose=True)

    def _apply(self, x: Matrix, *, transpose: bool) -> Matrix:
        axis = 1 if not transpose else 0
        tensor = x.reshape(*(f.shape[axis] for f in self.factors), -1)
        for position, factor in enumerate(self.factors):
            if isinstance(factor, Identity):
                continue
            front = np.moveaxis(tensor, position, 0)
            flat = front.reshape(front.shape[0], -1)
            product = factor.rmatvec(flat) if transpose else factor.matvec(flat)
            tensor = np.moveaxis(product.reshape(product.shape[0], *front.shape[1:]), 0, position)
        return np.ascontiguousarray(tensor).reshape(self.shape[1 - axis], *x.shape[1:])

    def rows(self, start: int, stop: int) -> Matrix:
        index = np.unravel_index(np.arange(start, stop), tuple(f.shape[0] for f in self.factors))
        products = np.ones((stop - start, 1))
        for position, factor in enumerate(self.factors):
            distinct_rows, row_positions = np.unique(index[position], return_inverse=True)
            picked = np.concatenate([factor.rows(int(row), int(row) + 1) for row in distinct_rows])[row_positions]
            products = (products[:, :, None] * picked[:, None, :]).reshape(stop - start, -1)
        return products

    def row_names(self, start: int, stop: int, *cells: Sequence[str]) -> list[str]:
        index = np.unravel_index(np.arange(start, stop), tuple(f.shape[0] for f in self.factors))
        cell_names: Sequence[tuple[Sequence[str], ...]] = [(c,) for c in cells] or [()] * len(self.factors)
        if len(cell_names) != len(self.factors):
            raise InvalidInput(
                f"{len(self.factors)} factors need {len(self.factors)} lists of cell names, found {len(cells)}"
            )
        factor_names = [
            [f.row_names(int(row), int(row) + 1, *names)[0] for row in rows]
            for f, names, rows in zip(self.factors, cell_names, index, strict=True)
        ]
        return [", ".join(texts) for texts in zip(*factor_names, strict=True)]

    def row_norms_squared(self) -> Matrix:
        norms = np.ones(1)
        for factor in self.factors:
            norms = np.multiply.outer(norms, factor.row_norms_squared()).ravel()
        return norms

    def gram_block(self, rows: slice, columns: slice) -> Matrix:
        sizes = tuple(f.shape[1] for f in self.factors)
        cells = np.arange(self.shape[1])
        row_index, column_index = np.unravel_index(cells[rows], sizes), np.unravel_index(cells[columns], sizes)
        block = np.ones((row_index[0].size, column_index[0].size))
        for position, factor in enumerate(self.factors):
            block *= factor.gram()[row_index[position][:, None], column_index[position]]
        return block

    def weighted_gram(self, weights: Matrix) -> Matrix:
        return self.factors[0].weighted_gram(weights) if len(self.factors) == 1 else super().weighted_gram(weights)

    def row_quadratics(self, form: Matrix) -> Matrix:
        return self.factors[0].row_quadratics(form) if len(self.factors) == 1 else super().row_quadratics(form)

    def column_norms_squared(self) -> Matrix:
        norms = np.ones(1)
        for factor in self.factors:
            norms = np.multiply.outer(norms, factor.column_norms_squared()).ravel()
        return norms

    def column_norms_l1(self) -> Matrix:
        norms = np.ones(1)
        for factor in self.factors:
            norms = np.multiply.outer(norms, factor.column_norms_l1()).ravel()
        return norms

    @property
    def entry_range(self) -> tuple[float, float]:
        smallest, largest = 1.0, 1.0
        for factor in self.factors:
            products = [end * factor_end for end in (smallest, largest) for factor_end in factor.entry_range]
            smallest, largest = min(products), max(products)
        return smallest, largest

    @property
    def longest_row_squared(self) -> float:
        return math.prod(f.longest_row_squared for f in self.factors)

    @property
    def frobenius_squared(self) -> float:
        return math.prod(f.frobenius_squared for f in self.factors)

    @property
    def l2_sensitivity(self) -> float:
        return math.prod(f.l2_sensitivity for f in self.factors)

    @property
    def l1_sensitivity(self) -> float:
        return math.prod(f.l1_sensitivity for f in self.factors)

    @property
    def sensitivity_bytes(self) -> int:
        return max(f.sensitivity_bytes for f in self.factors)

    def description(self) -> tuple[object, ...]:
        return ("kronecker", *self.factors)


def largest_tensor_size(shapes: Iterable[tuple[int, ...]]) -> int:
    """Values of the largest tensor on the way, when factors of the given shapes are applied one after the other."""
    sizes = list(shapes)
    return max(
        math.prod(rows for rows, _ in sizes[:i]) * math.prod(columns for _, columns in sizes[i:])
        for i in range(len(sizes) + 1)
    )


class Marginal(Kronecker):
    """The table of some attributes: counts of every combination of their values, summed over the others."""

    def __init__(self, shape: Sequence[int], axes: Sequence[int]) -> None:
        if len(set(axes)) != len(axes) or not set(axes) <= set(range(len(shape))):
            raise InvalidInput(f"a marginal names distinct attributes out of 0..{len(shape) - 1}, found {list(axes)}")
        self.axes = tuple(sorted(axes))
        super().__init__([Identity(size) if axis in self.axes else Total(size) for axis, size in enumerate(shape)])
