"""Which groups of a person count, where they are in more than may: a keyed random choice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.shuffle import Rows


def choose_groups(
    rows: Rows, starts: NDArray[np.int64], groups: NDArray[np.int64], group_words: NDArray[np.uint64], group_bound: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of one record of each group that counts of each person, and how many records the person has in that group.

    Which groups of a person count, if there are more, is decided by a keyed hash of person and group: by nothing that another person's
    records change, and not by the order of records.

    Args:
        rows: in an order of persons, as ``order_by_person`` gives it.
        starts: where the records of each person begin.
        groups: of every record. Two groups with one hash are taken in rising order.
        group_words: a keyed hash of every record's group.
    """
    order = _order_by_word(starts, mix_bits(rows["high"] ^ group_words), groups)
    is_new_group, ordered_groups = np.ones(rows.size, dtype=bool), groups.take(order)
    np.not_equal(ordered_groups[1:], ordered_groups[:-1], out=is_new_group[1:])
    is_new_group[starts] = True
    group_starts = np.flatnonzero(is_new_group)
    person = np.searchsorted(starts, group_starts, side="right")
    is_chosen = np.ones(group_starts.size, dtype=bool)
    is_chosen[group_bound:] = person[group_bound:] != person[:-group_bound]
    return order[group_starts[is_chosen]], np.diff(group_starts, append=rows.size)[is_chosen]


def _order_by_word(starts: NDArray[np.int64], words: NDArray[np.uint64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of records, person by person, those of each in the order of words, and of groups where words are equal.

    Args:
        starts: where the records of each person begin.
    """
    # values are sorted in a fifth of the time of places: one number holds the person, the first bits of the word, and the rank
    sizes = np.diff(starts, append=words.size)
    rank_bits, person_bits = int(sizes.max(initial=1)).bit_length(), starts.size.bit_length()
    firsts, persons = np.repeat(starts, sizes), np.repeat(np.arange(starts.size, dtype=np.uint64), sizes)
    packed = words >> np.uint64(person_bits + rank_bits) << np.uint64(rank_bits)
    packed |= persons << np.uint64(64 - person_bits)
    packed |= (np.arange(words.size) - firsts).view(np.uint64)
    packed.sort()
    order = firsts + (packed & np.uint64((1 << rank_bits) - 1)).view(np.int64)
    packed >>= np.uint64(rank_bits)
    ordered_groups = groups.take(order)
    if ((packed[1:] == packed[:-1]) & (ordered_groups[1:] != ordered_groups[:-1])).any():
        return np.lexsort((groups, words, persons))  # two groups of a person share these bits of their words
    return order


def mix_bits(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A permutation of 64-bit words that makes one bit move half of them: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = words ^ (words >> np.uint64(shift))
        words *= np.uint64(factor)
    return words ^ (words >> np.uint64(31))
