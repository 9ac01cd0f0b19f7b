"""Which groups of a person count, where they are in more than may: the first ones, or a keyed random choice.

A person's records are gone through one after the other, with a list of the person's groups, in loops that are compiled where they take
many steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpdist.engine.shuffle import Rows

COMPILED_FROM = 2**18
"""Steps from which on loops are compiled: fewer take less time than to import the compiler."""


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
    words, ends = mix_bits(rows["high"] ^ group_words), np.append(starts, rows.size)
    choose = _fastest_form(_groups_by_word, ends, group_bound)
    places, counts = choose(ends, words, np.ascontiguousarray(groups), group_bound)
    return places, counts


def are_in_first_groups(
    starts: NDArray[np.int64], groups: NDArray[np.int64], group_bound: int, record_bound: int
) -> NDArray[np.bool_]:
    """Which records are the first ``record_bound`` ones of a person in one of the first ``group_bound`` groups that the person comes to.

    Args:
        starts: where the records of each person begin.
        groups: of every record.
    """
    ends = np.append(starts, groups.size)
    longest = min(group_bound, int(np.diff(ends).max(initial=0)))
    choose = _fastest_form(_records_of_first_groups, ends, group_bound)
    is_counted: NDArray[np.bool_] = choose(ends, groups, longest, record_bound)
    return is_counted


def _groups_by_word(
    ends: NDArray[np.int64], words: NDArray[np.uint64], groups: NDArray[np.int64], group_bound: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first groups of each person in the order of words, and of groups where words are equal: a place and a number of records each.

    The list of a person's first groups is kept while the person's records are gone through. What is not among them, or was and has
    made room for others, never comes back, as the list only becomes smaller.

    Args:
        ends: where the records of each person begin, and the last one's end.
    """
    places, counts = np.empty(words.size, dtype=np.int64), np.empty(words.size, dtype=np.int64)
    end = 0
    for person in range(ends.size - 1):
        first = end
        for record in range(ends[person], ends[person + 1]):
            word, group, place = words[record], groups[record], end
            while place > first:
                before = places[place - 1]
                if words[before] < word or (words[before] == word and groups[before] <= group):
                    break
                place -= 1
            if place > first and groups[places[place - 1]] == group:
                counts[place - 1] += 1
            elif place < first + group_bound:
                end = min(end + 1, first + group_bound)
                for later in range(end - 1, place, -1):
                    places[later], counts[later] = places[later - 1], counts[later - 1]
                places[place], counts[place] = record, 1
    return places[:end].copy(), counts[:end].copy()


def _records_of_first_groups(
    ends: NDArray[np.int64], groups: NDArray[np.int64], longest: int, record_bound: int
) -> NDArray[np.bool_]:
    """``are_in_first_groups``.

    Args:
        longest: of the lists of a person's first groups: their bound, or the most records of a person.
    """
    is_counted = np.zeros(groups.size, dtype=np.bool_)
    first_groups, counts = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    for person in range(ends.size - 1):
        known = 0
        for record in range(ends[person], ends[person + 1]):
            number = 0
            while number < known and first_groups[number] != groups[record]:
                number += 1
            if number == longest:
                continue
            if number == known:
                first_groups[number], counts[number] = groups[record], 0
                known += 1
            counts[number] += 1
            is_counted[record] = counts[number] <= record_bound
    return is_counted


def _fastest_form(loop: Callable[..., Any], ends: NDArray[np.int64], group_bound: int) -> Callable[..., Any]:
    """A loop over persons' records and lists of groups, compiled if it may take many steps."""
    record_counts = np.diff(ends)
    is_short = int((record_counts * np.minimum(record_counts, group_bound)).sum()) < COMPILED_FROM
    return loop if is_short else _compile(loop)


@cache
def _compile(loop: Callable[..., Any]) -> Callable[..., Any]:
    from dpdist.privacy.kernel_files import compile_kernel  # which imports the compiler

    return compile_kernel(loop)


def mix_bits(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A permutation of 64-bit words that makes one bit move half of them: the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = words ^ (words >> np.uint64(shift))
        words *= np.uint64(factor)
    return words ^ (words >> np.uint64(31))
