"""Conditions on attributes, as readers write them: ``region=North, age>=65``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.queries import (
    ALL_RECORDS,
    Attribute,
    Domain,
    LinearFunction,
    Matrix,
    decompose_function,
    did_you_mean,
    predicates,
    satisfied,
)

YES_AND_NO = ({"yes", "no"}, {"true", "false"})
"""The categories of an attribute that may stand alone as a condition."""
MOST_SEARCHED_LABELS = 2**16
"""Values of an attribute among whose labels a condition's value is looked for."""
ALL_RECORDS_WORDS = ("all", "all records", "everything", "everyone", "records", "count", "number", "sum", "total")
CONDITION_HELP = (
    "write for example \"region=North, age>=65\"; names and values with commas or words such as 'minus' go into quotes"
)


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """The parts of a text, which is cut at every match of a pattern outside quotes and brackets."""
    segments, depth, quote, start, position = [], 0, "", 0, 0
    pattern = re.compile(separator, re.IGNORECASE)
    while position < len(text):
        letter = text[position]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        match = None if quote or depth else pattern.match(text, position)
        if match and match.end() > position:
            segments.append(text[start:position])
            start = position = match.end()
            continue
        position += 1
    return [segment.strip() for segment in (*segments, text[start:])]


def parse_condition(domain: Domain, text: str) -> LinearFunction:
    """The number of records that satisfy all the conditions in a text, as a linear function. Commas separate conditions.

    Raises: InvalidInput for text that is not a condition, names no declared value, or cuts through a bin.
    """
    if text.strip().lower() in ALL_RECORDS_WORDS:
        return ALL_RECORDS
    function = ALL_RECORDS
    for condition_text in split_outside_quotes(text, ","):
        function = multiply_indicators(domain, function, _parse_single_condition(domain, condition_text))
    return function


def multiply_indicators(domain: Domain, indicator: LinearFunction, other_indicator: LinearFunction) -> LinearFunction:
    """The product of two indicators."""
    product = LinearFunction(())
    for coefficient, vectors in other_indicator.products:
        product += indicator.times_vectors(vectors) * coefficient
    return product.simplified(domain.shape)


def _parse_single_condition(domain: Domain, text: str) -> LinearFunction:
    text = _with_affirmative_value(domain, text)
    simple = _parse_level_condition(domain, text) or _parse_comparison(domain, text)
    if simple is not None:
        axis, mask = simple
        return LinearFunction(((1.0, {axis: mask.astype(np.float64)}),)) if mask.any() else LinearFunction(())
    _check_named(domain, text)
    try:
        block = predicates(domain, [text]).blocks[0]
    except InvalidInput as error:
        raise InvalidInput(f"condition {text!r}: {error}; {CONDITION_HELP}") from None
    if block.separable:
        rows = zip(block.axes, block.factors, strict=True)
        return LinearFunction(((1.0, {axis: factor.dense()[0].astype(np.float64) for axis, factor in rows}),))
    sizes = [domain.shape[axis] for axis in block.axes]
    return decompose_function(block.axes, block.factors[0].dense()[0].reshape(sizes).astype(np.float64))


def _with_affirmative_value(domain: Domain, text: str) -> str:
    """``borrowed`` alone means ``borrowed=yes`` where its values are yes and no, or true and false; other conditions as they are."""
    name = text.strip().strip("'\"")
    values = domain.attributes[domain.axis(name)].categories if name in domain.names else ()
    yes = next((category for category in values or () if category.lower() in ("yes", "true")), None)
    return text if yes is None or {category.lower() for category in values} not in YES_AND_NO else f"{text}={yes}"


def _check_named(domain: Domain, text: str) -> None:
    """Accept a condition that does not begin with an unknown name. Raises: InvalidInput."""
    leading_name = re.match(r"\s*(['\"]?)([^\W\d][\w .-]*?)\1\s*(?:[=!<>]|$)", text)
    if leading_name is None or re.search(r"\b(and|or|not|in)\b", leading_name[2]):
        return
    if leading_name[2] not in domain.columns:
        domain.axis(leading_name[2])  # refuses, with the name that is meant
    if leading_name.end() == len(text):
        raise InvalidInput(f"{text!r} alone is no condition; write for example 'count by {text}', or what {text!r} is to be")


def _parse_level_condition(domain: Domain, text: str) -> tuple[int, Matrix] | None:
    """An attribute and its values in a group of one of its levels; None for what compares no level."""
    for axis, attribute in enumerate(domain.attributes):
        for level in attribute.levels:
            match = re.fullmatch(rf"['\"]?{re.escape(level.name)}['\"]?\s*(==|=|!=)\s*(['\"]?)(.+?)\2\s*", text)
            if match is None:
                continue
            if match[3] not in level.labels:
                alike = did_you_mean(match[3], level.labels)
                group_list = f"{', '.join(level.labels[:12])}{' ...' if len(level.labels) > 12 else ''}"
                raise InvalidInput(
                    f"condition {text!r}: {match[3]!r} is no group of level {level.name!r}{alike}; there are {group_list}"
                )
            is_in_group = np.asarray(level.groups) == level.labels.index(match[3])
            mask = np.zeros(attribute.size, dtype=bool)
            mask[: attribute.values] = ~is_in_group if match[1] == "!=" else is_in_group
            return axis, mask
    return None


def _parse_comparison(domain: Domain, text: str) -> tuple[int, Matrix] | None:
    """An attribute and which of its values satisfy ``name sign value``; None where it is something longer."""
    for axis, attribute in _leading_attributes(domain, text):
        quoted = re.match(r"^(['\"])(.*?)\1", text)
        rest = text[quoted.end() :] if quoted and quoted[2] == attribute.name else text[len(attribute.name) :]
        match = re.fullmatch(r"\s*(==|!=|<=|>=|=|<|>)\s*(.+?)\s*", rest)
        if match is None or re.search(r"\s(and|or|in|not)\s", match[2]):
            continue
        return axis, _matching_bins(attribute, match[1], match[2])
    return None


def _leading_attributes(domain: Domain, text: str) -> Iterator[tuple[int, Attribute]]:
    """The attributes with whose name a text begins, the longest first."""
    candidates = [
        (axis, attribute)
        for axis, attribute in enumerate(domain.attributes)
        if text.startswith((attribute.name, f"'{attribute.name}'", f'"{attribute.name}"'))
    ]
    yield from sorted(candidates, key=lambda candidate: -len(candidate[1].name))


def _matching_bins(attribute: Attribute, sign: str, text: str) -> Matrix:
    """Which bins satisfy a comparison; never the one of records that are dropped wherever the attribute is asked for."""
    value = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    counted = np.arange(attribute.size) < attribute.shown
    if sign in ("=", "==", "!=") and attribute.size <= MOST_SEARCHED_LABELS:
        labels = list(attribute.labels)
        if value in labels:
            is_value = np.arange(attribute.size) == labels.index(value)
            return np.asarray((is_value if sign != "!=" else ~is_value) & counted)
    if attribute.categories or attribute.times is not None:
        return np.asarray(satisfied(attribute, sign, value) & counted)
    try:
        number = float(value)
    except ValueError:
        raise InvalidInput(
            f"condition {f'{attribute.name}{sign}{text}'!r}: {attribute.name!r} has numbers and bins, found {value!r}; give a "
            f"number, or a bin such as {attribute.labels[0]!r}"
        ) from None
    return np.asarray(satisfied(attribute, sign, int(number) if number.is_integer() else number) & counted)
