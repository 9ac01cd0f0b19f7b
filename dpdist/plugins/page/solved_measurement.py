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

from dpdist.api.pages import Matrix
from dpdist.api.queries import (
    IdentityFactor,
    MeasuredSpace,
    ProductSpace,
    RowSpace,
    SubsetRows,
    lapack,
    unit_direction,
)

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
class SolvedMeasurement:
    """What answers questions of a measurement.

    Attributes:
        means: of an attribute the weights whose sum over a vector is its constant part, (values,); the others take the plain mean.
        blocks: whose rows are the coordinates of a question, one block after the other.
        variations: attributes that a part varies with, a block that tells of it, and what its weights are multiplied with.
        matrix: what coordinates are multiplied with, (coordinates, values), None for nothing, or (coordinates,) for a diagonal.
        triangular: whether the matrix is nothing below its diagonal.
        values: the noisy values, (values,).
        outside: of coordinates what was not measured, (coordinates, directions); None where all was.
        single: whether noise in a question of several products is taken for that of one draw, which is the safe side.
    """

    means: Mapping[int, Matrix]
    blocks: tuple[SolvedBlock, ...]
    variations: tuple[tuple[Axes, int, float], ...]
    values: Matrix = field(repr=False)
    matrix: Matrix | None = field(default=None, repr=False)
    triangular: bool = False
    outside: Matrix | None = field(default=None, repr=False)
    single: bool = False


def solve_measurement(space: MeasuredSpace, *, normal: bool) -> SolvedMeasurement | None:
    """A measurement that is small, determines every value of its tables, and did not choose these in rounds; else None.

    Args:
        normal: whether the noise is normal, so that nobody needs to know of how many draws the noise in an answer is made.
    """
    if space.rows_depend_on_noise:  # a question is read from one of their parts, never from all together
        return None
    if isinstance(space, ProductSpace):
        return None if space.separate else _solve_products(space, normal=normal)
    return _solve_rows(space, normal=normal) if isinstance(space, RowSpace) else None


def _solve_products(space: ProductSpace, *, normal: bool) -> SolvedMeasurement | None:
    numbers = sum(
        math.prod(factor.shape) for term in space.terms for factor in term.factors if not isinstance(factor, IdentityFactor)
    )
    tables = len(space.terms) > 1 and any(
        isinstance(factor, IdentityFactor) for term in space.terms for factor in term.factors
    )
    if space.has_padded_circle or numbers + space.values.size > MOST_NUMBERS or (tables and not normal):
        return None
    whole, blocks, weight_arrays = tables or len(space.terms) == 1, [], dict[bytes, Matrix]()
    for term in space.terms:
        maps: list[Matrix | None] = []
        for axis, factor in zip(term.axes, term.factors, strict=True):
            if isinstance(factor, IdentityFactor):
                maps.append(None)
                continue
            size = factor.shape[1]
            unit_vectors = np.eye(size)
            if not whole:
                unit_vectors -= unit_direction(space.directions.get(axis), size)[:, None]
            weights = factor.weights(unit_vectors)
            if np.abs(factor.product(weights) - unit_vectors).max() > 1e-6:
                return None  # values are merged
            maps.append(weight_arrays.setdefault(weights.tobytes(), weights))
        blocks.append(SolvedBlock(term.axes, tuple(maps), term.shape))
    means = {axis: unit_direction(direction, space.shape[axis]) for axis, direction in space.directions.items()}
    variations = _table_variations(space) if whole else ((term.axes, k, term.unit) for k, term in enumerate(space.terms))
    return SolvedMeasurement(means, tuple(blocks), tuple(variations), space.values.astype(np.float64).ravel(), single=True)


def _table_variations(space: ProductSpace) -> Iterator[tuple[Axes, int, float]]:
    """Every part that whole tables tell of, each by how precise it is (``ProductSpace.spreads``)."""
    holding_tables: dict[Axes, list[tuple[int, float]]] = {}
    for number, term in enumerate(space.terms):
        for axes in _subsets(term.axes):
            added = math.prod(space.shape[axis] for axis in term.axes if axis not in axes)
            holding_tables.setdefault(axes, []).append((number, 1.0 / (term.unit**2 * added)))
    for axes, holding in holding_tables.items():
        total = sum(precision for _, precision in holding)
        for number, precision in holding:
            yield axes, number, space.terms[number].unit * precision / total


def _subsets(axes: Axes) -> Iterator[Axes]:
    for size in range(len(axes) + 1):
        yield from combinations(axes, size)


def _solve_rows(space: RowSpace, *, normal: bool) -> SolvedMeasurement | None:
    base = space.base
    merged = isinstance(base, SubsetRows) and any(int(codes.max()) + 1 < codes.size for codes in base.codes)
    column_count = math.prod(space.shape) if isinstance(base, np.ndarray) else space.mixing.shape[-1]
    diagonal = space.mixing.ndim == 1 and not isinstance(base, np.ndarray)
    rows = space.values.size
    if merged or rows + column_count * (1 if diagonal else (column_count + 1) // 2 if normal else rows) > MOST_NUMBERS:
        return None
    result = _unsolved_coordinates(base if isinstance(base, SubsetRows) else None, space.shape)
    if diagonal:
        return replace(result, values=space.values.astype(np.float64), matrix=1.0 / space.mixing)
    result = replace(result, **_invert_rows(space.measured_rows, space.values.astype(np.float64), normal=normal))
    assert result.matrix is not None
    return (
        result if result.matrix.size + (0 if result.outside is None else result.outside.size) <= 2 * MOST_NUMBERS else None
    )


def _invert_rows(rows: Matrix, values: Matrix, *, normal: bool) -> dict[str, Any]:
    """What makes weights of coordinates. Normal noise that is rotated is the same noise, and takes half as many numbers."""
    left_vectors, singular, right_vectors = lapack.svd(rows, full_matrices=True)
    rank = int((singular > max(rows.shape) * np.finfo(float).eps * singular[0]).sum())
    if rank < rows.shape[1]:
        inverse = right_vectors[:rank].T / singular[:rank]
        rotated = (inverse, left_vectors[:, :rank].T @ values) if normal else (inverse @ left_vectors[:, :rank].T, values)
        return {"matrix": rotated[0], "values": rotated[1], "outside": right_vectors[rank:].T}
    q, r = lapack.qr(rows, mode="economic")
    inverse = lapack.solve_triangular(r, np.eye(rank))
    if normal:
        return {"matrix": inverse, "values": q.T @ values, "triangular": True}
    return {"matrix": inverse @ q.T, "values": values}


def _unsolved_coordinates(base: SubsetRows | None, shape: tuple[int, ...]) -> SolvedMeasurement:
    """Questions in terms of the rows that are mixed: tables without the first value of each attribute, or the cells."""
    none = np.empty(0)
    if base is None:
        axes = tuple(range(len(shape)))
        cells = SolvedBlock(axes, (None,) * len(axes), shape)
        return SolvedMeasurement({}, (cells,), tuple((subset, 0, 1.0) for subset in _subsets(axes)), none)
    blocks = tuple(
        SolvedBlock(subset, (None,) * len(subset), tuple(shape[axis] - 1 for axis in subset)) for subset in base.family
    )
    variations = tuple((subset, number, 1.0) for number, subset in enumerate(base.family))
    return SolvedMeasurement({axis: np.eye(1, size)[0] for axis, size in enumerate(shape)}, blocks, variations, none)
