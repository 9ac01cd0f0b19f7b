"""Binary attributes on the integer grid: every character is measured with a whole weight, exactly."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dpdist.operators import Hadamard, Matrix
from dpdist.stability import Neighbours
from dpdist.strategies.base import Strategy
from dpdist.strategies.grid import GRID_BITS, TableGrid


@dataclass(frozen=True)
class HadamardGrid(TableGrid):
    """z_i = weight_i (H x)_i for the characters i whose weight is not zero.

    Attributes:
        characters: which rows of H are measured, (p,) int64; ``weights``: their whole weights.
        axes: the binary attributes of the counted table, ascending.
        spacing: grid unit.
        sensitivity_squared: exact: every column of the measured rows has the same length.
    """

    characters: Matrix = field(repr=False)
    weights: Matrix = field(repr=False)
    axes: tuple[int, ...]
    spacing: float
    sensitivity_squared: int
    norm: Literal["l2"] = "l2"

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return int(self.weights.size)

    @property
    def digest(self) -> str:
        """SHA-256 of characters and weights."""
        content = hashlib.sha256(repr(("hadamard", self.axes, self.spacing, self.sensitivity_squared)).encode())
        content.update(np.ascontiguousarray(self.characters).tobytes())
        content.update(np.ascontiguousarray(self.weights).tobytes())
        return content.hexdigest()

    def measure(self, table: Matrix) -> Matrix:
        return np.asarray(self.weights * Hadamard(len(self.axes)).matvec(table.astype(np.int64).ravel())[self.characters])


def hadamard_grid(strategy: Strategy, *, neighbours: Neighbours, most_records: int) -> HadamardGrid:
    """The integer grid of a strategy over characters."""
    scales, axes = strategy.characters, strategy.axes
    assert scales is not None
    spacing = 2.0**-GRID_BITS  # scales have unit length
    weights = np.rint(scales / spacing).astype(np.int64)
    squares = weights**2
    column = int(squares.sum())
    distance = column
    if neighbours == "replace-one" and weights.size > 1:
        # cells x and y differ by 4 sum of the squares where the characters differ: 2 (all - (H squares)(x + y))
        distance = max(column, 2 * (column - int(Hadamard(len(axes)).matvec(squares)[1:].min())))
    kept = np.flatnonzero(weights)
    return HadamardGrid(kept, weights[kept], axes, spacing, distance * most_records**2)
