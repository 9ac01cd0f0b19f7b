"""The published algorithms for one circular filter: Laplace noise on the coefficients of the Fourier basis.

Source: Fawaz, Muthukrishnan, Nikolov 2013 ("Nearly optimal private convolution"), Algorithms 1 and 2, here in the real orthonormal
Fourier basis. The Gaussian optimum goes beyond it (``convolution``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from dpdist.arrays.circle import NEGLIGIBLE
from dpdist.errors import InvalidInput
from dpdist.operators import Circulant, Fourier, Matrix
from dpdist.privacy.accounting import laplace_composition_epsilon

Method = Literal["laplace", "partition", "input", "output"]


@dataclass(frozen=True)
class SpectrumNoise:
    """Independent Laplace noise on the coefficients of the real orthonormal Fourier basis, for circular filters.

    Attributes:
        method: "laplace" (Algorithm 1), "partition" (Algorithm 2), "input" (equal noise on the coefficients of x), "output" (equal
            noise on those of the answer).
        scales: Laplace scale of every coefficient of x in the basis' order, infinite where none is released.
        spectrum: |eigenvalue| of the filter there.
        epsilon, delta: the guarantee that was asked for.
    """

    method: Method
    scales: Matrix = field(repr=False)
    spectrum: Matrix = field(repr=False)
    epsilon: float
    delta: float

    @property
    def mse(self) -> float:
        """Mean squared error of an output: sum of 2 b_i^2 |eigenvalue_i|^2 / N."""
        kept = np.isfinite(self.scales)
        return float((2.0 * self.scales[kept] ** 2 * self.spectrum[kept] ** 2).sum() / self.scales.size)

    def epsilons(self, record: int = 0) -> Matrix:
        """Pure epsilon that each coefficient spends on a record at the given step: |entry of the basis| / scale, (N,)."""
        n = self.scales.size
        unit = np.zeros(n)
        unit[record] = 1.0
        return np.asarray(np.abs(Fourier(n).matvec(unit)) / self.scales)

    @property
    def advanced_epsilon(self) -> float:
        """The paper's bound: (2 ln(1/delta) sum of 1 / (N b_i^2))^1/2."""
        kept = np.isfinite(self.scales)
        spent = float((1.0 / (self.scales.size * self.scales[kept] ** 2)).sum())
        return math.sqrt(2.0 * math.log(1.0 / self.delta) * spent)

    @property
    def zcdp(self) -> float:
        """rho of all coefficients together, the same for a record at any step: half the sum of squared epsilons."""
        return float((self.epsilons() ** 2).sum() / 2.0)

    def composed_epsilon(self, record: int = 0) -> float:
        """Epsilon at delta for a record at a step, by composing privacy loss distributions numerically (extra ``pld``)."""
        spent = self.epsilons(record)
        return laplace_composition_epsilon(spent[spent > 1e-9], self.delta)


def laplace_spectrum(coefficients: Matrix, epsilon: float, delta: float, method: Method = "laplace") -> SpectrumNoise:
    """Noise for one circular filter by the published algorithms.

    Args:
        coefficients: h around the circle, (N,); Algorithm 2 needs N a power of two.
        epsilon: privacy budget, above 0.
        delta: privacy budget, in (0, 1).
        method: see ``SpectrumNoise``. "partition" gives the largest coefficient the scale eta / N^1/2 of the second one: the scan's
            eta would spend 1/N of its share and leave Theorem 14 by a factor of N (docs/mathematics.md).
    Raises: InvalidInput.
    Source: Fawaz, Muthukrishnan, Nikolov 2013, Algorithms 1 and 2, Theorems 9 and 14.
    """
    if not (epsilon > 0 and 0 < delta < 1):
        raise InvalidInput(f"epsilon > 0 and 0 < delta < 1 are needed, found {epsilon!r} and {delta!r}")
    spectrum = _moduli(coefficients)
    n = spectrum.size
    unitary = spectrum / math.sqrt(n)
    unitary[unitary**2 < NEGLIGIBLE * unitary.max() ** 2] = 0.0
    asked = unitary > 0
    scales = np.full(n, math.inf)
    logs = math.log(1.0 / delta)
    if method == "laplace":
        scales[asked] = np.sqrt(2.0 * logs * unitary.sum() / (epsilon**2 * n * unitary[asked]))
    elif method == "partition":
        if n & (n - 1):
            raise InvalidInput(f"spectrum partition needs a power of two of steps, found {n}")
        levels = n.bit_length() - 1
        base = math.sqrt(2.0 * (1 + levels) * logs) / epsilon
        rank = np.empty(n, dtype=np.int64)
        rank[np.argsort(-unitary, kind="stable")] = np.arange(1, n + 1)
        level = levels - np.ceil(np.log2(np.maximum(rank, 2))).astype(np.int64) + 1
        scales = np.where(asked, base * 2.0 ** (-level / 2.0), math.inf)
    elif method == "input":
        scales[asked] = math.sqrt(2.0 * logs * asked.sum() / n) / epsilon
    else:
        scales[asked] = math.sqrt(2.0 * logs * float((spectrum**2).sum()) / n) / (epsilon * spectrum[asked])
    return SpectrumNoise(method, scales, spectrum, epsilon, delta)


def _moduli(coefficients: Matrix) -> Matrix:
    """|eigenvalue| of the circular filter for every row of the real Fourier basis, (N,)."""
    n = np.asarray(coefficients).size
    return np.asarray(np.abs(Circulant(n, coefficients).spectrum(n))[Fourier(n).frequencies])


def spectral_lower_bound(coefficients: Matrix) -> float:
    """max over i of i^2 |hhat_(i)|^2 / (N log2(N)^2), coefficients in decreasing order: no mechanism's mean squared error is below a
    constant (which depends on epsilon and delta only) times it.

    Args:
        coefficients: h around the circle, (N,).
    Source: Fawaz, Muthukrishnan, Nikolov 2013, Theorem 5.
    """
    values = np.sort(_moduli(coefficients))[::-1]
    n = values.size
    unitary = values / math.sqrt(n)
    rank = np.arange(1, n + 1)
    return float((rank**2 * unitary**2).max() / (n * max(1.0, math.log2(n)) ** 2))


def fitted_decay(coefficients: Matrix) -> float:
    """p of |hhat_(i)| <= c i^-p, by least squares over the logarithms of the asked coefficients in decreasing order."""
    values = np.sort(_moduli(coefficients))[::-1]
    values = values[values**2 > NEGLIGIBLE * values[0] ** 2]
    if values.size < 3:
        return math.inf
    return float(-np.polyfit(np.log(np.arange(1, values.size + 1)), np.log(values), 1)[0])
