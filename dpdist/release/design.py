"""What a plan makes of one kind of noise: the mechanism that does most with it, its grid, noise and loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from dpdist.grids.base import Grid
from dpdist.mechanisms.planner import Candidate
from dpdist.privacy.accounting import Loss
from dpdist.privacy.noise import Noise
from dpdist.release.context import Context
from dpdist.release.costs import column, in_whole_numbers
from dpdist.strategies import Strategy
from dpdist.strategies.needs import Effort
from dpdist.strategies.proofs import PersonsBound
from dpdist.workloads import Workload


@dataclass(frozen=True)
class Design:
    """One kind of noise, with the mechanism that makes the most of it.

    Attributes:
        strategy: the one of least predicted error.
        table: the mechanisms compared.
        noise: what is added to the grid's integers.
        loss: what the release will be charged.
        compared: the strategies of all mechanisms compared, as they were before they were rounded.
        scale: what measured values are divided by to become answers (``Domain.scale``).
        persons: what no strategy can beat for persons in several cells or steps, with its proof; None where it is not known.
    """

    strategy: Strategy
    table: list[Candidate]
    effort: Effort
    grid: Grid
    noise: Noise
    loss: Loss
    compared: tuple[Strategy, ...]
    scale: float
    persons: PersonsBound | None = None

    @property
    def noise_multiplier(self) -> float:
        """Scale of the noise over the sensitivity of what is measured to one record: what predicted errors are multiples of.

        A person's several records, and neighbours that replace one, ask for more noise: they raise it.
        """
        return self.noise.scale / column(self.strategy, self.grid) / self.scale

    @property
    def gap(self) -> float | None:
        """Certified distance of the strategy from the optimum, None where nothing is certified."""
        return next(row for row in self.table if row.mechanism == self.strategy.name).gap

    @property
    def variance(self) -> float:
        """Predicted total squared error of all (weighted) answers, infinite where it depends on the data."""
        cost = self.strategy.workload_cost
        return math.inf if cost is None else cost * self.noise_multiplier**2

    @property
    def worst(self) -> float | None:
        """Predicted standard error of the worst query, None where it was not computed."""
        own = next(row for row in self.table if row.mechanism == self.strategy.name)
        return None if own.worst is None else own.worst * self.noise_multiplier

    def in_whole_numbers(self, context: Context, queries: Workload) -> Self:
        """The same with the cost and the errors of the whole numbers that are measured."""
        strategy, table = in_whole_numbers(context, queries, self.strategy, self.grid, self.table)
        return replace(self, strategy=strategy, table=table)
