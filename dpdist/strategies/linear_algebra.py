"""The one place where optimisers meet linear algebra, so that they run on arrays of NumPy, CuPy or PyTorch alike.

Matrices stay where they were given: NumPy's go to LAPACK, in place where the caller allows it; those of another library go through
the array API (``array-api-compat``) to its routines, on their device. Vectors of one number a cell are NumPy arrays on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import EllipsisType
from typing import Any

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.errors import InvalidInput, NotPositiveDefinite
from dpdist.operators import Matrix

Array = Matrix
"""A matrix of any library. mypy knows no type for the array API's: it takes them for NumPy's."""
SINGLE_EPSILON = float(np.finfo(np.float32).eps)
FACTOR_SLACK = 1e-6
"""Relative difference between a gram's diagonal and that of its factor's: beyond rounding, far below a failed factorisation's."""


def is_numpy(array: Array) -> bool:
    """Whether it is NumPy's own."""
    return isinstance(array, np.ndarray)


def namespace(array: Array) -> Any:
    """The module that holds the array API's functions for an array."""
    if is_numpy(array):
        return np
    from array_api_compat import array_namespace

    return array_namespace(array)


def as_array(values: Any) -> Array:
    """An array of a library that optimisers can compute with, or else NumPy's.

    Raises: InvalidInput for arrays that are lazy or cannot be written in place (Dask, JAX).
    """
    if isinstance(values, np.ndarray | list | tuple):
        return np.asarray(values)
    import array_api_compat as compat

    if not compat.is_array_api_obj(values):
        return np.asarray(values)
    if compat.is_lazy_array(values) or not compat.is_writeable_array(values):
        raise InvalidInput(
            f"arrays of type {type(values).__module__}.{type(values).__name__} cannot be computed with in place; "
            "pass one of NumPy, CuPy or PyTorch"
        )
    return values.detach() if compat.is_torch_array(values) else values


def on_host(array: Array) -> Matrix:
    """The same numbers as a NumPy array."""
    if isinstance(array, np.ndarray):
        return array
    import array_api_compat as compat

    if compat.is_torch_array(array) or compat.is_cupy_array(array):
        return np.asarray(compat.to_device(array, "cpu"))
    return np.from_dlpack(array, device="cpu")


def like(array: Array, values: Matrix) -> Array:
    """NumPy's values in the library, and on the device, of an array; real numbers also in its precision."""
    if values.dtype.kind == "f":
        values = values.astype(np.float32 if array.dtype == namespace(array).float32 else np.float64, copy=False)
    if is_numpy(array):
        return values
    import array_api_compat as compat

    return namespace(array).asarray(np.ascontiguousarray(values), device=compat.device(array))


def empty(array: Array, shape: tuple[int, int]) -> Array:
    """A matrix of a shape, in the library and on the device of an array, to be filled."""
    if is_numpy(array):
        return np.empty(shape, dtype=array.dtype)
    import array_api_compat as compat

    return namespace(array).empty(shape, dtype=array.dtype, device=compat.device(array))


def zeros(array: Array, shape: tuple[int, int]) -> Array:
    """A matrix of zeros, in the library and on the device of an array."""
    matrix = empty(array, shape)
    matrix[...] = 0.0
    return matrix


def identity(array: Array, size: int) -> Array:
    """The identity of a size, in the library and on the device of an array."""
    if is_numpy(array):
        return np.eye(size)
    import array_api_compat as compat

    return namespace(array).eye(size, dtype=array.dtype, device=compat.device(array))


def concat(matrices: Sequence[Array], *, axis: int) -> Array:
    """Matrices beneath each other (axis 0) or beside each other (axis 1)."""
    return namespace(matrices[0]).concat(list(matrices), axis=axis)


def reversed_columns(matrix: Array) -> Array:
    """The columns in reverse order."""
    return namespace(matrix).flip(matrix, axis=1)


def eigh(matrix: Array, *, overwrite: bool = False) -> tuple[Matrix, Array]:
    """Eigenvalues in ascending order, on the host, and eigenvectors as columns."""
    if is_numpy(matrix):
        values, vectors = lapack.eigh(matrix, driver="evd", overwrite_a=overwrite)
        return values, vectors
    values, vectors = namespace(matrix).linalg.eigh(matrix)
    return on_host(values), vectors


def eigenvalues(matrix: Array) -> Matrix:
    """Eigenvalues of a symmetric matrix in ascending order."""
    if is_numpy(matrix):
        return np.linalg.eigvalsh(matrix)
    return on_host(namespace(matrix).linalg.eigvalsh(matrix))


def largest_eigenvalue(matrix: Array) -> float:
    """The largest eigenvalue of a symmetric matrix."""
    if is_numpy(matrix):
        last_index = matrix.shape[0] - 1
        with suppress(np.linalg.LinAlgError):  # LAPACK may not find one by itself among many that are nearly equal
            return float(lapack.eigvalsh(matrix, subset_by_index=[last_index, last_index])[0])
    return float(eigenvalues(matrix)[-1])


def cholesky(matrix: Array) -> Array:
    """Upper triangular R with R'R the matrix. Raises: NotPositiveDefinite."""
    if is_numpy(matrix):
        try:
            return lapack.cholesky(matrix, lower=False)
        except scipy.linalg.LinAlgError as error:
            raise NotPositiveDefinite(INDEFINITE) from error
    return _check_factor(matrix)


INDEFINITE = "Cholesky's factorisation found a matrix that is not positive definite"


def _check_factor(matrix: Array) -> Array:
    """Cholesky's factor by another library: some return numbers of no meaning where they should fail."""
    xp = namespace(matrix)
    try:
        factor = xp.linalg.cholesky(matrix, upper=True)
    except Exception as error:  # each library has a LinAlgError of its own, and none of them need be installed
        if "LinAlgError" not in type(error).__name__:
            raise
        raise NotPositiveDefinite(INDEFINITE) from error
    expected, actual = diagonal(matrix), on_host(xp.sum(factor * factor, axis=0))
    if not (np.abs(actual - expected) <= FACTOR_SLACK * np.abs(expected)).all():
        raise NotPositiveDefinite(INDEFINITE)
    return factor


def factor_matrix(matrix: Array, *, overwrite: bool = False) -> Callable[[Array], Array]:
    """What solves matrix x = right for x, with a positive definite matrix that is factored once. Raises: NotPositiveDefinite."""
    if not is_numpy(matrix):
        _check_factor(matrix)
        return partial(namespace(matrix).linalg.solve, matrix)
    try:
        return partial(lapack.cho_solve, lapack.cho_factor(matrix, overwrite_a=overwrite))
    except scipy.linalg.LinAlgError as error:
        raise NotPositiveDefinite(INDEFINITE) from error


def solve_definite(matrix: Array, rhs: Array) -> Array:
    """The solution of matrix x = right, for a positive definite matrix."""
    if is_numpy(matrix):
        return lapack.solve(matrix, rhs, assume_a="pos")
    return namespace(matrix).linalg.solve(matrix, rhs)


def pseudo_inverse(matrix: Array) -> Array:
    """The Moore-Penrose inverse."""
    if is_numpy(matrix):
        return lapack.pinv(matrix)
    return namespace(matrix).linalg.pinv(matrix)


def diagonal(matrix: Array) -> Matrix:
    """The diagonal, on the host."""
    return np.diag(matrix) if isinstance(matrix, np.ndarray) else on_host(namespace(matrix).linalg.diagonal(matrix))


def add_to_diagonal(matrix: Array, values: Matrix) -> None:
    """Add a vector to the diagonal, in place."""
    if is_numpy(matrix):
        matrix[np.diag_indices_from(matrix)] += values
    else:
        matrix += identity(matrix, matrix.shape[0]) * like(matrix, values)


def hollow(matrix: Array) -> Array:
    """A copy whose diagonal is zero."""
    if is_numpy(matrix):
        copy = matrix.copy()
        np.fill_diagonal(copy, 0.0)
        return copy
    return matrix * (1.0 - identity(matrix, matrix.shape[0]))


def trace(matrix: Array) -> float:
    """The sum of the diagonal."""
    return float(np.trace(matrix) if is_numpy(matrix) else namespace(matrix).linalg.trace(matrix))


def inner(first_matrix: Array, second_matrix: Array) -> float:
    """The sum of the products of all entries."""
    return (
        float(np.vdot(first_matrix, second_matrix))
        if is_numpy(first_matrix)
        else float(namespace(first_matrix).sum(first_matrix * second_matrix))
    )


def sum_of_squares(matrix: Array) -> float:
    """Of all entries."""
    return float((matrix**2).sum()) if is_numpy(matrix) else inner(matrix, matrix)


def norm(matrix: Array) -> float:
    """Frobenius' norm."""
    return float(np.linalg.norm(matrix)) if is_numpy(matrix) else math.sqrt(inner(matrix, matrix))


def weighted_rows(matrix: Array, weights: Matrix) -> Matrix:
    """diag(M diag(weights) M'), on the host; NumPy takes no array of M's size for it."""
    if isinstance(matrix, np.ndarray):
        return np.einsum("ia,ia,a->i", matrix, matrix, like(matrix, weights))
    return on_host((matrix * matrix) @ like(matrix, weights))


def weighted_gram(matrix: Array, weights: Matrix) -> Array:
    """A diag(w) A' for weights of either sign, (rows, rows).

    NumPy takes a matrix times its own transpose for what it is, in half the work: positive and negative weights are taken apart for that.
    """
    if not is_numpy(matrix):
        return (matrix * like(matrix, weights)) @ matrix.T
    gram = np.zeros((matrix.shape[0], matrix.shape[0]), dtype=matrix.dtype)
    for sign in (1.0, -1.0):
        has_sign = sign * weights > 0.0
        if has_sign.any():
            half = matrix[:, has_sign]
            half *= like(matrix, np.sqrt(np.abs(weights[has_sign])))
            gram += sign * (half @ half.T)
    return gram


def weighted_columns(matrix: Array, weights: Matrix) -> Matrix:
    """diag(M' diag(weights) M), on the host; NumPy takes no array of M's size for it."""
    if isinstance(matrix, np.ndarray):
        return np.einsum("ai,ai,a->i", matrix, matrix, weights)
    return on_host(like(matrix, weights) @ (matrix * matrix))


def column_products(first_matrix: Array, second_matrix: Array) -> Matrix:
    """The inner product of each column of one matrix with that of the other, on the host."""
    if isinstance(first_matrix, np.ndarray):
        return np.einsum("ai,ai->i", first_matrix, second_matrix)
    return on_host(namespace(first_matrix).sum(first_matrix * second_matrix, axis=0))


def weighted_total(first_matrix: Array, second_matrix: Array, weights: Matrix) -> float:
    """The sum of left o right over rows, weighted by column."""
    if is_numpy(first_matrix):
        return float(np.einsum("ia,ia,a->", first_matrix, second_matrix, weights))
    return float(column_products(first_matrix, second_matrix) @ weights)


def squared_lengths(matrix: Array) -> Matrix:
    """The squared length of every column, on the host."""
    return (matrix**2).sum(axis=0) if isinstance(matrix, np.ndarray) else column_products(matrix, matrix)


def times(matrix: Array, vector: Matrix) -> Matrix:
    """The product of a matrix and a vector of its precision, on the host."""
    return matrix @ vector if isinstance(matrix, np.ndarray) else on_host(matrix @ like(matrix, vector))


def to_single(matrix: Array) -> Array:
    """The matrix in single precision."""
    xp = namespace(matrix)
    return xp.astype(matrix, xp.float32)


def any_in_rows(matrix: Array) -> Matrix:
    """Whether each row holds anything but zeros, on the host."""
    return np.asarray(matrix.any(axis=1)) if is_numpy(matrix) else on_host(namespace(matrix).any(matrix != 0, axis=1))


def row(matrix: Array, index: int) -> Matrix:
    """One row, on the host."""
    return on_host(matrix[int(index), :])


def rows(matrix: Array, indices: Matrix) -> Array:
    """The rows at some places, or where a mask holds, as a copy."""
    if is_numpy(matrix):
        return matrix[indices]
    return namespace(matrix).take(matrix, _index_array(matrix, indices), axis=0)


def columns(matrix: Array, indices: Matrix) -> Array:
    """The columns at some places, or where a mask holds, as a copy."""
    if is_numpy(matrix):
        return matrix[:, indices]
    return namespace(matrix).take(matrix, _index_array(matrix, indices), axis=1)


def submatrix(matrix: Array, indices: Matrix) -> Array:
    """The rows and columns at some places, as a copy."""
    return matrix[np.ix_(indices, indices)] if is_numpy(matrix) else columns(rows(matrix, indices), indices)


def _index_array(matrix: Array, indices: Matrix) -> Array:
    return like(matrix, np.flatnonzero(indices) if indices.dtype == bool else indices)


def block(indices: Matrix | None) -> EllipsisType | tuple[Matrix, ...]:
    """An index of the rows and columns at some places; None for all."""
    return ... if indices is None else np.ix_(indices, indices)


def contiguous(matrix: Array) -> Array:
    """The matrix laid out by rows where the library lets one choose."""
    return np.ascontiguousarray(matrix) if is_numpy(matrix) else matrix


def to_double(matrix: Array) -> Array:
    """A copy in double precision."""
    xp = namespace(matrix)
    return xp.astype(matrix, xp.float64, copy=True)


def copy_matrix(matrix: Array) -> Array:
    """A copy of the matrix."""
    return matrix.copy() if is_numpy(matrix) else namespace(matrix).asarray(matrix, copy=True)


def symmetric_under_reversal(matrix: Array, *, tolerance: float) -> bool:
    """Whether a matrix equals itself with rows and columns in reverse, up to a relative tolerance."""
    xp = namespace(matrix)
    turned = xp.flip(matrix)
    if is_numpy(matrix):
        return bool(np.allclose(matrix, turned, rtol=tolerance, atol=0.0))
    return bool(xp.all(xp.abs(matrix - turned) <= tolerance * xp.abs(turned)))
