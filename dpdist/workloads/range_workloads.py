"""Ranges and prefixes of ordered attributes, and relations: counts by a number that follows from two, such as age - tenure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import scipy

from dpdist.domain import Attribute, Domain
from dpdist.errors import InvalidInput
from dpdist.operators import AllRanges, ListedRanges, Matrix, Operator, Prefix, Sparse, Toeplitz
from dpdist.operators.toeplitz import PowerCoefficients
from dpdist.workloads.product_queries import listed_marginals
from dpdist.workloads.workload import Block, Workload, along, union, values_of


def prefix(n: int) -> Workload:
    """The n prefix sums of one ordered attribute.

    Args:
        n: number of values of the attribute.
    """
    return cdf(Domain.of_shape((n,)), "x0")


def all_ranges(n: int) -> Workload:
    """All n(n+1)/2 intervals of one ordered attribute.

    Args:
        n: number of values of the attribute.
    """
    return ranges((n,))


def ranges(shape: int | tuple[int, ...]) -> Workload:
    """All axis-aligned boxes of a domain of the given sizes.

    Args:
        shape: number of values of each attribute; one number for a single attribute.
    """
    domain = Domain.of_shape(shape)
    return ranges_of(domain, domain.names)


def listed_ranges(n: int, ends: Sequence[tuple[int, int]]) -> Workload:
    """The given intervals (first, last), both ends included, of one ordered attribute.

    Args:
        n: number of values of the attribute.
        ends: first and last value of each interval, numbers from 0 to n - 1.
    Raises: InvalidInput for an interval outside 0..n-1.
    """
    return ranges_of(Domain.of_shape((n,)), ("x0",), listed={"x0": ends})


def range_marginals(domain: Domain | tuple[int, ...], ways: int, *, among: tuple[str, ...] = ()) -> Workload:
    """Every k-way marginal, by all intervals of its ordered attributes and by all values of the others.

    Args:
        domain: a domain, or the sizes of an anonymous one.
        ways: k, how many attributes are combined.
        among: names of the attributes to combine; all by default.
    Source: Li & Miklau 2012, section 5 (range marginals).
    """
    whole = domain if isinstance(domain, Domain) else Domain.of_shape(domain)
    attributes = [whole.attribute(name) for name in among or whole.own_names]
    if not 1 <= ways <= len(attributes):
        raise InvalidInput(f"range marginals of {ways} attributes are not possible among {len(attributes)}")
    parts = []
    for subset in combinations(attributes, ways):
        ordered = tuple(a.name for a in subset if not a.categories)
        others = tuple(a.name for a in subset if a.categories)
        parts.append(ranges_of(whole, ordered, others) if ordered else listed_marginals(whole, [others]))
    return union(*parts)


def cdf(domain: Domain, of: str, by: tuple[str, ...] = (), *, name: str | None = None) -> Workload:
    """Counts at or below each value of one attribute, for every combination of the ``by`` attributes."""
    attribute = domain.attribute(of)
    return _with_groups(domain, name or _title(f"cdf of {of}", by), [(of, along(attribute, Prefix(attribute.values)))], by)


def ranges_of(
    domain: Domain,
    of: tuple[str, ...],
    by: tuple[str, ...] = (),
    *,
    listed: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    name: str | None = None,
) -> Workload:
    """Every combination of intervals of the attributes in ``of``, for every combination of values of the ``by`` attributes.

    Args:
        listed: intervals (first, last) of an attribute, both ends included; attributes without a list: all intervals.
    """
    lists = dict(listed or {})
    if not set(lists) <= set(of):
        raise InvalidInput(f"listed ranges of {sorted(set(lists) - set(of))} belong to none of the attributes {list(of)}")
    parts: list[tuple[str, Operator]] = []
    for attribute in (domain.attribute(n) for n in of):
        ends = lists.get(attribute.name)
        operator = AllRanges(attribute.values) if ends is None else ListedRanges(attribute.values, np.array(ends))
        parts.append((attribute.name, along(attribute, operator)))
    return _with_groups(domain, name or _title("ranges of " + " x ".join(of), by), parts, by)


def boxes(domain: Domain, of: tuple[str, ...], listed: Sequence[Sequence[tuple[int, int]]]) -> Workload:
    """Listed boxes over several ordered attributes.

    Args:
        domain: the attributes.
        of: names of the ordered attributes that the boxes lie over.
        listed: for every box, one interval (first, last) for each attribute in ``of``, both ends included.
    """
    if len(set(of)) != len(of) or not listed or any(len(box) != len(of) for box in listed):
        raise InvalidInput(f"boxes over {list(of)} need one interval for each attribute and at least one box")
    order = sorted(range(len(of)), key=lambda i: domain.axis(of[i]))
    attributes = [domain.attribute(of[i]) for i in order]
    sides = [np.array([box[i] for box in listed], dtype=np.int64) for i in order]
    rows = box_rows(tuple(a.size for a in attributes), sides)
    texts = (
        ", ".join(
            f"{a.name} {a.labels[side[k, 0]]} .. {a.labels[side[k, 1]]}" for a, side in zip(attributes, sides, strict=True)
        )
        for k in range(len(listed))
    )
    axes = tuple(domain.axis(a.name) for a in attributes)
    return Workload(domain, (Block("boxes of " + " x ".join(a.name for a in attributes), axes, (rows,), (tuple(texts),)),))


def box_rows(shape: tuple[int, ...], sides: Sequence[Matrix]) -> Sparse:
    """Rows over the joint cells of some attributes: row k counts the box with the k-th interval of each side."""
    rows = scipy.sparse.csr_array(np.ones((len(sides[0]), 1)))
    for size, side in zip(shape, sides, strict=True):
        along = ListedRanges(size, side).matrix
        pairs = [scipy.sparse.kron(rows[[k]], along[[k]]) for k in range(rows.shape[0])]
        rows = scipy.sparse.csr_array(scipy.sparse.vstack(pairs))
    return Sparse(rows)


def _with_groups(domain: Domain, title: str, parts: list[tuple[str, Operator]], by: tuple[str, ...]) -> Workload:
    return with_groups(domain, title, [(name, f, _names_of(domain.attribute(name), f)) for name, f in parts], by)


def _names_of(attribute: Attribute, operator: Operator) -> tuple[str, ...]:
    return tuple(operator.row_names(0, operator.shape[0], attribute.labels))


def with_groups(
    domain: Domain, title: str, parts: Sequence[tuple[str, Operator, Sequence[str]]], by: tuple[str, ...]
) -> Workload:
    """Queries of attributes, with the names of each one's rows, for every combination of values of the ``by`` attributes."""
    names = [name for name, *_ in parts] + list(by)
    if len(set(names)) != len(names):
        raise InvalidInput(f"queries {title!r} name an attribute twice: {names}")
    grouped = ((group, values_of(domain.attribute(group))) for group in by)
    every = [*parts, *((group, f, _names_of(domain.attribute(group), f)) for group, f in grouped)]
    every.sort(key=lambda part: domain.axis(part[0]))
    axes = tuple(domain.axis(name) for name, *_ in every)
    return Workload(domain, (Block(title, axes, tuple(f for _, f, _ in every), tuple(tuple(each) for *_, each in every)),))


def _title(what: str, by: tuple[str, ...]) -> str:
    return what + (" by " + ", ".join(by) if by else "")


PREFIXES = 4096
"""Numbers up to which prefixes are optimised as such; more are asked for as running sums, whose optimum takes a Fourier transform."""


def relations(
    domain: Domain,
    of: str,
    by: tuple[str, ...] = (),
    *,
    at_most: Sequence[int] | None = None,
    within: Sequence[int] | None = None,
) -> Workload:
    """Counts of the records whose number on a line satisfies each of several bounds, for every combination of the ``by`` attributes.

    Args:
        domain: one of whose attributes is the line, with a cut at every bound.
        of: the name of the line.
        at_most: bounds c of the number; by default every number that occurs, unless ``within`` is given.
        within: bounds c of its absolute value.
    Raises: InvalidInput for a bound that no record satisfies.
    """
    attribute = domain.attribute(of)
    edges = np.asarray(attribute.edges, dtype=np.float64)
    if within is not None:
        spans = [_span(attribute, edges, -bound, bound) for bound in within]
        names = [f"from {-bound} to {bound}" for bound in within]
    else:
        spans = [_span(attribute, edges, None, bound) for bound in at_most or ()]
        names = [f"<= {bound:.0f}" for bound in (edges[:-1] if at_most is None else at_most)]
    operator: Operator = ListedRanges(attribute.values, np.array(spans)) if spans else _every(attribute.values)
    title = _title(of if len(names) > 1 else f"{of} {names[0]}", by)
    return with_groups(domain, title, [(of, along(attribute, operator), names)], by)


def _every(numbers: int) -> Operator:
    return Prefix(numbers) if numbers <= PREFIXES else Toeplitz(numbers, PowerCoefficients(numbers, 0.0))


def _span(attribute: Attribute, edges: np.ndarray, low: int | None, high: int) -> tuple[int, int]:
    """The bins from one number to another, both included."""
    first = 0 if low is None else int(np.searchsorted(edges[:-1], low, side="left"))
    last = int(np.searchsorted(edges[:-1], high, side="right")) - 1
    if last < first:
        ends = f"{edges[0]:g} to {edges[-1] - 1:g}"
        raise InvalidInput(
            f"no record has {attribute.name!r} within the bound {high}: it goes from {ends}; leave the bound out"
        )
    return first, last
