"""Answers that assumed records would have, beside which the studio draws predicted errors: nothing of any real record is in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from dpdist.api.planning import Block, Matrix, Shape, Workload, bin_shares

LISTED_ANSWERS = 24
"""Answers of a group that are listed."""


@dataclass(frozen=True)
class AssumedAnswers:
    """Some answers of a group.

    Attributes:
        labels: what each counts.
        values: records; NaN where nothing is assumed, as for sums of amounts.
    """

    labels: list[str]
    values: Matrix


def assumed_answers(workload: Workload, block: Block, records: float, shape: Shape) -> AssumedAnswers:
    """The first answers of a group of queries, were the attributes independent and so many records spread over their values."""
    stop, attributes = min(block.queries, LISTED_ANSWERS), workload.domain.attributes
    labels = [", ".join(components) for components in block.row_labels(0, stop)]
    counts_records = not any(attribute.amounts is not None and attribute.amounts.alone for attribute in attributes)
    if not counts_records or any(attributes[axis].amounts is not None for axis in block.axes):
        return AssumedAnswers(labels, np.full(stop, np.nan))
    attribute_shares = [bin_shares(attributes[axis], shape) for axis in block.axes]
    if block.separable:
        components = [
            factor.matvec(axis_shares) for factor, axis_shares in zip(block.factors, attribute_shares, strict=True)
        ]
        values = reduce(np.multiply.outer, components).ravel()[:stop]
    else:
        cells = reduce(np.multiply.outer, attribute_shares).ravel()
        values = np.asarray(block.factors[0].rows(0, stop)[:stop] @ cells)
    return AssumedAnswers(labels, records * values)
