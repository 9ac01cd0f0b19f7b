"""Which groups of a person count, where they are in more than may: a keyed random choice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    words = mix_bits(rows["high"] ^ group_words)
    order, is_new_person, is_new_group = _order_by_person_and_word(rows, words, groups)
    starts = np.flatnonzero(is_new_person | is_new_group)
    person = np.cumsum(is_new_person[starts])
    is_chosen = np.ones(starts.size, dtype=bool)
    is_chosen[group_bound:] = person[group_bound:] != person[:-group_bound]
    return order[starts[is_chosen]], np.diff(starts, append=rows.size)[is_chosen]


def _differs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Of every value whether it is the first one, or another than the one before."""
    differs = np.ones(values.size, dtype=bool)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


def _order_by_person_and_word(
    rows: Rows, words: NDArray[np.uint64], groups: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """The places of records in an order of persons, in it of words, and of groups where words are equal.

    Returns: these, and of each whether its person, and whether its group, is another than that of the one before.
    """
    # values are sorted in a fifth of the time of places: one number holds the first bits of the person, some of the word, and the place
    place_bits = max(1, rows.size.bit_length())
    word_bits = (64 - place_bits) // 3
    person_bits = 64 - place_bits - word_bits
    packed = rows["high"] >> np.uint64(64 - person_bits) << np.uint64(64 - person_bits)
    packed |= words >> np.uint64(64 - word_bits) << np.uint64(place_bits)
    packed |= np.arange(rows.size, dtype=np.uint64)
    packed.sort()
    order = (packed & np.uint64((1 << place_bits) - 1)).astype(np.int64)
    packed >>= np.uint64(place_bits)
    other_person, other_group = _differs_in_order(rows, groups, order)
    is_doubtful = ~_differs(packed) & other_group  # two groups that share these bits of their words
    packed >>= np.uint64(word_bits)
    run_begins = _differs(packed)
    is_doubtful |= ~run_begins & other_person  # two persons who share these bits
    if is_doubtful.any():
        run = np.cumsum(run_begins) - 1
        places = np.flatnonzero(np.bincount(run[is_doubtful], minlength=int(run[-1]) + 1).astype(bool)[run])
        doubtful = order[places]
        order[places] = doubtful[
            np.lexsort((groups[doubtful], words[doubtful], rows["low"][doubtful], rows["high"][doubtful]))
        ]
        other_person, other_group = _differs_in_order(rows, groups, order)
    return order, other_person, other_group


def _differs_in_order(
    rows: Rows, groups: NDArray[np.int64], order: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Of each record, in an order, whether its person, and whether its group, is another than that of the one before."""
    return _differs(rows["high"].take(order)) | _differs(rows["low"].take(order)), _differs(groups.take(order))


def mix_bits(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A permutation of 64-bit words that makes one bit move half of them: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = words ^ (words >> np.uint64(shift))
        words *= np.uint64(factor)
    return words ^ (words >> np.uint64(31))
