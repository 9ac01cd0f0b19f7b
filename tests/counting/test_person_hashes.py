"""Persons are told apart by one hash each, however a file stores what names them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpdist.counting import contribution_bounding, group_choice, person_keys
from dpdist.counting.contribution_bounding import PersonKey
from dpdist.counting.group_choice import choose_groups, mix_bits
from dpdist.counting.sparse_counts import key_numbers_of
from dpdist.domain.key_spaces import IntegerKeys
from dpdist.sources.formats import column_conversion

WHOLE = [0, 1, -1, 7, 10**9, 10**18 - 1, -(10**18) + 1, 10**18, -(10**18), 2**63 - 1, -(2**63)]
KEY = PersonKey(bytes(32))


def hashes_of(column: Any, kind: Any = "text") -> list[bytes]:
    hashes, _ = person_keys._hash_column(column, kind, KEY)
    return [row.tobytes() for row in hashes]


@pytest.mark.parametrize("short", [10**18, 10])
def test_a_number_names_one_person_however_it_is_stored(short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As numbers of any width, one alone or among longer ones, as texts, decimals and dictionaries."""
    monkeypatch.setattr(column_conversion, "SHORT_NUMBERS", short)
    expected = hashes_of(pa.array([str(number) for number in WHOLE]))
    assert len({*expected}) == len(WHOLE)
    assert hashes_of(pa.array(WHOLE)) == expected
    assert [hashes_of(pa.array([number]))[0] for number in WHOLE] == expected
    assert hashes_of(pa.array(WHOLE).cast(pa.decimal128(30, 2))) == expected
    assert hashes_of(pa.array([str(number) for number in WHOLE]).dictionary_encode()) == expected
    assert hashes_of(pa.array([f" +{number}" if number >= 0 else str(number) for number in WHOLE]), "integer") == expected
    assert hashes_of(pa.chunked_array([pa.array([7], pa.uint8()).cast(pa.int64()), pa.array([1])])) == [
        expected[3],
        expected[1],
    ]
    assert hashes_of(pa.array([7], pa.uint8())) == [expected[3]]
    assert hashes_of(pa.array([7, None]))[0] == expected[3]


def test_texts_that_are_like_numbers_name_others() -> None:
    texts = ["7", "07", "+7", " 7", "7 ", "7.0", "-0", "0", "٧", "7\n", "1" * 19, "x"]
    assert len({*hashes_of(pa.array(texts))}) == len(texts)
    assert hashes_of(pa.array(["7"])) != [row.tobytes() for row in PersonKey(bytes(31) + b"\1").hash_numbers(np.array([7]))]


@pytest.mark.parametrize("short", [10**18, 10])
@pytest.mark.parametrize(("first", "last"), [(0, 10**9), (-5, 5), (-(10**19), -(10**19) + 7), (10**18 - 2, 10**18 + 2)])
def test_a_key_is_one_number_however_it_is_stored(
    first: int, last: int, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_conversion, "SHORT_NUMBERS", short)
    keys = IntegerKeys(first, last)
    expected = [number - first if first <= number <= last else -1 for number in WHOLE]
    assert key_numbers_of(pa.array(WHOLE), keys).tolist() == expected
    assert key_numbers_of(pa.array([str(number) for number in WHOLE]), keys).tolist() == expected
    odd = ["", "x", "07", "+7", "7.5", None, str(last), str(first), str(last + 1)]
    assert key_numbers_of(pa.array(odd), keys).tolist() == [-1] * 6 + [last - first, 0, -1]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bits", [None, 3, 1])
def test_which_groups_are_chosen_is_the_order_of_their_words(
    bits: int | None, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the definition, record by record, also where persons share parts of their hashes, and groups parts of their words."""
    state = np.random.default_rng(3)
    monkeypatch.setattr(group_choice, "COMPILED_FROM", 0 if compiled else 2**62)
    rows = np.zeros(2000, dtype=contribution_bounding.HASHED)
    persons = state.integers(0, 2**64, (150, 2), dtype=np.uint64)
    persons[:50, 0] = persons[0, 0]  # of one half of the hash
    persons[50:90, 0] = persons[50, 0] + np.arange(40, dtype=np.uint64)  # which agree but for their last bits
    who = state.integers(0, 150, rows.size)
    rows["high"], rows["low"] = persons[who, 0], persons[who, 1]
    groups = state.integers(0, 30, rows.size)
    words = mix_bits(groups.astype(np.uint64))
    if bits is not None:  # few different words: those that agree are taken by their groups
        monkeypatch.setattr(
            "dpdist.counting.group_choice.mix_bits", lambda word: mix_bits(word) & np.uint64((1 << bits) - 1)
        )
    by_person, starts, ordered = contribution_bounding.order_by_person(rows)
    places, counts = choose_groups(ordered, starts, groups[by_person], words[by_person], 3)
    chosen = {
        (int(who[place]), int(groups[place])): int(count) for place, count in zip(by_person[places], counts, strict=True)
    }
    assert len(chosen) == places.size
    expected = {}
    for person in range(150):
        own = who == person
        ranks = mix_bits(persons[person, 0] ^ words)
        if bits is not None:
            ranks &= np.uint64((1 << bits) - 1)
        ranked = sorted({(int(ranks[place]), int(groups[place])) for place in np.flatnonzero(own)})[:3]
        expected |= {(person, group): int((groups[own] == group).sum()) for _, group in ranked}
    assert chosen == expected


@pytest.mark.parametrize("parts", [1, 2, 7, 64])
def test_parts_have_about_as_many_persons_each_and_each_of_them_whole(parts: int) -> None:
    """A part is held in memory as a whole, so that one of all persons would be too large."""
    persons = KEY.hash_persons([str(number) for number in range(6400)])
    twice = np.concatenate([persons, persons[::-1]])
    rows = contribution_bounding.person_rows(
        twice, np.arange(len(twice), dtype=np.int64), np.ones(len(twice), dtype=np.bool_)
    )
    dealt, part = contribution_bounding.divide_by_person(rows, parts)
    assert dealt is rows
    assert (part[: len(persons)] == part[len(persons) :][::-1]).all()
    sizes = np.bincount(part, minlength=parts)
    expected = len(twice) / parts
    assert sizes.size == parts
    assert (
        np.abs(sizes - expected) <= 12 * expected**0.5
    ).all()  # of two records a person: more than eight standard deviations
