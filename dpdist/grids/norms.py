"""Exact norms of whole numbers that are too large for one product of doubles."""

from __future__ import annotations

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.operators import Matrix


def exact_norms(rows: Matrix) -> Matrix:
    """Squared norms of the columns of a block as Python integers, from 16-bit halves whose sums stay below 2^63."""
    top = int(np.abs(rows).max(initial=0))
    if (top >> 16) ** 2 * rows.shape[0] >= 2**62:
        raise InvalidInput(
            f"grid entries of up to {top} are too large, because the strategy's entries exceed its sensitivity "
            "by far; choose another mechanism"
        )
    high, low = rows >> 16, rows & 0xFFFF
    parts = [np.einsum("ij,ij->j", a, b).astype(object) for a, b in ((high, high), (high, low), (low, low))]
    return np.asarray(parts[0] * 2**32 + parts[1] * 2**17 + parts[2])
