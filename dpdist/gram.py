"""W'W of explicit rows, accumulated block by block; structured workloads have it in closed form."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dpdist.operators import Matrix


def accumulate(blocks: Iterable[Matrix], n: int) -> Matrix:
    """Sum of B'B over row blocks B of shape (rows, n), float64; one block in memory at a time."""
    out = np.zeros((n, n))
    for block in blocks:
        rows = np.asarray(block, dtype=np.float64)
        out += rows.T @ rows
    return out
