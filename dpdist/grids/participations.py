"""How far one person in several steps of a stream moves what is measured, in exact integers (docs/decisions/0018-participations.md).

A person has records in up to ``most`` steps, any two of which lie ``separation`` steps or more apart. What one record in each of them
adds to z has the squared length sum G_ij over these steps, with G = C'C of the lower triangular strategy C.
"""

from __future__ import annotations

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.grids.norms import exact_norms
from dpdist.operators import Matrix

LIMB = 15
"""Bits of a limb: products of limbs of 2^30 summed over up to 2^23 steps are exact in double precision."""
BLOCK_ROWS = 128
"""Rows of the gram that are worked on at once."""
GRAM_STEPS = 4096
"""Steps up to which a filter whose coefficients do not fall is bounded by its gram; longer ones by the triangle inequality."""


def fitting(most: int, separation: int, steps: int) -> int:
    """How many participations fit into a series.

    >>> fitting(5, 3, 10), fitting(5, 3, 20)
    (4, 5)
    """
    return min(most, -(-steps // separation))


def falls(coefficients: Matrix) -> bool:
    """Whether the coefficients of a filter of the past are at least 0 and never rise from one lag to the next."""
    return bool(coefficients[-1] >= 0 and (np.diff(coefficients) <= 0).all())


def squared_of_falling(coefficients: Matrix, most: int, separation: int) -> int:
    """The largest squared length for a filter whose coefficients fall: that of the earliest steps, as close as is allowed. Exact.

    Source: Kalinin & Lampert 2024 (banded square root matrix factorization), Theorem 2; the proof is in the decision.
    """
    steps = coefficients.size
    together = np.zeros((-(-steps // separation), separation), dtype=np.int64)
    together.ravel()[:steps] = coefficients
    together = np.cumsum(together, axis=0)
    together[most:] -= together[:-most].copy()
    reached = together.ravel()[:steps].astype(object)
    return int(reached @ reached)


def squared_at_most(factor: Matrix, most: int, separation: int) -> int:
    """A bound of the largest squared length for any lower triangular matrix of whole numbers of at most 2^30, never below it.

    With g_ij = |G_ij| and r_i the most that the row i can sum to over steps that are apart and include i, the sum of g_ij over a
    person's steps is at most the sum of r_i over them. Both maxima are found by dynamic programming over the steps; rounding is
    upwards. The triangle inequality, most^2 times the longest column, is taken where it is less.
    """
    steps = factor.shape[0]
    high, low = (factor >> LIMB).astype(np.float64), (factor & (2**LIMB - 1)).astype(np.float64)
    longest = int(exact_norms(factor).max())
    if longest >= 2**62:
        raise InvalidInput("the strategy's entries are too large for whole numbers; choose mechanism 'square-root'")
    shift = max(0, (most**2 * longest).bit_length() - 62)
    rows = np.empty(steps, dtype=np.int64)
    for start in range(0, steps, BLOCK_ROWS):
        places = np.arange(start, min(start + BLOCK_ROWS, steps))
        parts = [(left[:, places].T @ right).astype(np.int64) for left in (high, low) for right in (high, low)]
        gram = np.abs((parts[0] << 2 * LIMB) + ((parts[1] + parts[2]) << LIMB) + parts[3])
        apart = np.abs(places[:, None] - np.arange(steps)) >= separation
        others = best_apart(np.where(apart, -(-gram >> shift), 0), most - 1, separation)
        rows[places] = others - (-gram[np.arange(places.size), places] >> shift)
    found = int(best_apart(rows[None, :], most, separation)[0]) << shift
    return min(found, most**2 * longest)


def best_apart(weights: Matrix, most: int, separation: int) -> Matrix:
    """For each row of weights of at least 0 the largest sum of up to ``most`` of them that lie ``separation`` columns or more apart."""
    best = np.zeros_like(weights)
    for _ in range(most):
        taken = weights.copy()
        taken[:, separation:] += best[:, : max(0, weights.shape[1] - separation)]
        further = np.maximum.accumulate(taken, axis=1)
        if (further == best).all():
            break
        best = further
    return np.asarray(best[:, -1])
