"""How far one person in several steps of a stream moves what is measured, in exact integers (docs/decisions/0007-streams.md).

A person has records in up to ``most`` steps, any two of which lie ``separation`` steps or more apart. What one record in each of them
adds to z has the squared length sum G_ij over these steps, with G = C'C of the lower triangular strategy C. Two records that lie in
different series never meet, and one that lowers a count may meet another with the opposite sign: ``Crossing`` says what counts then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.measurement.sensitivity.column_norms import exact_norms
from dpdist.measurement.sensitivity.group_contribution import exact_gram
from dpdist.operators import Matrix

LIMB = 15
"""Bits of a limb: products of limbs of 2^30 summed over up to 2^23 steps are exact in double precision."""
BLOCK_ROWS = 128
"""Rows of the gram that are worked on at once."""
GRAM_STEPS = 4096
"""Steps up to which a filter whose coefficients do not fall is bounded by its gram; longer ones by the triangle inequality."""

CHAINS = 2**24
"""Choices of steps up to which all of them are gone through, for matrices that are no filters."""
UNREACHED = -(2**61)
"""Less than any sum: stands for a chain that does not exist."""
CHAIN_WORK = 2**31
"""Additions up to which the chains of a banded filter are gone through; with more, every pair is taken for the worst one."""


class Crossing(Enum):
    """What a pair of steps of one person adds to the squared length, of its entry of G.

    AS_IT_IS: every record adds to one series, and never lowers a count.
    POSITIVE: records of two steps may lie in different series, where they never meet: an entry below zero then counts as zero.
    ABSOLUTE: records may lower counts, so that either sign is met.
    """

    AS_IT_IS = "as it is"
    POSITIVE = "positive"
    ABSOLUTE = "absolute"

    def of(self, products: Matrix) -> Matrix:
        """The entries as they count."""
        if self is Crossing.ABSOLUTE:
            return np.abs(products)
        return products if self is Crossing.AS_IT_IS else np.maximum(products, 0)


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


def width_of(coefficients: Matrix) -> int:
    """How many coefficients there are up to the last that is not zero."""
    return int(np.flatnonzero(coefficients)[-1]) + 1


def squared_of_band(coefficients: Matrix, most: int, separation: int, crossing: Crossing) -> int:
    """The largest squared length for a filter that ends within two separations, so that only consecutive steps of a person meet.

    The sum over a person's steps is that of a chain: of the steps themselves and of the pairs that follow each other. The largest is
    found by dynamic programming in whole numbers, rounded upwards where they would not fit into 63 bits.
    """
    listed = coefficients[: width_of(coefficients)]
    columns = np.cumsum(listed.astype(object) ** 2)
    longest = int(columns[-1])
    if most * (listed.size - separation) * coefficients.size > CHAIN_WORK:
        pairs = max(int(crossing.of(products_at(listed, lag)).max()) for lag in range(separation, listed.size))
        return most * longest + 2 * (most - 1) * max(0, pairs)
    shift = max(0, (4 * most * longest).bit_length() - 62)
    value, _ = heaviest_chain(
        columns_to_the_end(upwards(columns, shift), coefficients.size),
        lambda lag: columns_to_the_end(
            upwards(crossing.of(products_at(listed, lag)).astype(object) * 2, shift), coefficients.size
        )[lag:],
        most,
        separation,
        listed.size,
    )
    return int(value) << shift


def upwards(values: Matrix, shift: int) -> Matrix:
    """Whole numbers over 2^shift, rounded up, as int64."""
    return np.asarray(-((-values) >> shift), dtype=np.int64)


def products_at(listed: Matrix, lag: int) -> Matrix:
    """Products of two columns that are ``lag`` steps apart, the later of which has 1, 2, ... steps to the end."""
    return np.cumsum(listed[: listed.size - lag] * listed[lag:])


def columns_to_the_end(reached: Matrix, steps: int) -> Matrix:
    """What every step has, from what one with 1, 2, ... steps to the end has, of which later ones have the last: (steps,)."""
    return np.asarray(reached[np.minimum(np.arange(steps, 0, -1), reached.size) - 1])


def heaviest_chain(
    alone: Matrix, between: Callable[[int], Matrix], most: int, separation: int, width: int, beside: Matrix | int = 0
) -> tuple[float, list[int]]:
    """The largest sum over chains of up to ``most`` steps, ``separation`` or more apart, and the steps of one that has it.

    Args:
        alone: what a step adds by itself, (steps,).
        between: what two steps in sequence so many steps apart add together, by the later one, (steps - lag,).
        width: from so many steps on they add nothing together.
        beside: what a step adds for every one before it, (steps,).
    """
    steps = alone.size
    lags = range(separation, min(width, steps))
    meeting = {lag: between(lag) for lag in lags}
    best, came = [alone], []
    for number in range(1, most):
        before = best[-1]
        running = np.maximum.accumulate(before)
        where = np.maximum.accumulate(np.where(before == running, np.arange(steps), 0))
        first = max(separation, width)
        joined, source = np.full(steps, UNREACHED, dtype=alone.dtype), np.full(steps, -1)
        joined[first:], source[first:] = running[: max(0, steps - first)], where[: max(0, steps - first)]
        for lag in lags:
            met = before[: steps - lag] + meeting[lag]
            better = met > joined[lag:]
            np.copyto(joined[lag:], met, where=better)
            np.copyto(source[lag:], np.arange(steps - lag), where=better)
        reached = joined + alone + number * beside
        reached[source < 0] = UNREACHED
        best.append(reached)
        came.append(source)
    count = max(range(len(best)), key=lambda each: best[each].max())
    end = int(best[count].argmax())
    return best[count][end], followed_back(came[:count], end)


def followed_back(came: Sequence[Matrix], end: int) -> list[int]:
    """The chain that ends in a step, from where each of its steps came."""
    chain = [end]
    for source in reversed(came):
        chain.append(int(source[chain[-1]]))
    return chain[::-1]


def number_of_chains(steps: int, most: int, separation: int) -> int:
    """How many sets of up to ``most`` steps there are that are ``separation`` or more apart.

    >>> number_of_chains(5, 2, 3)
    8
    """
    return sum(math.comb(max(0, steps - (size - 1) * (separation - 1)), size) for size in range(1, most + 1))


def squared_of_chains(factor: Matrix, most: int, separation: int, crossing: Crossing) -> int:
    """The largest squared length for a matrix of whole numbers of at most 2^30: exact but for rounding upwards, by all choices of steps."""
    from dpdist.measurement.sensitivity.exhaustive_search import longest_chain

    gram = exact_gram(factor)
    counted = crossing.of(gram)
    np.fill_diagonal(counted, np.diag(gram))
    shift = max(0, (most**2 * int(np.diag(gram).max())).bit_length() - 61)
    return int(longest_chain(-(-counted >> shift), most, separation)[0]) << shift


def squared_of_rows(factor: Matrix, most: int, separation: int, crossing: Crossing) -> int:
    """A bound of the largest squared length for a matrix of whole numbers of at most 2^30, never below it.

    A step has no larger product with any that is two separations or more before it than its largest one. It is counted with this for all
    earlier steps of a person; what the last one before it has beyond that, if it is nearer, is the sum of a chain. Exact, but for rounding
    upwards, where these products are equal for each step: for rows that end within two separations they are zero.
    """
    gram = exact_gram(factor)
    counted, alone = crossing.of(gram), np.diag(gram)
    far = far_products(counted, 2 * separation)
    shift = max(0, (8 * most**2 * int(alone.max())).bit_length() - 62)
    value, _ = heaviest_chain(
        upwards(alone, shift),
        lambda lag: upwards(2 * (counted.diagonal(lag).astype(object) - far[lag:]), shift),
        most,
        separation,
        2 * separation,
        upwards(2 * far, shift),
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
