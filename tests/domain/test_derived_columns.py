"""Lines: the number of every record, the numbers that occur, and the bins between cuts, against all pairs of values."""

from __future__ import annotations

import datetime
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdist.domain import (
    DROP,
    EXCLUDE_RECORD,
    Attribute,
    combination_attribute,
    combination_name,
    combine_attributes,
    cuts_of,
    even_edges,
    numbers_of,
)
from dpdist.domain.calendar import Times
from dpdist.errors import InvalidInput
from dpdist.workloads.predicates import satisfied

COEFFICIENTS = st.integers(-4, 4).filter(bool)


def whole(name: str, first: int, values: int, **others: str) -> Attribute:
    return Attribute(name, edges=even_edges(first, 1, values), **others)


def days(name: str, first: str, steps: int, every: str = "day") -> Attribute:
    times = Times(datetime.datetime.fromisoformat(first), steps, every)
    return Attribute(name, edges=even_edges(0, 1, steps), times=times)


@given(COEFFICIENTS, COEFFICIENTS, st.integers(-5, 5), st.integers(-5, 5), st.integers(1, 7), st.integers(1, 7), st.data())
def test_a_line_has_the_numbers_of_all_pairs(
    a: int, b: int, first: int, second: int, values: int, others: int, data: st.DataObject
) -> None:
    line = combine_attributes(whole("x", first, values), whole("y", second, others), (a, b))
    pairs = list(product(range(values), range(others)))
    codes = [np.array(side) for side in zip(*pairs, strict=True)]
    truth = [a * (first + i) + b * (second + j) for i, j in pairs]
    assert numbers_of(line, codes).tolist() == truth
    every = combination_attribute(line, None, everywhere=True)
    assert list(every.edges) == [*sorted(set(truth)), max(truth) + 1]
    cuts = data.draw(st.lists(st.integers(-40, 40), max_size=4))
    found, _ = combination_attribute(line, cuts, everywhere=True).encode(np.array(truth, dtype=np.float64))
    for one, other in product(range(len(truth)), repeat=2):
        apart = any((truth[one] <= cut) != (truth[other] <= cut) for cut in cuts)
        assert (found[one] != found[other]) == apart
    assert np.unique(found).tolist() == list(
        range(combination_attribute(line, cuts, everywhere=True).values)
    )  # no empty bin


def test_dates_differ_by_steps_of_their_calendar() -> None:
    line = combine_attributes(days("start", "2026-03-01", 10), days("end", "2026-02-27", 9), (1, -1))
    assert numbers_of(line, [np.array([0, 9, 0]), np.array([0, 0, 8])]).tolist() == [2.0, 11.0, -6.0]
    assert combination_attribute(line, None, everywhere=True).edges[0] == -6


def test_records_without_a_number_have_a_bin_where_others_count_them() -> None:
    line = combine_attributes(whole("x", 0, 3, missing="unknown"), whole("y", 0, 3), (1, -1))
    found = numbers_of(line, [np.array([2, 3]), np.array([0, 0])])
    assert found[0] == 2
    assert np.isnan(found[1])
    for everywhere, missing, size in ((False, DROP, 6), (True, EXCLUDE_RECORD, 5)):
        attribute = combination_attribute(line, None, everywhere=everywhere)
        assert (attribute.missing, attribute.size) == (missing, size)
    assert (
        combination_attribute(
            combine_attributes(whole("x", 0, 3), whole("y", 0, 3), (1, -1)), None, everywhere=False
        ).missing
        is None
    )


@pytest.mark.parametrize(
    ("first", "second", "coefficients", "message"),
    [
        (Attribute("x", categories=("a", "b")), whole("y", 0, 3), (1, -1), "attribute 'x' has categories"),
        (Attribute("x", edges=(0, 5, 10)), whole("y", 0, 3), (1, -1), "cuts through the bins of 'x'"),
        (Attribute("x", edges=(0.5, 1.5)), whole("y", 0, 3), (1, -1), "cuts through the bins of 'x'"),
        (whole("x", 0, 3), Attribute("y", edges=(0, 1, 2), outside="clip"), (1, -1), "not known of values of 'y'"),
        (days("x", "2026-01-01", 3), whole("y", 0, 3), (1, -1), "of dates there is only the difference"),
        (days("x", "2026-01-01", 3), days("y", "2026-01-01", 3), (1, 1), "of dates there is only the difference"),
        (days("x", "2026-01-01", 3), days("y", "2026-01-01", 3, "hour"), (1, -1), "with the same 'every'"),
        (whole("x", 2**52, 3), whole("y", 0, 3), (3, -1), "goes beyond 2\\^53"),
    ],
)
def test_what_no_cell_decides_is_refused(
    first: Attribute, second: Attribute, coefficients: tuple[int, int], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        combine_attributes(first, second, coefficients)


def test_many_numbers_with_gaps_are_refused() -> None:
    line = combine_attributes(whole("x", 0, 2**21), whole("y", 0, 2**21), (3, 2))
    with pytest.raises(InvalidInput, match=r"'3 x \+ 2 y' takes up to 10,485,756 numbers"):
        combination_attribute(line, (5,), everywhere=True)
    plain = combine_attributes(whole("x", 0, 2**40), whole("y", 0, 2**40), (1, -1))
    assert combination_attribute(plain, (-1, 2**50), everywhere=True).values == 2


def test_a_line_is_named_by_its_sum() -> None:
    assert [combination_name({"x": a, "y": b}) for a, b in ((1, -1), (-1, 1), (2, 3), (-3, -2))] == [
        "x - y",
        "-x + y",
        "2 x + 3 y",
        "-3 x - 2 y",
    ]
    assert cuts_of([(3, 1), None]) is None


@given(
    COEFFICIENTS, COEFFICIENTS, st.integers(1, 6), st.integers(1, 6), st.lists(st.integers(-30, 30), max_size=4), st.data()
)
def test_comparisons_with_a_line_pick_the_pairs_that_satisfy_them_or_are_refused(
    a: int, b: int, values: int, others: int, cuts: list[int], data: st.DataObject
) -> None:
    """Also between the edges of bins, where no number of the line lies between a bound and an edge."""
    attribute = combination_attribute(
        combine_attributes(whole("x", 0, values), whole("y", 1, others), (a, b)), cuts, everywhere=True
    )
    numbers = np.array([a * x + b * (1 + y) for x, y in product(range(values), range(others))])
    bins, _ = attribute.encode(numbers.astype(np.float64))
    bound = data.draw(st.integers(int(numbers.min()) - 2, int(numbers.max()) + 2))
    compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
    if bound in numbers:
        compare |= {"=": np.equal, "!=": np.not_equal}
    for sign, of in compare.items():
        truth = of(numbers, bound)
        if any(np.unique(truth[bins == each]).size > 1 for each in range(attribute.values)):
            with pytest.raises(InvalidInput, match="cuts through a bin of"):
                satisfied(attribute, sign, bound)
        else:
            assert (satisfied(attribute, sign, bound)[bins] == truth).all(), sign


def test_numbers_that_are_too_many_to_be_looked_at_one_by_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 x + 3 y from 0 to 24 takes 25; with coefficients 1 and -1 nothing is looked at."""
    first, second = whole("x", 0, 4), whole("y", 0, 7)
    found = combination_attribute(combine_attributes(first, second, (2, 3)), None, everywhere=True)
    monkeypatch.setattr("dpdist.domain.derived_columns.LISTED_NUMBERS", 25)
    assert combination_attribute(combine_attributes(first, second, (2, 3)), None, everywhere=True) == found
    monkeypatch.setattr("dpdist.domain.derived_columns.LISTED_NUMBERS", 24)
    with pytest.raises(InvalidInput, match="takes up to 25 numbers; with other coefficients than 1 and -1 up to 24"):
        combination_attribute(combine_attributes(first, second, (2, 3)), None, everywhere=True)
    assert combination_attribute(combine_attributes(first, second, (1, -1)), None, everywhere=True).values == 10
