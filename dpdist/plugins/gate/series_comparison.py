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

DRIFT_PART, REPEAT_PART, SHARES_PART = 0.25, 0.1, 0.2
"""Parts of the false alarms a year: for slow drifts where periods are enough, for periods that equal an earlier one, and for shares of
groups where there are some; the rest is for single answers."""


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

    def shares_within(self, group: DividedGroup) -> Series:
        """The shares of one of its groups."""
        answers, deviations = group_shares(self.answers, self.deviations, group)
        names = [f"the share of {name}" for name in self.names[group.first : group.first + group.share_count]]
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
    from dpdist.plugins.gate.drift_test import find_drifts, has_drift_windows  # it imports scipy.special, as the others do
    from dpdist.plugins.gate.outlier_test import comparison_level, find_outliers, periods_a_year
    from dpdist.plugins.gate.repeated_period import find_repeated_period

    shares = [[each.shares_within(group) for group in each.groups] for each in series]
    shares_compared = sum(each.newest.size for of_groups in shares for each in of_groups)
    follows_drifts = any(has_drift_windows(len(each.days), periods_a_year(each.days)) for each in series)
    answers_part = 1 - REPEAT_PART - DRIFT_PART * follows_drifts - SHARES_PART * bool(shares_compared)
    answers_compared = sum(each.newest.size for each in series)
    unlikely = []
    for each, shares_of_groups in zip(series, shares, strict=True):
        a_year, repeated = periods_a_year(each.days), None
        if not each.is_share:
            repeated = find_repeated_period(each.answers, each.deviations, REPEAT_PART * false_alarms / a_year)
        level = comparison_level(answers_part * false_alarms, a_year, answers_compared)
        outliers = find_outliers(each.answers, each.deviations, a_year, level)
        named = {outlier.index for outlier in outliers}
        drift_level = min(0.5, DRIFT_PART * false_alarms / (a_year * max(answers_compared, 1)))
        drifts = find_drifts(each.answers, each.deviations, a_year, drift_level)
        drifts = [drift for drift in drifts if drift.index not in named]
        unlikely.append(UnlikelyPeriod(each, outliers, drifts, repeated))
        named |= {drift.index for drift in drifts}
        share_level = comparison_level(SHARES_PART * false_alarms, a_year, shares_compared)
        for group, group_series in zip(each.groups, shares_of_groups, strict=True):
            # where an answer of the group is named already, it is what moves the shares
            if named.isdisjoint(range(group.first, group.end)):
                moved = find_outliers(group_series.answers, group_series.deviations, a_year, share_level)
                unlikely.append(UnlikelyPeriod(group_series, moved, []))
    return unlikely


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
        f"{repeated.distance:.2f} standard deviations of the noise, where the same records make {repeated.low:.2f} to {repeated.high:.2f} "
        f"likely and neighbouring periods differ by {repeated.usual:,.1f}"
    )
