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
    Functionals,
    MeasuredSpace,
    NotMeasured,
    Reading,
    Variation,
    check_cancels,
    components,
    largest_sets,
    without_rounding,
)

Subset = tuple[int, ...]


@dataclass(frozen=True)
class Subsets:
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

    def coordinates(self, asked: Functionals) -> Matrix:
        """Linear functions in terms of B's rows, (functions, rows). Raises: NotMeasured."""
        means, rests = {}, {}
        for axis, vectors in asked.vectors.items():
            _, first = np.unique(self.codes[axis], return_index=True)
            picked = vectors[:, first]
            if float(np.abs(vectors - picked[:, self.codes[axis]]).max()) > TOLERANCE * float(np.abs(vectors).max()):
                raise NotMeasured((axis,), finer=True)
            means[axis] = picked[:, 0]
            rests[axis] = without_rounding(picked[:, 1:] - picked[:, :1], vectors)
        starts, places = self.starts, {subset: k for k, subset in enumerate(self.family)}
        out, missing = np.zeros((asked.size, int(starts[-1]))), list[Variation]()
        for part in components(asked, means, rests):
            if part.axes not in places:
                missing.append(part)
                continue
            whole = np.array(part.scale)
            for vector in part.vectors:
                whole = np.multiply.outer(whole, vector).ravel()
            start = starts[places[part.axes]]
            out[asked.places[part.product], start : start + whole.size] += whole.ravel()
        check_cancels(asked, missing)
        return out


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
    base: Subsets | Matrix | None = field(repr=False)
    shape: tuple[int, ...]
    values: Matrix = field(repr=False)

    def read(self, asked: Functionals) -> Reading:
        weights = self._weights(asked)
        squares = np.einsum("ij,ij->i", weights, weights)
        fourths = np.einsum("ij,ij,ij,ij->i", weights, weights, weights, weights)
        near = np.where(squares > 0, fourths / np.maximum(squares**2, 1e-300), 1.0)
        return Reading(weights @ self.values.astype(np.float64), squares, np.clip(near, 0.0, 1.0))

    def gram(self, asked: Functionals) -> Matrix:
        weights = self._weights(asked)
        return np.asarray(weights @ weights.T)

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        return largest_sets(self.base.family) if isinstance(self.base, Subsets) else ()

    def facts(self) -> tuple[dict[str, Any], dict[str, Matrix]]:
        arrays = {"mixing": self.mixing}
        if isinstance(self.base, Subsets):
            arrays |= {f"codes_{axis}": codes for axis, codes in enumerate(self.base.codes)}
            return {"kind": "rows", "base": "subsets", "family": self.base.family}, arrays
        if self.base is None:
            return {"kind": "rows", "base": "cells"}, arrays
        return {"kind": "rows", "base": "rows"}, {**arrays, "rows": self.base}

    def _weights(self, asked: Functionals) -> Matrix:
        """Weights of the measured values, (functions, rows). Raises: NotMeasured."""
        coordinates = self.base.coordinates(asked) if isinstance(self.base, Subsets) else self._over_cells(asked)
        if self.mixing.ndim == 1 and not isinstance(self.base, np.ndarray):
            return np.asarray(coordinates / self.mixing)
        if self._triangle is not None:
            q, r = self._triangle
            return np.asarray(lapack.solve_triangular(r, coordinates.T, trans="T").T @ q.T)
        left, singular, right = self._decomposed
        inside = coordinates @ right.T
        lost = np.abs(inside @ right - coordinates).max()
        if float(lost) > 1e-6 * float(np.abs(coordinates).max()):
            raise NotMeasured(tuple(sorted(asked.vectors)))
        return np.asarray((inside / singular) @ left.T)

    def _over_cells(self, asked: Functionals) -> Matrix:
        """Linear functions written down over all cells, (functions, cells)."""
        out = np.zeros((asked.size, int(np.prod(self.shape))))
        for number, coefficient in enumerate(asked.coefficients):
            whole = np.array([float(coefficient)])
            for axis, size in enumerate(self.shape):
                vector = asked.vectors[axis][number] if axis in asked.vectors else np.ones(size)
                whole = np.multiply.outer(whole, vector).ravel()
            out[asked.places[number]] += whole
        return out

    @cached_property
    def measured_rows(self) -> Matrix:
        """The measured rows over what B's rows say, or over the cells where B is written down."""
        rows = self.mixing.astype(np.float64)
        if isinstance(self.base, np.ndarray):
            over = self.base.astype(np.float64)
            return np.asarray(rows[:, None] * over if rows.ndim == 1 else rows @ over)
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
        left, singular, right = lapack.svd(self.measured_rows, full_matrices=False)
        kept = singular > max(self.measured_rows.shape) * np.finfo(float).eps * singular[0]
        return left[:, kept], singular[kept], right[kept]


def row_space_from(
    facts: Mapping[str, Any], arrays: Mapping[str, Matrix], shape: tuple[int, ...], values: Matrix
) -> RowSpace:
    """The space that ``facts`` wrote down."""
    kind: Literal["subsets", "cells", "rows"] = facts["base"]
    base: Subsets | Matrix | None = None
    if kind == "subsets":
        codes = tuple(arrays[f"codes_{axis}"] for axis in range(len(shape)))
        base = Subsets(codes, tuple(tuple(int(axis) for axis in subset) for subset in facts["family"]))
    elif kind == "rows":
        base = arrays["rows"]
    return RowSpace(arrays["mixing"], base, shape, values)
