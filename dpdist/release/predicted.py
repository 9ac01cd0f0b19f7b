"""The errors that a plan predicts of each group of queries, in the unit of its answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np

from dpdist.arrays.vector import Held, held
from dpdist.arrays.workspace import MEMORY
from dpdist.domain import Attribute
from dpdist.errors import InvalidInput
from dpdist.grids.answers import Answers, Wanted
from dpdist.mechanisms.planner import is_able
from dpdist.operators import Matrix
from dpdist.page.content import WholeSteps
from dpdist.page.words import Words
from dpdist.release.answers import in_records
from dpdist.release.plan import Plan
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


def _shares(values: int, shape: Shape) -> Matrix:
    falls = FALLS if shape == "falling" else 1.0
    shares = falls ** np.minimum(np.arange(values), math.log(1e-9) / math.log(FALLS))
    return np.asarray(shares / shares.sum())


MOST_QUERIES = 2**20
"""Queries, or measured values, of more than which no error is computed one by one before the release."""


@dataclass(frozen=True)
class Predicted:
    """How far the answers of a group of queries lie from the true ones, 95 times of 100, before any post-processing.

    Attributes:
        group: its name, as published answers have it.
        unit: what its answers are measured in: what is counted, in the plural, or the unit of a sum.
        queries: how many are answered.
        half_width: of the widest interval of the group.
        typical: the median half width.
        share: the widest as a share of a usual answer, where a number of records is assumed; None for sums of amounts.
    """

    group: str
    unit: str
    queries: int
    half_width: float
    typical: float
    share: float | None = None


def predicted(planned: Plan, records: float | None = None) -> list[Predicted]:
    """The errors of every group of queries; of a stream those of its whole horizon.

    Args:
        records: how many are assumed, evenly spread over the values of every attribute.
    Raises: InvalidInput where the errors depend on the data, or there are too many.
    """
    workload, half = planned.job.workload.queries, held(_unread(planned).half_width)
    words = Words.of(cast("dict[str, Any]", planned.certificate()))
    found = []
    answered = planned.job.workload.answered or (None,) * len(workload.blocks)
    for (first, block), steps in zip(workload.block_starts(), answered, strict=True):
        own = half[first : first + block.queries]
        own = own if steps is None else own[WholeSteps.of(block, steps).among(0, block.queries)]
        unit = words.unit_of(block.name) or words.counted
        answers = np.nan if records is None else float(assumed(workload, block, records, "even").values.mean())
        share = float(own.max()) / answers if answers > 0 else None
        found.append(Predicted(block.name, unit, len(own), float(own.max()), float(np.median(own)), share))
    return found


def drowned(planned: Plan) -> float:
    """The number of records up to which the noise in a table of two or more attributes adds up to more than its records, in the mean.

    A normal error is sqrt(2 / pi) of its deviation in the mean. There tables that are chosen in rounds had less total variation from the
    true ones, and more with five times as many records (docs/decisions/0044-rounds.md); 0 where ``adaptive`` cannot answer.

    Raises: as ``predicted``.
    """
    job, workload = planned.job, planned.job.workload.queries
    if not is_able("adaptive", planned.grid.norm, workload, job.workload.limits, job.setting):
        return 0.0
    errors = standard_errors(planned)
    tables = [errors[first : first + each.queries] for first, each in workload.block_starts() if len(each.asked_axes) > 1]
    return float(np.mean([each.sum() for each in tables])) * math.sqrt(2 / math.pi)


def standard_errors(planned: Plan) -> Matrix:
    """The standard error of every query of the workload, before any post-processing. Raises: as ``predicted``."""
    return held(_unread(planned).error)


def _unread(planned: Plan) -> Answers:
    """What would be read of a measurement without a value: its errors are those of every measurement."""
    workload, grid = planned.job.workload.queries, planned.grid
    if max(workload.shape[0], grid.rows) > MOST_QUERIES:
        raise InvalidInput(f"errors are predicted of up to {MOST_QUERIES:,} queries, found {workload.shape[0]:,}")
    if planned.strategy.biased:
        raise InvalidInput(f"the errors of mechanism {planned.strategy.name!r} depend on the data, so none are predicted")
    measured, noise = in_records(planned, Held(np.zeros(grid.rows, dtype=np.int64)))
    wanted = Wanted("predicted", integer=planned.job.outputs.postprocess.integer)
    return grid.answers(workload, measured, noise, wanted, MEMORY)
