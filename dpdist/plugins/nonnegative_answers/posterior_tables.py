"""Non-negative tables of counts given unbiased noisy ones: means, or draws, of a posterior that is estimated from the noisy tables.

Tables are taken in the order of their sizes: every attribute, halved until single values are reached, what several tables share, and the
tables themselves. What is expected of a cell follows from those before (even halves; independent attributes, fitted to what tables share),
and its count is that number times an unknown ratio. Ratios of cells of which like counts are expected come from one mixture of Gamma
distributions, among them one of nothing at all and some that are close to 1; its weights are those under which the noisy cells are most
likely, found by a few steps of expectation and maximisation, which end early so that no ratio is ruled out. The noise of a cell is taken
for Gaussian and, given the smaller tables, for independent of that of others. A draw is fitted to the smaller tables that were drawn before
it, by corrections in proportion to variances.

Nothing of this is unbiased or proven: it is post-processing, and ``benchmarks/synthetic_intervals.py`` counts how often intervals hold.

Source: Robbins 1956 and Efron 2010 (empirical Bayes; mixtures as priors); Deming & Stephan 1940 (iterative proportional fitting).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import scipy

from dpdist.api.mechanisms import Axes, Matrix
from dpdist.plugins.nonnegative_answers.nonnegative_tables import broadcast_table

MIXTURE = (
    (0.0, 1.0), (0.01, 2.0), (0.1, 2.0), (0.3, 2.0), (1.0, 2.0), (3.0, 2.0), (10.0, 2.0), (30.0, 2.0), (100.0, 2.0),
    (0.4, 10.0), (1.0, 10.0), (2.5, 10.0), (1.0, 60.0),
)  # fmt: skip
"""Means and shapes of the Gamma distributions of the ratio; shapes are whole."""
ERLANG = 10
"""The largest shape whose distribution is computed from its terms."""
PRIOR = 0.1
"""Cells of each kind that are thought to be there beside those that are."""
STEPS = 20
"""Of expectation and maximisation."""
NODES = 64
"""Intervals into which the values that a cell may have are divided."""
REACH = 5.0
"""Standard errors to each side in which these values lie."""
MIN_CELLS, MAX_CELLS = 60, 2000
"""Cells from which the weights of a mixture are estimated."""
BLOCK_CELLS = 4096
"""Cells that are in memory with all their values."""
SWEEPS, PROPORTIONAL_SWEEPS = 60, 20
"""Corrections to each smaller table, and proportional ones."""
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def posterior_tables(
    axes_sets: Sequence[Axes],
    shape: Sequence[int],
    total: float,
    read_table: Callable[[Axes], tuple[Matrix, Matrix]],
    sums: Callable[[int, Matrix], tuple[Matrix, Matrix]],
    draw: tuple[int, int] | None = None,
) -> list[Matrix]:
    """The tables, non-negative and of the total each; tables agree as far as corrections bring them.

    Args:
        axes_sets: attributes of each table, ascending; none within another.
        shape: sizes of the attributes.
        total: number of records.
        read_table: unbiased estimates of a table and their standard errors, in records.
        sums: the same of sums over some values of one attribute, given as vectors of zeros and ones, (sums, values).
        draw: a seed and the number of the draw, from 0: draws of a seed have their quantiles spread evenly. None for means.
    """
    tables: dict[Axes, Matrix] = {
        (axis,): _attribute(shape[axis], total, partial(sums, axis), draw and (draw[0], draw[1], axis))
        for axis in sorted({axis for axes in axes_sets for axis in axes})
    }
    inside = sorted(
        {*axes_sets, *(shared_axes for axes in axes_sets for shared_axes in _shared_axes(axes, axes_sets))} - set(tables),
        key=lambda s: (len(s), s),
    )
    for position, axes in enumerate(inside, len(shape)):
        sizes = tuple(shape[axis] for axis in axes)
        smaller = [s for s in tables if set(s) < set(axes)]
        lower = {s: tables[s] for s in smaller if not any(set(s) < set(candidate) for candidate in smaller)}
        expected = independent_table([tables[axis,] for axis in axes], total)
        if any(len(s) > 1 for s in lower):
            expected = fit_proportionally(expected, axes, [*lower.items()], PROPORTIONAL_SWEEPS)
        values, errors = read_table(axes)
        levels = draw and _levels((*draw, position), expected.size)
        cells, variances = posterior(values.ravel(), errors.ravel(), expected.ravel(), levels)
        tables[axes] = fit_to_tables(cells.reshape(sizes), variances.reshape(sizes), axes, lower)
    return [tables[axes] for axes in axes_sets]


def _attribute(
    size: int, total: float, sums: Callable[[Matrix], tuple[Matrix, Matrix]], draw: tuple[int, int, int] | None
) -> Matrix:
    """The table of one attribute: its values are halved again and again, so that sums of many keep the little error that they have."""
    ends, table = np.array([0, size]), np.array([total])
    while len(table) < size:
        middles = (ends[1:] + ends[:-1]) // 2
        halved = np.unique([*ends, *middles])
        parents = np.searchsorted(ends, halved[:-1], side="right") - 1
        expected = (table / np.diff(ends))[parents] * np.diff(halved)
        inside = (np.arange(size) >= halved[:-1, None]) & (np.arange(size) < halved[1:, None])
        values, errors = sums(inside.astype(np.float64))
        cells, variances = posterior(values, errors, expected, draw and _levels((*draw, len(halved)), expected.size))
        table, ends = _fit_to_parents(cells, variances, parents, table), halved
    return table


def _fit_to_parents(cells: Matrix, variances: Matrix, parents: Matrix, totals: Matrix) -> Matrix:
    """Cells that are brought to the totals of their parents, as ``agreeing`` does."""
    for _ in range(SWEEPS):
        correction = (totals - np.bincount(parents, cells)) / np.bincount(parents, variances)
        cells = np.maximum(cells + variances * correction[parents], 0.0)
    cells = cells + 1e-12
    return np.asarray(cells * (totals / np.bincount(parents, cells))[parents])


def posterior(values: Matrix, errors: Matrix, expected: Matrix, levels: Matrix | None = None) -> tuple[Matrix, Matrix]:
    """Means, or quantiles of some levels, of what is known of each cell; and its variance.

    Args:
        values: unbiased, (cells,).
        errors: their standard errors.
        expected: of each cell, before its value is looked at.
        levels: from 0 to 1. None for means.
    """
    errors = np.maximum(errors, 1e-9)
    expected = np.maximum(expected, 1e-3 * errors)
    estimates, variances = np.empty_like(values), np.empty_like(values)
    for cells in _similar_cells(expected / errors):
        sample = cells[:: -(-cells.size // MAX_CELLS)]
        edges, likelihoods = _interval_likelihoods(values[sample], errors[sample], expected[sample])
        weights = _mixture_weights(likelihoods)
        for start in range(0, cells.size, BLOCK_CELLS):
            block = cells[start : start + BLOCK_CELLS]
            if min(sample.size, block.size) < cells.size:
                edges, likelihoods = _interval_likelihoods(values[block], errors[block], expected[block])
            mass = np.cumsum(np.einsum("cin,c->in", likelihoods, weights) + 1e-300, axis=1)
            mass /= mass[:, -1:]
            interval_mass, middles = np.diff(mass, axis=1, prepend=0.0), (edges[:, 1:] + edges[:, :-1]) / 2
            mean = (interval_mass * middles).sum(axis=1)
            variances[block] = np.maximum((interval_mass * middles**2).sum(axis=1) - mean**2, 1e-6 * errors[block] ** 2)
            estimates[block] = mean if levels is None else _quantiles(edges, mass, levels[block])
    return estimates, variances


def fit_to_tables(table: Matrix, variances: Matrix, axes: Axes, lower: Mapping[Axes, Matrix]) -> Matrix:
    """A table that is brought to smaller ones: by corrections in proportion to variances, then by proportional fitting."""
    for _ in range(SWEEPS):
        for smaller_axes, target in lower.items():
            correction = (target - margin(table, axes, smaller_axes)) / margin(variances, axes, smaller_axes)
            table = np.maximum(table + variances * broadcast_table(correction, smaller_axes, axes), 0.0)
    return fit_proportionally(table + 1e-12, axes, [*lower.items()], PROPORTIONAL_SWEEPS)


def fit_proportionally(table: Matrix, axes: Axes, smaller: Sequence[tuple[Axes, Matrix]], sweeps: int) -> Matrix:
    """Iterative proportional fitting of a non-negative table to smaller ones."""
    for _ in range(sweeps):
        for smaller_axes, target in smaller:
            current = margin(table, axes, smaller_axes)
            ratio = np.divide(target, current, out=np.zeros_like(target), where=current > 0)
            table = table * broadcast_table(ratio, smaller_axes, axes)
    return np.asarray(table)


def independent_table(ones: Sequence[Matrix], total: float) -> Matrix:
    """The table of independent attributes, of which each has a table of its own."""
    table = np.array(total)
    for attribute_table in ones:
        table = np.multiply.outer(table, attribute_table / total)
    return table


def margin(table: Matrix, axes: Axes, kept_axes: Axes) -> Matrix:
    """The table of some of a table's attributes."""
    return np.asarray(table.sum(axis=tuple(position for position, axis in enumerate(axes) if axis not in kept_axes)))


def _shared_axes(axes: Axes, axes_sets: Sequence[Axes]) -> Iterator[Axes]:
    """What a table shares with others, of two attributes or more."""
    for other_axes in axes_sets:
        shared_axes = tuple(axis for axis in axes if axis in other_axes)
        if other_axes != axes and len(shared_axes) > 1:
            yield shared_axes


def _levels(draw: tuple[int, ...], cells: int) -> Matrix:
    """Levels of quantiles, one a cell: each draw's are independent and uniform, those of one cell lie far apart over draws."""
    seed, number, *position = draw
    state = np.random.RandomState([seed >> 32, seed % 2**32, *position])  # NumPy keeps its streams the same for ever
    return np.asarray((state.random_sample(cells) + number * GOLDEN) % 1.0)


def _similar_cells(scaled: Matrix) -> Iterator[Matrix]:
    """Cells of which like counts are expected, within a factor of two, or more where these are few."""
    order = np.argsort(scaled, kind="stable")
    steps = np.flatnonzero(np.diff(np.floor(np.log2(scaled[order])))) + 1
    ends = [0]
    for step in steps:
        if step - ends[-1] >= MIN_CELLS and order.size - step >= MIN_CELLS:
            ends.append(int(step))
    for start, stop in zip(ends, [*ends[1:], order.size], strict=True):
        yield order[start:stop]


def _interval_likelihoods(values: Matrix, errors: Matrix, expected: Matrix) -> tuple[Matrix, Matrix]:
    """Ends of intervals, (cells, NODES + 1), and for each Gamma distribution how likely a value in each is: (MIXTURE, cells, NODES)."""
    high, low = np.maximum(values, 0.0) + REACH * errors, np.maximum(values - REACH * errors, 0.0)
    even = np.arange(NODES + 1) / NODES
    edges = low[:, None] + (high - low)[:, None] * np.where(low[:, None] > 0, even, even**2)
    middles = (edges[:, 1:] + edges[:, :-1]) / 2
    noise = np.exp(-0.5 * ((values[:, None] - middles) / errors[:, None]) ** 2)
    likelihoods = np.empty((len(MIXTURE), *middles.shape))
    for component, (ratio, form) in enumerate(MIXTURE):
        if ratio:
            likelihoods[component] = np.diff(_gamma_distribution(form, form * edges / (ratio * expected)[:, None]), axis=1)
        else:
            likelihoods[component] = 0.0
            likelihoods[component][low == 0, 0] = 1.0
    return edges, likelihoods * noise


def _gamma_distribution(form: float, values: Matrix) -> Matrix:
    """The Gamma distribution of a shape; that of a small one in closed form (Erlang), which takes a fifth of the time."""
    if form > ERLANG:
        return np.asarray(scipy.special.gammainc(form, values))
    terms = np.zeros_like(values)
    for term in range(int(form) - 1, 0, -1):
        terms = (terms + 1.0) * values / term
    return np.asarray(-np.expm1(-values) - terms * np.exp(-values))


def _mixture_weights(likelihoods: Matrix) -> Matrix:
    """Of the Gamma distributions: those under which the values are most likely."""
    cell_likelihoods = likelihoods.sum(axis=2).T + 1e-300
    weights = np.full(len(MIXTURE), 1 / len(MIXTURE))
    for _ in range(STEPS):
        responsibilities = cell_likelihoods * weights
        counts = (responsibilities / responsibilities.sum(axis=1, keepdims=True)).sum(axis=0) + PRIOR
        weights = counts / counts.sum()
    return weights


def _quantiles(edges: Matrix, mass: Matrix, levels: Matrix) -> Matrix:
    """Values below which so much of the mass lies, (cells,)."""
    interval = np.minimum((mass < levels[:, None]).sum(axis=1), NODES - 1)
    rows = np.arange(interval.size)
    below = np.where(interval > 0, mass[rows, interval - 1], 0.0)
    fraction = np.clip((levels - below) / np.maximum(mass[rows, interval] - below, 1e-12), 0.0, 1.0)
    return np.asarray(edges[rows, interval] + fraction * (edges[rows, interval + 1] - edges[rows, interval]))
