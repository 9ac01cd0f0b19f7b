"""Ranges and prefixes of ordered attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpdist.domain import Domain
from dpdist.errors import InvalidInput
from dpdist.operators import AllRanges, Identity, ListedRanges, Operator, Prefix
from dpdist.workloads.base import Block, Workload


def prefix(n: int) -> Workload:
    """The n prefix sums of one ordered attribute."""
    return cdf(Domain.of_shape((n,)), "x0")


def all_ranges(n: int) -> Workload:
    """All n(n+1)/2 intervals of one ordered attribute."""
    return ranges((n,))


def ranges(shape: tuple[int, ...]) -> Workload:
    """All axis-aligned boxes of a domain of the given sizes."""
    domain = Domain.of_shape(tuple(shape))
    return ranges_of(domain, domain.names)


def listed_ranges(n: int, ends: Sequence[tuple[int, int]]) -> Workload:
    """The given intervals (first, last), both ends included, of one ordered attribute."""
    return ranges_of(Domain.of_shape((n,)), ("x0",), listed=tuple(ends))


def cdf(domain: Domain, of: str, by: tuple[str, ...] = (), *, name: str | None = None) -> Workload:
    """Counts at or below each value of one attribute, for every combination of the ``by`` attributes."""
    attribute = domain.attributes[domain.axis(of)]
    labels = tuple(f"up to {label}" for label in attribute.labels)
    title = name or _title(f"cdf of {of}", by)
    return _with_groups(domain, title, [(of, Prefix(attribute.size), labels)], by)


def ranges_of(
    domain: Domain,
    of: tuple[str, ...],
    by: tuple[str, ...] = (),
    *,
    listed: tuple[tuple[int, int], ...] | None = None,
    name: str | None = None,
) -> Workload:
    """All intervals of each attribute in ``of`` (or the listed ones of a single one), by every ``by`` combination."""
    if listed is not None and len(of) != 1:
        raise InvalidInput(f"listed ranges belong to one attribute, found {list(of)}; write one entry for each")
    parts: list[tuple[str, Operator, tuple[str, ...]]] = []
    for attribute in (domain.attributes[domain.axis(n)] for n in of):
        operator = AllRanges(attribute.size) if listed is None else ListedRanges(attribute.size, np.array(listed))
        ends = (operator.ends(row) for row in range(operator.shape[0])) if isinstance(operator, AllRanges) else listed
        text = tuple(f"{attribute.labels[a]} .. {attribute.labels[b]}" for a, b in ends or ())
        parts.append((attribute.name, operator, text))
    return _with_groups(domain, name or _title("ranges of " + " x ".join(of), by), parts, by)


def _with_groups(
    domain: Domain, title: str, parts: list[tuple[str, Operator, tuple[str, ...]]], by: tuple[str, ...]
) -> Workload:
    names = [name for name, _, _ in parts] + list(by)
    if len(set(names)) != len(names):
        raise InvalidInput(f"queries {title!r} name an attribute twice: {names}")
    for group in by:
        attribute = domain.attributes[domain.axis(group)]
        parts = [*parts, (group, Identity(attribute.size), attribute.labels)]
    parts = sorted(parts, key=lambda part: domain.axis(part[0]))
    axes = tuple(domain.axis(name) for name, _, _ in parts)
    block = Block(title, axes, tuple(op for _, op, _ in parts), tuple(labels for _, _, labels in parts))
    return Workload(domain, (block,))


def _title(what: str, by: tuple[str, ...]) -> str:
    return what + (" by " + ", ".join(by) if by else "")
