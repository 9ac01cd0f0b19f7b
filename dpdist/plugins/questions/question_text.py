"""The questions that readers may ask, and how they are read from a line of text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dpdist.api import InvalidInput
from dpdist.api.queries import (
    ALL_RECORDS,
    MEAN,
    Domain,
    LinearFunction,
    Operator,
    attribute_counts,
    numbers,
    statistics_by_name,
)
from dpdist.plugins.questions.attribute_conditions import (
    ALL_RECORDS_WORDS,
    multiply_indicators,
    parse_condition,
    split_outside_quotes,
)

QUESTION_FORMS = (
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

    numerator: LinearFunction
    denominator: LinearFunction | None = None
    groupings: tuple[Grouping, ...] = ()


@dataclass(frozen=True)
class AmountTotal:
    """The sum of an attribute's values by groups."""

    axis: int
    groupings: tuple[Grouping, ...]
    subset: LinearFunction


@dataclass(frozen=True)
class AmountStatistic:
    """A statistic of an attribute's values, or of those of two, by groups: a mean, a variance, a correlation and others."""

    statistic: str
    axes: tuple[int, ...]
    groupings: tuple[Grouping, ...]
    subset: LinearFunction


@dataclass(frozen=True)
class Quantile:
    """A quantile of an attribute by groups: the value up to which a given share of the records lies."""

    probability: float
    attribute: Grouping
    groupings: tuple[Grouping, ...]
    subset: LinearFunction


@dataclass(frozen=True)
class NamedQuantile:
    """A quantile as a line of text names it: it may be a published one, of a column that no attribute is.

    Attributes:
        conditions: the value of each attribute that must have one; None for any other condition.
    """

    probability: float
    column: str
    group_columns: tuple[str, ...]
    conditions: dict[str, str] | None


@dataclass(frozen=True)
class TopGroups:
    """The combinations of some attributes' values with the most records."""

    count: int
    groupings: tuple[Grouping, ...]
    subset: LinearFunction


@dataclass(frozen=True)
class MinimumCount:
    """The combinations of some attributes' values with at least a given number of records."""

    minimum: float
    groupings: tuple[Grouping, ...]
    subset: LinearFunction


Question = Sum | AmountTotal | AmountStatistic | Quantile | TopGroups | MinimumCount


def parse_question(domain: Domain, text: str) -> Question:
    """The question that a line of text asks. Raises: InvalidInput, whose message lists the allowed forms."""
    body, *conditions = split_outside_quotes(text, r"\swhere\s")
    if len(conditions) > 1:
        raise InvalidInput(f"{text!r} has 'where' twice; join conditions by commas")
    subset = parse_condition(domain.grouped, conditions[0]) if conditions else ALL_RECORDS
    statistic_match = re.fullmatch(
        rf"({'|'.join(map(re.escape, statistics_by_name()))}|average) of (.+)", body, re.IGNORECASE
    )
    quantile_match = re.fullmatch(rf"(?:median|quantile ({_NUMBER})) of (.+)", body, re.IGNORECASE)
    top_match = re.fullmatch(r"top (\d+) of (.+)", body, re.IGNORECASE)
    minimum_match = re.fullmatch(rf"(.+?) with at least ({_NUMBER})", body, re.IGNORECASE)
    if statistic_match:
        statistic_name = statistic_match[1].lower()
        return _parse_statistic(domain, MEAN if statistic_name == "average" else statistic_name, statistic_match[2], subset)
    if quantile_match:
        name, groupings = _split_grouping(domain.grouped, quantile_match[2])
        probability = 0.5 if quantile_match[1] is None else float(quantile_match[1])
        if not 0 < probability < 1:
            raise InvalidInput(f"a quantile lies between 0 and 1, found {probability:g}; write 0.9 for nine tenths")
        grouping = _parse_grouping(domain.grouped, name)
        if domain.attributes[grouping.axis].categories:
            raise InvalidInput(
                f"the categories of {name!r} have no order, so they have no quantiles; ask for top 1 of {name}"
            )
        return Quantile(probability, grouping, groupings, subset)
    if top_match:
        return TopGroups(int(top_match[1]), _parse_groupings(domain.grouped, top_match[2]), subset)
    if minimum_match:
        return MinimumCount(float(minimum_match[2]), _parse_groupings(domain.grouped, minimum_match[1]), subset)
    return _parse_sum(domain, body, subset)


def parse_named_quantile(text: str) -> NamedQuantile | None:
    """The quantile that a line of text names, None where it asks for something else."""
    body, *conditions = split_outside_quotes(text, r"\swhere\s")
    match = re.fullmatch(rf"(?:median|quantile ({_NUMBER})) of (.+)", body, re.IGNORECASE)
    if match is None:
        return None
    name, *group_parts = split_outside_quotes(match[2], r"\sby\s")
    condition_pairs = [
        split_outside_quotes(entry, r"=") for clause in conditions for entry in split_outside_quotes(clause, ",")
    ]
    alone = all(len(entry) == 2 and not re.search("[<>!~|]$", entry[0].strip()) for entry in condition_pairs)
    return NamedQuantile(
        0.5 if match[1] is None else float(match[1]),
        _strip_quotes(name.strip()),
        tuple(
            _strip_quotes(entry.strip()) for clause in group_parts for entry in split_outside_quotes(clause, r",|\sand\s")
        ),
        {_strip_quotes(entry[0].strip()): _strip_quotes(entry[1].strip()) for entry in condition_pairs} if alone else None,
    )


def _parse_sum(domain: Domain, text: str, subset: LinearFunction) -> Sum | AmountTotal:
    """A question for amounts, or for counts and their ratios, by groups."""
    body, *group_parts = split_outside_quotes(text, r"(?<!divided)\sby\s")
    if len(group_parts) > 1:
        raise InvalidInput(f"{text!r} has 'by' twice; join attributes by commas")
    groups = _parse_groupings(domain.grouped, group_parts[0]) if group_parts else ()
    added = _added_column(domain, body)
    if added is not None:
        return AmountTotal(_numeric_axis(domain, added), groups, subset)
    share_match = re.fullmatch(r"share of (.+)", body, re.IGNORECASE)
    ratio = [share_match[1], ALL_RECORDS_WORDS[0]] if share_match else split_outside_quotes(body, r"\sdivided\s+by\s")
    if len(ratio) > 2:
        raise InvalidInput(f"{text!r} divides twice; ask for one ratio at a time")
    numerator, *denominators = (
        multiply_indicators(domain, subset, _parse_linear(domain.grouped, operand)) for operand in ratio
    )
    return Sum(numerator, denominators[0] if denominators else None, groups)


def _added_column(domain: Domain, text: str) -> str | None:
    """The attribute whose numbers a text asks to add up; None where it asks for a number of records.

    'sum' alone means the one column of amounts that there is.
    """
    match = re.fullmatch(r"(?:sum|total)(?: of (.+))?", text, re.IGNORECASE)
    if match is None:
        return None
    amounts = [amount.name for amount in domain.amounts]
    if match[1] is None:
        if len(amounts) > 1:
            raise InvalidInput(
                f"{text!r} of what? This release has amounts of {', '.join(amounts)}: write 'sum of {amounts[0]}'"
            )
        return next(iter(amounts), None)
    name = _strip_quotes(match[1])
    return name if name in domain.columns or text.lower().startswith("total") else None


def _parse_statistic(domain: Domain, statistic: str, text: str, subset: LinearFunction) -> AmountStatistic:
    """A question for a statistic of one attribute, or of two that are joined by 'and'."""
    statistic_kind = statistics_by_name()[statistic]
    body, groupings = _split_grouping(domain, text)
    names = split_outside_quotes(body, r"\sand\s") if statistic_kind.columns == 2 else [body]
    if len(set(names)) != statistic_kind.columns:
        raise InvalidInput(f"a {statistic} is that of two columns: write for example '{statistic} of age and income'")
    axes = tuple(_numeric_axis(domain, _strip_quotes(name)) for name in names)
    attributes = [domain.attributes[axis] for axis in axes] if statistic_kind.squares else []
    bare = next(
        (attribute.name for attribute in attributes if attribute.amounts is not None and not attribute.amounts.squares), None
    )
    if bare is not None:
        raise InvalidInput(
            f"this release did not measure squares of {bare!r}, so its {statistic} is not known; a release whose spec asks for "
            f"'variance: {bare}' can tell it"
        )
    return AmountStatistic(statistic, axes, groupings, subset)


def _parse_linear(domain: Domain, text: str) -> LinearFunction:
    """A linear combination of counts: parts joined by 'plus' and 'minus', each with an optional factor in front."""
    signed_text = f" plus {text}" if not re.match(r"\s*(plus|minus)\s", text, re.IGNORECASE) else f" {text}"
    total = LinearFunction(())
    signed_terms = split_outside_quotes(signed_text, r"\s(?=(?:plus|minus)\s)")
    for signed_term in signed_terms[1:]:
        sign = 1.0 if signed_term.lower().startswith("plus") else -1.0
        body = re.fullmatch(
            rf"(?:plus|minus)\s+(?:({_NUMBER})\s*(?:\*|times)?\s+)?(?:(?:sum|count|number) of\s+)?(.+)", signed_term, re.I
        )
        if body is None:
            raise InvalidInput(f"{text!r} cannot be read; the forms are {QUESTION_FORMS}")
        total += parse_condition(domain, body[2]) * (sign * float(body[1] or 1.0))
    return total


def _numeric_axis(domain: Domain, name: str) -> int:
    """The attribute whose numbers are added up or averaged. Raises: InvalidInput."""
    axis, level = domain.level(name)
    if level is not None:
        raise InvalidInput(
            f"a group of level {name!r} holds more than one value, so it has no mean; ask for that of {domain.names[axis]}"
        )
    numbers(domain.attributes[axis])
    return axis


def _split_grouping(domain: Domain, text: str) -> tuple[str, tuple[Grouping, ...]]:
    """An attribute and what it is asked by."""
    name, *group_parts = split_outside_quotes(text, r"\sby\s")
    return _strip_quotes(name), _parse_groupings(domain.grouped, group_parts[0]) if group_parts else ()


def _parse_groupings(domain: Domain, text: str) -> tuple[Grouping, ...]:
    return tuple(_parse_grouping(domain, _strip_quotes(name)) for name in split_outside_quotes(text, r",|\sand\s"))


def _parse_grouping(domain: Domain, name: str) -> Grouping:
    axis, rows, labels = attribute_counts(domain, name)
    return Grouping(name, axis, rows, labels, len(labels) - len(domain.attributes[axis].extra))


def _strip_quotes(name: str) -> str:
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "'\"" else name
