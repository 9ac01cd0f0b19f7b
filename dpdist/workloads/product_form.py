"""Groups of queries that are one product together: those that differ in what they ask of one attribute alone."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.operators import Operator, Scaled, Stack, Total
from dpdist.workloads.block import Block


def differing_axes(blocks: Sequence[Block]) -> tuple[int, ...]:
    """The attributes of which groups of products ask different queries, ascending."""
    asked = [_asked_factors(block) for block in blocks]
    axes = sorted({axis for factors in asked for axis in factors})
    return tuple(axis for axis in axes if _differ([factors.get(axis) for factors in asked]))


def _differ(factors: Sequence[Operator | None]) -> bool:
    """Whether some are different: entries, which may lie in files, are looked at only where all have one shape."""
    if len({None if factor is None else factor.shape for factor in factors}) > 1:
        return True
    return len({None if factor is None else factor.fingerprint for factor in factors}) > 1


def merge_blocks(blocks: Sequence[Block]) -> Block | None:
    """One product of queries with the same W'W as groups of products that differ in one attribute alone; None of others.

    W'W = sum_b w_b^2 kron_i V_bi. Where V_bi is one V_i for every attribute i but k, this is a product, too, with sum_b w_b^2 V_bk in the
    place of k: the rows of all groups over attribute k, each times its weight, follow each other in one factor.
    """
    if len(blocks) == 1:
        return blocks[0]
    differing = differing_axes(blocks) if all(block.separable for block in blocks) else ()
    if len(differing) != 1:
        return None
    axis, asked = differing[0], [_asked_factors(block) for block in blocks]
    size = next(factors[axis].shape[1] for factors in asked if axis in factors)
    rows = [Scaled(block.weight, factors.get(axis, Total(size))) for block, factors in zip(blocks, asked, strict=True)]
    by_axis = dict(sorted({**asked[0], axis: Stack(rows)}.items()))
    return Block(blocks[0].name, tuple(by_axis), tuple(by_axis.values()), ((),) * len(by_axis))


def _asked_factors(block: Block) -> dict[int, Operator]:
    """The weighted queries of every attribute that a block does not sum over."""
    factors = zip(block.axes, block.scaled(block.factors), strict=True)
    return {axis: factor for axis, factor in factors if not isinstance(factor, Total)}
