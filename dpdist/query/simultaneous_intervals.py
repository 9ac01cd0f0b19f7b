"""Intervals of many answers that all hold at once."""

from __future__ import annotations

import math

import numpy as np

from dpdist.operators import Matrix


def simultaneous_half_widths(half: Matrix) -> Matrix:
    """Half widths of intervals that all hold at once in 95 of 100 releases."""
    return np.asarray(half * (1.0 + math.log(max(1, half.size)) / math.log(20.0)))
