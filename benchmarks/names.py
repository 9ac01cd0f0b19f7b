"""How many names ``categories: private`` finds: by records, as before, and by persons who share a weight out among their names.

    python -m benchmarks.names

Persons have a geometric number of records with names of Zipf's law; rho 0.1 and delta 1e-7 for both. By records, the first k of each
person count and all may have one name; by persons, ``names_per_person`` different names count. Thresholds are those of releases, the
noise of this benchmark has a public seed.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.partition_selection import UNIT_BITS, Selection, selection, weight_of
from dpdist.stability import Distance

RHO, DELTA, MOST = Fraction(1, 10), Fraction(1, 10**7), 10**9
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
    return _count_selected(selection(RHO, DELTA, Distance(most_records, False), MOST), weights)


def selected_by_persons(person: Numbers, name: Numbers, names_per_person: int) -> int:
    """How many names are selected by persons who add to several of their names, chosen at random."""
    pairs = np.unique(np.stack([person, name]), axis=1)
    order = np.lexsort((np.random.default_rng(2).random(pairs.shape[1]), pairs[0]))
    person, name = pairs[:, order]
    counts = np.arange(person.size) - np.searchsorted(person, person) < names_per_person
    person, name = person[counts], name[counts]
    by_count = np.array([0, *map(weight_of, range(1, names_per_person + 1))])
    weights = np.zeros(int(name.max()) + 1, dtype=np.int64)
    np.add.at(weights, name, by_count[np.bincount(person)[person]])
    return _count_selected(selection(RHO, DELTA, Distance(1, False), MOST, names_per_person), weights)


def _count_selected(rule: Selection, weights: Numbers) -> int:
    state = np.random.default_rng(3)
    found = weights[weights > 0]
    return int(rule.select_names(found, lambda count: np.rint(state.normal(0, rule.scale, count)).astype(np.int64)).size)


if __name__ == "__main__":
    print("| persons | names | records a person | by records (k: names) | by persons (names a person: names) |")
    print("|---|---|---|---|---|")
    for case in CASES:
        drawn = draw_records(*case)
        old = ", ".join(f"{bound}: {selected_by_records(*drawn, bound):,}" for bound in BY_RECORDS)
        new = ", ".join(f"{bound}: {selected_by_persons(*drawn, bound):,}" for bound in BY_PERSONS)
        print(f"| {case[0]:,} | {case[1]:,} | {case[2]:g} | {old} | {new} |")
