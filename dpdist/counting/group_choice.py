"""Which groups of a person count, where they are in more than may: a keyed random choice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpdist.counting.contribution_bounding import find_runs, order_by_person
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
    order, person_starts, rank = order_by_person(rows)
    person = np.cumsum(rank == 0, dtype=np.int64) - 1
    words, groups = mix_bits(rows["high"] ^ group_words)[order], groups[order]
    within = _order_by_word(person, words, groups, persons=person_starts.size)
    order, person, groups = order[within], person[within], groups[within]
    starts, _ = find_runs(person, groups)
    record_counts = np.diff(np.append(starts, rows.size))
    chosen = find_runs(person[starts])[1] < group_bound
    return order[starts[chosen]], record_counts[chosen]


def _order_by_word(
    person: NDArray[np.int64], words: NDArray[np.uint64], groups: NDArray[np.int64], *, persons: int
) -> NDArray[np.int64]:
    """The places of records in the order of persons, of words, and of groups where words are equal.

    Args:
        person: rising numbers from zero on, below ``persons``.
    """
    # one sorted number holds the person, as many bits of the word as have room, and the place
    place_bits, person_bits = person.size.bit_length(), persons.bit_length()
    word_bits = 64 - place_bits - person_bits
    if word_bits < 1:
        return np.lexsort((groups, words, person))
    short_words = words >> np.uint64(64 - word_bits)
    packed = person.astype(np.uint64) << np.uint64(64 - person_bits)
    packed |= short_words << np.uint64(place_bits)
    packed |= np.arange(person.size, dtype=np.uint64)
    packed.sort()
    order = (packed & np.uint64((1 << place_bits) - 1)).astype(np.int64)
    person, groups = person[order], groups[order]
    same_bits = (packed[1:] ^ packed[:-1]) >> np.uint64(place_bits) == 0
    doubtful_persons = person[1:][same_bits & (groups[1:] != groups[:-1])]
    if doubtful_persons.size:  # some of their groups share these bits
        (places,) = np.nonzero(np.isin(person, doubtful_persons))
        exact = np.lexsort((groups[places], words[order[places]], person[places]))
        order[places] = order[places][exact]
    return order


def mix_bits(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A permutation of 64-bit words that makes one bit move half of them: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))
