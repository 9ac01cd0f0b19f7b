"""The two distributions of noise: what each knows of itself, and how their samples are addressed."""

from __future__ import annotations

import itertools
import math
from enum import StrEnum
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpdist.privacy.accounting import Loss, gaussian_scale, gaussian_slack, laplace_scale
from dpdist.privacy.numerics import exponential, log_cdf

Samples = NDArray[np.int64]

TILE = 16384
"""Samples of a tile, which owns a part of the key's stream."""
SCALE_LIMIT = 2**50
"""Scales lie in (0, 2^50]: beyond it a sample might not fit into 62 bits."""
NORMAL_95 = 1.959963984540054
"""Half width of a normal 95 % interval in standard errors."""
LAPLACE_95 = 2.1183026052494203
"""ln(20) / sqrt(2): the same for one Laplace draw."""


class Kind(StrEnum):
    """A kind of noise; as text, what specs, stores and certificates call it."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"

    @property
    def label(self) -> str:
        """Its name in a sentence."""
        return self.value.capitalize()

    @property
    def norm(self) -> Literal["l1", "l2"]:
        """In which norm it hides a distance."""
        return "l2" if self is GAUSSIAN else "l1"

    @staticmethod
    def hiding(norm: Literal["l1", "l2"]) -> Kind:
        """The kind that hides a distance in a norm."""
        return LAPLACE if norm == "l1" else GAUSSIAN

    def scale(self, sensitivity_squared: int, budget: Loss) -> int:
        """The least whole scale that keeps an integer vector of a sensitivity, in this kind's norm, within a budget."""
        if self is GAUSSIAN:
            return gaussian_scale(sensitivity_squared, budget.rho)
        return laplace_scale(math.isqrt(sensitivity_squared), budget.pure)

    def loss(self, budget: Loss, sensitivity_squared: int, scale: int, rows: int) -> Loss:
        """What a release is charged for a budget: for Gaussian noise also the slack of its grid of ``rows`` integers."""
        if self is GAUSSIAN:
            return Loss.gaussian(budget.rho, gaussian_slack(sensitivity_squared, scale, rows))
        return budget

    def deviation(self, scale: int) -> float:
        """Standard deviation: the Gaussian's is its scale (to 1e-30 from scale 10 on), never above it."""
        return float(scale) if self is GAUSSIAN else 1.0 / (math.sqrt(2.0) * math.sinh(0.5 / scale))

    def tail(self, threshold: int, scale: int) -> float:
        """P(X >= threshold), of the Gaussian with half a unit between two integers: for reading, and to rounding (of scales from 10 on)."""
        if self is GAUSSIAN:
            return math.exp(log_cdf(-(threshold - 0.5) / scale))
        upper = math.exp(-max(threshold, 1 - threshold) / scale) / (1.0 + math.exp(-1.0 / scale))
        return upper if threshold > 0 else 1.0 - upper

    def half_width_95(self, concentration: Samples | float) -> Any:
        """Half width of a 95 % interval, in standard errors, of a sum of weighted independent draws.

        Args:
            concentration: sum of the weights' fourth powers over the square of their sum of squares, in (0, 1]: 1 for one
                draw, 1/k for k equal ones.
        Laplace sums are between one Laplace draw (2.118) and the normal limit (1.960). The curve is the upper envelope of
        sums of equal draws, mixtures and random weights: it covers 95.0 to 95.4 % (tests/privacy/test_noise.py).
        """
        x = np.asarray(concentration)
        excess = 0.0 if self is GAUSSIAN else LAPLACE_95 - NORMAL_95
        return NORMAL_95 + excess * x * (1.44 - 0.44 * x)

    def simulated(self, state: np.random.RandomState, size: tuple[int, ...]) -> NDArray[np.float64]:
        """Draws of deviation 1 from a public seed, for simulations: no noise of a release."""
        return state.standard_normal(size) if self is GAUSSIAN else state.laplace(scale=math.sqrt(0.5), size=size)

    def exponent(self, whole: int, rest: int, numerator: int) -> Fraction:
        """e of the acceptance probability exp(-e) of an attempt (``dpdist.privacy.noise``), with t = rest / numerator."""
        if self is GAUSSIAN:
            return Fraction(rest * (rest + 2 * numerator * whole), 2 * numerator**2)
        return Fraction(rest, numerator)


GAUSSIAN, LAPLACE = Kind.GAUSSIAN, Kind.LAPLACE


BATCH = 4096
"""Attempts that are decided at once."""
TABLE_BITS = 512
EXTENSION_BITS = TABLE_BITS - 63
_SPARE_BITS = 800
_GAUSSIAN_TERMS = 40
_LAPLACE_TERMS = 40
FAST: dict[Kind, int] = {GAUSSIAN: 6, LAPLACE: 18}
"""Thresholds that a kernel compares; what lies beyond them is decided in integers."""


def _thresholds(kind: Kind) -> tuple[int, ...]:
    """floor(2^512 P(K <= k)) for k = 0.. ; the mass cut off beyond is below 2^-1100 (Gaussian) or redrawn (Laplace)."""
    wide = TABLE_BITS + _SPARE_BITS  # for factors that are rounded down in turn

    def multiply(mine: int, factor: int) -> int:
        return mine * factor >> wide

    powers = list(itertools.accumulate([exponential(Fraction(1), wide)] * _LAPLACE_TERMS, multiply))  # exp(-1), exp(-2), ..
    if kind is LAPLACE:
        return tuple(((1 << wide) - power) >> _SPARE_BITS for power in powers)
    half = exponential(Fraction(1, 2), wide)
    # exp(-(2 k + 1) / 2) leads from k to k + 1
    steps = [half, *(multiply(half, power) for power in powers[: _GAUSSIAN_TERMS - 2])]
    weights = list(itertools.accumulate([1 << wide, *steps], multiply))
    total = sum(weights)
    return tuple((running << TABLE_BITS) // total for running in itertools.accumulate(weights[:-1]))


TABLE: dict[Kind, tuple[int, ...]] = {kind: _thresholds(kind) for kind in Kind}
FAST_TABLE: dict[Kind, tuple[int, ...]] = {
    kind: tuple(t >> EXTENSION_BITS for t in TABLE[kind][:terms]) for kind, terms in FAST.items()
}
"""The first 63 bits of the thresholds that a kernel compares."""
