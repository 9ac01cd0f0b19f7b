"""What fits of non-negative cells do to the squared error of the published queries.

    python benchmarks/nonnegative_cells.py [--cells 256] [--draws 200] [--out benchmarks/results/nonnegative_cells.md]

Every figure is the total squared error of the fitted answers over that of the unbiased ones, in the mean of the same draws of Gaussian
noise under the workload's optimal strategy (COA). 'measurement' takes the cells >= 0 that are closest to the measurement (maximum
likelihood: rule 1 of dpdist). 'total first' estimates the total, holds it, and then takes the cells >= 0 closest to the measurement:
private-pgm's practice, and that of the 2020 census with one level. 'answers' takes the cells >= 0 whose answers are closest to the
unbiased ones (rule 2), for which 'largest' is the largest ratio of one draw: it is at most 1 by a theorem. 'told' is what releases say
of it: simulated from the noisy data of one draw, the mean and the range over ten releases. Data: 'sparse' has 8 cells of 5 to 200
records, 'smooth' a hump of 5,000 records, 'dense' about 200 records in every cell; the noise has multiplier 10.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpdist.plugins.nonnegative_answers.nonnegative_cells import Fit, nonnegative_least_squares
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import GAUSSIAN
from dpdist.strategies import coa
from dpdist.workloads import Workload, all_ranges, integer_basis, marginals, prefix, random_ranges

SIGMA = 10
TOLD = 10
HELD = 1e4
"""Weight of the total where it is estimated first: its error is then a ten thousandth of a standard error."""
WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "random ranges": lambda n: random_ranges(n, 4 * n, seed=0),
    "prefix": prefix,
    "all ranges": all_ranges,
    "1- and 2-way marginals": lambda n: marginals((4, 4, n // 16), 2),
}
COLUMNS = ("workload", "data", "measurement", "total first", "answers", "largest", "told", "range")


def data(name: str, n: int) -> np.ndarray:
    """Counts of n cells."""
    state = np.random.RandomState(5)
    if name == "sparse":
        x = np.zeros(n)
        x[state.choice(n, 8, replace=False)] = state.randint(5, 200, 8)
        return x
    place = (np.arange(n) + 0.5) / n
    shape = np.exp(-0.5 * ((place - 0.3) / 0.08) ** 2) if name == "smooth" else np.full(n, 1.0)
    return state.multinomial(5000 if name == "smooth" else 200 * n, shape / shape.sum()).astype(float)


def row(name: str, kind: str, n: int, draws: int) -> str:
    """One line of the table."""
    workload, x = WORKLOADS[name](n), data(kind, n)
    strategy = coa(workload, tolerance=1e-4)
    basis = integer_basis(workload)
    fit = Fit.of(basis)
    merged = fit.columns @ np.bincount(_class_of(fit, basis.columns(np.arange(n))), weights=x, minlength=fit.cells.size)
    rows = np.linalg.lstsq(basis.columns(np.arange(n)).T, (strategy.matrix() / strategy.l2_sensitivity).T, rcond=None)[0].T
    inverse = np.linalg.pinv(rows)
    precision = fit.columns.T @ (rows.T @ rows) @ fit.columns
    noise = np.random.RandomState(1).standard_normal((rows.shape[0], draws)) * SIGMA
    ratios: dict[str, list[float]] = {"measurement": [], "total first": [], "answers": []}
    before, told = [], []
    for k, error in enumerate((inverse @ noise).T):
        estimate = merged + error
        linear = fit.columns.T @ (rows.T @ (rows @ estimate))
        total = _total(fit, estimate)
        weight = HELD * np.trace(precision) / precision.shape[0]
        found = {
            "measurement": nonnegative_least_squares(precision, linear),
            "total first": nonnegative_least_squares(precision + weight, linear + weight * total),
            "answers": fit.closest_cells(estimate),
        }
        before.append(error @ fit.inner @ error)
        for rule, cells in found.items():
            away = fit.columns @ cells - merged
            ratios[rule].append(away @ fit.inner @ away)
        if k < TOLD:
            effect = fit.effect(fit.columns @ found["answers"], inverse, Noise(GAUSSIAN, SIGMA), seed=k)
            assert effect.total is not None
            told.append(effect.total.ratio)
    means = [np.mean(ratios[rule]) / np.mean(before) for rule in ratios]
    largest = np.max(np.array(ratios["answers"]) / np.array(before))
    assert largest <= 1 + 1e-9
    figures = [f"{value:.2f}" for value in (*means, largest, np.mean(told))]
    return f"| {' | '.join((name, kind, *figures, f'{min(told):.2f} to {max(told):.2f}'))} |"


def _class_of(fit: Fit, every: np.ndarray) -> np.ndarray:
    """Which distinct cell each cell is."""
    kinds = {column.tobytes(): k for k, column in enumerate(np.ascontiguousarray(fit.columns.T))}
    return np.array([kinds[column.tobytes()] for column in np.ascontiguousarray(every.T)])


def _total(fit: Fit, estimate: np.ndarray) -> float:
    """The unbiased estimate of all records: not negative."""
    rows = np.linalg.lstsq(fit.columns.T, np.ones(fit.cells.size), rcond=None)[0]
    return max(0.0, float(rows @ estimate))


def main() -> None:
    """Print the table, and write it."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--cells", type=int, default=256)
    asked.add_argument("--draws", type=int, default=200)
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for name in WORKLOADS:
        for kind in ("sparse", "smooth", "dense"):
            lines.append(row(name, kind, given.cells, given.draws))
            print(lines[-1], flush=True)
    told = (__doc__ or "").split("nonnegative_cells.md]")[1].strip()
    command = f"`python benchmarks/nonnegative_cells.py`, {given.cells} cells, {given.draws} draws."
    text = f"# Fits of non-negative cells\n\n{command}\n\n{told}\n\n"
    if given.out:
        given.out.write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
