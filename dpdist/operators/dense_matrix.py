"""Matrices stored entry by entry."""

from __future__ import annotations

import numpy as np
import scipy

from dpdist.errors import InvalidInput
from dpdist.operators.linear_operator import Matrix, Operator


class Dense(Operator):
    """A matrix held as an array of finite numbers."""

    def __init__(self, array: Matrix) -> None:
        array = np.asarray(array)
        if array.ndim != 2:
            raise InvalidInput(f"a matrix needs 2 dimensions, found {array.ndim}; shape it (queries, cells)")
        if array.dtype == object or (not np.issubdtype(array.dtype, np.number) and array.dtype != bool):
            raise InvalidInput(f"a matrix of numbers is needed, found dtype {array.dtype}")
        if np.iscomplexobj(array):
            raise InvalidInput("a real matrix is needed, found complex entries")
        if array.dtype == bool or array.dtype.kind == "u":
            array = array.astype(np.int64)
        if not np.isfinite(array).all():
            raise InvalidInput("the matrix holds NaN or infinite entries; replace them before building a workload")
        self.array = array
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.integral = bool(array.dtype.kind == "i" or (array == np.rint(array)).all())

    def matvec(self, x: Matrix) -> Matrix:
        return self._typed_array(x) @ x

    def rmatvec(self, y: Matrix) -> Matrix:
        return self._typed_array(y).T @ y

    def rows(self, start: int, stop: int) -> Matrix:
        return self.array[start:stop].astype(np.float64)

    @property
    def entry_range(self) -> tuple[float, float]:
        return float(self.array.min()), float(self.array.max())

    def description(self) -> tuple[object, ...]:
        return ("dense", self.array)

    def _typed_array(self, x: Matrix) -> Matrix:
        return self.array.astype(np.int64) if x.dtype.kind == "i" and self.integral else self.array


class Sparse(Operator):
    """A matrix held as SciPy compressed sparse rows."""

    def __init__(self, matrix: scipy.sparse.csr_array) -> None:
        self.matrix = scipy.sparse.csr_array(matrix)
        self.matrix.sum_duplicates()
        self.shape = (int(self.matrix.shape[0]), int(self.matrix.shape[1]))
        if not np.isfinite(self.matrix.data).all():
            raise InvalidInput("the matrix holds NaN or infinite entries; replace them before building a workload")
        self.integral = bool((self.matrix.data == np.rint(self.matrix.data)).all())
        self._integers = self.matrix.astype(np.int64) if self.integral else None

    def matvec(self, x: Matrix) -> Matrix:
        return np.asarray(self._typed_matrix(x) @ x)

    def rmatvec(self, y: Matrix) -> Matrix:
        return np.asarray(self._typed_matrix(y).T @ y)

    def rows(self, start: int, stop: int) -> Matrix:
        return np.asarray(self.matrix[start:stop].toarray(), dtype=np.float64)

    def weighted_gram(self, weights: Matrix) -> Matrix:
        return np.asarray((self.matrix.T @ self.matrix.multiply(weights[:, None])).toarray(), dtype=np.float64)

    def row_quadratics(self, form: Matrix) -> Matrix:
        return np.asarray(self.matrix.multiply(self.matrix @ form).sum(axis=1), dtype=np.float64).ravel()

    def row_norms_squared(self) -> Matrix:
        return np.asarray(self.matrix.multiply(self.matrix).sum(axis=1), dtype=np.float64).ravel()

    def column_norms_squared(self) -> Matrix:
        return np.asarray(self.matrix.multiply(self.matrix).sum(axis=0), dtype=np.float64).ravel()

    def column_norms_l1(self) -> Matrix:
        return np.asarray(abs(self.matrix).sum(axis=0), dtype=np.float64).ravel()

    @property
    def entry_range(self) -> tuple[float, float]:
        return float(self.matrix.data.min(initial=0.0)), float(self.matrix.data.max(initial=0.0))

    def description(self) -> tuple[object, ...]:
        arrays = (self.matrix.indptr, self.matrix.indices, self.matrix.data)
        return ("sparse", self.shape, *(np.asarray(array) for array in arrays))

    def _typed_matrix(self, x: Matrix) -> scipy.sparse.csr_array:
        return self._integers if x.dtype.kind == "i" and self._integers is not None else self.matrix
