"""Means of amounts: the ratio of a sum and a number of records, with an interval that knows how the noise in both varies together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpdist.domain.numeric_columns import AMOUNT, PRESENCE
from dpdist.operators import Matrix
from dpdist.statistics.ratio_intervals import error_within, fieller, interval_within, ratio_error
from dpdist.statistics.statistic import MEANS, Estimated, Range, Statistic

MEAN = "mean"


class Mean(Statistic):
    """The mean of a column. The true one lies within the range of the amounts, so that an interval never goes beyond it."""

    name = MEAN
    summands = ((PRESENCE,), (AMOUNT,))
    statistic_names = (MEAN,)
    published = statistic_names
    table = MEANS
    help_text = (
        "asks for the sum of these amounts and for the number of records that have one, "
        "and publishes the mean with its interval, too"
    )
    plural = "sums, counts and means"
    interval = "Fieller 1954, within the range of the amounts"

    def compute(
        self, statistic: str, values: Matrix, covariance: Matrix, width: float, ranges: Sequence[Range]
    ) -> Estimated:
        ratio_values, joint = values[::-1], covariance[::-1, ::-1]  # the sum over the number
        interval = fieller(ratio_values, joint, width)
        ratio = float(ratio_values[0] / ratio_values[1]) if ratio_values[1] else math.copysign(math.inf, ratio_values[0])
        if interval is None:
            return Estimated(statistic, float(np.clip(ratio, *ranges[0])), None, *ranges[0], NO_RECORDS)
        value, low, high = interval_within(ratio, interval, ranges[0])
        return Estimated(statistic, value, error_within(ratio_error(ratio_values, joint), ratio, ranges[0]), low, high)


NO_RECORDS = "there may be no records: every mean is possible"
