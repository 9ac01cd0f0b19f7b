"""The search through every choice of a person's cells or steps, compiled: a module of its own, as the compiler takes long to import."""

from __future__ import annotations

import numpy as np

from dpdist.operators import Matrix
from dpdist.privacy.kernel_files import compile_kernel


@compile_kernel
def longest_chain(gram: Matrix, max_steps: int, separation: int) -> tuple[float, Matrix]:  # pragma: no cover - compiled
    """The largest sum of a symmetric matrix over the pairs of up to ``max_steps`` steps that are apart, and these: all of them are tried.

    With a separation of 1 these are all sets of up to ``max_steps`` cells.
    """
    steps = gram.shape[0]
    chain, values = np.zeros(max_steps, dtype=np.int64), np.zeros(max_steps + 1, dtype=gram.dtype)
    best, best_chain, depth, step = gram[0, 0], np.zeros(1, dtype=np.int64), 0, 0
    while True:
        if step < steps and depth < max_steps:
            value = values[depth] + gram[step, step]
            for index in range(depth):
                value += 2 * gram[step, chain[index]]
            chain[depth] = step
            depth += 1
            values[depth] = value
            if value > best:
                best, best_chain = value, chain[:depth].copy()
            step += separation
        elif depth > 0:
            depth -= 1
            step = chain[depth] + 1
        else:
            return best, best_chain
