"""How far one person in several steps of a stream moves what is measured, in exact integers (docs/decisions/0007-streams.md).

A person has records in up to ``most`` steps, any two of which lie ``separation`` steps or more apart. What one record in each of them
adds to z has the squared length sum G_ij over these steps, with G = C'C of the lower triangular strategy C. Two records that lie in
different series never meet, and one that lowers a count may meet another with the opposite sign: ``Crossing`` says what counts then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.measurement.sensitivity.column_norms import exact_norms
from dpdist.operators import Matrix

LIMB = 15
"""Bits of a limb: products of limbs of 2^30 summed over up to 2^23 steps are exact in double precision."""
BLOCK_ROWS = 128
"""Rows of the gram that are worked on at once."""
GRAM_STEPS = 4096
"""Steps up to which a filter whose coefficients do not fall is bounded by its gram; longer ones by the triangle inequality."""

UNREACHED = -(2**61)
"""Less than any sum: stands for a chain that does not exist."""
CHAIN_WORK = 2**31
"""Additions up to which the chains of a banded filter are gone through; with more, every pair is taken for the worst one."""


class Crossing(Enum):
    """What a pair of steps of one person adds to the squared length, of its entry of G.

    UNCHANGED: every record adds to one series, and never lowers a count.
    POSITIVE: records of two steps may lie in different series, where they never meet: an entry below zero then counts as zero.
    ABSOLUTE: records may lower counts, so that either sign is met.
    """

    UNCHANGED = "as it is"
    POSITIVE = "positive"
    ABSOLUTE = "absolute"

    def apply(self, products: Matrix) -> Matrix:
        """The entries as they count."""
        if self is Crossing.ABSOLUTE:
            return np.abs(products)
        return products if self is Crossing.UNCHANGED else np.maximum(products, 0)


def fitting_participations(max_participations: int, separation: int, steps: int) -> int:
    """How many participations fit into a series.

    >>> fitting_participations(5, 3, 10), fitting_participations(5, 3, 20)
    (4, 5)
    """
    return min(max_participations, -(-steps // separation))


def is_falling(coefficients: Matrix) -> bool:
    """Whether the coefficients of a filter of the past are at least 0 and never rise from one lag to the next."""
    return bool(coefficients[-1] >= 0 and (np.diff(coefficients) <= 0).all())


def falling_squared(coefficients: Matrix, max_participations: int, separation: int) -> int:
    """The largest squared length for a filter whose coefficients fall: that of the earliest steps, as close as is allowed. Exact.

    Source: Kalinin & Lampert 2024 (banded square root matrix factorization), Theorem 2; the proof is in the decision.
    """
    steps = coefficients.size
    together = np.zeros((-(-steps // separation), separation), dtype=np.int64)
    together.ravel()[:steps] = coefficients
    together = np.cumsum(together, axis=0)
    together[max_participations:] -= together[:-max_participations].copy()
    reached = together.ravel()[:steps].astype(object)
    return int(reached @ reached)


def width_of(coefficients: Matrix) -> int:
    """How many coefficients there are up to the last that is not zero."""
    return int(np.flatnonzero(coefficients)[-1]) + 1


def band_squared(coefficients: Matrix, max_participations: int, separation: int, crossing: Crossing) -> int:
    """The largest squared length for a filter that ends within two separations, so that only consecutive steps of a person meet.

    The sum over a person's steps is that of a chain: of the steps themselves and of the pairs that follow each other. The largest is
    found by dynamic programming in whole numbers, rounded upwards where they would not fit into 63 bits.
    """
    band = coefficients[: width_of(coefficients)]
    columns = np.cumsum(band.astype(object) ** 2)
    longest = int(columns[-1])
    if max_participations * (band.size - separation) * coefficients.size > CHAIN_WORK:
        pairs = max(int(crossing.apply(lag_products(band, lag)).max()) for lag in range(separation, band.size))
        return max_participations * longest + 2 * (max_participations - 1) * max(0, pairs)
    shift = max(0, (4 * max_participations * longest).bit_length() - 62)
    value, _ = heaviest_chain(
        columns_to_the_end(round_up(columns, shift), coefficients.size),
        lambda lag: columns_to_the_end(
            round_up(crossing.apply(lag_products(band, lag)).astype(object) * 2, shift), coefficients.size
        )[lag:],
        max_participations,
        separation,
        band.size,
    )
    return int(value) << shift


def round_up(values: Matrix, shift: int) -> Matrix:
    """Whole numbers over 2^shift, rounded up, as int64."""
    return np.asarray(-((-values) >> shift), dtype=np.int64)


def lag_products(band: Matrix, lag: int) -> Matrix:
    """Products of two columns that are ``lag`` steps apart, the later of which has 1, 2, ... steps to the end."""
    return np.cumsum(band[: band.size - lag] * band[lag:])


def columns_to_the_end(reached: Matrix, steps: int) -> Matrix:
    """What every step has, from what one with 1, 2, ... steps to the end has, of which later ones have the last: (steps,)."""
    return np.asarray(reached[np.minimum(np.arange(steps, 0, -1), reached.size) - 1])


def heaviest_chain(
    alone: Matrix,
    pair_products: Callable[[int], Matrix],
    max_participations: int,
    separation: int,
    width: int,
    added_per_earlier: Matrix | int = 0,
) -> tuple[float, list[int]]:
    """The largest sum over chains of up to ``max_participations`` steps, ``separation`` or more apart, and the steps of one that has it.

    Args:
        alone: what a step adds by itself, (steps,).
        pair_products: what two steps in sequence so many steps apart add together, by the later one, (steps - lag,).
        width: from so many steps on they add nothing together.
        added_per_earlier: what a step adds for every one before it, (steps,).
    """
    steps = alone.size
    lags = range(separation, min(width, steps))
    meeting = {lag: pair_products(lag) for lag in lags}
    best, sources = [alone], []
    for number in range(1, max_participations):
        before = best[-1]
        running = np.maximum.accumulate(before)
        best_steps = np.maximum.accumulate(np.where(before == running, np.arange(steps), 0))
        first_far = max(separation, width)
        joined, source = np.full(steps, UNREACHED, dtype=alone.dtype), np.full(steps, -1)
        joined[first_far:], source[first_far:] = (
            running[: max(0, steps - first_far)],
            best_steps[: max(0, steps - first_far)],
        )
        for lag in lags:
            met = before[: steps - lag] + meeting[lag]
            better = met > joined[lag:]
            np.copyto(joined[lag:], met, where=better)
            np.copyto(source[lag:], np.arange(steps - lag), where=better)
        reached = joined + alone + number * added_per_earlier
        reached[source < 0] = UNREACHED
        best.append(reached)
        sources.append(source)
    count = max(range(len(best)), key=lambda length: best[length].max())
    end = int(best[count].argmax())
    return best[count][end], trace_chain(sources[:count], end)


def trace_chain(sources: Sequence[Matrix], end: int) -> list[int]:
    """The chain that ends in a step, from where each of its steps came."""
    chain = [end]
    for source in reversed(sources):
        chain.append(int(source[chain[-1]]))
    return chain[::-1]


def gram_squared_bound(factor: Matrix, max_participations: int, separation: int) -> int:
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
    shift = max(0, (max_participations**2 * longest).bit_length() - 62)
    rows = np.empty(steps, dtype=np.int64)
    for start in range(0, steps, BLOCK_ROWS):
        block_steps = np.arange(start, min(start + BLOCK_ROWS, steps))
        limb_products = [
            (left_limb[:, block_steps].T @ right_limb).astype(np.int64)
            for left_limb in (high, low)
            for right_limb in (high, low)
        ]
        gram = np.abs((limb_products[0] << 2 * LIMB) + ((limb_products[1] + limb_products[2]) << LIMB) + limb_products[3])
        is_separated = np.abs(block_steps[:, None] - np.arange(steps)) >= separation
        other_sums = _best_separated_sums(np.where(is_separated, -(-gram >> shift), 0), max_participations - 1, separation)
        rows[block_steps] = other_sums - (-gram[np.arange(block_steps.size), block_steps] >> shift)
    bound = int(_best_separated_sums(rows[None, :], max_participations, separation)[0]) << shift
    return min(bound, max_participations**2 * longest)


def _best_separated_sums(weights: Matrix, max_participations: int, separation: int) -> Matrix:
    """For each row of weights of at least 0 the largest sum of up to ``max_participations`` of them that lie ``separation`` columns or
    more apart."""
    best = np.zeros_like(weights)
    for _ in range(max_participations):
        taken = weights.copy()
        taken[:, separation:] += best[:, : max(0, weights.shape[1] - separation)]
        running_best = np.maximum.accumulate(taken, axis=1)
        if (running_best == best).all():
            break
        best = running_best
    return np.asarray(best[:, -1])


def longest_chain_steps(precision: Matrix, max_steps: int, separation: int) -> tuple[int, ...]:
    """The cells or steps of the longest person for a precision: every choice is tried."""
    from dpdist.measurement.sensitivity.exhaustive_search import longest_chain  # compiled: its import takes long

    return tuple(int(step) for step in longest_chain(precision, max_steps, separation)[1])
