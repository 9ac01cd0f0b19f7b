"""Non-negative cells that keep the published queries as accurate as they were, and what that does to their errors.

Given the unbiased estimate t of the weighted answers, the cells x >= 0 are those whose answers W x come closest to t. So W x is the
projection of t onto a closed convex set that holds the true answers W c. Projections do not move away from any point of the set:
|W x - W c|^2 <= |t - W c|^2 - |t - W x|^2 for every data set and every draw of the noise. Cells that are closest to the *measurement*,
as rule 1 and private-pgm fit them, have no such property (benchmarks/nonnegative_cells.py).

Source: Nikolov, Talwar & Zhang 2013 (projection onto the answers of all possible data sets, for error).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import scipy

from dpdist.api.mechanisms import Basis, ErrorRatio, FitEffect, Matrix, Noise, lapack

RULE = 3
"""How answers are fitted and intervals made of it: a release keeps the rule that its answers were made by. (Up to rule 2 intervals were
widened by all that the fit moved.)"""
DRAWS, FEWEST_DRAWS, SIMULATED_WORK = 100, 20, 2e11
"""How many releases are simulated: fewer where each fit takes long, by the cube of the cells."""
MOST_GROUPS = 20
"""Groups of queries whose error is reported, those that gain least."""
PIVOTS = 200
"""Exchanges of whole sets of cells; 8 to 15 are usual. A problem that takes more goes to an active-set solver."""
PATIENCE = 3
"""Exchanges without fewer wrong cells before only one cell is exchanged at a time."""
RIDGE, ROUNDING = 1e-9, 1e-10
"""Added to the gram, relative to its diagonal, and taken out again by proximal steps; what counts as zero."""
ZERO_ERROR = 1e-9
"""An error of so many records is none: the answer is known."""
PROXIMAL_STEPS = 3
PUBLIC_COUNT_WEIGHT = 1e4
"""Weight of public counts, relative to the gram's diagonal: they are kept to about a ten thousandth of what the fit moves answers."""


@dataclass(frozen=True)
class Fit:
    """The least-squares problem of a workload over its distinct cells.

    Attributes:
        cells: one of each kind of cells that the workload treats alike.
        columns: of the workload's basis, (r, cells).
        inner: C'C of the weighted queries in terms of the basis, (r, r).
        gram: W'W over the distinct cells.
        known_rows: rows of public counts in terms of the basis, (k, r): the cells keep what an estimate says of them.
    """

    basis: Basis
    cells: Matrix
    columns: Matrix
    inner: Matrix
    gram: Matrix
    known_rows: Matrix | None = None

    @classmethod
    def of(cls, basis: Basis, known_rows: Matrix | None = None) -> Fit:
        """The problem of a workload."""
        cells, inner = basis.representatives, basis.gram()
        columns = basis.columns(cells)
        gram = inner if basis.operator is None else columns.T @ inner @ columns
        if known_rows is not None:  # a heavy weight holds them
            weight = PUBLIC_COUNT_WEIGHT * float(np.diag(gram).mean())
            inner = inner + weight * known_rows.T @ known_rows
            gram = gram + weight * (known_rows @ columns).T @ (known_rows @ columns)
        return cls(basis, cells, columns, inner, gram, known_rows)

    def closest_cells(self, estimate: Matrix) -> Matrix:
        """The cells >= 0 whose weighted answers are closest to those of an estimate in terms of the basis."""
        return nonnegative_least_squares(self.gram, self.columns.T @ (self.inner @ estimate))

    def effect(self, estimate: Matrix, inverse: Matrix, noise: Noise, seed: int) -> FitEffect:
        """What fitting does to the errors of data whose cells are those that were fitted, over fresh noise from a public seed.

        Args:
            estimate: B x of the fitted cells, (r,).
            inverse: of the measurement, (r, p).
        """
        draws = int(np.clip(SIMULATED_WORK / self.cells.size**3, FEWEST_DRAWS, DRAWS))
        state = np.random.RandomState(seed)  # NumPy keeps its streams the same for ever
        size = (inverse.shape[1], draws)
        unfitted_errors = inverse @ (noise.kind.simulated(state, size) * noise.deviation)
        fitted = np.stack([self.columns @ self.closest_cells(estimate + error) for error in unfitted_errors.T], axis=1)
        names = [block.name for block in self.basis.workload.blocks]
        before, after = self._squares(unfitted_errors), self._squares(fitted - estimate[:, None])
        nothing = ZERO_ERROR**2 * self._squares(np.eye(self.basis.rank)).sum(axis=1)
        return FitEffect(RULE, draws, *ratios(names, before, after, nothing))

    def _squares(self, errors: Matrix) -> Matrix:
        """The weighted total squared error of every group of queries, for errors in terms of the basis (r, draws): (groups, draws)."""
        group_squares = []
        for number, (start, block) in enumerate(self.basis.workload.block_starts()):
            if block.queries <= self.basis.rank:
                rows = self.basis.coordinates(start, start + block.queries, weighted=True)
                group_squares.append(np.sum((rows @ errors) ** 2, axis=0))
            else:
                basis_index, gram = self.basis.block_gram(number)
                group_squares.append(np.einsum("ik,ik->k", errors[basis_index], gram @ errors[basis_index]))
        return np.array(group_squares)


def nonnegative_least_squares(gram: Matrix, linear: Matrix) -> Matrix:
    """x >= 0 with the least x'Vx / 2 - c'x; where there are several, one of them.

    Args:
        gram: V, (n, n), symmetric and positive semi-definite.
        linear: c, (n,), in the range of V.
    Source: block principal pivoting (Portugal, Judice & Vicente 1994; Kim & Park 2011) of V + ridge I, and proximal steps.
    """
    ridge = RIDGE * float(np.diag(gram).max())
    damped = gram + ridge * np.eye(gram.shape[0])
    x, positive = np.zeros(gram.shape[0]), np.ones(gram.shape[0], dtype=bool)
    for _ in range(PROXIMAL_STEPS):
        moved = _pivot(damped, linear + ridge * x, positive)
        change = float(np.abs(moved - x).max(initial=0.0))
        x, positive = moved, moved > 0
        if change <= ROUNDING * float(x.max(initial=0.0)):
            break
    return x


def _pivot(gram: Matrix, linear: Matrix, positive: Matrix) -> Matrix:
    """The same for a positive definite V: cells with the wrong sign change sides, all at once while that leaves fewer of them."""
    fewest, patience = linear.size + 1, PATIENCE
    slack = ROUNDING * float(np.abs(linear).max(initial=0.0))
    for _ in range(PIVOTS):
        x, free_cells = np.zeros(linear.size), np.flatnonzero(positive)
        if free_cells.size:
            x[free_cells] = lapack.solve(gram[np.ix_(free_cells, free_cells)], linear[free_cells], assume_a="pos")
        slope = gram[:, free_cells] @ x[free_cells] - linear
        wrong = np.where(positive, x < -ROUNDING * float(np.abs(x).max(initial=0.0)), slope < -slack)
        count = int(wrong.sum())
        if count == 0:
            return np.maximum(x, 0.0)
        if count < fewest:
            fewest, patience = count, PATIENCE
        else:
            patience -= 1
        if patience <= 0:
            wrong[: int(np.flatnonzero(wrong)[-1])] = False
        positive = positive ^ wrong
    root = np.linalg.cholesky(gram)
    target = lapack.solve_triangular(root, linear, lower=True)
    return np.asarray(scipy.optimize.nnls(root.T, target, maxiter=100 * linear.size)[0])


def covering_half_widths(fitted: Matrix, unbiased: Matrix, half: Matrix, lower_limit: Matrix | float) -> Matrix:
    """Half widths of intervals around fitted answers that hold the interval of the unbiased ones, cut at what is possible.

    Args:
        half: of the intervals around the unbiased answers.
        lower_limit: what the true answers are at least.
    """
    low, high = (np.maximum(unbiased + sign * half, lower_limit) for sign in (-1, 1))
    return np.asarray(np.maximum(high - fitted, fitted - low))


def ratios(
    names: Sequence[str], before: Matrix, after: Matrix, nothing: Matrix
) -> tuple[ErrorRatio, tuple[ErrorRatio, ...]]:
    """What a fit does to the squared errors of all queries, and to those of the groups that gain least, the largest ratio first.

    Args:
        before, after: squared errors, weighted as in the workload, (groups, draws).
        nothing: groups with no more than this, (groups,), are known, and no fit changes their errors.
    """
    free = before.mean(axis=1) > nothing
    total = (
        ratio("all queries", before[free].sum(axis=0), after[free].sum(axis=0))
        if free.any()
        else ErrorRatio("all queries", 1.0, 0.0)
    )
    groups = sorted(map(ratio, compress(names, free), before[free], after[free]), key=lambda group: -group.ratio)
    return total, tuple(groups[:MOST_GROUPS])


def ratio(name: str, before: Matrix, after: Matrix) -> ErrorRatio:
    """The ratio of two means of the same draws, with its standard error by the delta method."""
    ratio = float(after.mean() / before.mean())
    deviation = float(np.std(after - ratio * before, ddof=1) / np.sqrt(before.size))
    return ErrorRatio(name, ratio, deviation / float(before.mean()))
