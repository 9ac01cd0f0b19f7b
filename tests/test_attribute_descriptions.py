"""How a certificate describes attributes in words."""

from __future__ import annotations

from typing import Any

import pytest

from dpdist.spec.attributes import AttributeSpec
from dpdist.spec.queries import QuerySpec

WORDS: dict[str, dict[str, Any]] = {
    "whole numbers from 0 to 99": {"from": 0, "to": 99},
    "whole numbers from 0 to 99, 10 in each bin": {"from": 0, "to": 99, "width": 10},
    "3 categories: a, b, c": {"categories": ["a", "b", "c"]},
    "2 categories: no, yes": {"categories": ["0", "1"], "labels": ["no", "yes"]},
    "2 bins with edges 0, 18, 65; a bin holds its lower edge and not its upper one": {"edges": [0, 18, 65]},
}


@pytest.mark.parametrize("words", WORDS)
def test_values_are_described_as_they_were_declared(words: str) -> None:
    assert AttributeSpec.model_validate(WORDS[words]).values.words() == words


def test_long_lists_are_cut_and_counted() -> None:
    many = AttributeSpec.model_validate({"categories": [f"c{i}" for i in range(1000)]}).values.words()
    assert many.startswith("1,000 categories: c0, c1")
    assert many.endswith("c11 and 988 more")


@pytest.mark.parametrize("count", [1, 11, 12, 13])
def test_lists_of_tables_say_more_only_where_there_are_more(count: int) -> None:
    tables = [[f"a{i}"] for i in range(count)]
    said = QuerySpec.model_validate({"marginals": {"of": tables}}).words
    assert said.endswith(" and more") == (count > 12)
    assert said.count("; ") == min(count, 12) - 1
