"""Slow, dense truths, written without looking at the code they check."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from scipy.optimize import minimize

AM_FIGURE_1 = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 1, 1],
        [1, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 1, 1, 0, 0, 1, 1],
        [0, 0, 0, 0, 0, 0, 1, 1],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, -1, -1, -1, -1],
    ]
)
"""Figure 1 of Li & Miklau 2012: total, male, female, gpa < 3, gpa >= 3, female & gpa >= 3, male & gpa < 3, difference."""


def optimal_cost(gram: np.ndarray) -> float:
    """min tr(V X^-1), diag X <= 1, by L-BFGS over A = rows / column norms, from several starts."""
    n = gram.shape[0]
    state = np.random.default_rng(7)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        raw = flat.reshape(n, n)
        norms = np.sqrt((raw**2).sum(axis=0))
        a = raw / norms
        inverse = np.linalg.inv(a.T @ a)
        value = np.trace(gram @ inverse)
        gradient = -2 * a @ (inverse @ gram @ inverse)
        gradient = (gradient - a * (a * gradient).sum(axis=0)) / norms
        return value, gradient.ravel()

    best = np.inf
    for _ in range(3):
        start = np.eye(n) + 0.3 * state.standard_normal((n, n))
        found = minimize(
            objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 20000, "ftol": 1e-15, "gtol": 1e-10}
        )
        best = min(best, float(found.fun))
    return best


def brute_force_sensitivity(rows: np.ndarray, neighbours: str, most_records: int, *, power: int) -> int:
    """The largest move (power 1: L1 length; power 2: squared L2 length) of integer
    rows x over every pair of neighbouring histograms, by listing the moves.

    One person holds up to k records in any cells; add-remove: all of them appear; replace-one: any up-to-k records
    become any other up-to-k records.
    """
    exact = np.array([[int(v) for v in row] for row in rows], dtype=object)  # Python's integers: nothing overflows
    owned = [c for c in product(range(most_records + 1), repeat=rows.shape[1]) if sum(c) <= most_records]
    moved = np.array(owned, dtype=object) @ exact.T
    before = moved if neighbours == "replace-one" else 0 * moved[:1]
    return max(int((abs(moved - one) ** power).sum(axis=1).max()) for one in before)


def discrete_gaussian_pmf(scale: Fraction, reach: int) -> np.ndarray:
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values.astype(float) ** 2) / (2 * float(scale) ** 2))
    return weights / weights.sum()


def discrete_laplace_pmf(scale: Fraction, reach: int) -> np.ndarray:
    values = np.arange(-reach, reach + 1)
    ratio = np.exp(-1 / float(scale))
    return (1 - ratio) / (1 + ratio) * ratio ** np.abs(values)
