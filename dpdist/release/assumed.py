"""Answers that assumed records would have, beside which predicted errors are seen: nothing of any real record is in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Literal

import numpy as np

from dpdist.domain import Attribute
from dpdist.operators import Matrix
from dpdist.workloads import Block, Workload

Shape = Literal["even", "falling"]
"""How records are spread over the values of an attribute: alike, or each value has a fifth fewer than the one before it."""
FALLS = 0.8
SHOWN = 24
"""Answers of a group that are listed."""


@dataclass(frozen=True)
class Assumed:
    """Some answers of a group.

    Attributes:
        labels: what each counts.
        values: records; NaN where nothing is assumed, as for sums of amounts.
    """

    labels: list[str]
    values: Matrix


NO_AMOUNTS: Mapping[int, float] = MappingProxyType({})


def assumed(
    workload: Workload, block: Block, records: float, shape: Shape, amounts: Mapping[int, float] = NO_AMOUNTS
) -> Assumed:
    """The first answers of a group of queries, were the attributes independent and so many records spread over their values.

    Args:
        amounts: the mean amount of a record, by the axes of columns that are divided between two ends.
    """
    stop = min(block.queries, SHOWN)
    labels = [", ".join(parts) for parts in block.row_labels(0, stop)]
    attributes = {axis: workload.domain.attributes[axis] for axis in block.axes}
    if any(each.amounts is not None and axis not in amounts for axis, each in attributes.items()):
        return Assumed(labels, np.full(stop, np.nan))
    spread = [
        _shares(each.size, shape) if each.amounts is None else _divided(each, amounts[axis])
        for axis, each in attributes.items()
    ]
    if block.separable:
        parts = [factor.matvec(shares) for factor, shares in zip(block.factors, spread, strict=True)]
        values = reduce(np.multiply.outer, parts).ravel()[:stop]
    else:
        cells = reduce(np.multiply.outer, spread).ravel()
        values = np.asarray(block.factors[0].rows(0, stop)[:stop] @ cells)
    return Assumed(labels, records * values)


def _divided(column: Attribute, mean: float) -> Matrix:
    """The share of a record with the mean amount at each end of its column; beyond the ends one of them is negative."""
    low, high = column.amounts.ends if column.amounts is not None else (0.0, 1.0)
    shares = np.zeros(column.size)
    shares[:2] = (high - mean) / (high - low), (mean - low) / (high - low)
    return shares


def spread_of(attribute: Attribute, shape: Shape) -> Matrix:
    """The share of the records in every bin of an attribute; amounts lie evenly over their range."""
    if attribute.amounts is None:
        return _shares(attribute.size, shape)
    amounts, shares = attribute.amounts, np.zeros(attribute.size)
    first, divided = amounts.divided(np.arange(amounts.width + 1))
    for bins, part in enumerate(divided):
        np.add.at(shares, first + bins, part)
    return np.asarray(shares / shares.sum())


def _shares(values: int, shape: Shape) -> Matrix:
    falls = FALLS if shape == "falling" else 1.0
    shares = falls ** np.minimum(np.arange(values), math.log(1e-9) / math.log(FALLS))
    return np.asarray(shares / shares.sum())
