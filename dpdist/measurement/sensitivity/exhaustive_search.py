"""The search through every choice of a person's cells or steps, compiled: a module of its own, as the compiler takes long to import."""

from __future__ import annotations

import numba
import numpy as np

from dpdist.operators import Matrix


@numba.njit(cache=True)
def longest_chain(gram: Matrix, most: int, separation: int) -> tuple[float, Matrix]:  # pragma: no cover - compiled
    """The largest sum of a symmetric matrix over the pairs of up to ``most`` steps that are apart, and these: all of them are tried.

    With a separation of 1 these are all sets of up to ``most`` cells.
    """
    steps = gram.shape[0]
    chosen, values = np.zeros(most, dtype=np.int64), np.zeros(most + 1, dtype=gram.dtype)
    best, found, depth, step = gram[0, 0], np.zeros(1, dtype=np.int64), 0, 0
    while True:
        if step < steps and depth < most:
            value = values[depth] + gram[step, step]
            for other in range(depth):
                value += 2 * gram[step, chosen[other]]
            chosen[depth] = step
            depth += 1
            values[depth] = value
            if value > best:
                best, found = value, chosen[:depth].copy()
            step += separation
        elif depth > 0:
            depth -= 1
            step = chosen[depth] + 1
        else:
            return best, found
