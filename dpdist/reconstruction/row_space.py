"""The measured space of dense strategies: whole rows M B, with B a basis, the cells, or rows that are written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dpdist.arrays import lapack
from dpdist.operators import Matrix
from dpdist.reconstruction.measured_space import (
    TOLERANCE,
    FunctionalEstimates,
    Functionals,
    MeasuredSpace,
    NotMeasured,
    Variation,
    check_cancels,
    components,
    largest_sets,
    without_rounding,
)

Subset = tuple[int, ...]


@dataclass(frozen=True)
class SubsetRows:
    """B: for every attribute set of a family the cells of its table without the first value of each attribute.

    Attributes:
        codes: for every attribute which of its values are merged, (values,) int64, numbered by first appearance.
        family: the attribute sets, in the order of B's rows.
    """

    codes: tuple[Matrix, ...]
    family: tuple[Subset, ...]

    @property
    def starts(self) -> Matrix:
        """The first row of every set, and how many rows there are."""
        sizes = [int(code.max()) for code in self.codes]
        return np.cumsum([0] + [int(np.prod([sizes[axis] for axis in subset], dtype=np.int64)) for subset in self.family])

    def coordinates(self, functionals: Functionals) -> Matrix:
        """Linear functions in terms of B's rows, (functions, rows). Raises: NotMeasured."""
        means, rests = {}, {}
        for axis, vectors in functionals.vectors.items():
            _, first_values = np.unique(self.codes[axis], return_index=True)
            picked = vectors[:, first_values]
            if float(np.abs(vectors - picked[:, self.codes[axis]]).max()) > TOLERANCE * float(np.abs(vectors).max()):
                raise NotMeasured((axis,), finer=True)
            means[axis] = picked[:, 0]
            rests[axis] = without_rounding(picked[:, 1:] - picked[:, :1], vectors)
        starts, family_index = self.starts, {subset: k for k, subset in enumerate(self.family)}
        coordinates, missing = np.zeros((functionals.size, int(starts[-1]))), list[Variation]()
        for component in components(functionals, means, rests):
            if component.axes not in family_index:
                missing.append(component)
                continue
            whole = np.array(component.scale)
            for vector in component.vectors:
                whole = np.multiply.outer(whole, vector).ravel()
            start = starts[family_index[component.axes]]
            coordinates[functionals.function_index[component.product], start : start + whole.size] += whole.ravel()
        check_cancels(functionals, missing)
        return coordinates


@dataclass(frozen=True)
class RowSpace(MeasuredSpace):
    """z = M B x with noise, read by least squares.

    Attributes:
        mixing: M, (rows, r) int64, or (r,) for a diagonal.
        base: B: subsets, every cell (None), or rows over the cells, (r, cells).
        shape: sizes of the domain's attributes.
        values: the noisy integers, (rows,) int64.
    """

    mixing: Matrix = field(repr=False)
    base: SubsetRows | Matrix | None = field(repr=False)
    shape: tuple[int, ...]
    values: Matrix = field(repr=False)

    def estimate(self, functionals: Functionals) -> FunctionalEstimates:
        weights = self._weights(functionals)
        squares = np.einsum("ij,ij->i", weights, weights)
        fourths = np.einsum("ij,ij,ij,ij->i", weights, weights, weights, weights)
        concentration = np.where(squares > 0, fourths / np.maximum(squares**2, 1e-300), 1.0)
        return FunctionalEstimates(weights @ self.values.astype(np.float64), squares, np.clip(concentration, 0.0, 1.0))

    def gram(self, functionals: Functionals) -> Matrix:
        weights = self._weights(functionals)
        return np.asarray(weights @ weights.T)

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        return largest_sets(self.base.family) if isinstance(self.base, SubsetRows) else ()

    def facts(self) -> tuple[dict[str, Any], dict[str, Matrix]]:
        arrays = {"mixing": self.mixing}
        if isinstance(self.base, SubsetRows):
            arrays |= {f"codes_{axis}": codes for axis, codes in enumerate(self.base.codes)}
            return {"kind": "rows", "base": "subsets", "family": self.base.family}, arrays
        if self.base is None:
            return {"kind": "rows", "base": "cells"}, arrays
        return {"kind": "rows", "base": "rows"}, {**arrays, "rows": self.base}

    def _weights(self, functionals: Functionals) -> Matrix:
        """Weights of the measured values, (functions, rows). Raises: NotMeasured."""
        coordinates = (
            self.base.coordinates(functionals) if isinstance(self.base, SubsetRows) else self._cell_rows(functionals)
        )
        if self.mixing.ndim == 1 and not isinstance(self.base, np.ndarray):
            return np.asarray(coordinates / self.mixing)
        if self._triangle is not None:
            q, r = self._triangle
            return np.asarray(lapack.solve_triangular(r, coordinates.T, trans="T").T @ q.T)
        left_vectors, singular, right_vectors = self._decomposed
        inside = coordinates @ right_vectors.T
        lost = np.abs(inside @ right_vectors - coordinates).max()
        if float(lost) > 1e-6 * float(np.abs(coordinates).max()):
            raise NotMeasured(tuple(sorted(functionals.vectors)))
        return np.asarray((inside / singular) @ left_vectors.T)

    def _cell_rows(self, functionals: Functionals) -> Matrix:
        """Linear functions written down over all cells, (functions, cells)."""
        cell_rows = np.zeros((functionals.size, int(np.prod(self.shape))))
        for number, coefficient in enumerate(functionals.coefficients):
            whole = np.array([float(coefficient)])
            for axis, size in enumerate(self.shape):
                vector = functionals.vectors[axis][number] if axis in functionals.vectors else np.ones(size)
                whole = np.multiply.outer(whole, vector).ravel()
            cell_rows[functionals.function_index[number]] += whole
        return cell_rows

    @cached_property
    def measured_rows(self) -> Matrix:
        """The measured rows over what B's rows say, or over the cells where B is written down."""
        rows = self.mixing.astype(np.float64)
        if isinstance(self.base, np.ndarray):
            base_rows = self.base.astype(np.float64)
            return np.asarray(rows[:, None] * base_rows if rows.ndim == 1 else rows @ base_rows)
        return rows

    @cached_property
    def _triangle(self) -> tuple[Matrix, Matrix] | None:
        """The rows as Q R, None where they do not determine everything."""
        if self.measured_rows.shape[0] < self.measured_rows.shape[1]:
            return None
        q, r = lapack.qr(self.measured_rows, mode="economic")
        diagonal = np.abs(np.diag(r))
        return (q, r) if diagonal.min() > 1e-10 * diagonal.max() else None

    @cached_property
    def _decomposed(self) -> tuple[Matrix, Matrix, Matrix]:
        """The rows as U S V', without what is rounding error."""
        left_vectors, singular, right_vectors = lapack.svd(self.measured_rows, full_matrices=False)
        nonzero = singular > max(self.measured_rows.shape) * np.finfo(float).eps * singular[0]
        return left_vectors[:, nonzero], singular[nonzero], right_vectors[nonzero]


def row_space_from(
    facts: Mapping[str, Any], arrays: Mapping[str, Matrix], shape: tuple[int, ...], values: Matrix
) -> RowSpace:
    """The space that ``facts`` wrote down."""
    kind: Literal["subsets", "cells", "rows"] = facts["base"]
    base: SubsetRows | Matrix | None = None
    if kind == "subsets":
        codes = tuple(arrays[f"codes_{axis}"] for axis in range(len(shape)))
        base = SubsetRows(codes, tuple(tuple(int(axis) for axis in subset) for subset in facts["family"]))
    elif kind == "rows":
        base = arrays["rows"]
    return RowSpace(arrays["mixing"], base, shape, values)
