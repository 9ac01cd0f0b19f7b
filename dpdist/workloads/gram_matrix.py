"""The gram of queries, given in their place: which of the two a matrix is cannot be seen from its numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dpdist.operators import Matrix
from dpdist.workloads.explicit_rows import dense_array


@dataclass(frozen=True)
class Gram:
    """The gram W'W of queries W.

    Attributes:
        values: (n, n), symmetric; an array of NumPy, or one of CuPy or PyTorch, whose device then computes.
    """

    values: Matrix = field(repr=False)


def gram(matrix: Any) -> Gram:
    """A matrix W'W, for optimisers and bounds in place of the queries W themselves, which ``explicit`` takes.

    Args:
        matrix: (n, n), symmetric and positive semidefinite: an array, a SciPy sparse matrix or a ``LinearOperator``.
    """
    return Gram(dense_array(matrix))
