"""What counts of persons of whom something is assumed: in how many groups, and how much of their amounts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpdist.domain import Domain
from dpdist.operators import Matrix
from dpdist.spec.assume import Distribution

PARTS = 2048
"""Steps of the grid on which amounts of a person are added up, from zero to the bound on their total."""
NOBODY = 1e-12
"""Of all persons: fewer are taken for none."""


def persons_by_group(domain: Domain, table: Sequence[str], groups: Distribution, most: int | None) -> float:
    """The mean answer for one person of a table, with its totals, where a person counts in the first ``most`` groups.

    A person's groups are different ones, every set of as many as likely as another. Those of a level are taken for equally large.

    Args:
        table: the attributes, or levels of them, that it is by.
        most: None where all of them count.
    """
    answers, rows, (cells, _) = 0.0, 0, domain.groups_in(domain.names)
    for each in domain.with_totals(table):
        number, bound = domain.groups_in(each)
        rows += number
        answers += _distinct(groups, cells, number, number if most is None else min(most, bound))
    return answers / rows


def _distinct(groups: Distribution, cells: int, number: int, limit: int) -> float:
    """In how many groups a person counts in the mean, where all cells are so many groups and ``limit`` count.

    With d groups after j cells, the next cell is in a new group with probability (groups - d) together / (cells - j).
    """
    together = cells / number
    chances, told = np.zeros(limit + 1), np.arange(limit + 1)  # of 0, 1, ... groups; of the last number or more
    chances[0], found = 1.0, 0.0
    for taken, weight in enumerate(_by_number(groups, cells)):
        found += float(weight * (chances @ told))
        if taken < cells:
            new = chances[:-1] * np.minimum((number - told[:-1]) * (together / (cells - taken)), 1)
            chances[:-1] -= new
            chances[1:] += new
    return found


def kept_of_person(records: Distribution, groups: Distribution | None, most_records: int, most_groups: int | None) -> Matrix:
    """The probabilities that 0, 1, 2, ... records of a person count, up to ``most_records`` in each group where groups are told apart."""
    each = _by_number(records, most_records)
    if groups is None or most_groups is None:
        return each
    found, sums = np.zeros(most_groups * most_records + 1), np.ones(1)
    for weight in _by_number(groups, most_groups):
        found[: sums.size] += weight * sums[: found.size]
        sums = _convolved(sums, each)
    return found


def added_up(kept: Matrix, amounts: Distribution, most: float, step: float) -> float:
    """What the amounts of a person who has so many records with probabilities ``kept`` add up to in the mean, at most ``most``.

    The amounts of whoever has more are scaled down, each to a step below: half a step in the mean.

    Args:
        amounts: within their range, from zero on.
    """
    places = amounts.values * (PARTS / most)
    below = np.floor(places).astype(np.int64)
    parts = np.zeros(max(int(below.max()) + 2, PARTS))
    np.add.at(parts, below, amounts.weights * (below + 1 - places))  # of each number the two next to it, with its mean
    np.add.at(parts, below + 1, amounts.weights * (places - below))
    grid, sums, found = np.arange(PARTS) * (most / PARTS), np.zeros(PARTS), 0.0
    sums[0] = 1.0
    for number, weight in enumerate(kept):
        beyond = max(0.0, 1 - float(sums.sum()))
        found += float(weight * (sums @ grid + beyond * max(0.0, most - number * step / 2)))
        sums = _convolved(sums, parts[:PARTS])[:PARTS] if sums.sum() > NOBODY else np.zeros(PARTS)
    return found


def _convolved(one: Matrix, other: Matrix) -> Matrix:
    """The probabilities of sums of two independent numbers."""
    size = one.size + other.size - 1
    return np.asarray(np.fft.irfft(np.fft.rfft(one, size) * np.fft.rfft(other, size), size))


def _by_number(given: Distribution, most: int) -> Matrix:
    """The probabilities of 0, 1, ..., ``most`` or more."""
    return np.bincount(np.minimum(np.rint(given.values), most).astype(np.int64), given.weights)
