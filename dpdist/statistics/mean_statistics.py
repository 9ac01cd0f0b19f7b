"""Means of amounts: the ratio of a sum and a number of records, with an interval that knows how the noise in both varies together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpdist.domain.numeric_columns import AMOUNT, PRESENT
from dpdist.operators import Matrix
from dpdist.statistics.ratio_intervals import error_within, fieller, interval_within, ratio_error
from dpdist.statistics.statistic import MEANS, Estimated, Range, Statistic

MEAN = "mean"


class Mean(Statistic):
    """The mean of a column. The true one lies within the range of the amounts, so that an interval never goes beyond it."""

    name = MEAN
    of = ((PRESENT,), (AMOUNT,))
    tells = (MEAN,)
    published = tells
    table = MEANS
    asks = "asks for the sum of these amounts and for the number of records that have one, and publishes the mean with its interval, too"
    plural = "sums, counts and means"
    interval = "Fieller 1954, within the range of the amounts"

    def made(self, told: str, values: Matrix, covariance: Matrix, width: float, ranges: Sequence[Range]) -> Estimated:
        both, joint = values[::-1], covariance[::-1, ::-1]  # the sum over the number
        if both[1] == 0.0:
            return Estimated(told, math.nan, None, *ranges[0], remark=NO_RECORDS)
        interval, ratio = fieller(both, joint, width), float(both[0] / both[1])
        if interval is None:
            return Estimated(told, float(np.clip(ratio, *ranges[0])), None, *ranges[0], NO_RECORDS)
        value, low, high = interval_within(ratio, interval, ranges[0])
        return Estimated(told, value, error_within(ratio_error(both, joint), ratio, ranges[0]), low, high)


NO_RECORDS = "there may be no records: every mean is possible"
