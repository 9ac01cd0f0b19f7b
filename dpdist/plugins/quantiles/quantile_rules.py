"""Quantiles, by private choices among whole numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dpdist.api import InvalidInput
from dpdist.api.steps import FARTHEST, MISSED, Loss, Runs, Whole, loss_of, rate_within

POINT, END = Fraction(1, 2), Fraction(1, 4)
"""Shares of a quantile's budget: of itself, and of each end of its interval."""
CHOICES = 3
"""Of one quantile: itself and both ends of its interval."""


@dataclass(frozen=True)
class QuantileRule:
    """How one quantile of a column is chosen in every group.

    Attributes:
        record_share: the share of the records up to it.
        size: how many values the column can have.
        distance: how far one change moves all scores of all groups together.
        rate, end_rate: what scores are multiplied with, for the quantile and for each end of its interval.
    """

    record_share: Fraction
    size: int
    distance: int
    rate: Fraction
    end_rate: Fraction

    @cached_property
    def end_margin(self) -> int:
        """How far beyond the quantile's rank an end aims, parts of a record."""
        return math.ceil(math.log(self.size / MISSED) / self.end_rate)

    @property
    def fewest_records(self) -> int:
        """How many records a group needs so that an interval may be less than the whole range: with fewer both ends aim beyond it."""
        share = self.record_share
        return self.end_margin // max(share.numerator, share.denominator - share.numerator) + 1

    def choose_quantile(self, values: Whole, counts: Whole, key: bytes, number: int) -> tuple[int, int, int]:
        """The quantile of some records, and the ends of its interval.

        Args:
            values, counts: as for ``Runs.of``.
            number: of the quantile; one number for one quantile of one group.
        """
        runs, units_per_record = Runs.of(values, counts, self.size), self.record_share.denominator
        everyone = int(counts.sum())
        target, last_value = self.record_share.numerator * everyone, self.size - 1
        first_draw = CHOICES * 2 * number
        low = runs.choose_value(
            units_per_record, target - self.end_margin, self.end_rate, key, first_draw + 2, (0, self.end_margin - target)
        )
        end_score = target + self.end_margin - units_per_record * everyone
        high = runs.choose_value(
            units_per_record, target + self.end_margin, self.end_rate, key, first_draw + 4, (last_value, end_score)
        )
        return runs.choose_value(units_per_record, target, self.rate, key, first_draw), low, high


@dataclass(frozen=True)
class QuantileRules:
    """How all quantiles are chosen.

    Attributes:
        by_column: for each column its quantiles.
        loss: what all choices reveal of one change.
    """

    by_column: tuple[tuple[QuantileRule, ...], ...]
    loss: Loss


def quantiles(sizes: tuple[int, ...], record_shares: tuple[Fraction, ...], moved: int, budget: Loss) -> QuantileRules:
    """The quantiles that a budget buys, each as much of it as the others.

    All groups are chosen of together: the sum of their scores is that of an exponential mechanism over all choices at once, and one
    change moves it by no more than the records that it moves.

    Args:
        sizes: how many values each column can have.
        record_shares: shares of the records, the same for every column.
        moved: how many records of all groups one change adds or removes.
        budget: a rho, or a pure epsilon.
    Raises: InvalidInput when it is too little.
    """
    budget_share = Fraction(1, len(sizes) * len(record_shares))

    def quantile_rule(size: int, record_share: Fraction) -> QuantileRule:
        distance = moved * max(record_share.numerator, record_share.denominator - record_share.numerator)
        rates = (rate_within(budget, budget_share * choice_share, distance) for choice_share in (POINT, END))
        rule = QuantileRule(record_share, size, distance, *rates)
        if rule.end_rate == 0 or rule.end_margin > FARTHEST:
            raise InvalidInput(
                "the quantiles have so little budget that they say nothing: raise their 'share', or ask for fewer"
            )
        return rule

    return QuantileRules(
        tuple(tuple(quantile_rule(size, record_share) for record_share in record_shares) for size in sizes), loss_of(budget)
    )
