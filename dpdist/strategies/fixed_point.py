"""Certified optimum for full-rank grams: accelerated fixed point in the logarithm of the dual weights.

The map v <- v * diag X(v) (Denisov et al. 2022) is over-relaxed and Anderson-accelerated. The upper bound is taken
after rescaling X to unit diagonal: its error is second order in v, so that a certificate comes long before v settles.
A gram that is symmetric under reversal of its cells splits into two of half the size; one whose inverse is tridiagonal
(``chain.py``) needs n^2 operations a step.

The first steps need no certificate: they are taken in single precision, or, on chains, without eigenvectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpdist.operators import Matrix
from dpdist.strategies import linear
from dpdist.strategies.base import OnStep, Solve, Step, Stop, proven_root_trace
from dpdist.strategies.inexact import (
    SLACK,
    Path,
    chain_steps,
    forcing_of,
    nearly_diagonal_start,
    newton_step,
    single_steps,
    takes_newton_steps,
)
from dpdist.strategies.problem import EPSILON, Problem
from dpdist.strategies.split import Spectrum, Split, decomposed, mean_square, split_of

PATIENCE = 12
"""Iterations without progress of the gap before the solver hands over."""
SINGLE_SHARE = 0.6
"""Time of an eigen-decomposition in single precision over one in double precision (benchmarks/optimisers.py)."""
CHAIN_SHARE = 0.3
"""Time of a tridiagonal eigen-decomposition over that of a full one."""


@dataclass
class _Best:
    """The best certificate met so far, and the strategy that attains it.

    ``slack``: gap of the rescaled strategy over the mean squared residual; it says when a certificate is worth its product.
    """

    lower: float = 0.0
    upper: float = np.inf
    weight: Matrix | None = None
    spectra: tuple[Spectrum, ...] = ()
    slack: float = SLACK

    def offer(self, upper: float, weight: Matrix, spectra: tuple[Spectrum, ...]) -> None:
        """Take over a strategy if it is better."""
        if upper < self.upper:
            self.upper, self.weight, self.spectra = upper, weight, spectra

    def certify(self, upper: float, weight: Matrix, spectra: tuple[Spectrum, ...], second_order: float) -> None:
        """Take over a rescaled strategy if it is better, and learn from it."""
        self.slack = max(upper / self.lower - 1.0, 0.0) / max(second_order, EPSILON)
        self.offer(upper, weight, spectra)

    @property
    def gap(self) -> float:
        return self.upper / self.lower - 1.0 if self.lower > 0 else np.inf


class _Record:
    """The steps of a solve, reported as they are taken, and the work in them: a decomposition of all parts counts as ``size``."""

    def __init__(self, problem: Problem, split: Split, on_step: OnStep) -> None:
        self.problem, self.split, self.on_step = problem, split, on_step
        self.history: list[Step] = []
        self.size = sum((part.cells.size / problem.cells) ** 3 for part in split.parts)
        self.eighs, self.products = 0.0, 0.0

    def add(self, cost: float, gap: float, weight: Matrix) -> None:
        """Note a step: costs are those of the scaled problem."""
        checkpoint = self.problem.expand(_unfold(weight, self.split, self.problem.cells))
        self.history.append(Step(len(self.history) + 1, cost * self.problem.scale, gap, checkpoint=checkpoint))
        self.on_step(self.history[-1])

    def solve(self, stop: Stop) -> Solve:
        """The record as it is kept."""
        last, history = self.history[-1].checkpoint, tuple(self.history)
        return Solve("dual fixed point", stop, history, last, round(self.eighs, 2), round(self.products, 2))


def solve(
    problem: Problem, *, tolerance: float, max_iterations: int, on_step: OnStep, start: Matrix | None = None
) -> tuple[Matrix, float, float, Solve]:
    """The optimal strategy of a full-rank problem.

    Returns: A over the kept cells; its cost and the lower bound, both of the scaled problem; the record.
    """
    assert problem.gram is not None
    split = split_of(problem.gram, problem.chain)
    dual = problem.initial_dual if start is None else start
    if start is None and takes_newton_steps(split):
        dual = nearly_diagonal_start(problem.gram, dual)
    log_weight = np.log(_fold(dual, split))
    best, path, since = _Best(), Path(), 0
    record = _Record(problem, split, on_step)
    stop: Stop = "iteration limit"
    if start is None:
        log_weight = _first_steps(split, log_weight, record, tolerance=tolerance, limit=max_iterations - 1)
    while len(record.history) < max_iterations:
        spectra, proven = _spectra(split, np.exp(log_weight))
        best.lower = max(best.lower, proven**2 / float(split.multiplicity @ np.exp(log_weight)))
        log_weight, spectra = _balanced(split, log_weight, spectra)
        weight = np.exp(log_weight)
        record.eighs += record.size if split.chain is None else CHAIN_SHARE
        ratio = _diagonal(split, spectra, weight)
        residual, previous = np.log(ratio), best.gap
        second_order = mean_square(split, weight, residual)
        best.offer(float(ratio.max()) * sum(float(s.sum()) for s, _ in spectra), weight, spectra)
        if best.slack * second_order <= 4.0 * tolerance:
            record.products += record.size if split.chain is None else CHAIN_SHARE
            best.certify(_unit_diagonal_cost(split, spectra, weight, ratio), weight, spectra, second_order)
        record.add(best.upper, best.gap, weight)
        if best.gap <= tolerance:
            stop = "converged"
            break
        since = 0 if best.gap < 0.9 * previous or not np.isfinite(previous) else since + 1
        if since >= PATIENCE:
            stop = "stalled"
            break
        path.add(log_weight, residual)
        if since == 0 and takes_newton_steps(split):
            forcing = forcing_of(SLACK * second_order, tolerance)
            move, used = newton_step(split, spectra, ratio * weight * split.multiplicity, residual, forcing)
            log_weight, record.products = log_weight + move, record.products + used
        else:
            log_weight = path.accelerated()
        del spectra  # only the best strategy's eigenvectors stay in memory
    assert best.weight is not None
    ratio = _diagonal(split, best.spectra, best.weight)
    root = split.root(best.spectra, best.weight, 1.0 / np.sqrt(ratio))
    return root, best.upper, best.lower, record.solve(stop)


def _first_steps(split: Split, log_weight: Matrix, record: _Record, *, tolerance: float, limit: int) -> Matrix:
    """The logarithms of weights near the optimum, by steps that prove nothing; the given ones for few cells."""
    if split.chain is not None:
        return chain_steps(split.chain, log_weight, tolerance=tolerance, limit=limit, told=record.add)
    if not takes_newton_steps(split):
        return log_weight
    log_weight, steps, record.products = single_steps(split, log_weight, tolerance=tolerance, limit=limit, told=record.add)
    record.eighs += steps * SINGLE_SHARE * record.size
    return log_weight


def _spectra(split: Split, weight: Matrix) -> tuple[tuple[Spectrum, ...], float]:
    """For each part, s and U with D^1/2 V D^1/2 = U diag(s^2) U', and a number not above the sum of all s."""
    if split.chain is not None:
        roots, vectors, proven = split.chain.spectrum(weight)
        return ((roots, vectors),), proven
    out, proven = [], 0.0
    for part in split.parts:
        values, vectors = decomposed(part.gram, np.sqrt(weight[part.cells]))
        proven += proven_root_trace(values)
        out.append((np.sqrt(np.maximum(values, 1e-30 * values[-1])), vectors))
    return tuple(out), proven


def _balanced(split: Split, log_weight: Matrix, spectra: tuple[Spectrum, ...]) -> tuple[Matrix, tuple[Spectrum, ...]]:
    """The same point scaled so that sum(v) = tr K^1/2, which every fixed point satisfies; K scales with v."""
    total = sum(float(s.sum()) for s, _ in spectra)
    ratio = total / float(split.multiplicity @ np.exp(log_weight))
    return log_weight + 2.0 * np.log(ratio), tuple((s * ratio, u) for s, u in spectra)


def _diagonal(split: Split, spectra: tuple[Spectrum, ...], weight: Matrix) -> Matrix:
    """diag X(v) at each dual variable; at the optimum all ones."""
    out = np.zeros(weight.size)
    for part, (s, u) in zip(split.parts, spectra, strict=True):
        out[part.cells] += linear.weighted_rows(u, s)
    return np.asarray(out / (weight * split.multiplicity))


def _unit_diagonal_cost(split: Split, spectra: tuple[Spectrum, ...], weight: Matrix, ratio: Matrix) -> float:
    """tr(V X^-1) for X(v) rescaled to unit diagonal."""
    column = np.sqrt(weight * ratio)
    if split.chain is not None:
        ((roots, vectors),) = spectra
        return split.chain.cost(column, roots, vectors)
    cost = 0.0
    for part, (s, u) in zip(split.parts, spectra, strict=True):
        z = linear.like(part.gram, column[part.cells])
        scaled = part.gram * z
        scaled *= z[:, None]
        cost += linear.weighted_total(u, scaled @ u, 1.0 / s)
    return cost


def _fold(dual: Matrix, split: Split) -> Matrix:
    if not split.reversal:
        return np.maximum(dual, np.finfo(float).tiny)
    folded = (dual + dual[::-1])[: split.multiplicity.size] / 2
    return np.maximum(folded, np.finfo(float).tiny)


def _unfold(weight: Matrix, split: Split, cells: int) -> Matrix:
    if not split.reversal:
        return weight
    return np.concatenate([weight, weight[: cells // 2][::-1]])
