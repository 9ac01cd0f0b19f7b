"""What is unlikely in the newest period of a series: single answers, shares of groups, slow drifts, a period that equals an earlier one.

All of it together has at most as many false alarms a year as are asked for: each test has its part of them, and of that each comparison an
equal part (Bonferroni: they may depend on each other in any way).
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpdist.plugins.gate.group_shares import DividedGroup, group_shares

if TYPE_CHECKING:
    from dpdist.plugins.gate.drift_test import UnlikelySlope
    from dpdist.plugins.gate.outlier_test import Answers, UnlikelyAnswer
    from dpdist.plugins.gate.repeated_period import RepeatedPeriod

DRIFT_SHARE, REPEAT_SHARE = 0.25, 0.1
"""Of the false alarms a year are for slow drifts, and for periods that equal an earlier one; the rest is for single answers and shares."""


@dataclass(frozen=True)
class Series:
    """Answers of periods, one a row, the newest last.

    Attributes:
        days: on which the periods begin.
        deviations: standard deviations of the noise in each answer.
        names: of the answers.
        groups: of the answers, those that divide records.
        is_share: whether each is a part of something, in place of a number.
    """

    days: list[float]
    answers: Answers
    deviations: Answers
    names: list[str]
    groups: Sequence[DividedGroup] = ()
    is_share: bool = False

    @property
    def newest(self) -> Answers:
        """The answers of the last period."""
        return np.asarray(self.answers[-1])

    def shares(self, group: DividedGroup) -> Series:
        """The shares of one of its groups."""
        answers, deviations = group_shares(self.answers, self.deviations, group)
        names = [f"the share of {name}" for name in self.names[group.first : group.first + group.shares]]
        return Series(self.days, answers, deviations, names, is_share=True)


@dataclass(frozen=True)
class UnlikelyPeriod:
    """What is unlikely in the newest period of some answers.

    Attributes:
        series: the answers.
        repeated: the earlier period whose answers they are again.
    """

    series: Series
    outliers: list[UnlikelyAnswer]
    drifts: list[UnlikelySlope]
    repeated: RepeatedPeriod | None = None


def find_unlikely(series: Sequence[Series], false_alarms: float) -> list[UnlikelyPeriod]:
    """What is unlikely in answers and in the shares of their groups.

    Args:
        false_alarms: so many a year are expected at most, over everything.
    """
    from dpdist.plugins.gate.outlier_test import periods_a_year  # it imports scipy.special
    from dpdist.plugins.gate.repeated_period import find_repeated_period

    shares_of = [[each.shares(group) for group in each.groups] for each in series]
    comparisons = sum(each.newest.size for each in (*series, *(shares for group in shares_of for shares in group)))
    unlikely = []
    for each, shares_of_groups in zip(series, shares_of, strict=True):
        repeated = None
        if not each.is_share:
            level = REPEAT_SHARE * false_alarms / periods_a_year(each.days)
            repeated = find_repeated_period(each.answers, each.deviations, level)
        unlikely.append(UnlikelyPeriod(each, *compare_with_history(each, false_alarms, comparisons), repeated))
        moved = {found.index for kind in (unlikely[-1].outliers, unlikely[-1].drifts) for found in kind}
        for group, shares in zip(each.groups, shares_of_groups, strict=True):
            if moved.isdisjoint(
                range(group.first, group.end)
            ):  # else shares move because an answer does that is named already
                unlikely.append(UnlikelyPeriod(shares, *compare_with_history(shares, false_alarms, comparisons)))
    return unlikely


def compare_with_history(
    series: Series, false_alarms: float, comparisons: int
) -> tuple[list[UnlikelyAnswer], list[UnlikelySlope]]:
    """The newest answers that are outliers beside earlier ones, and those that drift.

    Args:
        false_alarms: so many a year are expected at most, of both.
        comparisons: answers and shares of a period, of this series and of those that are compared beside it.
    """
    from dpdist.plugins.gate.drift_test import find_drifts  # they import scipy.special
    from dpdist.plugins.gate.outlier_test import comparison_level, find_outliers, periods_a_year

    a_year = periods_a_year(series.days)
    level = comparison_level((1 - DRIFT_SHARE - REPEAT_SHARE) * false_alarms, a_year, comparisons)
    drift_level = min(0.5, DRIFT_SHARE * false_alarms / (a_year * max(comparisons, 1)))
    history, deviations = series.answers[:-1], series.deviations[:-1]
    outliers = find_outliers(history, deviations, series.newest, series.deviations[-1], level)
    drifts = find_drifts(series.answers, series.deviations, a_year, drift_level)
    unlikely = {outlier.index for outlier in outliers}
    return outliers, [drift for drift in drifts if drift.index not in unlikely]


def unlikely_sentences(found: UnlikelyPeriod, width: float) -> list[str]:
    """A sentence for each thing that is unlikely.

    Args:
        width: half width of a 95 % interval, in standard deviations of the noise.
    """
    series, periods = found.series, len(found.series.days) - 1
    outliers = [_outlier_sentence(outlier, series, width) for outlier in found.outliers]
    drifts = [_drift_sentence(drift, series.names[drift.index], periods) for drift in found.drifts]
    return [*outliers, *drifts, *([] if found.repeated is None else [_repeated_sentence(found.repeated, series)])]


def _outlier_sentence(outlier: UnlikelyAnswer, series: Series, width: float) -> str:
    def interval(value: float, half_width: float) -> str:
        return f"{value:.2%} ± {half_width:.2%}" if series.is_share else f"{value:,.6g} ± {half_width:,.4g}"

    noise = width * float(series.deviations[-1, outlier.index])
    likely = interval(outlier.forecast, outlier.half_width)
    name, periods = series.names[outlier.index], len(series.days) - 1
    return f"{name} is {interval(outlier.answer, noise)}, where {periods} earlier periods make {likely} likely"


def _drift_sentence(drift: UnlikelySlope, name: str, periods: int) -> str:
    growth = f"{drift.growth:+,.4g} a period for {drift.periods} periods beside its trend and season"
    return f"{name} drifts: it changes by {growth}, where {periods} earlier periods make ± {drift.half_width:,.4g} likely"


def _repeated_sentence(repeated: RepeatedPeriod, series: Series) -> str:
    day = datetime.date.fromordinal(int(series.days[repeated.index]))
    return (
        f"its records seem to be those of {day} again: {repeated.answers:,} answers differ from those of that period by "
        f"{repeated.distance:.2g} standard deviations of the noise, where the same records make {repeated.low:.2g} to {repeated.high:.2g} "
        f"likely and neighbouring periods differ by {repeated.usual:,.2g}"
    )
