"""How far one person in several steps moves what a matrix that is no filter measures: by every choice of steps, and by its rows."""

from __future__ import annotations

import math

import numpy as np

from dpdist.api.mechanisms import Crossing, Matrix, exact_gram, heaviest_chain, longest_chain_steps, round_up

CHAINS = 2**24
"""Choices of steps up to which all of them are gone through, for matrices that are no filters."""


def number_of_chains(steps: int, max_participations: int, separation: int) -> int:
    """How many sets of up to ``max_participations`` steps there are that are ``separation`` or more apart.

    >>> number_of_chains(5, 2, 3)
    8
    """
    return sum(math.comb(max(0, steps - (size - 1) * (separation - 1)), size) for size in range(1, max_participations + 1))


def chains_squared(factor: Matrix, max_participations: int, separation: int, crossing: Crossing) -> int:
    """The largest squared length for a matrix of whole numbers of at most 2^30: exact but for rounding upwards, by all choices of steps."""
    gram = exact_gram(factor)
    counted = crossing.apply(gram)
    np.fill_diagonal(counted, np.diag(gram))
    shift = max(0, (max_participations**2 * int(np.diag(gram).max())).bit_length() - 61)
    rounded = -(-counted >> shift)
    steps = list(longest_chain_steps(rounded, max_participations, separation))
    return int(rounded[np.ix_(steps, steps)].sum()) << shift


def rows_squared_bound(factor: Matrix, max_participations: int, separation: int, crossing: Crossing) -> int:
    """A bound of the largest squared length for a matrix of whole numbers of at most 2^30, never below it.

    A step has no larger product with any that is two separations or more before it than its largest one. It is counted with this for all
    earlier steps of a person; what the last one before it has beyond that, if it is nearer, is the sum of a chain. Exact, but for rounding
    upwards, where these products are equal for each step: for rows that end within two separations they are zero.
    """
    gram = exact_gram(factor)
    counted, alone = crossing.apply(gram), np.diag(gram)
    far = far_products(counted, 2 * separation)
    shift = max(0, (8 * max_participations**2 * int(alone.max())).bit_length() - 62)
    value, _ = heaviest_chain(
        round_up(alone, shift),
        lambda lag: round_up(2 * (counted.diagonal(lag).astype(object) - far[lag:]), shift),
        max_participations,
        separation,
        2 * separation,
        round_up(2 * far, shift),
    )
    return int(value) << shift


def far_products(gram: Matrix, lag: int) -> Matrix:
    """The largest product of each step with those so many steps or more before it, 0 where there are none: whole numbers of any size."""
    far = [int(gram[step, : step - lag + 1].max()) if step >= lag else 0 for step in range(len(gram))]
    return np.array(far, dtype=object)


def band_of(factor: Matrix) -> int:
    """How many diagonals of a lower triangular matrix there are up to the last that is not zero."""
    rows, columns = np.nonzero(factor)
    return int((rows - columns).max()) + 1
