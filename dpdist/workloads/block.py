"""Block: queries of one kind over some attributes, a part of a workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.operators import Identity, Kronecker, Marginal, Matrix, Operator, Product, RowScaled, TallMatrix, Total


@dataclass(frozen=True)
class Block:
    """Queries of one kind over some attributes.

    ``factors`` holds one operator for each attribute in a Kronecker block, or a single operator over all cells that the
    attributes span together. ``labels`` names the rows of each factor. ``scales`` holds a weight for each row of each factor
    (None: all 1), on top of the ``weight`` of all rows. ``names`` says what each factor asks for, where levels of attributes are
    asked for; by default the attributes.
    """

    name: str
    axes: tuple[int, ...]
    factors: tuple[Operator, ...]
    labels: tuple[Sequence[str], ...]
    weight: float = 1.0
    scales: tuple[Matrix | None, ...] = field(default=(), compare=False, repr=False)
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.factors:
            raise InvalidInput(f"queries {self.name!r} are over no attribute; name one of the domain")
        if not (np.isfinite(self.weight) and self.weight > 0):
            raise InvalidInput(f"queries {self.name!r}: the weight must be positive and finite, found {self.weight!r}")

    @property
    def separable(self) -> bool:
        """Whether there is one factor an attribute."""
        return len(self.factors) == len(self.axes)

    @property
    def asked_axes(self) -> tuple[int, ...]:
        """The attributes of a separable block that it does not sum over."""
        return tuple(axis for axis, f in zip(self.axes, self.factors, strict=True) if not isinstance(f, Total))

    @property
    def is_total(self) -> bool:
        """Whether it is the one query that counts all records."""
        return self.separable and len(self.factors) == 1 and isinstance(self.factors[0], Total)

    @property
    def is_table(self) -> bool:
        """Whether the answers are the cells of a table of whole attributes, in their order."""
        has_whole_factors = self.separable and all(isinstance(factor, Identity | Total) for factor in self.factors)
        return has_whole_factors and list(self.axes) == sorted(self.axes)

    def heads(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """What each factor asks for: a level, or one of the attributes whose names are given."""
        return self.names or tuple(names[axis] for axis in self.axes)

    @property
    def queries(self) -> int:
        """Number of rows."""
        return math.prod(f.shape[0] for f in self.factors)

    @property
    def entry_range(self) -> tuple[float, float]:
        """The least and the largest entry of the unweighted rows over all cells, or ends between which all lie."""
        return Kronecker(self.factors).entry_range

    @property
    def weights(self) -> Matrix:
        """Weight of every row, (queries,) float64."""
        row_weights = np.array([self.weight])
        for factor, scales in zip(self.factors, self._scales, strict=True):
            row_weights = np.multiply.outer(row_weights, np.ones(factor.shape[0]) if scales is None else scales).ravel()
        return row_weights

    def scaled(self, factors: tuple[Operator, ...]) -> tuple[Operator, ...]:
        """The block's factors (in whatever coordinates) with their rows scaled, ``weight`` left out."""
        return tuple(f if s is None else RowScaled(s, f) for f, s in zip(factors, self._scales, strict=True))

    @property
    def _scales(self) -> tuple[Matrix | None, ...]:
        return self.scales or (None,) * len(self.factors)

    def operator(self, shape: tuple[int, ...], *, scaled: bool = False) -> Operator:
        """The rows over the whole domain, without ``weight``; with or without the scales of single rows."""
        factors = self.scaled(self.factors) if scaled else self.factors
        if isinstance(self.factors[0], TallMatrix) and self.axes == tuple(range(len(shape))):
            return factors[0]
        if self.separable:
            by_axis: dict[int, Operator] = dict(zip(self.axes, factors, strict=True))
            return Kronecker([by_axis.get(axis, Total(size)) for axis, size in enumerate(shape)])
        return Product(factors[0], Marginal(shape, self.axes))

    def row_labels(self, start: int, stop: int) -> list[tuple[str, ...]]:
        """The labels of rows start..stop, one text a factor."""
        index = np.unravel_index(np.arange(start, stop), tuple(len(factor_labels) for factor_labels in self.labels))
        return [tuple(self.labels[k][i] for k, i in enumerate(row)) for row in zip(*index, strict=True)]
