"""What the two barrier methods on dual weights share: the inner solve and the damped step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpdist.operators import Matrix

SHRINK = 0.1
SMALLEST_FACTOR = 0.03
"""A weight falls at most to this fraction in one step."""


def conjugate_gradients(
    apply: Callable[[Matrix], Matrix], target: Matrix, precondition: Matrix, *, forcing: float, cap: int
) -> tuple[Matrix, int]:
    """z with apply(z) = target to a relative residual of ``forcing``, diagonal preconditioner; and the products used."""
    solution = np.zeros(target.size)
    residual = target.copy()
    scaled = residual / precondition
    direction = scaled.copy()
    energy = float(residual @ scaled)
    first = np.sqrt(energy)
    if first == 0.0:
        return solution, 0
    for used in range(1, cap + 1):
        image = apply(direction)
        length = energy / float(direction @ image)
        solution += length * direction
        residual -= length * image
        scaled = residual / precondition
        renewed = float(residual @ scaled)
        if np.sqrt(renewed) < forcing * first:
            return solution, used
        direction = scaled + renewed / energy * direction
        energy = renewed
    return solution, cap


def damped(dual: Matrix, move: Matrix, barrier: float, *, largest_step: float, floor: float) -> tuple[Matrix, float]:
    """The weights after a relative step, and the next barrier: smaller once a full step is short."""
    step = min(1.0, largest_step / max(float(np.abs(move).max()), 1e-300))
    size = float(np.sqrt(dual @ move**2 / dual.sum()))
    if step == 1.0 and size < 0.5:
        barrier = max(barrier * (SHRINK if size < 0.3 else 0.4), floor)
    return dual * np.maximum(1.0 + step * move, SMALLEST_FACTOR), barrier
