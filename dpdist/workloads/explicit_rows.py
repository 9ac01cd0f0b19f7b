"""Workloads given row by row."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from dpdist.domain import Domain
from dpdist.domain.labels import LazySequence
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Matrix, Operator, RowSource, Sparse, TallMatrix
from dpdist.operators.out_of_core import as_row_source
from dpdist.workloads.block import Block
from dpdist.workloads.workload import Workload


@dataclass(frozen=True)
class RowNumbers(LazySequence[str]):
    """The names "row 0", "row 1", ..., made when they are read and never stored."""

    rows: int

    def __len__(self) -> int:
        return self.rows

    def value_at(self, index: int) -> str:
        return f"row {index}"


def dense_array(matrix: Any) -> Any:
    """The array of a matrix, whose library it keeps; of a SciPy sparse matrix or a ``LinearOperator`` all entries."""
    if _is_sparse(matrix):
        return matrix.toarray()
    operators = sys.modules.get("scipy.sparse.linalg")  # without it nobody has made an operator: its import takes long
    if operators is not None and isinstance(matrix, operators.LinearOperator):
        return matrix.matmat(np.eye(matrix.shape[1]))
    return matrix


def _is_sparse(matrix: Any) -> bool:
    return "scipy.sparse" in sys.modules and bool(scipy.sparse.issparse(matrix))


def explicit(
    array: Matrix | scipy.sparse.sparray | scipy.sparse.linalg.LinearOperator,
    domain: Domain | None = None,
    *,
    names: tuple[str, ...] | None = None,
    title: str = "queries",
) -> Workload:
    """The rows of a matrix as queries.

    Args:
        array: (m, n) finite numbers, dense, SciPy sparse or a ``LinearOperator``; n = cells of the domain. Of the gram W'W, see ``gram``.
        domain: default: one attribute of n cells.
        names: one distinct name for each row; default "row 0", "row 1", ...
        title: name of the group of queries.
    Raises: InvalidInput for entries that are not finite numbers, another width than the domain's cells, or names that repeat.
    """
    operator = Sparse(scipy.sparse.csr_array(array)) if _is_sparse(array) else Dense(np.asarray(dense_array(array)))
    return _workload(operator, domain, names, title)


def tall(
    source: RowSource | Any, domain: Domain | None = None, *, names: tuple[str, ...] | None = None, title: str = "queries"
) -> Workload:
    """The rows of a matrix as queries. They are read or computed when they are needed, so the matrix may be larger than memory.

    Args:
        source: an array that gives rows by ``array[start:stop]`` (NumPy, a memory map, Zarr, SciPy sparse), or an object that has
            a ``shape`` (m, n) and gives rows by ``read(start, stop)``: ``dpdist.storage.zarr_matrices.zarr_rows(location)``, or
            ``dpdist.operators.Generated(shape, function)`` for rows that are never stored.
        domain: as in ``explicit``.
        names: as in ``explicit``.
        title: name of the group of queries.
    Raises: InvalidInput for entries that are not finite numbers.
    """
    return _workload(TallMatrix(as_row_source(source)), domain, names, title)


def _workload(operator: Operator, domain: Domain | None, names: tuple[str, ...] | None, title: str) -> Workload:
    queries, cells = operator.shape
    if queries == 0 or cells == 0:
        raise InvalidInput(f"a workload needs at least one query and one cell, found shape {operator.shape}")
    with np.errstate(over="ignore"):
        norms = operator.column_norms_squared()
    if not np.isfinite(norms).all():
        raise InvalidInput("the squares of the rows' entries overflow; divide all rows by their largest entry")
    if not norms.any():
        raise InvalidInput(
            "the rows, or the squares of their entries, are zero everywhere, so there is nothing to answer; give rows that count some "
            "cell, or multiply entries below 1e-160"
        )
    whole = domain if domain is not None else Domain.of_shape((cells,))
    if whole.cells != cells:
        raise InvalidInput(f"rows of {cells} entries do not fit a domain of {whole.cells} cells ({whole.shape})")
    if names is not None and (len(names) != queries or len(set(names)) != queries):
        raise InvalidInput(f"{queries} distinct row names are needed, found {len(set(names))}")
    labels: Sequence[str] = RowNumbers(queries) if names is None else names
    return Workload(whole, (Block(title, tuple(range(len(whole.shape))), (operator,), (labels,)),))
