"""The kind of a workload: marginals, products, filters or formulas. A mechanism decides by the kind whether it answers the workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from dpdist.errors import InvalidInput
from dpdist.operators import Dyadic, Identity, Toeplitz, Total
from dpdist.workloads.block import Block
from dpdist.workloads.product_form import differing_axes


@dataclass(frozen=True)
class WorkloadKind:
    """What all queries of a workload have in common.

    Attributes:
        is_marginals: whether all queries are plain marginals.
        is_separable: whether every group of queries is a product of queries of single attributes.
        is_product: whether W'W is a product of one matrix an attribute: of one such group, or of several that differ in what they ask of
            one attribute alone, but for filters.
        is_cells: whether the queries are the cells themselves, in their order.
        is_dyadic: whether all queries are formulas over the same binary attributes, for every way to negate them.
        is_long: whether the workload goes through the store: formulas over many cells, or filters of long series. A long circle is a power
            of two.
        series: the attribute of filters, all attributes that they are asked for, and the filters; or why they are no filters of one
            attribute, value by value of the same others.
    """

    is_marginals: bool
    is_separable: bool
    is_product: bool
    is_cells: bool
    is_dyadic: bool
    is_long: bool
    series: tuple[int, tuple[int, ...], list[Toeplitz]] | str

    @property
    def is_filters(self) -> bool:
        """Whether all queries are filters along one attribute, value by value of the same others."""
        return not isinstance(self.series, str)

    @property
    def filters_along_axis(self) -> tuple[int, tuple[int, ...], list[Toeplitz]]:
        """The filters' attribute, all attributes they are asked for, and the filters.

        Raises: InvalidInput for other workloads.
        """
        if isinstance(self.series, str):
            raise InvalidInput(self.series)
        return self.series

    @property
    def filters(self) -> list[Toeplitz]:
        """The filter of each block. Raises: InvalidInput for other workloads."""
        return self.filters_along_axis[2]


def classify(blocks: Sequence[Block], attributes: int, long_steps: int) -> WorkloadKind:
    """The kind of the workload of some blocks.

    Args:
        attributes: how many the domain has.
        long_steps: steps or cells beyond which filters and formulas go through the store.
    """
    is_separable, first_block, series = all(block.separable for block in blocks), blocks[0], _series_of(blocks)
    is_dyadic = len({block.axes for block in blocks}) == 1 and all(
        isinstance(b.factors[0], Dyadic) and len(b.factors) == 1 and not b.scales for b in blocks
    )
    if is_dyadic:
        is_long = first_block.queries > long_steps
    elif isinstance(series, str):
        is_long = False
    else:
        first_filter = series[2][0]
        is_long = first_filter.n > long_steps and not (first_filter.circular and first_filter.n & (first_filter.n - 1))
    return WorkloadKind(
        is_marginals=is_separable and all(isinstance(f, Identity | Total) for b in blocks for f in b.factors),
        is_separable=is_separable,
        is_product=is_separable and (len(blocks) == 1 or (isinstance(series, str) and len(differing_axes(blocks)) == 1)),
        is_cells=len(blocks) == 1
        and first_block.axes == tuple(range(attributes))
        and all(isinstance(f, Identity) for f in first_block.factors),
        is_dyadic=is_dyadic,
        is_long=is_long,
        series=series,
    )


def _series_of(blocks: Sequence[Block]) -> tuple[int, tuple[int, ...], list[Toeplitz]] | str:
    series_keys: set[tuple[int, tuple[int, ...], bool]] = set()
    filters = []
    for block in blocks:
        filter_positions = [i for i, f in enumerate(block.factors) if isinstance(f, Toeplitz)] if block.separable else []
        others_are_identity = all(isinstance(f, Identity) for i, f in enumerate(block.factors) if i not in filter_positions)
        if len(filter_positions) != 1 or not others_are_identity or block.scales:
            return f"queries {block.name!r} are not filters along one attribute; choose 'coa' or 'auto'"
        series_filter = cast("Toeplitz", block.factors[filter_positions[0]])
        series_keys.add((block.axes[filter_positions[0]], block.axes, series_filter.circular))
        filters.append(series_filter)
    if len(series_keys) != 1:
        return "filters of one release must run along the same attribute, with the same 'by', and must be all circular or all not circular"
    axis, axes, _ = series_keys.pop()
    return axis, axes, filters


def is_running_sum(series_filter: Toeplitz) -> bool:
    """Whether a filter is the sum of all steps so far, times a constant."""
    return series_filter.first_lag == 0 and series_filter.entries.size == series_filter.n and series_filter.entries.constant
