"""Shares of groups: what part of a group's answers each answer is, with the standard deviation that the noise gives it.

What moves all answers of a period together, such as the weather, leaves shares as they are, so that a smaller fault is seen in them: one
name taken for another moves shares although no total moves. Of a share s = y / T, where T is the sum of the group's answers, the noise
has the variance (var y - 2 s cov(y, T) + s^2 var T) / T^2, in the first order (the covariances are those of the measurement's least
squares). Where these are not known, the square root of the sum is at most (sd y + s sd T) / T, whatever the covariance is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.gates import ArrayVector, Functionals, OutOfMemory, ReleasePlan
from dpdist.api.queries import Block
from dpdist.api.releases import Matrix

MOST_ROW_BYTES = 2**27
"""Rows of queries are written down over so many bytes at most; of more, covariances count as unknown."""


@dataclass(frozen=True)
class DividedGroup:
    """Answers of which each record counts in one at most.

    Attributes:
        first, end: places of its answers among those that are compared.
        correlations: of the noise in its answers; None where they are not known.
    """

    first: int
    end: int
    correlations: Matrix | None = field(repr=False)

    @property
    def share_count(self) -> int:
        """How many shares say something new: of two answers one does."""
        return 1 if self.end - self.first == 2 else self.end - self.first


def divided_groups(plan: ReleasePlan, blocks: Sequence[Block], places: Sequence[int]) -> list[DividedGroup]:
    """The groups of queries that divide records, or a part of them.

    Args:
        blocks: the groups that are compared.
        places: where each begins among the answers that are compared.
    """
    return [
        DividedGroup(first, first + block.queries, noise_correlations(plan, block))
        for block, first in zip(blocks, places, strict=True)
        if block.queries > 1 and all(float(factor.column_norms_l1().max(initial=0.0)) <= 1 for factor in block.factors)
    ]


def noise_correlations(plan: ReleasePlan, block: Block) -> Matrix | None:
    """The correlations of the noise in a group's answers, from the plan alone; None where answers are no least squares, or too many."""
    options, shape = plan.job.outputs.postprocess, plan.workload.domain.shape
    row_bytes = 8 * block.queries * sum(shape[axis] for axis in block.axes)
    if not block.separable or options.non_negative or plan.job.outputs.companions or row_bytes > MOST_ROW_BYTES:
        return None
    rows = [np.asarray(factor.dense(), dtype=np.float64) for factor in block.factors]
    numbers = np.unravel_index(np.arange(block.queries), [len(row) for row in rows])
    vectors = {axis: row[number] for axis, row, number in zip(block.axes, rows, numbers, strict=True)}
    functions = Functionals(np.ones(block.queries), np.arange(block.queries), vectors, block.queries)
    try:
        space = plan.measurement.measured_space(
            ArrayVector(np.broadcast_to(np.int64(0), plan.measurement.rows)), shape, MOST_ROW_BYTES
        )
        if space.rows_depend_on_noise or space.reason_withheld is not None:
            return None
        covariances = space.gram(functions)
    except (InvalidInput, OutOfMemory):
        return None
    deviations = np.sqrt(np.diag(covariances))
    return np.asarray(covariances / np.outer(deviations, deviations)) if deviations.all() else None


def group_shares(answers: Matrix, deviations: Matrix, group: DividedGroup) -> tuple[Matrix, Matrix]:
    """The shares of a group and the standard deviations of their noise, one period a row.

    Args:
        answers: that are compared, (periods, answers), with the standard deviations of their noise.
    """
    numbers, errors = (table[:, group.first : group.end] for table in (answers, deviations))
    if group.correlations is None:
        sums = errors.sum(axis=1, keepdims=True)  # of any covariances the largest that the sum can have
        with_sum = errors * sums
    else:
        with_sum = errors * (errors @ group.correlations)
        sums = np.sqrt(np.maximum(with_sum.sum(axis=1, keepdims=True), 0.0))
    totals = np.maximum(
        numbers.sum(axis=1, keepdims=True), np.maximum(sums, 1e-300)
    )  # of hardly any records nothing is known
    shares = numbers / totals
    covariances = -np.abs(shares) * with_sum if group.correlations is None else shares * with_sum
    variances = errors**2 - 2 * covariances + (shares * sums) ** 2
    return shares[:, : group.share_count], (np.sqrt(np.maximum(variances, 0.0)) / totals)[:, : group.share_count]
