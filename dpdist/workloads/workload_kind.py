"""The kind of a workload: marginals, products, filters or formulas. A mechanism decides by the kind whether it answers the workload."""

from __future__ import annotations

from dpdist.errors import InvalidInput
from dpdist.operators import Dyadic, Identity, Toeplitz, Total
from dpdist.workloads.workload import Workload


def is_marginals(workload: Workload) -> bool:
    """Whether all queries are plain marginals."""
    return all(b.separable and all(isinstance(f, Identity | Total) for f in b.factors) for b in workload.blocks)


def is_product(workload: Workload) -> bool:
    """Whether the workload is one product of queries of single attributes."""
    return len(workload.blocks) == 1 and workload.blocks[0].separable


def is_separable(workload: Workload) -> bool:
    """Whether every group of queries is a product of queries of single attributes."""
    return all(block.separable for block in workload.blocks)


def is_cells(workload: Workload) -> bool:
    """Whether the queries are the cells themselves, in their order."""
    axes = tuple(range(len(workload.domain.shape)))
    (block, *others) = workload.blocks
    return not others and block.axes == axes and all(isinstance(f, Identity) for f in block.factors)


def is_filters(workload: Workload) -> bool:
    """Whether all queries are filters along one attribute, value by value of the same others."""
    try:
        line_of(workload)
    except InvalidInput:
        return False
    return True


def line_of(workload: Workload) -> tuple[int, tuple[int, ...], list[Toeplitz]]:
    """The filters' attribute, all attributes they are asked for, and the filters.

    Raises: InvalidInput for other workloads.
    """
    found: set[tuple[int, tuple[int, ...], bool]] = set()
    filters = []
    for block in workload.blocks:
        places = [i for i, f in enumerate(block.factors) if isinstance(f, Toeplitz)] if block.separable else []
        plain = all(isinstance(f, Identity) for i, f in enumerate(block.factors) if i not in places)
        if len(places) != 1 or not plain or block.scales:
            raise InvalidInput(f"queries {block.name!r} are not filters along one attribute; choose 'coa' or 'auto'")
        each = block.factors[places[0]]
        assert isinstance(each, Toeplitz)
        found.add((block.axes[places[0]], block.axes, each.circular))
        filters.append(each)
    if len(found) != 1:
        raise InvalidInput(
            "filters of one release must run along the same attribute, with the same 'by', and must be all circular or all not circular"
        )
    axis, axes, _ = found.pop()
    return axis, axes, filters


def filters_of(workload: Workload) -> list[Toeplitz]:
    """The filter of each block. Raises: InvalidInput for other workloads."""
    return line_of(workload)[2]


def is_running_sum(each: Toeplitz) -> bool:
    """Whether a filter is the sum of all steps so far, times a constant."""
    return each.first_lag == 0 and each.entries.size == each.n and each.entries.constant


def is_long(workload: Workload) -> bool:
    """Whether the workload goes through the store: formulas over many cells, or filters of long series.

    A long circle is a power of two.
    """
    if is_dyadic(workload):
        return workload.blocks[0].queries > workload.domain.sizes.long_steps
    if not is_filters(workload):
        return False
    first = filters_of(workload)[0]
    return first.n > workload.domain.sizes.long_steps and not (first.circular and first.n & (first.n - 1))


def is_dyadic(workload: Workload) -> bool:
    """Whether all queries are formulas over the same binary attributes, for every way to negate them."""
    same = len({block.axes for block in workload.blocks}) == 1
    return same and all(isinstance(b.factors[0], Dyadic) and len(b.factors) == 1 and not b.scales for b in workload.blocks)
