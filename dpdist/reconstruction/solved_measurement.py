"""A small measurement, solved once: what it takes to answer any question of it with sums and products alone, as a page does.

A question is split into parts that vary with exactly some attributes. Each part gives weights of a block of measured values, and these,
or their product with a matrix, are weights of independent noisy values: of one product of vectors the same as a measured space gives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from dpdist.arrays import lapack
from dpdist.operators import Matrix
from dpdist.reconstruction.kronecker_terms import share_of
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.measured_tables import MeasuredTables
from dpdist.reconstruction.product_space import Cells, ProductSpace, WideCircle
from dpdist.reconstruction.row_space import RowSpace, Subsets
from dpdist.reconstruction.separate_products import SeparateProducts

MOST_NUMBERS = 20_000
"""Numbers of a solved measurement: 8 bytes each, and a third more where a page writes them as text."""
Axes = tuple[int, ...]


@dataclass(frozen=True)
class SolvedBlock:
    """Measured values over some attributes.

    Attributes:
        maps: for each attribute what turns a vector over its values into weights, (values, rows); None: the last rows of the vector.
        rows: along each attribute.
    """

    axes: Axes
    maps: tuple[Matrix | None, ...] = field(repr=False)
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Solved:
    """What answers questions of a measurement.

    Attributes:
        means: of an attribute the weights whose sum over a vector is its constant part, (values,); the others take the plain mean.
        blocks: whose rows are the coordinates of a question, one block after the other.
        parts: attributes that a part varies with, a block that tells of it, and what its weights are multiplied with.
        matrix: what coordinates are multiplied with, (coordinates, values), None for nothing, or (coordinates,) for a diagonal.
        triangular: whether the matrix is nothing below its diagonal.
        values: the noisy values, (values,).
        outside: of coordinates what was not measured, (coordinates, directions); None where all was.
        single: whether noise in a question of several products is taken for that of one draw, which is the safe side.
    """

    means: Mapping[int, Matrix]
    blocks: tuple[SolvedBlock, ...]
    parts: tuple[tuple[Axes, int, float], ...]
    values: Matrix = field(repr=False)
    matrix: Matrix | None = field(default=None, repr=False)
    triangular: bool = False
    outside: Matrix | None = field(default=None, repr=False)
    single: bool = False


def solved(space: MeasuredSpace, *, normal: bool) -> Solved | None:
    """A measurement that is small, determines every value of its tables, and did not choose these in rounds; else None.

    Args:
        normal: whether the noise is normal, so that nobody needs to know of how many draws the noise in an answer is made.
    """
    # a question is read from one of them, never from all together
    if isinstance(space, (MeasuredTables, SeparateProducts)):
        return None
    if isinstance(space, ProductSpace):
        return _of_products(space, normal=normal)
    return _of_rows(space, normal=normal) if isinstance(space, RowSpace) else None


def _of_products(space: ProductSpace, *, normal: bool) -> Solved | None:
    numbers = sum(
        math.prod(factor.shape) for term in space.terms for factor in term.factors if not isinstance(factor, Cells)
    )
    wide = any(isinstance(factor, WideCircle) for term in space.terms for factor in term.factors)
    tables = len(space.terms) > 1 and any(isinstance(factor, Cells) for term in space.terms for factor in term.factors)
    if wide or numbers + space.values.size > MOST_NUMBERS or (tables and not normal):
        return None
    whole, blocks, known = tables or len(space.terms) == 1, [], dict[bytes, Matrix]()
    for term in space.terms:
        maps: list[Matrix | None] = []
        for axis, factor in zip(term.axes, term.factors, strict=True):
            if isinstance(factor, Cells):
                maps.append(None)
                continue
            size = factor.shape[1]
            asked = np.eye(size)
            if not whole:
                asked -= share_of(space.directions.get(axis), size)[:, None]
            weights = factor.weights(asked)
            if np.abs(factor.product(weights) - asked).max() > 1e-6:
                return None  # values are merged
            maps.append(known.setdefault(weights.tobytes(), weights))
        blocks.append(SolvedBlock(term.axes, tuple(maps), term.shape))
    means = {axis: share_of(direction, space.shape[axis]) for axis, direction in space.directions.items()}
    parts = _of_tables(space) if whole else ((term.axes, k, term.unit) for k, term in enumerate(space.terms))
    return Solved(means, tuple(blocks), tuple(parts), space.values.astype(np.float64).ravel(), single=True)


def _of_tables(space: ProductSpace) -> Iterator[tuple[Axes, int, float]]:
    """Every part that whole tables tell of, each by how precise it is (``ProductSpace.spreads``)."""
    held: dict[Axes, list[tuple[int, float]]] = {}
    for number, term in enumerate(space.terms):
        for axes in _subsets(term.axes):
            added = math.prod(space.shape[axis] for axis in term.axes if axis not in axes)
            held.setdefault(axes, []).append((number, 1.0 / (term.unit**2 * added)))
    for axes, holding in held.items():
        total = sum(precision for _, precision in holding)
        for number, precision in holding:
            yield axes, number, space.terms[number].unit * precision / total


def _subsets(axes: Axes) -> Iterator[Axes]:
    for size in range(len(axes) + 1):
        yield from combinations(axes, size)


def _of_rows(space: RowSpace, *, normal: bool) -> Solved | None:
    base = space.base
    merged = isinstance(base, Subsets) and any(int(codes.max()) + 1 < codes.size for codes in base.codes)
    over = math.prod(space.shape) if isinstance(base, np.ndarray) else space.mixing.shape[-1]
    diagonal = space.mixing.ndim == 1 and not isinstance(base, np.ndarray)
    rows = space.values.size
    if merged or rows + over * (1 if diagonal else (over + 1) // 2 if normal else rows) > MOST_NUMBERS:
        return None
    found = _coordinates(base if isinstance(base, Subsets) else None, space.shape)
    if diagonal:
        return replace(found, values=space.values.astype(np.float64), matrix=1.0 / space.mixing)
    found = replace(found, **_inverted(space.measured_rows, space.values.astype(np.float64), normal=normal))
    assert found.matrix is not None
    return found if found.matrix.size + (0 if found.outside is None else found.outside.size) <= 2 * MOST_NUMBERS else None


def _inverted(rows: Matrix, values: Matrix, *, normal: bool) -> dict[str, Any]:
    """What makes weights of coordinates. Normal noise that is rotated is the same noise, and takes half as many numbers."""
    left, singular, right = lapack.svd(rows, full_matrices=True)
    rank = int((singular > max(rows.shape) * np.finfo(float).eps * singular[0]).sum())
    if rank < rows.shape[1]:
        inverse = right[:rank].T / singular[:rank]
        rotated = (inverse, left[:, :rank].T @ values) if normal else (inverse @ left[:, :rank].T, values)
        return {"matrix": rotated[0], "values": rotated[1], "outside": right[rank:].T}
    q, r = lapack.qr(rows, mode="economic")
    inverse = lapack.solve_triangular(r, np.eye(rank))
    if normal:
        return {"matrix": inverse, "values": q.T @ values, "triangular": True}
    return {"matrix": inverse @ q.T, "values": values}


def _coordinates(base: Subsets | None, shape: tuple[int, ...]) -> Solved:
    """Questions in terms of the rows that are mixed: tables without the first value of each attribute, or the cells."""
    none = np.empty(0)
    if base is None:
        axes = tuple(range(len(shape)))
        cells = SolvedBlock(axes, (None,) * len(axes), shape)
        return Solved({}, (cells,), tuple((each, 0, 1.0) for each in _subsets(axes)), none)
    blocks = tuple(SolvedBlock(each, (None,) * len(each), tuple(shape[axis] - 1 for axis in each)) for each in base.family)
    parts = tuple((each, number, 1.0) for number, each in enumerate(base.family))
    return Solved({axis: np.eye(1, size)[0] for axis, size in enumerate(shape)}, blocks, parts, none)
