"""Key spaces: every key has one number, every number one key, and texts that are no keys have none."""

from __future__ import annotations

import string
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdist.domain.key_spaces import IntegerKeys, Keys, KeySpace, ListedKeys, TextKeys
from dpdist.errors import InvalidInput

KINDS: dict[str, Keys] = {
    "integers": IntegerKeys(-3, 8),
    "texts": TextKeys("ab9", 2),
    "codes": ListedKeys.of_texts(["DE", "A", "Öl", "zz"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_numbered_one_by_one(kind: str) -> None:
    keys = KINDS[kind]
    texts = [keys.key_at(number) for number in range(keys.size)]
    assert len({*texts}) == keys.size
    assert keys.numbers_of(texts).tolist() == [*range(keys.size)]
    assert keys.numbers_of([]).size == 0


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("integers", ["9", "-4", "", "+1", "01", "1.0", "-0", "¹", "1 ", "9" * 30, "x"]),
        ("texts", ["a", "abb", "ac", "", "aä", "a\0", "AB"]),
        ("codes", ["de", "D", "DEE", "", "A\0", "Oel", "zzz" * 100]),
    ],
)
def test_texts_that_are_no_keys_have_no_number(kind: str, texts: list[str]) -> None:
    assert KINDS[kind].numbers_of(texts).tolist() == [-1] * len(texts)


@given(st.lists(st.sampled_from(string.digits + "X"), min_size=10, max_size=10).map("".join))
def test_long_texts_keep_their_numbers(text: str) -> None:
    keys = TextKeys(string.digits + "X", 10)
    assert keys.key_at(int(keys.numbers_of([text])[0])) == text


@given(st.text(max_size=4))
def test_numbers_are_read_as_they_are_written(text: str) -> None:
    number = int(IntegerKeys(-50, 50).numbers_of([text])[0])
    assert (number >= 0) == (text in {str(value) for value in range(-50, 51)})


def test_cells_of_several_columns() -> None:
    space = KeySpace({"country": KINDS["codes"], "page": TextKeys(string.hexdigits[:16], 14), "hour": IntegerKeys(0, 3)})
    assert space.size == 4 * 16**14 * 4 <= 2**62
    cell = space.size - 1
    assert space.keys_at(cell) == ("Öl", "f" * 14, "3")
    numbers = {
        name: keys.numbers_of([text, "?"])
        for (name, keys), text in zip(space.columns.items(), space.keys_at(cell), strict=True)
    }
    assert space.cells_of(numbers).tolist() == [cell, -1]
    one = {**numbers, "hour": np.array([-1, -1])}
    assert space.cells_of(one).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IntegerKeys(3, 2), "are none"),
        (lambda: TextKeys("aa", 2), "different printable characters"),
        (lambda: TextKeys("ä", 2), "different printable characters"),
        (lambda: TextKeys("ab", 0), "length of 1 or more"),
        (lambda: ListedKeys.of_texts(["a", "a"]), "twice"),
        (lambda: ListedKeys.of_texts(["a", ""]), "empty code"),
        (lambda: ListedKeys.of_texts(["a\0"]), "zero byte"),
        (lambda: KeySpace({"a": TextKeys("ab", 63)}), "up to 2\\^62 cells"),
        (lambda: KeySpace({}), "one column or more"),
    ],
)
def test_key_spaces_that_cannot_be_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()
