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
    (block, *other_blocks) = workload.blocks
    return not other_blocks and block.axes == axes and all(isinstance(f, Identity) for f in block.factors)


def is_filters(workload: Workload) -> bool:
    """Whether all queries are filters along one attribute, value by value of the same others."""
    try:
        filters_along_axis(workload)
    except InvalidInput:
        return False
    return True


def filters_along_axis(workload: Workload) -> tuple[int, tuple[int, ...], list[Toeplitz]]:
    """The filters' attribute, all attributes they are asked for, and the filters.

    Raises: InvalidInput for other workloads.
    """
    series_keys: set[tuple[int, tuple[int, ...], bool]] = set()
    filters = []
    for block in workload.blocks:
        filter_positions = [i for i, f in enumerate(block.factors) if isinstance(f, Toeplitz)] if block.separable else []
        others_are_identity = all(isinstance(f, Identity) for i, f in enumerate(block.factors) if i not in filter_positions)
        if len(filter_positions) != 1 or not others_are_identity or block.scales:
            raise InvalidInput(f"queries {block.name!r} are not filters along one attribute; choose 'coa' or 'auto'")
        series_filter = block.factors[filter_positions[0]]
        assert isinstance(series_filter, Toeplitz)
        series_keys.add((block.axes[filter_positions[0]], block.axes, series_filter.circular))
        filters.append(series_filter)
    if len(series_keys) != 1:
        raise InvalidInput(
            "filters of one release must run along the same attribute, with the same 'by', and must be all circular or all not circular"
        )
    axis, axes, _ = series_keys.pop()
    return axis, axes, filters


def filters_of(workload: Workload) -> list[Toeplitz]:
    """The filter of each block. Raises: InvalidInput for other workloads."""
    return filters_along_axis(workload)[2]


def is_running_sum(series_filter: Toeplitz) -> bool:
    """Whether a filter is the sum of all steps so far, times a constant."""
    return series_filter.first_lag == 0 and series_filter.entries.size == series_filter.n and series_filter.entries.constant


def is_long(workload: Workload) -> bool:
    """Whether the workload goes through the store: formulas over many cells, or filters of long series.

    A long circle is a power of two.
    """
    if is_dyadic(workload):
        return workload.blocks[0].queries > workload.domain.sizes.long_steps
    if not is_filters(workload):
        return False
    first_filter = filters_of(workload)[0]
    return first_filter.n > workload.domain.sizes.long_steps and not (
        first_filter.circular and first_filter.n & (first_filter.n - 1)
    )


def is_dyadic(workload: Workload) -> bool:
    """Whether all queries are formulas over the same binary attributes, for every way to negate them."""
    has_same_axes = len({block.axes for block in workload.blocks}) == 1
    return has_same_axes and all(
        isinstance(b.factors[0], Dyadic) and len(b.factors) == 1 and not b.scales for b in workload.blocks
    )
