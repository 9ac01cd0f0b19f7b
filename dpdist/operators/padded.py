"""Queries that leave some last cells out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpdist.domain.labels import Made
from dpdist.errors import InvalidInput
from dpdist.operators.base import Matrix, Operator


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
