"""What the predicted errors of a release are measured in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpdist.page.words import Words
from dpdist.spec.job import Job
from dpdist.workloads import Block


@dataclass(frozen=True)
class ErrorUnit:
    """The unit of all answers, by which the errors of weighted queries become those of answers.

    Attributes:
        name: what answers are measured in; None where some are counts and some sums, or sums of several columns.
        weight: the root of the mean squared weight of a query.
    """

    name: str | None
    weight: float

    @staticmethod
    def of(job: Job) -> ErrorUnit:
        """That of a release."""
        words = Words(job.source.records.named, {}, {name: given.facts() for name, given in job.measured.sums.items()})
        queries = job.workload.queries
        units = {words.unit_of(block.name) or words.counted for block in queries.blocks}
        squares = sum(map(_squared_weights, queries.blocks))
        return ErrorUnit(units.pop() if len(units) == 1 else None, math.sqrt(squares / queries.shape[0]))

    def mean(self, error: float | None) -> float | None:
        """A root mean squared error of weighted queries as one of answers, which count by their squared weights; None in several units."""
        return None if error is None or self.name is None else error / self.weight

    def largest(self, error: float | None) -> float | None:
        """The error of the worst answer; None in several units."""
        return None if error is None or self.name is None else float(f"{error:.9g}")


def _squared_weights(block: Block) -> float:
    """The squared weights of all queries of a block, added up."""
    scales = [None if scale is None else float(scale @ scale) for scale in block.scales or (None,) * len(block.factors)]
    rows = (factor.shape[0] if scale is None else scale for factor, scale in zip(block.factors, scales, strict=True))
    return block.weight**2 * math.prod(rows)
