"""Strategies that measure attribute by attribute: one operator for each ordered attribute, and their products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dpdist.errors import InvalidInput
from dpdist.operators import Identity, Kronecker, Operator
from dpdist.strategies.base import CLOSED_FORM, Norm, Strategy
from dpdist.workloads import Workload


def attribute_by_attribute(
    name: str,
    along: Callable[[int], Operator],
    shape: Sequence[int],
    workload: Workload | None,
    ordered: Sequence[bool] | None,
    norm: Norm,
) -> Strategy:
    """``along(size)`` for each ordered attribute, the identity for each other one; cost when a workload is given."""
    if workload is not None and tuple(shape) != workload.domain.shape:
        raise InvalidInput(f"a strategy over {tuple(shape)} does not fit a workload over {workload.domain.shape}")
    if ordered is None:
        ordered = [not a.categories for a in workload.domain.attributes] if workload is not None else [True] * len(shape)
    if len(ordered) != len(shape):
        raise InvalidInput(f"'ordered' names {len(ordered)} attributes, the shape has {len(shape)}")
    factors = [along(size) if has_order else Identity(size) for size, has_order in zip(shape, ordered, strict=True)]
    strategy = Strategy(name, factors[0] if len(factors) == 1 else Kronecker(factors), solve=CLOSED_FORM, norm=norm)
    return strategy if workload is None else replace(strategy, workload_cost=strategy.cost(workload))
