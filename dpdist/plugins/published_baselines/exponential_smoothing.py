"""ESM: exponential smoothing of the matrix mechanism's program (Yuan et al., VLDB 2012, appendix B).

    minimise  smax_mu(diag M) * tr(V M^-1)  over M > 0,   smax_mu(d) = max d + mu log sum exp((d - max d)/mu),

by non-monotone spectral projected gradient (Birgin, Martinez, Raydan 2000); A = M^(1/2).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpdist.api import InvalidInput
from dpdist.api.mechanisms import (
    Dense,
    DenseStrategy,
    Gram,
    Matrix,
    NotPositiveDefinite,
    OnStep,
    Solve,
    Step,
    Stop,
    Workload,
    check_start,
    gram_in_place,
    ignore_step,
    linear_algebra,
    matrix_mechanism_cost,
    singular_value_bound,
)

MEMORY = 10
SLOPE = 1e-4
FLOOR = 1e-6
"""Smallest eigenvalue of M allowed, relative to its mean diagonal."""
RIDGE = 1e-9


def smoothing(
    workload: Workload | Gram,
    *,
    accuracy: float = 0.01,
    tolerance: float = 1e-6,
    max_iterations: int = 500,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The strategy of the exponential smoothing mechanism (ESM), which minimises the product of a smoothed sensitivity and the error.

    Args:
        workload: a workload, or its gram W'W, (n, n); singular grams get a ridge of 1e-9 of their mean diagonal.
        accuracy: how far the smooth maximum may exceed the true one; mu = accuracy / log n.
        tolerance: relative decrease over ``MEMORY`` iterations at which it stops.
        max_iterations: of the spectral projected gradient.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
        start: checkpoint M, (n, n), of an interrupted solve.
    Returns: the strategy with its exact (not smoothed) cost and the singular value bound.
    Raises: InvalidInput, NotPositiveDefinite.
    Source: LRM (VLDB 2012), appendix B.
    """
    if not 0 < accuracy < 1:
        raise InvalidInput(f"the accuracy of the smooth maximum lies in (0, 1), found {accuracy!r}")
    gram = gram_in_place(workload)
    n = int(gram.shape[0])
    scale = linear_algebra.trace(gram) / n
    if scale == 0:
        raise InvalidInput(
            "every query of the workload is zero, so there is nothing to answer; give queries that count some cell"
        )
    target = gram / scale + RIDGE * linear_algebra.identity(gram, n)
    mu = accuracy / max(np.log(n), 1.0)
    point = _project(_root(target) if start is None else linear_algebra.like(gram, check_start(start, (n, n))))
    point /= float(linear_algebra.diagonal(point).max())
    value, gradient = objective_and_gradient(target, point, mu)
    values, history, length = [value], [], 1.0
    best, best_value = point, value
    stop: Stop = "iteration limit"
    for iteration in range(1, max_iterations + 1):
        direction = _project(point - length * gradient) - point
        slope = linear_algebra.inner(gradient, direction)
        step, reference = 1.0, max(values[-MEMORY:])
        while True:
            trial = point + step * direction
            trial_value, trial_gradient = objective_and_gradient(target, trial, mu)
            if trial_value <= reference + SLOPE * step * slope or step < 1e-10:
                break
            step *= 0.5
        moved, turned = trial - point, trial_gradient - gradient
        bent = linear_algebra.inner(moved, turned)
        length = min(1e10, max(1e-10, linear_algebra.inner(moved, moved) / bent)) if bent > 0 else 1e3 * length
        point, value, gradient = trial, trial_value, trial_gradient
        values.append(value)
        if value < best_value:
            best, best_value = point, value
        history.append(Step(iteration, best_value * scale, float("inf"), gradient_norm=linear_algebra.norm(direction)))
        on_step(replace(history[-1], checkpoint=linear_algebra.on_host(point)))
        if iteration > MEMORY and values[-MEMORY - 1] - min(values[-MEMORY:]) <= tolerance * value:
            stop = "converged"
            break
    root = linear_algebra.on_host(linear_algebra.cholesky(best))
    cost = matrix_mechanism_cost(best, gram)
    return DenseStrategy(
        "smoothing", Dense(root), cost, singular_value_bound(Gram(gram)), Solve("smoothing", stop, tuple(history))
    )


def objective_and_gradient(gram: Matrix, point: Matrix, mu: float) -> tuple[float, Matrix]:
    """smax_mu(diag M) tr(V M^-1) and its gradient; infinite outside the cone."""
    try:
        solve_with_point = linear_algebra.factor_matrix(point)
    except NotPositiveDefinite:
        return np.inf, linear_algebra.zeros(point, point.shape)
    half = solve_with_point(gram)
    trace = linear_algebra.trace(half)
    diagonal = linear_algebra.diagonal(point)
    shifted = np.exp((diagonal - diagonal.max()) / mu)
    smooth = float(diagonal.max() + mu * np.log(shifted.sum()))
    inverse = solve_with_point(half.T)
    gradient = -smooth * (inverse + inverse.T) / 2
    linear_algebra.add_to_diagonal(gradient, trace * shifted / shifted.sum())
    return smooth * trace, gradient


def _project(matrix: Matrix) -> Matrix:
    """The nearest matrix whose eigenvalues are at least ``FLOOR`` of the mean diagonal."""
    values, vectors = linear_algebra.eigh((matrix + matrix.T) / 2)
    floor = FLOOR * max(float(np.abs(values).mean()), np.finfo(float).tiny)
    if values[0] >= floor:
        return (matrix + matrix.T) / 2
    return _from_spectrum(np.maximum(values, floor), vectors)


def _root(matrix: Matrix) -> Matrix:
    values, vectors = linear_algebra.eigh(matrix)
    return _from_spectrum(np.sqrt(np.maximum(values, 0.0)), vectors)


def _from_spectrum(values: Matrix, vectors: Matrix) -> Matrix:
    return (vectors * linear_algebra.like(vectors, values)) @ vectors.T
