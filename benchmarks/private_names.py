"""How many names ``categories: private`` finds: by records, and by persons who share a weight out among their names.

    python -m benchmarks.private_names

Persons have a geometric number of records with names of Zipf's law; rho 0.1 (with Laplace noise epsilon 1) and delta 1e-7. By records,
the first k of each person count and all may have one name; by persons, ``names_per_person`` different names count. Thresholds are those of
releases, the noise of this benchmark has a public seed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise_distributions import GAUSSIAN, Kind
from dpdist.privacy.selection.adaptive_weights import UNIT_BITS, returned_shares
from dpdist.privacy.selection.partition_selection import Selection, selection
from dpdist.stability import Distance

RHO, EPSILON, DELTA, MOST = Fraction(1, 10), Fraction(1), Fraction(1, 10**7), 10**9
CASES = ((200_000, 100_000, 1.5), (200_000, 100_000, 5.0), (200_000, 100_000, 20.0))
"""Persons, names, and the mean number of records of a person."""
BY_RECORDS, BY_PERSONS = (1, 2, 3, 5, 20), (1, 5, 10, 20, 50, 100)

Numbers = NDArray[np.int64]


def draw_records(persons: int, names: int, mean: float) -> tuple[Numbers, Numbers]:
    """The person and the name of every record, by person."""
    state = np.random.default_rng(1)
    person = np.repeat(np.arange(persons), state.geometric(1 / mean, persons))
    shares = np.cumsum(1 / np.arange(1, names + 1))
    return person, np.searchsorted(shares / shares[-1], state.random(person.size))


def selected_by_records(person: Numbers, name: Numbers, most_records: int) -> int:
    """How many names are selected by the first records of each person."""
    counts = np.arange(person.size) - np.searchsorted(person, person) < most_records
    weights = np.bincount(name[counts]) << UNIT_BITS
    return _count_selected(selection(GAUSSIAN, Loss.gaussian(RHO), DELTA, Distance(most_records, False), MOST), weights)


def selected_by_persons(person: Numbers, name: Numbers, names_per_person: int, kind: Kind) -> tuple[int, int]:
    """How many names are selected by persons who share a weight out among several of their names, chosen at random; and if no name were
    full, under the same threshold.
    """
    pairs = np.unique(np.stack([person, name]), axis=1)
    order = np.lexsort((np.random.default_rng(2).random(pairs.shape[1]), pairs[0]))
    person, name = pairs[:, order]
    counts = np.arange(person.size) - np.searchsorted(person, person) < names_per_person
    person, name = person[counts], name[counts]
    budget = Loss.gaussian(RHO) if kind is GAUSSIAN else Loss.laplace(EPSILON)
    rule = selection(kind, budget, DELTA, Distance(1, False), MOST, names_per_person)
    assert rule.weights is not None
    order = np.lexsort((np.random.default_rng(4).permutation(int(person.max()) + 1)[person], name))
    person, name = person[order], name[order]
    d = np.bincount(person)[person]
    shares, beyond = rule.weights.shares[d], (rule.weights.weights - rule.weights.shares)[d]
    returned = returned_shares(np.flatnonzero(np.diff(name, prepend=-1)), shares, rule.saturation)
    back = np.zeros(int(person.max()) + 1, dtype=np.int64)
    np.add.at(back, person, returned)
    weights, plain = np.zeros((2, int(name.max()) + 1), dtype=np.int64)
    np.add.at(weights, name, shares - returned + beyond + back[person] // names_per_person)
    np.add.at(plain, name, shares + beyond)
    return _count_selected(rule, weights), _count_selected(rule, plain)


def _count_selected(rule: Selection, weights: Numbers) -> int:
    state = np.random.default_rng(3)
    found = weights[weights > 0]
    noise = rule.noise.kind.simulated(state, (found.size,)) * rule.noise.deviation
    return int(
        rule.select_names([(np.arange(found.size), found)], lambda start, count: np.rint(noise).astype(np.int64)).size
    )


if __name__ == "__main__":
    print(
        "| persons | names | records a person | by records (k: names) | names a person: names | none full | Laplace noise | none full |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        drawn = draw_records(*case)
        row = [", ".join(f"{bound}: {selected_by_records(*drawn, bound):,}" for bound in BY_RECORDS)]
        for kind in Kind:
            found = {bound: selected_by_persons(*drawn, bound, kind) for bound in BY_PERSONS}
            row += [", ".join(f"{bound}: {numbers[place]:,}" for bound, numbers in found.items()) for place in (0, 1)]
        print(f"| {case[0]:,} | {case[1]:,} | {case[2]:g} | {' | '.join(row)} |")
