"""Answers that assumed records would have, beside which predicted errors are seen: nothing of any real record is in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Literal

import numpy as np

from dpdist.content.release_content import WholeSteps
from dpdist.domain import Attribute
from dpdist.domain.numeric_columns import AMOUNT, PRESENT, SQUARE, Amounts
from dpdist.operators import Matrix
from dpdist.workloads import Block, Workload

Shape = Literal["even", "falling"]
"""How records are spread over the values of an attribute: alike, or each value has a fifth fewer than the one before it."""
FALLS = 0.8
SHOWN = 24
"""Answers of a group that are listed."""


@dataclass(frozen=True)
class AmountMoments:
    """Of the amounts of records: their mean, and that of their squares."""

    mean: float
    square: float

    @property
    def deviation(self) -> float:
        """Their standard deviation."""
        return math.sqrt(max(0.0, self.square - self.mean**2))


@dataclass(frozen=True)
class Assumed:
    """Some answers of a group.

    Attributes:
        labels: what each counts.
        values: records; NaN where nothing is assumed, as for sums of amounts.
    """

    labels: list[str]
    values: Matrix


NO_AMOUNTS: Mapping[int, AmountMoments] = MappingProxyType({})


def assumed(workload: Workload, block: Block, records: float, shape: Shape) -> Assumed:
    """The first answers of a group of queries, were the attributes independent and so many records spread over their values."""
    stop = min(block.queries, SHOWN)
    labels = [", ".join(parts) for parts in block.row_labels(0, stop)]
    spread, records = _spread(workload, block, shape, NO_AMOUNTS), records * _amount_alone(workload, block, NO_AMOUNTS)
    if spread is None:
        return Assumed(labels, np.full(stop, np.nan))
    if block.separable:
        parts = [factor.matvec(shares) for factor, shares in zip(block.factors, spread, strict=True)]
        values = reduce(np.multiply.outer, parts).ravel()[:stop]
    else:
        cells = reduce(np.multiply.outer, spread).ravel()
        values = np.asarray(block.factors[0].rows(0, stop)[:stop] @ cells)
    return Assumed(labels, records * values)


def usual(
    workload: Workload,
    block: Block,
    records: float,
    amounts: Mapping[int, AmountMoments] = NO_AMOUNTS,
    steps: range | None = None,
) -> float:
    """The mean answer of a group of queries, were the attributes independent and the records alike over their values.

    Args:
        amounts: of a record, by the axes of columns of amounts; without them sums are not known.
        steps: of a series those that are answered; None: all.
    Returns: NaN where it is not known.
    """
    spread, records = _spread(workload, block, "even", amounts), records * _amount_alone(workload, block, amounts)
    if spread is None:
        return math.nan
    if not block.separable:
        return records * float(block.factors[0].matvec(reduce(np.multiply.outer, spread).ravel()).mean())
    parts = [factor.matvec(shares) for factor, shares in zip(block.factors, spread, strict=True)]
    if steps is not None:
        whole = WholeSteps.of(block, steps)
        parts[whole.axis] = parts[whole.axis][whole.steps.start : whole.steps.stop]
    return records * math.prod(float(part.mean()) for part in parts)


def _spread(workload: Workload, block: Block, shape: Shape, amounts: Mapping[int, AmountMoments]) -> list[Matrix] | None:
    """The share of a record in each bin of each attribute of a group; None where nothing is assumed of an amount."""
    attributes = {axis: workload.domain.attributes[axis] for axis in block.axes}
    if any(each.amounts is not None and axis not in amounts for axis, each in attributes.items()):
        return None
    return [spread_of(each, shape, amounts.get(axis)) for axis, each in attributes.items()]


def _amount_alone(workload: Workload, block: Block, amounts: Mapping[int, AmountMoments]) -> float:
    """What a record adds to answers where sums alone are measured: the axis of the amounts has one value, and no query names it."""
    axes = (axis for axis, each in enumerate(workload.domain.attributes) if each.amounts is not None and each.amounts.alone)
    return math.prod(amounts[axis].mean if axis in amounts else math.nan for axis in axes if axis not in block.axes)


def _divided(column: Amounts, size: int, given: AmountMoments) -> Matrix:
    """A record's shares in the bins of its column that give its amounts and their squares back; beyond the ends some are negative."""
    shares = np.zeros(size)
    if column.alone:
        shares[0] = given.mean
        return shares
    rows, wanted = [column.values(PRESENT), column.values(AMOUNT)], [1.0, given.mean]
    if column.squares:
        middle = sum(column.ends) / 2
        rows.append(column.values(SQUARE))
        wanted.append(given.square - 2 * middle * given.mean + middle**2)
    shares[: column.bins] = np.linalg.pinv(np.array(rows)) @ np.array(wanted)
    return shares


def spread_of(attribute: Attribute, shape: Shape, given: AmountMoments | None = None) -> Matrix:
    """The share of the records in every bin of an attribute; amounts of which nothing is given lie evenly over their range."""
    if attribute.amounts is None:
        return _shares(attribute.size, shape)
    if given is not None:
        return _divided(attribute.amounts, attribute.size, given)
    amounts, shares = attribute.amounts, np.zeros(attribute.size)
    first, divided = amounts.divided(np.arange(amounts.width + 1))
    for bins, part in enumerate(divided):
        np.add.at(shares, first + bins, part)
    return np.asarray(shares / shares.sum())


def _shares(values: int, shape: Shape) -> Matrix:
    falls = FALLS if shape == "falling" else 1.0
    shares = falls ** np.minimum(np.arange(values), math.log(1e-9) / math.log(FALLS))
    return np.asarray(shares / shares.sum())
