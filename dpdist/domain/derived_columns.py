"""Lines: whole numbers that follow from two attributes, such as the difference of two ages or of two dates.

All pairs of values on which a x + b y is the same are one cell: queries that ask for nothing but this number see no difference between
them, so that their gram, their optimum and their histogram are those of one attribute, however many pairs there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpdist.domain.attributes import DROP, NOWHERE, Attribute, Line
from dpdist.domain.labels import even_edges
from dpdist.errors import InvalidInput
from dpdist.size_limits import SIZES, Sizes

EXACT = 2**53
"""Whole numbers beyond are not exact as floating-point numbers."""
LISTED_NUMBERS = 2**22
"""Numbers that are looked at one by one, where not every number between the ends occurs."""


def line_name(of: Mapping[str, int]) -> str:
    """What a line is called.

    >>> line_name({"age": 1, "tenure": -1}), line_name({"x": -2, "y": 3})
    ('age - tenure', '-2 x + 3 y')
    """
    (first, a), (second, b) = of.items()
    return f"{'-' * (a == -1)}{_times(a, first)} {'+' if b > 0 else '-'} {_times(abs(b), second)}"


def _times(coefficient: int, name: str) -> str:
    return name if abs(coefficient) == 1 else f"{coefficient} {name}"


def line_of(first: Attribute, second: Attribute, coefficients: tuple[int, int]) -> Line:
    """The line of two attributes.

    Args:
        coefficients: a and b of a x + b y, whole numbers other than 0.
    Raises: InvalidInput where a cell of both attributes does not determine the number.
    """
    pair = (first, second)
    for attribute in pair:
        _check_whole(attribute)
    if first.times is not None or second.times is not None:
        _check_dates(first, second, coefficients)
    line = Line(pair, coefficients)
    if max(abs(number) for number in (*coefficients, *sum(_terms(line), ()))) >= EXACT // 2:
        raise InvalidInput(
            f"{line_name(_named(line))!r} goes beyond 2^53, where whole numbers are not exact; take smaller ones"
        )
    return line


def _named(line: Line) -> dict[str, int]:
    return {each.name: factor for each, factor in zip(line.of, line.coefficients, strict=True)}


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


def _check_dates(first: Attribute, second: Attribute, coefficients: tuple[int, int]) -> None:
    a, b = first.times, second.times
    if a is None or b is None or (a.every, a.zone) != (b.every, b.zone) or set(coefficients) != {1, -1}:
        raise InvalidInput(
            f"of dates there is only the difference, in steps of one calendar; declare {first.name!r} and {second.name!r} with the same "
            "'every' and 'zone', and give them the coefficients 1 and -1"
        )


def _firsts(line: Line) -> tuple[int, int]:
    """The number of the first value of each attribute; of dates it is that of steps since the first one's first."""
    first, second = line.of
    if first.times is None or second.times is None:
        return int(first.edges[0]), int(second.edges[0])
    return 0, int(first.times.numbers(np.array([second.times.first], dtype="datetime64[s]"))[0])


def _terms(line: Line) -> list[tuple[int, int]]:
    """What each attribute adds at both of its ends."""
    return [
        (factor * begin, factor * (begin + attribute.values - 1))
        for attribute, factor, begin in zip(line.of, line.coefficients, _firsts(line), strict=True)
    ]


def _ends(line: Line) -> tuple[int, int]:
    """The least and the largest number."""
    terms = _terms(line)
    return sum(map(min, terms)), sum(map(max, terms))


def numbers_of(line: Line, codes: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """The number of every record, NaN where one of the attributes has none of its declared values.

    Args:
        codes: of both attributes, (records,) each.
    """
    total, known = np.zeros(codes[0].size, dtype=np.int64), np.ones(codes[0].size, dtype=bool)
    for attribute, factor, begin, code in zip(line.of, line.coefficients, _firsts(line), codes, strict=True):
        total += factor * (begin + code)
        known &= (code >= 0) & (code < attribute.values)
    return np.where(known, total.astype(np.float64), np.nan)


def _occurring(line: Line) -> range | NDArray[np.int64]:
    """The numbers that occur, in order."""
    low, high = _ends(line)
    a, b = map(abs, line.coefficients)
    if a == b == 1:
        return range(low, high + 1)
    size = high - low + 1
    if size > LISTED_NUMBERS:
        raise InvalidInput(
            f"{line_name(_named(line))!r} takes up to {size:,} numbers; with other coefficients than 1 and -1 up to {LISTED_NUMBERS:,}"
        )
    there = np.zeros(-(-size // a) * a, dtype=np.int64)
    there[: b * (line.of[1].values - 1) + 1 : b] = 1
    sums = np.cumsum(there.reshape(-1, a), axis=0)  # of every a-th number
    before = np.zeros_like(sums)
    before[line.of[0].values :] = sums[: -line.of[0].values]
    return low + np.flatnonzero((sums - before).ravel()[:size])


def line_attribute(line: Line, cuts: Sequence[int] | None, *, everywhere: bool, sizes: Sizes = SIZES) -> Attribute:
    """The attribute of a line, one bin between every two cuts.

    Args:
        cuts: numbers c, with the numbers up to c on one side; None for every number.
        everywhere: whether every query is over it: records without a number are then left out.
    """
    numbers = _occurring(line)
    if cuts is None and isinstance(numbers, range):
        edges = even_edges(numbers[0], 1, len(numbers), sizes)
    else:
        places = range(1, len(numbers)) if cuts is None else _places(numbers, cuts)
        inner = [float(numbers[k]) for k in places]
        edges = (float(numbers[0]), *inner, float(numbers[-1]) + 1)
    without = any(
        attribute.size > attribute.values or NOWHERE in (attribute.missing, attribute.other) for attribute in line.of
    )
    missing = (NOWHERE if everywhere else DROP) if without else None
    return Attribute(line_name(_named(line)), edges=edges, missing=missing, line=line)


def _places(numbers: range | NDArray[np.int64], cuts: Sequence[int]) -> list[int]:
    """How many numbers lie at or below each cut that has some on both sides, in order."""
    if isinstance(numbers, range):
        found = {min(max(cut - numbers[0] + 1, 0), len(numbers)) for cut in cuts}
    else:
        found = {int(place) for place in np.searchsorted(numbers, np.asarray(cuts, dtype=np.int64), side="right")}
    return sorted(found - {0, len(numbers)})


def greatest_numbers(attribute: Attribute) -> NDArray[np.float64]:
    """The greatest number in every bin of the attribute of a line; the least is the edge where the bin begins."""
    assert attribute.line is not None
    numbers, ends = _occurring(attribute.line), np.asarray(attribute.edges, dtype=np.float64)[1:]
    return ends - 1 if isinstance(numbers, range) else numbers[np.searchsorted(numbers, ends) - 1].astype(np.float64)


def cuts_of(asked: Sequence[Sequence[int] | None]) -> tuple[int, ...] | None:
    """The cuts that several groups of queries need together; None for every number.

    >>> cuts_of([(1, 5), (5, 7)])
    (1, 5, 7)
    """
    listed = [cuts for cuts in asked if cuts is not None]
    return None if len(listed) < len(asked) else tuple(sorted({cut for cuts in listed for cut in cuts}))
