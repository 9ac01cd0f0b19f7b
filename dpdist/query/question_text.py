"""The questions that readers may ask, and how they are read from a line of text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.operators import Operator
from dpdist.query.attribute_conditions import ALL, condition, joined, parted
from dpdist.query.linear_functions import EVERYTHING, Linear
from dpdist.statistics.mean_statistics import MEAN
from dpdist.statistics.statistic_registry import told
from dpdist.statistics.value_powers import numbers
from dpdist.workloads.workload import asked_for

FORMS = (
    '"count by region", "count where age>=65", "sum of amount by region", "share of sex=f by region", "sex=f by region", '
    '"sum of region=North, age>=65 minus sum of region=South, age>=65", "sum of ... divided by sum of ...", "mean of age by region", '
    '"variance of age by region", "correlation of age and income", '
    '"median of age by region where sex=f", "quantile 0.9 of age", "top 3 of region", '
    '"region with at least 500"'
)
_NUMBER = r"\d+(?:\.\d+)?"


@dataclass(frozen=True)
class Grouping:
    """The attribute or the level of an attribute by which answers are grouped.

    Attributes:
        rows: one row for each value or group, which says which bins of the attribute belong to it.
        declared: how many of them are of declared values; those after them are of other and missing ones.
    """

    name: str
    axis: int
    rows: Operator
    labels: Sequence[str]
    declared: int


@dataclass(frozen=True)
class Sum:
    """A linear combination of counts, or a ratio of two, by groups."""

    above: Linear
    below: Linear | None = None
    by: tuple[Grouping, ...] = ()


@dataclass(frozen=True)
class TotalOf:
    """The sum of an attribute's values by groups."""

    of: int
    by: tuple[Grouping, ...]
    among: Linear


@dataclass(frozen=True)
class StatisticOf:
    """A statistic of an attribute's values, or of those of two, by groups: a mean, a variance, a correlation and others."""

    statistic: str
    of: tuple[int, ...]
    by: tuple[Grouping, ...]
    among: Linear


@dataclass(frozen=True)
class Quantile:
    """A quantile of an attribute by groups: the value up to which a given share of the records lies."""

    share: float
    of: Grouping
    by: tuple[Grouping, ...]
    among: Linear


@dataclass(frozen=True)
class NamedQuantile:
    """A quantile as a line of text names it: it may be a published one, of a column that no attribute is.

    Attributes:
        where: the value of each attribute that must have one; None for any other condition.
    """

    share: float
    of: str
    by: tuple[str, ...]
    where: dict[str, str] | None


@dataclass(frozen=True)
class Top:
    """The combinations of some attributes' values with the most records."""

    count: int
    of: tuple[Grouping, ...]
    among: Linear


@dataclass(frozen=True)
class AtLeast:
    """The combinations of some attributes' values with at least a given number of records."""

    least: float
    of: tuple[Grouping, ...]
    among: Linear


Question = Sum | TotalOf | StatisticOf | Quantile | Top | AtLeast


def question(domain: Domain, text: str) -> Question:
    """The question that a line of text asks. Raises: InvalidInput, whose message lists the allowed forms."""
    body, *where = parted(text, r"\swhere\s")
    if len(where) > 1:
        raise InvalidInput(f"{text!r} has 'where' twice; join conditions by commas")
    among = condition(domain.grouped, where[0]) if where else EVERYTHING
    of_statistic = re.fullmatch(rf"({'|'.join(map(re.escape, told()))}|average) of (.+)", body, re.IGNORECASE)
    of_quantile = re.fullmatch(rf"(?:median|quantile ({_NUMBER})) of (.+)", body, re.IGNORECASE)
    of_top = re.fullmatch(r"top (\d+) of (.+)", body, re.IGNORECASE)
    of_least = re.fullmatch(rf"(.+?) with at least ({_NUMBER})", body, re.IGNORECASE)
    if of_statistic:
        asked = of_statistic[1].lower()
        return _statistic_of(domain, MEAN if asked == "average" else asked, of_statistic[2], among)
    if of_quantile:
        name, by = _grouped(domain.grouped, of_quantile[2])
        share = 0.5 if of_quantile[1] is None else float(of_quantile[1])
        if not 0 < share < 1:
            raise InvalidInput(f"a quantile lies between 0 and 1, found {share:g}; write 0.9 for nine tenths")
        of = _grouping(domain.grouped, name)
        if domain.attributes[of.axis].categories:
            raise InvalidInput(
                f"the categories of {name!r} have no order, so they have no quantiles; ask for top 1 of {name}"
            )
        return Quantile(share, of, by, among)
    if of_top:
        return Top(int(of_top[1]), _groupings(domain.grouped, of_top[2]), among)
    if of_least:
        return AtLeast(float(of_least[2]), _groupings(domain.grouped, of_least[1]), among)
    return _sum_of(domain, body, among)


def named_quantile(text: str) -> NamedQuantile | None:
    """The quantile that a line of text names, None where it asks for something else."""
    body, *where = parted(text, r"\swhere\s")
    asked = re.fullmatch(rf"(?:median|quantile ({_NUMBER})) of (.+)", body, re.IGNORECASE)
    if asked is None:
        return None
    name, *by = parted(asked[2], r"\sby\s")
    given = [parted(each, r"=") for some in where for each in parted(some, ",")]
    alone = all(len(each) == 2 and not re.search("[<>!~|]$", each[0].strip()) for each in given)
    return NamedQuantile(
        0.5 if asked[1] is None else float(asked[1]),
        _unquoted(name.strip()),
        tuple(_unquoted(each.strip()) for some in by for each in parted(some, r",|\sand\s")),
        {_unquoted(each[0].strip()): _unquoted(each[1].strip()) for each in given} if alone else None,
    )


def _sum_of(domain: Domain, text: str, among: Linear) -> Sum | TotalOf:
    """A question for amounts, or for counts and their ratios, by groups."""
    body, *by = parted(text, r"(?<!divided)\sby\s")
    if len(by) > 1:
        raise InvalidInput(f"{text!r} has 'by' twice; join attributes by commas")
    groups = _groupings(domain.grouped, by[0]) if by else ()
    added = _added(domain, body)
    if added is not None:
        return TotalOf(_numeric(domain, added), groups, among)
    share = re.fullmatch(r"share of (.+)", body, re.IGNORECASE)
    ratio = [share[1], ALL[0]] if share else parted(body, r"\sdivided\s+by\s")
    if len(ratio) > 2:
        raise InvalidInput(f"{text!r} divides twice; ask for one ratio at a time")
    above, *below = (joined(domain, among, linear(domain.grouped, part)) for part in ratio)
    return Sum(above, below[0] if below else None, groups)


def _added(domain: Domain, text: str) -> str | None:
    """The attribute whose numbers a text asks to add up; None where it asks for a number of records.

    'sum' alone means the one column of amounts that there is.
    """
    asked = re.fullmatch(r"(?:sum|total)(?: of (.+))?", text, re.IGNORECASE)
    if asked is None:
        return None
    amounts = [each.name for each in domain.amounts]
    if asked[1] is None:
        if len(amounts) > 1:
            raise InvalidInput(
                f"{text!r} of what? This release has amounts of {', '.join(amounts)}: write 'sum of {amounts[0]}'"
            )
        return next(iter(amounts), None)
    name = _unquoted(asked[1])
    return name if name in domain.columns or text.lower().startswith("total") else None


def _statistic_of(domain: Domain, statistic: str, text: str, among: Linear) -> StatisticOf:
    """A question for a statistic of one attribute, or of two that are joined by 'and'."""
    made = told()[statistic]
    body, by = _grouped(domain, text)
    names = parted(body, r"\sand\s") if made.columns == 2 else [body]
    if len(set(names)) != made.columns:
        raise InvalidInput(f"a {statistic} is that of two columns: write for example '{statistic} of age and income'")
    of = tuple(_numeric(domain, _unquoted(name)) for name in names)
    attributes = [domain.attributes[axis] for axis in of] if made.squares else []
    bare = next((each.name for each in attributes if each.amounts is not None and not each.amounts.squares), None)
    if bare is not None:
        raise InvalidInput(
            f"this release did not measure squares of {bare!r}, so its {statistic} is not known; a release whose spec asks for "
            f"'variance: {bare}' can tell it"
        )
    return StatisticOf(statistic, of, by, among)


def linear(domain: Domain, text: str) -> Linear:
    """A linear combination of counts: parts joined by 'plus' and 'minus', each with an optional factor in front."""
    begun = f" plus {text}" if not re.match(r"\s*(plus|minus)\s", text, re.IGNORECASE) else f" {text}"
    out = Linear(())
    parts = parted(begun, r"\s(?=(?:plus|minus)\s)")
    for part in parts[1:]:
        sign = 1.0 if part.lower().startswith("plus") else -1.0
        body = re.fullmatch(
            rf"(?:plus|minus)\s+(?:({_NUMBER})\s*(?:\*|times)?\s+)?(?:(?:sum|count|number) of\s+)?(.+)", part, re.I
        )
        if body is None:
            raise InvalidInput(f"{text!r} cannot be read; the forms are {FORMS}")
        out += condition(domain, body[2]) * (sign * float(body[1] or 1.0))
    return out


def _numeric(domain: Domain, name: str) -> int:
    """The attribute whose numbers are added up or averaged. Raises: InvalidInput."""
    axis, level = domain.level(name)
    if level is not None:
        raise InvalidInput(
            f"a group of level {name!r} holds more than one value, so it has no mean; ask for that of {domain.names[axis]}"
        )
    numbers(domain.attributes[axis])
    return axis


def _grouped(domain: Domain, text: str) -> tuple[str, tuple[Grouping, ...]]:
    """An attribute and what it is asked by."""
    name, *by = parted(text, r"\sby\s")
    return _unquoted(name), _groupings(domain.grouped, by[0]) if by else ()


def _groupings(domain: Domain, text: str) -> tuple[Grouping, ...]:
    return tuple(_grouping(domain, _unquoted(name)) for name in parted(text, r",|\sand\s"))


def _grouping(domain: Domain, name: str) -> Grouping:
    axis, rows, labels = asked_for(domain, name)
    return Grouping(name, axis, rows, labels, len(labels) - len(domain.attributes[axis].extra))


def _unquoted(name: str) -> str:
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"" else name
