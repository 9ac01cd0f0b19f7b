"""Answers that assumed records would have, beside which predicted errors are seen: nothing of any real record is in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np

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


def assumed(workload: Workload, block: Block, records: float, shape: Shape) -> Assumed:
    """The first answers of a group of queries, were the attributes independent and so many records spread over their values."""
    stop = min(block.queries, SHOWN)
    labels = [", ".join(parts) for parts in block.row_labels(0, stop)]
    attributes = [workload.domain.attributes[axis] for axis in block.axes]
    if any(each.amounts is not None for each in attributes):
        return Assumed(labels, np.full(stop, np.nan))
    spread = [_shares(each.size, shape) for each in attributes]
    if block.separable:
        parts = [factor.matvec(shares) for factor, shares in zip(block.factors, spread, strict=True)]
        values = reduce(np.multiply.outer, parts).ravel()[:stop]
    else:
        cells = reduce(np.multiply.outer, spread).ravel()
        values = np.asarray(block.factors[0].rows(0, stop)[:stop] @ cells)
    return Assumed(labels, records * values)


def _shares(values: int, shape: Shape) -> Matrix:
    falls = FALLS if shape == "falling" else 1.0
    shares = falls ** np.minimum(np.arange(values), math.log(1e-9) / math.log(FALLS))
    return np.asarray(shares / shares.sum())
