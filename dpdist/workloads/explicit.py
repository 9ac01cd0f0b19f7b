"""Workloads given row by row."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Matrix, Sparse
from dpdist.workloads.base import Block, Workload


def explicit(
    array: Matrix | scipy.sparse.sparray,
    domain: Domain | None = None,
    *,
    names: tuple[str, ...] | None = None,
    title: str = "queries",
) -> Workload:
    """The rows of a matrix as queries.

    Args:
        array: (m, n) finite numbers, dense or SciPy sparse; n = cells of the domain.
        domain: default: one attribute of n cells.
        names: one distinct name a row; default "row 0", "row 1", ...
    """
    operator = Sparse(scipy.sparse.csr_array(array)) if scipy.sparse.issparse(array) else Dense(np.asarray(array))
    queries, cells = operator.shape
    if queries == 0 or cells == 0:
        raise InvalidInput(f"a workload needs at least one query and one cell, found shape {operator.shape}")
    if not operator.column_norms_squared().any():
        raise InvalidInput("the rows are zero everywhere: the workload asks nothing")
    whole = domain if domain is not None else Domain.of_shape((cells,))
    if whole.cells != cells:
        raise InvalidInput(f"rows of {cells} entries do not fit a domain of {whole.cells} cells ({whole.shape})")
    labels = names if names is not None else tuple(f"row {i}" for i in range(queries))
    if len(labels) != queries or len(set(labels)) != queries:
        raise InvalidInput(f"{queries} distinct row names are needed, found {len(set(labels))}")
    return Workload(whole, (Block(title, tuple(range(len(whole.shape))), (operator,), (labels,)),))
