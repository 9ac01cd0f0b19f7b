"""Which groups of a person count, where they are in more than may: a keyed random choice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import find_runs, number_persons
from dpdist.engine.shuffle import Rows


def choose_groups(
    rows: Rows, groups: NDArray[np.int64], group_words: NDArray[np.uint64], group_bound: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of one record of each group that counts of each person, and how many records the person has in that group.

    Which groups of a person count, if there are more, is decided by a keyed hash of person and group: by nothing that another person's
    records change, and not by the order of records.

    Args:
        groups: of every record. Two groups with one hash are taken in rising order.
        group_words: a keyed hash of every record's group.
    """
    person = number_persons(rows)
    order = np.lexsort((groups, person))
    starts, _ = find_runs(person[order], groups[order])
    places, record_counts = order[starts], np.diff(np.append(starts, rows.size))
    random_order = mix_bits(rows["high"][places] ^ group_words[places])
    order = np.lexsort((groups[places], random_order, person[places]))
    chosen = order[find_runs(person[places][order])[1] < group_bound]
    return places[chosen], record_counts[chosen]


def mix_bits(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A permutation of 64-bit words that makes one bit move half of them: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))
