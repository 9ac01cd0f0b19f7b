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
from dpdist.workloads.block import Block
from dpdist.workloads.product_queries import listed_marginals
from dpdist.workloads.workload import Workload, along, union, values_of


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
    return ranges_of(Domain.of_shape((n,)), ("x0",), intervals={"x0": ends})


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
    workloads = []
    for subset in combinations(attributes, ways):
        ordered = tuple(attribute.name for attribute in subset if not attribute.categories)
        unordered = tuple(attribute.name for attribute in subset if attribute.categories)
        workloads.append(ranges_of(whole, ordered, unordered) if ordered else listed_marginals(whole, [unordered]))
    return union(*workloads)


def cdf(domain: Domain, attribute_name: str, group_names: tuple[str, ...] = (), *, name: str | None = None) -> Workload:
    """Counts at or below each value of one attribute, for every combination of the ``group_names`` attributes."""
    attribute = domain.attribute(attribute_name)
    return _with_groups(
        domain,
        name or _title(f"cdf of {attribute_name}", group_names),
        [(attribute_name, along(attribute, Prefix(attribute.values)))],
        group_names,
    )


def ranges_of(
    domain: Domain,
    attribute_names: tuple[str, ...],
    group_names: tuple[str, ...] = (),
    *,
    intervals: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    name: str | None = None,
) -> Workload:
    """Every combination of intervals of the attributes in ``attribute_names``, for every combination of values of the ``group_names``
    attributes.

    Args:
        intervals: intervals (first, last) of an attribute, both ends included; attributes without a list: all intervals.
    """
    lists = dict(intervals or {})
    if not set(lists) <= set(attribute_names):
        raise InvalidInput(
            f"listed ranges of {sorted(set(lists) - set(attribute_names))} belong to none of the attributes {list(attribute_names)}"
        )
    factors: list[tuple[str, Operator]] = []
    for attribute in (domain.attribute(n) for n in attribute_names):
        ends = lists.get(attribute.name)
        operator = AllRanges(attribute.values) if ends is None else ListedRanges(attribute.values, np.array(ends))
        factors.append((attribute.name, along(attribute, operator)))
    return _with_groups(
        domain, name or _title("ranges of " + " x ".join(attribute_names), group_names), factors, group_names
    )


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
    rows = box_rows(tuple(attribute.size for attribute in attributes), sides)
    texts = (
        ", ".join(
            f"{attribute.name} {attribute.labels[interval_ends[k, 0]]} .. {attribute.labels[interval_ends[k, 1]]}"
            for attribute, interval_ends in zip(attributes, sides, strict=True)
        )
        for k in range(len(listed))
    )
    axes = tuple(domain.axis(attribute.name) for attribute in attributes)
    return Workload(
        domain,
        (Block("boxes of " + " x ".join(attribute.name for attribute in attributes), axes, (rows,), (tuple(texts),)),),
    )


def box_rows(shape: tuple[int, ...], sides: Sequence[Matrix]) -> Sparse:
    """Rows over the joint cells of some attributes: row k counts the box with the k-th interval of each side."""
    rows = scipy.sparse.csr_array(np.ones((len(sides[0]), 1)))
    for size, interval_ends in zip(shape, sides, strict=True):
        along = ListedRanges(size, interval_ends).matrix
        pairs = [scipy.sparse.kron(rows[[k]], along[[k]]) for k in range(rows.shape[0])]
        rows = scipy.sparse.csr_array(scipy.sparse.vstack(pairs))
    return Sparse(rows)


def _with_groups(domain: Domain, title: str, factors: list[tuple[str, Operator]], group_names: tuple[str, ...]) -> Workload:
    return with_groups(domain, title, [(name, f, _names_of(domain.attribute(name), f)) for name, f in factors], group_names)


def _names_of(attribute: Attribute, operator: Operator) -> tuple[str, ...]:
    return tuple(operator.row_names(0, operator.shape[0], attribute.labels))


def with_groups(
    domain: Domain, title: str, factors: Sequence[tuple[str, Operator, Sequence[str]]], group_names: tuple[str, ...]
) -> Workload:
    """Queries of attributes, with the names of each one's rows, for every combination of values of the ``group_names`` attributes."""
    names = [name for name, *_ in factors] + list(group_names)
    if len(set(names)) != len(names):
        raise InvalidInput(f"queries {title!r} name an attribute twice: {names}")
    grouped = ((group, values_of(domain.attribute(group))) for group in group_names)
    all_factors = [*factors, *((group, f, _names_of(domain.attribute(group), f)) for group, f in grouped)]
    all_factors.sort(key=lambda factor: domain.axis(factor[0]))
    axes = tuple(domain.axis(name) for name, *_ in all_factors)
    return Workload(
        domain,
        (Block(title, axes, tuple(f for _, f, _ in all_factors), tuple(tuple(labels) for *_, labels in all_factors)),),
    )


def _title(subject: str, group_names: tuple[str, ...]) -> str:
    return subject + (" by " + ", ".join(group_names) if group_names else "")


PREFIXES = 4096
"""Numbers up to which prefixes are optimised as such; more are asked for as running sums, whose optimum takes a Fourier transform."""


def relations(
    domain: Domain,
    attribute_name: str,
    group_names: tuple[str, ...] = (),
    *,
    upper_bounds: Sequence[int] | None = None,
    absolute_bounds: Sequence[int] | None = None,
) -> Workload:
    """Counts of the records whose number on a line satisfies each of several bounds, for every combination of the ``group_names``
    attributes.

    Args:
        domain: one of whose attributes is the line, with a cut at every bound.
        attribute_name: the name of the line.
        upper_bounds: bounds c of the number; by default every number that occurs, unless ``absolute_bounds`` is given.
        absolute_bounds: bounds c of its absolute value.
    Raises: InvalidInput for a bound that no record satisfies.
    """
    attribute = domain.attribute(attribute_name)
    edges = np.asarray(attribute.edges, dtype=np.float64)
    if absolute_bounds is not None:
        spans = [_span(attribute, edges, -bound, bound) for bound in absolute_bounds]
        names = [f"from {-bound} to {bound}" for bound in absolute_bounds]
    else:
        spans = [_span(attribute, edges, None, bound) for bound in upper_bounds or ()]
        names = [f"<= {bound:.0f}" for bound in (edges[:-1] if upper_bounds is None else upper_bounds)]
    operator: Operator = ListedRanges(attribute.values, np.array(spans)) if spans else _cumulative_queries(attribute.values)
    title = _title(attribute_name if len(names) > 1 else f"{attribute_name} {names[0]}", group_names)
    return with_groups(domain, title, [(attribute_name, along(attribute, operator), names)], group_names)


def _cumulative_queries(numbers: int) -> Operator:
    return Prefix(numbers) if numbers <= PREFIXES else Toeplitz(numbers, PowerCoefficients(numbers, 0.0))


def _span(attribute: Attribute, edges: np.ndarray, low: int | None, high: int) -> tuple[int, int]:
    """The bins from one number to another, both included."""
    first_bin = 0 if low is None else int(np.searchsorted(edges[:-1], low, side="left"))
    last_bin = int(np.searchsorted(edges[:-1], high, side="right")) - 1
    if last_bin < first_bin:
        ends = f"{edges[0]:g} to {edges[-1] - 1:g}"
        raise InvalidInput(
            f"no record has {attribute.name!r} within the bound {high}: it goes from {ends}; leave the bound out"
        )
    return first_bin, last_bin
