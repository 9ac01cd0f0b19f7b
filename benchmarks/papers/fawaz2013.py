"""The theorems of Fawaz, Muthukrishnan, Nikolov, ESA 2013 (private convolution), as curves over the number of steps.

The paper has no experiments. Every error is a closed form; budget epsilon 1, delta 1e-6. The spectral lower bound is known up to a
constant of epsilon and delta: its growth counts. The algorithms are written out below: dpdist's own Gaussian optimum has less error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from experiment import Experiment, Figure, Found, Measurement, Size

from dpdist.arrays.circular_filters import NEGLIGIBLE
from dpdist.privacy.accounting import rho_for
from dpdist.strategies import convolution
from dpdist.workloads import dnf, filtered
from dpdist.workloads.time_filters import Filter, baxter_king, exponential, hodrick_prescott, polynomial, window

EPSILON, DELTA = 1.0, 1e-6


def filters(n: int) -> dict[str, Filter]:
    """The filters that sections 5.2 and 5.3 name; running sums of half the circle, as the paper pads them."""
    return {
        "running sum": Filter("running sum", np.ones(n // 2)),
        "window of 24 steps": window(24),
        "exponential decay 0.9": exponential(0.9, n),
        "polynomial decay 1": polynomial(1.0, n),
        "Hodrick-Prescott cycle": hodrick_prescott(1600.0, n, component="cycle"),
        "Baxter-King 6 to 32": baxter_king(6, 32, 12),
    }


def laplace_errors(spectrum: np.ndarray) -> Found:
    """Mean squared errors of an output: 2 b_i^2 |eigenvalue_i|^2 / N over the coefficients that are asked, with the scales b_i.

    Algorithm 2 gives the largest coefficient the scale eta / N^1/2 of the second one (docs/reproduction.md has the erratum).
    """
    n, logs = spectrum.size, math.log(1.0 / DELTA)
    asked = spectrum[spectrum**2 >= NEGLIGIBLE * spectrum[0] ** 2]
    unitary = asked / math.sqrt(n)
    levels = n.bit_length() - 1
    rank = np.maximum(np.arange(1, asked.size + 1), 2)
    level = levels - np.ceil(np.log2(rank)) + 1
    squared_scales = {
        "Algorithm 1": 2.0 * logs * unitary.sum() / (EPSILON**2 * n * unitary),
        "Algorithm 2": 2.0 * (1 + levels) * logs / EPSILON**2 * 2.0**-level,
        "noise on the coefficients of x": np.full(asked.size, 2.0 * logs * asked.size / n / EPSILON**2),
        "noise on the coefficients of the answer": 2.0 * logs * (spectrum @ spectrum) / n / (EPSILON * asked) ** 2,
    }
    return {name: float(2.0 * squares @ asked**2 / n) for name, squares in squared_scales.items()}


def spectral_lower_bound(spectrum: np.ndarray) -> float:
    """Theorem 5, up to a constant: max over i of i^2 |hhat_(i)|^2 / (N log2(N)^2)."""
    n = spectrum.size
    return float((np.arange(1, n + 1) ** 2 * spectrum**2 / n).max() / (n * math.log2(n) ** 2))


def fitted_decay(spectrum: np.ndarray) -> float:
    """p of |hhat_(i)| <= c i^-p, by least squares over the logarithms of the coefficients that are asked."""
    asked = spectrum[spectrum**2 > NEGLIGIBLE * spectrum[0] ** 2]
    return float(-np.polyfit(np.log(np.arange(1, asked.size + 1)), np.log(asked), 1)[0])


def over_steps(size: Size) -> Iterator[Measurement]:
    """Theorems 5, 9, 10, 11 and 14, section 5.2: mean squared errors over N."""
    for n in size["steps"]:
        for panel in filters(64):
            yield Measurement(panel, n, "all", partial(_errors, n, panel), n // 1000)


def _errors(n: int, panel: str) -> Found:
    each = filters(n)[panel]
    around = np.zeros(n)
    np.add.at(around, (each.first_lag + np.arange(each.coefficients.size)) % n, each.coefficients)
    spectrum = np.sort(np.abs(np.fft.fft(around)))[::-1]
    cost = convolution(filtered(n, "x0", [each], circular=True)).workload_cost
    assert cost is not None
    gaussian = cost / n / (2.0 * float(rho_for(EPSILON, DELTA, "analytic")))
    return {
        **laplace_errors(spectrum),
        "Gaussian optimum": gaussian,
        "spectral bound, to a constant": spectral_lower_bound(spectrum),
        "p of the spectrum": fitted_decay(spectrum),
    }


def over_attributes(size: Size) -> Iterator[Measurement]:
    """Theorem 12: generalised marginals of width w over d attributes, every attribute in one term or more."""
    for bits in size["bits"]:
        for width in (1, 2, 3, 4):
            for terms in (0, 4 * bits):
                panel = f"width {width}, {'disjoint terms' if terms == 0 else 'four terms an attribute'}"
                yield Measurement(panel, bits, "all", partial(_formula, bits, width, terms), 2**bits // 10**5)


def _formula(bits: int, width: int, random_terms: int) -> Found:
    state = np.random.default_rng(bits)
    listed = [tuple(range(start, min(start + width, bits))) for start in range(0, bits, width)]
    listed += [tuple(sorted(state.choice(bits, width, replace=False).tolist())) for _ in range(random_terms)]
    workload = dnf(bits, [[f"x{i}" for i in term] for term in dict.fromkeys(listed)])
    truth = workload.blocks[0].factors[0].values  # type: ignore[attr-defined]
    cells = truth.size
    cost = convolution(workload).workload_cost
    assert cost is not None
    total = math.sqrt(cost)  # the norm ||hhat||_1 of the unitary transform
    return {
        "Algorithm 1": 4.0 * math.log(1.0 / DELTA) * total**2 / (EPSILON**2 * cells),
        "Gaussian optimum": cost / cells / (2.0 * float(rho_for(EPSILON, DELTA, "analytic"))),
        "noise on every cell (pure epsilon)": 2.0 * float(truth.sum()) / EPSILON**2,
    }


EXPERIMENTS: dict[str, Experiment] = {"convolution-steps": over_steps, "convolution-formulas": over_attributes}
_MSE = "mean squared error of an output"
FIGURES = {
    "convolution-steps": Figure("Private convolution over the steps", "convolution-steps", "*", "N", _MSE),
    "convolution-formulas": Figure(
        "Generalised marginals over the attributes", "convolution-formulas", "*", "d", _MSE, linear=True
    ),
}
