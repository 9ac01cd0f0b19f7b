"""Shares and mean answers of assumed records, by which errors of plans are predicted: nothing of any real record is in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Literal

import numpy as np

from dpdist.content.release_content import AnsweredSteps
from dpdist.domain import Attribute
from dpdist.domain.numeric_columns import AMOUNT, PRESENCE, SQUARE, Amounts
from dpdist.operators import Matrix
from dpdist.workloads import Block, Workload

Shape = Literal["even", "falling"]
"""How records are spread over the values of an attribute: alike, or each value has a fifth fewer than the one before it."""
FALL_FACTOR = 0.8


@dataclass(frozen=True)
class AmountMoments:
    """Of the amounts of records: their mean, and that of their squares."""

    mean: float
    square: float

    @property
    def deviation(self) -> float:
        """Their standard deviation."""
        return math.sqrt(max(0.0, self.square - self.mean**2))


NO_AMOUNTS: Mapping[int, AmountMoments] = MappingProxyType({})


def mean_answer(
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
    attribute_shares = _shares_by_attribute(workload, block, amounts)
    records = records * _mean_amount_factor(workload, block, amounts)
    if attribute_shares is None:
        return math.nan
    if not block.separable:
        return records * float(block.factors[0].matvec(reduce(np.multiply.outer, attribute_shares).ravel()).mean())
    factor_answers = [
        factor.matvec(axis_shares) for factor, axis_shares in zip(block.factors, attribute_shares, strict=True)
    ]
    if steps is not None:
        whole = AnsweredSteps.of(block, steps)
        factor_answers[whole.axis] = factor_answers[whole.axis][whole.steps.start : whole.steps.stop]
    return records * math.prod(float(answers_of_factor.mean()) for answers_of_factor in factor_answers)


def _shares_by_attribute(workload: Workload, block: Block, amounts: Mapping[int, AmountMoments]) -> list[Matrix] | None:
    """The share of a record in each bin of each attribute of a group; None where nothing is assumed of an amount."""
    attributes = {axis: workload.domain.attributes[axis] for axis in block.axes}
    if any(attribute.amounts is not None and axis not in amounts for axis, attribute in attributes.items()):
        return None
    return [bin_shares(attribute, "even", amounts.get(axis)) for axis, attribute in attributes.items()]


def _mean_amount_factor(workload: Workload, block: Block, amounts: Mapping[int, AmountMoments]) -> float:
    """What a record adds to answers where sums alone are measured: the axis of the amounts has one value, and no query names it."""
    axes = (
        axis
        for axis, attribute in enumerate(workload.domain.attributes)
        if attribute.amounts is not None and attribute.amounts.alone
    )
    return math.prod(amounts[axis].mean if axis in amounts else math.nan for axis in axes if axis not in block.axes)


def _amount_shares(column: Amounts, size: int, moments: AmountMoments) -> Matrix:
    """A record's shares in the bins of its column that give its amounts and their squares back; beyond the ends some are negative."""
    record_shares = np.zeros(size)
    rows, target_moments = [column.values(PRESENCE), column.values(AMOUNT)], [1.0, moments.mean]
    if column.squares:
        middle = sum(column.ends) / 2
        rows.append(column.values(SQUARE))
        target_moments.append(moments.square - 2 * middle * moments.mean + middle**2)
    record_shares[: column.bins] = np.linalg.pinv(np.array(rows)) @ np.array(target_moments)
    return record_shares


def bin_shares(attribute: Attribute, shape: Shape, moments: AmountMoments | None = None) -> Matrix:
    """The share of the records in every bin of an attribute; amounts of which nothing is given lie evenly over their range."""
    if attribute.amounts is None:
        return _value_shares(attribute.size, shape)
    if moments is not None:
        return _amount_shares(attribute.amounts, attribute.size, moments)
    amounts, record_shares = attribute.amounts, np.zeros(attribute.size)
    first_bins, divided = amounts.divide_records(np.arange(amounts.width + 1))
    for bins, offset_shares in enumerate(divided):
        np.add.at(record_shares, first_bins + bins, offset_shares)
    return np.asarray(record_shares / record_shares.sum())


def _value_shares(values: int, shape: Shape) -> Matrix:
    fall_factor = FALL_FACTOR if shape == "falling" else 1.0
    value_shares = fall_factor ** np.minimum(np.arange(values), math.log(1e-9) / math.log(FALL_FACTOR))
    return np.asarray(value_shares / value_shares.sum())
