"""Lines: whole numbers that follow from two attributes, such as the difference of two ages or of two dates.

All pairs of values on which a x + b y is the same are one cell: queries that ask for nothing but this number see no difference between
them, so that their gram, their optimum and their histogram are those of one attribute, however many pairs there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpdist.domain.attributes import DROP, EXCLUDE_RECORD, Attribute, LinearCombination
from dpdist.domain.labels import even_edges
from dpdist.errors import InvalidInput
from dpdist.size_limits import SIZES, Sizes

EXACT = 2**53
"""Whole numbers beyond are not exact as floating-point numbers."""
LISTED_NUMBERS = 2**22
"""Numbers that are looked at one by one, where not every number between the ends occurs."""


def combination_name(coefficients: Mapping[str, int]) -> str:
    """What a line is called.

    >>> combination_name({"age": 1, "tenure": -1}), combination_name({"x": -2, "y": 3})
    ('age - tenure', '-2 x + 3 y')
    """
    (first_name, first_factor), (second_name, second_factor) = coefficients.items()
    sign, second_term = "+" if second_factor > 0 else "-", _times(abs(second_factor), second_name)
    return f"{'-' * (first_factor == -1)}{_times(first_factor, first_name)} {sign} {second_term}"


def _times(coefficient: int, name: str) -> str:
    return name if abs(coefficient) == 1 else f"{coefficient} {name}"


def combine_attributes(
    first_attribute: Attribute, second_attribute: Attribute, coefficients: tuple[int, int]
) -> LinearCombination:
    """The line of two attributes.

    Args:
        coefficients: a and b of a x + b y, whole numbers other than 0.
    Raises: InvalidInput where a cell of both attributes does not determine the number.
    """
    pair = (first_attribute, second_attribute)
    for attribute in pair:
        _check_whole(attribute)
    if first_attribute.times is not None or second_attribute.times is not None:
        _check_dates(first_attribute, second_attribute, coefficients)
    combination = LinearCombination(pair, coefficients)
    if max(abs(number) for number in (*coefficients, *sum(_terms(combination), ()))) >= EXACT // 2:
        raise InvalidInput(
            f"{combination_name(_named(combination))!r} goes beyond 2^53, where whole numbers are not exact; take smaller ones"
        )
    return combination


def _named(combination: LinearCombination) -> dict[str, int]:
    return {attribute.name: factor for attribute, factor in zip(combination.of, combination.coefficients, strict=True)}


def _check_whole(attribute: Attribute) -> None:
    name = attribute.name
    if attribute.categories:
        raise InvalidInput(f"a relation needs numbers or dates, and attribute {name!r} has categories")
    if attribute.outside == "clip":
        raise InvalidInput(
            f"a relation is not known of values of {name!r} that are clipped; set 'outside: drop' or declare all values"
        )
    if not attribute.unit_steps:
        raise InvalidInput(
            f"a relation cuts through the bins of {name!r}, which hold several numbers; declare 'from' and 'to' without a 'width'"
        )


def _check_dates(first_attribute: Attribute, second_attribute: Attribute, coefficients: tuple[int, int]) -> None:
    first_times, second_times = first_attribute.times, second_attribute.times
    if (
        first_times is None
        or second_times is None
        or (first_times.every, first_times.zone) != (second_times.every, second_times.zone)
        or set(coefficients) != {1, -1}
    ):
        raise InvalidInput(
            f"of dates there is only the difference, in steps of one calendar; declare {first_attribute.name!r} and "
            f"{second_attribute.name!r} with the same "
            "'every' and 'zone', and give them the coefficients 1 and -1"
        )


def _first_numbers(combination: LinearCombination) -> tuple[int, int]:
    """The number of the first value of each attribute; of dates it is that of steps since the first one's first."""
    first_attribute, second_attribute = combination.of
    if first_attribute.times is None or second_attribute.times is None:
        return int(first_attribute.edges[0]), int(second_attribute.edges[0])
    return 0, int(first_attribute.times.numbers(np.array([second_attribute.times.first], dtype="datetime64[s]"))[0])


def _terms(combination: LinearCombination) -> list[tuple[int, int]]:
    """What each attribute adds at both of its ends."""
    return [
        (factor * begin, factor * (begin + attribute.values - 1))
        for attribute, factor, begin in zip(
            combination.of, combination.coefficients, _first_numbers(combination), strict=True
        )
    ]


def _ends(combination: LinearCombination) -> tuple[int, int]:
    """The least and the largest number."""
    terms = _terms(combination)
    return sum(map(min, terms)), sum(map(max, terms))


def numbers_of(combination: LinearCombination, codes: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """The number of every record, NaN where one of the attributes has none of its declared values.

    Args:
        codes: of both attributes, (records,) each.
    """
    total, is_declared = np.zeros(codes[0].size, dtype=np.int64), np.ones(codes[0].size, dtype=bool)
    for attribute, factor, begin, code in zip(
        combination.of, combination.coefficients, _first_numbers(combination), codes, strict=True
    ):
        total += factor * (begin + code)
        is_declared &= (code >= 0) & (code < attribute.values)
    return np.where(is_declared, total.astype(np.float64), np.nan)


def _occurring(combination: LinearCombination) -> range | NDArray[np.int64]:
    """The numbers that occur, in order."""
    low, high = _ends(combination)
    first_factor, second_factor = map(abs, combination.coefficients)
    if first_factor == second_factor == 1:
        return range(low, high + 1)
    size = high - low + 1
    if size > LISTED_NUMBERS:
        raise InvalidInput(
            f"{combination_name(_named(combination))!r} takes up to {size:,} numbers; with other coefficients than 1 and -1 "
            f"up to {LISTED_NUMBERS:,}"
        )
    there = np.zeros(-(-size // first_factor) * first_factor, dtype=np.int64)
    there[: second_factor * (combination.of[1].values - 1) + 1 : second_factor] = 1
    sums = np.cumsum(there.reshape(-1, first_factor), axis=0)  # of every a-th number
    before = np.zeros_like(sums)
    before[combination.of[0].values :] = sums[: -combination.of[0].values]
    return low + np.flatnonzero((sums - before).ravel()[:size])


def combination_attribute(
    combination: LinearCombination, cuts: Sequence[int] | None, *, everywhere: bool, sizes: Sizes = SIZES
) -> Attribute:
    """The attribute of a line, one bin between every two cuts.

    Args:
        cuts: numbers c, with the numbers up to c on one side; None for every number.
        everywhere: whether every query is over it: records without a number are then left out.
    """
    numbers = _occurring(combination)
    if cuts is None and isinstance(numbers, range):
        edges = even_edges(numbers[0], 1, len(numbers), sizes)
    else:
        indices = range(1, len(numbers)) if cuts is None else _cut_positions(numbers, cuts)
        inner = [float(numbers[k]) for k in indices]
        edges = (float(numbers[0]), *inner, float(numbers[-1]) + 1)
    has_undeclared = any(
        attribute.size > attribute.values or EXCLUDE_RECORD in (attribute.missing, attribute.other)
        for attribute in combination.of
    )
    missing = (EXCLUDE_RECORD if everywhere else DROP) if has_undeclared else None
    return Attribute(combination_name(_named(combination)), edges=edges, missing=missing, line=combination)


def _cut_positions(numbers: range | NDArray[np.int64], cuts: Sequence[int]) -> list[int]:
    """How many numbers lie at or below each cut that has some on both sides, in order."""
    if isinstance(numbers, range):
        positions = {min(max(cut - numbers[0] + 1, 0), len(numbers)) for cut in cuts}
    else:
        positions = {int(position) for position in np.searchsorted(numbers, np.asarray(cuts, dtype=np.int64), side="right")}
    return sorted(positions - {0, len(numbers)})


def greatest_numbers(attribute: Attribute) -> NDArray[np.float64]:
    """The greatest number in every bin of the attribute of a line; the least is the edge where the bin begins."""
    assert attribute.line is not None
    numbers, ends = _occurring(attribute.line), np.asarray(attribute.edges, dtype=np.float64)[1:]
    return ends - 1 if isinstance(numbers, range) else numbers[np.searchsorted(numbers, ends) - 1].astype(np.float64)


def cuts_of(requested: Sequence[Sequence[int] | None]) -> tuple[int, ...] | None:
    """The cuts that several groups of queries need together; None for every number.

    >>> cuts_of([(1, 5), (5, 7)])
    (1, 5, 7)
    """
    limited = [cuts for cuts in requested if cuts is not None]
    return None if len(limited) < len(requested) else tuple(sorted({cut for cuts in limited for cut in cuts}))
