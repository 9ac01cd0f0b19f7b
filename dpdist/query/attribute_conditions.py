"""Conditions on attributes, as readers write them: ``region=North, age>=65``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dpdist.domain import Attribute, Domain
from dpdist.domain.spelling_suggestions import meant
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.query.linear_functions import EVERYTHING, Linear, products_of
from dpdist.workloads.predicates import predicates, satisfied

YES_AND_NO = ({"yes", "no"}, {"true", "false"})
"""The categories of an attribute that may stand alone as a condition."""
LABELS = 2**16
"""Values of an attribute among whose labels a condition's value is looked for."""
ALL = ("all", "all records", "everything", "everyone", "records", "count", "number", "sum", "total")
FORM = "write for example \"region=North, age>=65\"; names and values with commas or words such as 'minus' go into quotes"


def parted(text: str, separator: str) -> list[str]:
    """The parts of a text, which is cut at every match of a pattern outside quotes and brackets."""
    pieces, depth, quote, start, place = [], 0, "", 0, 0
    pattern = re.compile(separator, re.IGNORECASE)
    while place < len(text):
        letter = text[place]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        found = None if quote or depth else pattern.match(text, place)
        if found and found.end() > place:
            pieces.append(text[start:place])
            start = place = found.end()
            continue
        place += 1
    return [piece.strip() for piece in (*pieces, text[start:])]


def condition(domain: Domain, text: str) -> Linear:
    """The number of records that satisfy all the conditions in a text, as a linear function. Commas separate conditions.

    Raises: InvalidInput for text that is not a condition, names no declared value, or cuts through a bin.
    """
    if text.strip().lower() in ALL:
        return EVERYTHING
    out = EVERYTHING
    for piece in parted(text, ","):
        out = joined(domain, out, _single(domain, piece))
    return out


def joined(domain: Domain, first: Linear, second: Linear) -> Linear:
    """The product of two indicators."""
    out = Linear(())
    for coefficient, vectors in second.products:
        out += first.within(vectors) * coefficient
    return out.simplified(domain.shape)


def _single(domain: Domain, text: str) -> Linear:
    text = _affirmed(domain, text)
    simple = _of_level(domain, text) or _comparison(domain, text)
    if simple is not None:
        axis, mask = simple
        return Linear(((1.0, {axis: mask.astype(np.float64)}),)) if mask.any() else Linear(())
    _check_named(domain, text)
    try:
        block = predicates(domain, [text]).blocks[0]
    except InvalidInput as error:
        raise InvalidInput(f"condition {text!r}: {error}; {FORM}") from None
    if block.separable:
        rows = zip(block.axes, block.factors, strict=True)
        return Linear(((1.0, {axis: factor.dense()[0].astype(np.float64) for axis, factor in rows}),))
    sizes = [domain.shape[axis] for axis in block.axes]
    return products_of(block.axes, block.factors[0].dense()[0].reshape(sizes).astype(np.float64))


def _affirmed(domain: Domain, text: str) -> str:
    """``borrowed`` alone means ``borrowed=yes`` where its values are yes and no, or true and false; other conditions as they are."""
    name = text.strip().strip("'\"")
    values = domain.attributes[domain.axis(name)].categories if name in domain.names else ()
    yes = next((each for each in values or () if each.lower() in ("yes", "true")), None)
    return text if yes is None or {each.lower() for each in values} not in YES_AND_NO else f"{text}={yes}"


def _check_named(domain: Domain, text: str) -> None:
    """Accept a condition that does not begin with an unknown name. Raises: InvalidInput."""
    begun = re.match(r"\s*(['\"]?)([^\W\d][\w .-]*?)\1\s*(?:[=!<>]|$)", text)
    if begun is None or re.search(r"\b(and|or|not|in)\b", begun[2]):
        return
    if begun[2] not in domain.columns:
        domain.axis(begun[2])  # refuses, with the name that is meant
    if begun.end() == len(text):
        raise InvalidInput(f"{text!r} alone is no condition; write for example 'count by {text}', or what {text!r} is to be")


def _of_level(domain: Domain, text: str) -> tuple[int, Matrix] | None:
    """An attribute and its values in a group of one of its levels; None for what compares no level."""
    for axis, attribute in enumerate(domain.attributes):
        for level in attribute.levels:
            found = re.fullmatch(rf"['\"]?{re.escape(level.name)}['\"]?\s*(==|=|!=)\s*(['\"]?)(.+?)\2\s*", text)
            if found is None:
                continue
            if found[3] not in level.labels:
                alike = meant(found[3], level.labels)
                known = f"{', '.join(level.labels[:12])}{' ...' if len(level.labels) > 12 else ''}"
                raise InvalidInput(
                    f"condition {text!r}: {found[3]!r} is no group of level {level.name!r}{alike}; there are {known}"
                )
            same = np.asarray(level.groups) == level.labels.index(found[3])
            mask = np.zeros(attribute.size, dtype=bool)
            mask[: attribute.values] = ~same if found[1] == "!=" else same
            return axis, mask
    return None


def _comparison(domain: Domain, text: str) -> tuple[int, Matrix] | None:
    """An attribute and which of its values satisfy ``name sign value``; None where it is something longer."""
    for axis, attribute in _named(domain, text):
        quoted = re.match(r"^(['\"])(.*?)\1", text)
        rest = text[quoted.end() :] if quoted and quoted[2] == attribute.name else text[len(attribute.name) :]
        found = re.fullmatch(r"\s*(==|!=|<=|>=|=|<|>)\s*(.+?)\s*", rest)
        if found is None or re.search(r"\s(and|or|in|not)\s", found[2]):
            continue
        return axis, _satisfied(attribute, found[1], found[2])
    return None


def _named(domain: Domain, text: str) -> Iterator[tuple[int, Attribute]]:
    """The attributes with whose name a text begins, the longest first."""
    begun = [
        (axis, attribute)
        for axis, attribute in enumerate(domain.attributes)
        if text.startswith((attribute.name, f"'{attribute.name}'", f'"{attribute.name}"'))
    ]
    yield from sorted(begun, key=lambda each: -len(each[1].name))


def _satisfied(attribute: Attribute, sign: str, text: str) -> Matrix:
    """Which bins satisfy a comparison; never the one of records that are dropped wherever the attribute is asked for."""
    value = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    counted = np.arange(attribute.size) < attribute.shown
    if sign in ("=", "==", "!=") and attribute.size <= LABELS:
        labels = list(attribute.labels)
        if value in labels:
            same = np.arange(attribute.size) == labels.index(value)
            return np.asarray((same if sign != "!=" else ~same) & counted)
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
