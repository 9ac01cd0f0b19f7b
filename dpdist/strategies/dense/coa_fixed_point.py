"""Certified optimum for full-rank grams: accelerated fixed point in the logarithm of the dual weights.

The map v <- v * diag X(v) (Denisov et al. 2022) is over-relaxed and Anderson-accelerated. The upper bound is taken
after rescaling X to unit diagonal: its error is second order in v, so that a certificate comes long before v settles.
A gram that is symmetric under reversal of its cells splits into two of half the size; one whose inverse is tridiagonal
(``trace_problem``) needs n^2 operations a step.

The first steps need no certificate: they are taken in single precision, or, on chains, without eigenvectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpdist.arrays import lapack
from dpdist.operators import Matrix
from dpdist.strategies import linear_algebra
from dpdist.strategies.dense.block_diagonal import BlockDiagonal, Spectrum, block_diagonalise, decompose_scaled, mean_square
from dpdist.strategies.dense.chain import Chain
from dpdist.strategies.dense.coa_barrier import conjugate_gradients
from dpdist.strategies.dense.trace_problem import EPSILON, FullRankProblem
from dpdist.strategies.linear_algebra import Array
from dpdist.strategies.strategy import OnStep, Solve, Step, Stop, proven_root_trace

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

StepCallback = Callable[[float, float, Matrix], None]
"""Takes the cost, the gap and the weights of a step."""


class AndersonHistory:
    """The last points of a fixed-point iteration and their residuals, and where Anderson's mixture of them leads."""

    def __init__(self) -> None:
        self.points: list[Matrix] = []
        self.residuals: list[Matrix] = []

    def add(self, point: Matrix, residual: Matrix) -> None:
        """Note a point; the oldest is forgotten."""
        self.points.append(point)
        self.residuals.append(residual)
        del self.points[: -MEMORY - 1], self.residuals[: -MEMORY - 1]

    def accelerate(self) -> Matrix:
        """The next point of the over-relaxed Anderson iteration (type II, memory ``MEMORY``)."""
        step = RELAXATION * self.residuals[-1]
        if len(self.points) > 1:
            moved = np.diff(np.array(self.points), axis=0).T
            changed = np.diff(np.array(self.residuals), axis=0).T
            mix = lapack.lstsq(changed, self.residuals[-1], cond=1e-8)[0]
            step = step - (moved + RELAXATION * changed) @ mix
        return np.asarray(self.points[-1] + np.clip(step, -5.0, 5.0))


def _takes_newton_steps(block_form: BlockDiagonal) -> bool:
    """Whether a gram is large enough for steps in single precision, and no chain, which needs less."""
    return block_form.chain is None and block_form.multiplicity.size >= SINGLE_CELLS


def _take_chain_steps(
    chain: Chain, log_weight: Matrix, *, tolerance: float, limit: int, report_step: StepCallback
) -> Matrix:
    """Weights of a chain near the optimum."""
    path, smallest, since = AndersonHistory(), np.inf, 0
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
        report_step(float(np.exp(residual.max()) * weight.sum()), np.inf, weight)
        predicted = SLACK * float(weight @ residual**2 / weight.sum())
        since = 0 if predicted < 0.5 * smallest else since + 1
        smallest = min(smallest, predicted)
        log_weight = path.accelerate()
        if predicted <= CHAIN_GOAL * tolerance or since > MEMORY:
            break
    return log_weight


def nearly_diagonal_start(gram: Array, dual: Matrix) -> Matrix:
    """Weights nearer to the optimum than given ones where K is a diagonal, its leading eigenvector and little else; else the given ones.

    To second order in the rest E of K = D + lambda u u' + E, with a = diag(D)^1/2,

        diag K^1/2  =  a - sum_j (E_ij / (a_i + a_j))^2 / (2 a_i) + lambda^1/2 u o u,

    which the fixed point takes for the next weights: n^2 operations. Sums of random cells are such grams, ranges are not.
    """
    small, initial_dual = linear_algebra.to_single(gram), dual
    xp = linear_algebra.namespace(small)
    for _ in range(START_ROUNDS):
        root = linear_algebra.like(small, np.sqrt(dual))
        scaled = small * root
        scaled *= root[:, None]
        vector = linear_algebra.on_host(xp.sum(scaled, axis=0)).astype(np.float64)
        for _ in range(START_PRODUCTS):
            vector = linear_algebra.times(scaled, (vector / np.linalg.norm(vector)).astype(np.float32)).astype(np.float64)
        size = float(np.linalg.norm(vector))
        vector /= size
        leading = size * vector**2
        whole = linear_algebra.diagonal(scaled).astype(np.float64)
        diagonal_roots = np.sqrt(np.maximum(whole - leading, START_FLOOR * whole))
        axis, halves = linear_algebra.like(small, vector), linear_algebra.like(small, diagonal_roots)
        scaled -= linear_algebra.like(small, size * vector)[:, None] * axis
        scaled /= halves[:, None] + halves
        scaled *= scaled
        missing = linear_algebra.on_host(xp.sum(scaled, axis=1)) - linear_algebra.diagonal(scaled)
        correction = missing / (2.0 * diagonal_roots)
        roots = np.maximum(diagonal_roots - correction, 0.5 * diagonal_roots) + math.sqrt(size) * vector**2
        if correction.sum() > START_TRUST * roots.sum():
            return initial_dual
        dual = roots
    return dual


def _take_single_steps(
    block_form: BlockDiagonal, log_weight: Matrix, *, tolerance: float, limit: int, report_step: StepCallback
) -> tuple[Matrix, int, float]:
    """Weights near the optimum by Newton steps in single precision, the steps, and the products in them."""
    grams = [linear_algebra.to_single(block.gram) for block in block_form.blocks]
    smallest, steps, products = np.inf, 0, 0.0
    while steps < limit:
        spectra: list[Spectrum] = []
        diagonal = np.zeros(log_weight.size)
        for block, gram in zip(block_form.blocks, grams, strict=True):
            values, vectors = decompose_scaled(gram, np.exp(0.5 * log_weight[block.cells]))
            roots = np.sqrt(np.maximum(values.astype(np.float64), linear_algebra.SINGLE_EPSILON * float(values[-1])))
            spectra.append((roots, vectors))
            diagonal[block.cells] += linear_algebra.weighted_rows(vectors, roots)
        steps += 1
        factor = float(diagonal.sum() / (block_form.multiplicity @ np.exp(log_weight)))
        log_weight = log_weight + 2.0 * math.log(factor)
        weight = np.exp(log_weight)
        residual = np.log(diagonal * factor / (weight * block_form.multiplicity))
        report_step(float(np.exp(residual.max())) * float(block_form.multiplicity @ weight), np.inf, weight)
        predicted = SLACK * mean_square(block_form, weight, residual)
        move, step_products = newton_step(block_form, spectra, diagonal, residual, _forcing_of(predicted, tolerance))
        products += step_products
        log_weight = log_weight + move
        enough = predicted <= SINGLE_GOAL * math.sqrt(tolerance) or predicted > 0.5 * smallest
        if enough or any(_is_blurred(roots, tolerance) for roots, _ in spectra):
            break
        smallest = predicted
    return log_weight, steps, products


def _is_blurred(roots: Matrix, tolerance: float) -> bool:
    """Whether a second step in single precision would find little but rounding.

    Eigenvalues change by eps times the largest: the smallest by too much, or the mean root by more than the tolerance lets it.
    """
    rounding = linear_algebra.SINGLE_EPSILON * float(roots.max()) ** 2
    mean = rounding * float((1.0 / roots).sum() / roots.sum())
    return rounding > SINGLE_BLUR * float(roots.min()) ** 2 or mean**2 > tolerance


def _forcing_of(predicted: float, tolerance: float, largest: float | None = None) -> float:
    """The relative residual that suffices for a Newton step: what it leaves behind anyway, or what the tolerance allows.

    Args:
        largest: the largest residual, where a gram lacks ranks: its certificate is that residual itself.
    """
    if largest is not None:
        return min(FORCING, max(largest, SINGULAR_FORCING * tolerance / max(largest, tolerance)))
    remainder, allowed = math.sqrt(predicted / SLACK), 0.15 * math.sqrt(0.3 * tolerance / max(predicted, tolerance))
    return min(FORCING, max(remainder, allowed))


def newton_step(
    block_form: BlockDiagonal, spectra: Sequence[Spectrum], diagonal: Matrix, residual: Matrix, forcing: float
) -> tuple[Matrix, float]:
    """The step of the logarithms of the weights, and the products that it took, in those of all cells in double precision."""
    block_products = []
    for block, (s, u) in zip(block_form.blocks, spectra, strict=True):
        turned = linear_algebra.to_single(u.T)
        roots = linear_algebra.like(turned, s)
        block_products.append((block.cells, turned, roots[:, None] * roots / (roots[:, None] + roots)))

    def apply(direction: Matrix) -> Matrix:
        product = np.zeros(direction.size)
        for cells, turned, coefficients in block_products:
            inner = (turned * linear_algebra.like(turned, direction[cells])) @ turned.T
            inner *= coefficients
            product[cells] += linear_algebra.column_products(turned, inner @ turned)
        return product

    move, iterations = conjugate_gradients(apply, diagonal * residual, 0.5 * diagonal, forcing=forcing, cap=INNER_STEPS)
    block_cost = sum((block.cells.size / sum(block_form.multiplicity)) ** 3 for block in block_form.blocks)
    return np.clip(move, -LARGEST_STEP, LARGEST_STEP), iterations * block_cost


PATIENCE, SINGULAR_PATIENCE = 12, 2
"""Iterations without progress of the gap before the solver hands over: soon where a constraint may be slack."""
TRACE = 1e-15
"""Of the largest root of an eigenvalue, the least one: it stands for zero."""
SINGULAR_FORCING = 0.3
"""Of the residual that is allowed, the part that the conjugate gradients of a Newton step may leave of a singular gram's."""
SINGLE_SHARE = 0.6
"""Time of an eigen-decomposition in single precision over one in double precision (benchmarks/optimisers.py)."""
CHAIN_SHARE = 0.3
"""Time of a tridiagonal eigen-decomposition over that of a full one."""


@dataclass
class _BestCertificate:
    """The best certificate met so far, and the strategy that attains it.

    ``slack``: gap of the rescaled strategy over the mean squared residual; it says when a certificate is worth its product.
    ``squares``: by what the diagonal of X(v) is divided: all of it by its largest entry, or each entry by itself.
    """

    lower: float = 0.0
    upper: float = np.inf
    weight: Matrix | None = None
    squares: Matrix | None = None
    spectra: tuple[Spectrum, ...] = ()
    slack: float = SLACK

    def offer(self, upper: float, weight: Matrix, squares: Matrix, spectra: tuple[Spectrum, ...]) -> None:
        """Take over a strategy if it is better."""
        if upper < self.upper:
            self.upper, self.weight, self.squares, self.spectra = upper, weight, squares, spectra

    def certify(
        self, upper: float, weight: Matrix, ratio: Matrix, spectra: tuple[Spectrum, ...], second_order: float
    ) -> None:
        """Take over a rescaled strategy if it is better, and learn from it."""
        self.slack = max(upper / self.lower - 1.0, 0.0) / max(second_order, EPSILON)
        self.offer(upper, weight, ratio, spectra)

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1.0 if self.lower > 0 else np.inf


class _Record:
    """The steps of a solve, reported as they are taken, and the work in them: a decomposition of all parts counts as ``size``."""

    def __init__(self, problem: FullRankProblem, block_form: BlockDiagonal, on_step: OnStep) -> None:
        self.problem, self.block_form, self.on_step = problem, block_form, on_step
        self.history: list[Step] = []
        self.size = sum((block.cells.size / problem.cells) ** 3 for block in block_form.blocks)
        self.eighs, self.products = float(problem.nullity > 0), 0.0  # the first one finds the rank

    def add(self, cost: float, gap: float, weight: Matrix) -> None:
        """Note a step: costs are those of the scaled problem."""
        checkpoint = self.problem.expand(_unfold(weight, self.block_form, self.problem.cells))
        self.history.append(Step(len(self.history) + 1, cost * self.problem.scale, gap, checkpoint=checkpoint))
        self.on_step(self.history[-1])

    def solve(self, stop: Stop) -> Solve:
        """The record as it is kept."""
        checkpoint, history = self.history[-1].checkpoint, tuple(self.history)
        return Solve("dual fixed point", stop, history, checkpoint, round(self.eighs, 2), round(self.products, 2))


def solve(
    problem: FullRankProblem, *, tolerance: float, max_iterations: int, on_step: OnStep, start: Matrix | None = None
) -> tuple[Matrix, float, float, Solve]:
    """The optimal strategy of a full-rank problem.

    Returns: A over the kept cells; its cost and the lower bound, both of the scaled problem; the record.
    """
    block_form = block_diagonalise(problem.gram, problem.chain)
    dual = problem.initial_dual if start is None else start
    if start is None and _takes_newton_steps(block_form):
        dual = nearly_diagonal_start(problem.gram, dual)
    log_weight = np.log(_fold(dual, block_form))
    best, path, since = _BestCertificate(), AndersonHistory(), 0
    record = _Record(problem, block_form, on_step)
    stop: Stop = "iteration limit"
    if start is None:
        log_weight = _first_steps(block_form, log_weight, record, tolerance=tolerance, limit=max_iterations - 1)
    while len(record.history) < max_iterations:
        spectra, proven = _spectra(block_form, np.exp(log_weight), singular=problem.nullity > 0)
        best.lower = max(best.lower, proven**2 / float(block_form.multiplicity @ np.exp(log_weight)))
        log_weight, spectra = _balance(block_form, log_weight, spectra)
        weight = np.exp(log_weight)
        record.eighs += record.size if block_form.chain is None else CHAIN_SHARE
        ratio = _diagonal(block_form, spectra, weight)
        residual, previous = np.log(ratio), best.gap
        second_order = mean_square(block_form, weight, residual)
        largest = float(ratio.max())
        best.offer(largest * sum(float(s.sum()) for s, _ in spectra), weight, np.full(ratio.size, largest), spectra)
        if not problem.nullity and best.slack * second_order <= 4.0 * tolerance:
            record.products += record.size if block_form.chain is None else CHAIN_SHARE
            best.certify(_unit_diagonal_cost(block_form, spectra, weight, ratio), weight, ratio, spectra, second_order)
        record.add(best.upper, best.gap, weight)
        if best.gap <= tolerance:
            stop = "converged"
            break
        since = 0 if best.gap < 0.9 * previous or not np.isfinite(previous) else since + 1
        if since >= (SINGULAR_PATIENCE if problem.nullity else PATIENCE):
            stop = "stalled"
            break
        path.add(log_weight, residual)
        if since == 0 and _takes_newton_steps(block_form):
            largest_residual = float(np.abs(residual).max()) if problem.nullity else None
            forcing = _forcing_of(SLACK * second_order, tolerance, largest_residual)
            move, step_products = newton_step(
                block_form, spectra, ratio * weight * block_form.multiplicity, residual, forcing
            )
            if problem.nullity and move.min() <= -LARGEST_STEP:
                stop = "stalled"
                break
            log_weight, record.products = log_weight + move, record.products + step_products
        else:
            log_weight = path.accelerate()
        del spectra  # only the best strategy's eigenvectors stay in memory
    assert best.weight is not None
    assert best.squares is not None
    spectra = tuple(_nonzero_part(spectrum) for spectrum in best.spectra) if problem.nullity else best.spectra
    root = block_form.root(spectra, best.weight, 1.0 / np.sqrt(best.squares))
    return root, best.upper, best.lower, record.solve(stop)


def _first_steps(block_form: BlockDiagonal, log_weight: Matrix, record: _Record, *, tolerance: float, limit: int) -> Matrix:
    """The logarithms of weights near the optimum, by steps that prove nothing; the given ones for few cells."""
    if block_form.chain is not None:
        return _take_chain_steps(block_form.chain, log_weight, tolerance=tolerance, limit=limit, report_step=record.add)
    if not _takes_newton_steps(block_form):
        return log_weight
    log_weight, steps, record.products = _take_single_steps(
        block_form, log_weight, tolerance=tolerance, limit=limit, report_step=record.add
    )
    record.eighs += steps * SINGLE_SHARE * record.size
    return log_weight


def _spectra(block_form: BlockDiagonal, weight: Matrix, *, singular: bool) -> tuple[tuple[Spectrum, ...], float]:
    """For each part, s and U with D^1/2 V D^1/2 = U diag(s^2) U', and a number not above the sum of all s.

    Args:
        singular: whether some s are zero: they are left a trace, by which nothing is divided.
    """
    if block_form.chain is not None:
        roots, vectors, proven = block_form.chain.spectrum(weight)
        return ((roots, vectors),), proven
    spectra, proven = [], 0.0
    for block in block_form.blocks:
        values, vectors = decompose_scaled(block.gram, np.sqrt(weight[block.cells]))
        proven += proven_root_trace(values)
        if singular:
            values[values <= values.size * EPSILON * values[-1]] = 0.0
        spectra.append((np.sqrt(np.maximum(values, TRACE**2 * values[-1])), vectors))
    return tuple(spectra), proven


def _nonzero_part(spectrum: Spectrum) -> Spectrum:
    """A spectrum without what stands for zero."""
    roots, vectors = spectrum
    first = int(np.searchsorted(roots, 2.0 * TRACE * roots[-1]))
    return roots[first:], vectors[:, first:]


def _balance(
    block_form: BlockDiagonal, log_weight: Matrix, spectra: tuple[Spectrum, ...]
) -> tuple[Matrix, tuple[Spectrum, ...]]:
    """The same point scaled so that sum(v) = tr K^1/2, which every fixed point satisfies; K scales with v."""
    total = sum(float(s.sum()) for s, _ in spectra)
    ratio = total / float(block_form.multiplicity @ np.exp(log_weight))
    return log_weight + 2.0 * np.log(ratio), tuple((s * ratio, u) for s, u in spectra)


def _diagonal(block_form: BlockDiagonal, spectra: tuple[Spectrum, ...], weight: Matrix) -> Matrix:
    """diag X(v) at each dual variable; at the optimum all ones."""
    diagonal = np.zeros(weight.size)
    for block, (s, u) in zip(block_form.blocks, spectra, strict=True):
        diagonal[block.cells] += linear_algebra.weighted_rows(u, s)
    return np.asarray(diagonal / (weight * block_form.multiplicity))


def _unit_diagonal_cost(block_form: BlockDiagonal, spectra: tuple[Spectrum, ...], weight: Matrix, ratio: Matrix) -> float:
    """tr(V X^-1) for X(v) rescaled to unit diagonal."""
    column = np.sqrt(weight * ratio)
    if block_form.chain is not None:
        ((roots, vectors),) = spectra
        return block_form.chain.cost(column, roots, vectors)
    cost = 0.0
    for block, (s, u) in zip(block_form.blocks, spectra, strict=True):
        z = linear_algebra.like(block.gram, column[block.cells])
        scaled = block.gram * z
        scaled *= z[:, None]
        cost += linear_algebra.weighted_total(u, scaled @ u, 1.0 / s)
    return cost


def _fold(dual: Matrix, block_form: BlockDiagonal) -> Matrix:
    if not block_form.reversal:
        return np.maximum(dual, np.finfo(float).tiny)
    folded = (dual + dual[::-1])[: block_form.multiplicity.size] / 2
    return np.maximum(folded, np.finfo(float).tiny)


def _unfold(weight: Matrix, block_form: BlockDiagonal, cells: int) -> Matrix:
    if not block_form.reversal:
        return weight
    return np.concatenate([weight, weight[: cells // 2][::-1]])
