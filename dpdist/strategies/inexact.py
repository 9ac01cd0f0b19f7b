"""The first steps towards the certified optimum of a full-rank gram: they prove nothing, and cost little.

On a chain the fixed point needs no eigenvectors. Other large grams take Newton steps in single precision: with K^1/2 = S the
logarithms of diag X(v) = diag(S) / v change with those of v by

    diag(S)^-1 sum_ab (s_a^2 + s_b^2) / (2 (s_a + s_b)) (u_a o u_b) (u_a o u_b)'  -  I,

so that (sum_ab s_a s_b / (s_a + s_b) (u_a o u_b) (u_a o u_b)') e = diag(S) log diag X(v) gives the step e; conjugate gradients need two
matrix products a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy

from dpdist.operators import Matrix
from dpdist.strategies import linear
from dpdist.strategies.chain import Chain
from dpdist.strategies.interior import conjugate_gradients
from dpdist.strategies.linear import Array
from dpdist.strategies.split import Spectrum, Split, decomposed, mean_square

MEMORY = 5
RELAXATION = 2.6
"""Measured on the grams of benchmarks/optimisers.py: 36 eigen-decompositions in all at 256 cells, 2.2 takes 37 and 1.4 about 45."""
SLACK = 3.0
"""Gap of the rescaled strategy over the mean squared residual, before it is known."""
SINGLE_CELLS = 200
"""Cells from which single precision saves time."""
CHAIN_GOAL = 1e-3
"""Predicted gap, in tolerances, at which the steps of a chain end: they cost next to nothing."""
SINGLE_GOAL = 2.0
"""Predicted gap, in square roots of the tolerance, at which Newton steps end: the last one leaves about 0.05 of its square."""
FORCING = 0.1
"""Largest relative residual of the conjugate gradients of a Newton step."""
INNER_STEPS = 12
SINGLE_BLUR = 0.05
"""Largest relative change of the smallest eigenvalue by rounding in single precision that still leaves it worth a step."""
START_ROUNDS, START_PRODUCTS = 2, 5
"""Steps of the start for grams that are nearly diagonal, and products with a vector in each."""
START_TRUST = 0.15
"""Largest share of the second-order terms at which that start is believed: 0.03 to 0.07 where it helps, above 2 where it does not."""
START_FLOOR = 0.05
"""Least share of a diagonal entry that the leading eigenvector leaves."""
LARGEST_STEP = 2.0
"""Of a Newton step, in the logarithm of a weight."""

Told = Callable[[float, float, Matrix], None]
"""Takes the cost, the gap and the weights of a step."""


class Path:
    """The last points of a fixed-point iteration and their residuals, and where Anderson's mixture of them leads."""

    def __init__(self) -> None:
        self.points: list[Matrix] = []
        self.residuals: list[Matrix] = []

    def add(self, point: Matrix, residual: Matrix) -> None:
        """Note a point; the oldest is forgotten."""
        self.points.append(point)
        self.residuals.append(residual)
        del self.points[: -MEMORY - 1], self.residuals[: -MEMORY - 1]

    def accelerated(self) -> Matrix:
        """The next point of the over-relaxed Anderson iteration (type II, memory ``MEMORY``)."""
        step = RELAXATION * self.residuals[-1]
        if len(self.points) > 1:
            moved = np.diff(np.array(self.points), axis=0).T
            changed = np.diff(np.array(self.residuals), axis=0).T
            mix = scipy.linalg.lstsq(changed, self.residuals[-1], cond=1e-8, check_finite=False)[0]
            step = step - (moved + RELAXATION * changed) @ mix
        return np.asarray(self.points[-1] + np.clip(step, -5.0, 5.0))


def takes_newton_steps(split: Split) -> bool:
    """Whether a gram is large enough for steps in single precision, and no chain, which needs less."""
    return split.chain is None and split.multiplicity.size >= SINGLE_CELLS


def chain_steps(chain: Chain, log_weight: Matrix, *, tolerance: float, limit: int, told: Told) -> Matrix:
    """Weights of a chain near the optimum."""
    path, smallest, since = Path(), np.inf, 0
    for _ in range(limit):
        with np.errstate(divide="ignore", invalid="ignore"):
            diagonal = chain.root_diagonal(np.exp(log_weight))
        if not (diagonal > 0).all():  # pivots lost to rounding
            break
        factor = float(diagonal.sum() / np.exp(log_weight).sum())
        log_weight = log_weight + 2.0 * math.log(factor)
        weight = np.exp(log_weight)
        residual = np.log(diagonal * factor / weight)
        path.add(log_weight, residual)
        told(float(np.exp(residual.max()) * weight.sum()), np.inf, weight)
        predicted = SLACK * float(weight @ residual**2 / weight.sum())
        since = 0 if predicted < 0.5 * smallest else since + 1
        smallest = min(smallest, predicted)
        log_weight = path.accelerated()
        if predicted <= CHAIN_GOAL * tolerance or since > MEMORY:
            break
    return log_weight


def nearly_diagonal_start(gram: Array, dual: Matrix) -> Matrix:
    """Weights nearer to the optimum than given ones where K is a diagonal, its leading eigenvector and little else; else the given ones.

    To second order in the rest E of K = D + lambda u u' + E, with a = diag(D)^1/2,

        diag K^1/2  =  a - sum_j (E_ij / (a_i + a_j))^2 / (2 a_i) + lambda^1/2 u o u,

    which the fixed point takes for the next weights: n^2 operations. Sums of random cells are such grams, ranges are not.
    """
    small, given = linear.single(gram), dual
    xp = linear.namespace(small)
    for _ in range(START_ROUNDS):
        root = linear.like(small, np.sqrt(dual))
        scaled = small * root
        scaled *= root[:, None]
        vector = linear.on_host(xp.sum(scaled, axis=0)).astype(np.float64)
        for _ in range(START_PRODUCTS):
            vector = linear.times(scaled, (vector / np.linalg.norm(vector)).astype(np.float32)).astype(np.float64)
        size = float(np.linalg.norm(vector))
        vector /= size
        leading = size * vector**2
        whole = linear.diagonal(scaled).astype(np.float64)
        own = np.sqrt(np.maximum(whole - leading, START_FLOOR * whole))
        axis, halves = linear.like(small, vector), linear.like(small, own)
        scaled -= linear.like(small, size * vector)[:, None] * axis
        scaled /= halves[:, None] + halves
        scaled *= scaled
        missing = linear.on_host(xp.sum(scaled, axis=1)) - linear.diagonal(scaled)
        less = missing / (2.0 * own)
        found = np.maximum(own - less, 0.5 * own) + math.sqrt(size) * vector**2
        if less.sum() > START_TRUST * found.sum():
            return given
        dual = found
    return dual


def single_steps(split: Split, log_weight: Matrix, *, tolerance: float, limit: int, told: Told) -> tuple[Matrix, int, float]:
    """Weights near the optimum by Newton steps in single precision, the steps, and the products in them."""
    grams = [linear.single(part.gram) for part in split.parts]
    smallest, steps, products = np.inf, 0, 0.0
    while steps < limit:
        spectra: list[Spectrum] = []
        diagonal = np.zeros(log_weight.size)
        for part, gram in zip(split.parts, grams, strict=True):
            values, vectors = decomposed(gram, np.exp(0.5 * log_weight[part.cells]))
            roots = np.sqrt(np.maximum(values.astype(np.float64), linear.SINGLE_EPSILON * float(values[-1])))
            spectra.append((roots, vectors))
            diagonal[part.cells] += linear.weighted_rows(vectors, roots)
        steps += 1
        factor = float(diagonal.sum() / (split.multiplicity @ np.exp(log_weight)))
        log_weight = log_weight + 2.0 * math.log(factor)
        weight = np.exp(log_weight)
        residual = np.log(diagonal * factor / (weight * split.multiplicity))
        told(float(np.exp(residual.max())) * float(split.multiplicity @ weight), np.inf, weight)
        predicted = SLACK * mean_square(split, weight, residual)
        move, used = newton_step(split, spectra, diagonal, residual, forcing_of(predicted, tolerance))
        products += used
        log_weight = log_weight + move
        enough = predicted <= SINGLE_GOAL * math.sqrt(tolerance) or predicted > 0.5 * smallest
        if enough or any(_blurred(roots, tolerance) for roots, _ in spectra):
            break
        smallest = predicted
    return log_weight, steps, products


def _blurred(roots: Matrix, tolerance: float) -> bool:
    """Whether a second step in single precision would find little but rounding.

    Eigenvalues change by eps times the largest: the smallest by too much, or the mean root by more than the tolerance lets it.
    """
    rounding = linear.SINGLE_EPSILON * float(roots.max()) ** 2
    mean = rounding * float((1.0 / roots).sum() / roots.sum())
    return rounding > SINGLE_BLUR * float(roots.min()) ** 2 or mean**2 > tolerance


def forcing_of(predicted: float, tolerance: float) -> float:
    """The relative residual that suffices for a Newton step: what it leaves behind anyway, or what the tolerance allows."""
    left, allowed = math.sqrt(predicted / SLACK), 0.15 * math.sqrt(0.3 * tolerance / max(predicted, tolerance))
    return min(FORCING, max(left, allowed))


def newton_step(
    split: Split, spectra: Sequence[Spectrum], diagonal: Matrix, residual: Matrix, forcing: float
) -> tuple[Matrix, float]:
    """The step of the logarithms of the weights, and the products that it took, in those of all cells in double precision."""
    parts = []
    for part, (s, u) in zip(split.parts, spectra, strict=True):
        turned = linear.single(u.T)
        roots = linear.like(turned, s)
        parts.append((part.cells, turned, roots[:, None] * roots / (roots[:, None] + roots)))

    def apply(direction: Matrix) -> Matrix:
        out = np.zeros(direction.size)
        for cells, turned, coefficients in parts:
            inner = (turned * linear.like(turned, direction[cells])) @ turned.T
            inner *= coefficients
            out[cells] += linear.column_products(turned, inner @ turned)
        return out

    move, used = conjugate_gradients(apply, diagonal * residual, 0.5 * diagonal, forcing=forcing, cap=INNER_STEPS)
    share = sum((part.cells.size / sum(split.multiplicity)) ** 3 for part in split.parts)
    return np.clip(move, -LARGEST_STEP, LARGEST_STEP), used * share
