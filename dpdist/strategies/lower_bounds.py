"""Lower bounds on the cost of every strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.errors import InvalidInput
from dpdist.operators import Identity, Matrix, Total
from dpdist.strategies import linear_algebra
from dpdist.strategies.dual_certificates import DualWeights
from dpdist.strategies.filter_strategies import finite_series_bound
from dpdist.strategies.strategy import UNIT_VARIANCE, Strategy, gram_in_place, proven_root_trace
from dpdist.strategies.symmetric_optimum import SymmetricStrategy
from dpdist.workloads import Block, Gram, Workload

CELLS = 1024
"""Cells up to which it is computed, by one eigen-decomposition for each of the ``CURVES``: 3 CPU seconds at 1,024."""
CURVES = 16
"""Ranks at which the eigenvalues are cut; 48 raise the bound by 1 to 2 % on prefix sums and ranges of 256 and 512 cells."""
FINEST = 2
"""Values of k to an octave, the same on every machine: four times as many raise the bound by 2 % at most, of the tables that were tried."""
MAX_MARGINAL_AXES = 10
"""Attributes of marginals up to which it is computed in closed form: every set of them is compared with every other."""
NEWTON = 16
"""Newton steps, each of which at least halves the error of a logarithm."""


def shared_length_bound(gram: Matrix, weights: Matrix) -> float:
    """2 max over k of min { sum_i d_i^2 / (s_i (k + s_i)) : sum_i s_i <= 1 }: no strategy has a lower cost under Laplace noise (variance at
    epsilon = 1).

    With k = 0 it is 2 (sum_i d_i^(2/3))^3, the optimum of the identity and of a total, which grows as n log^3 n on prefix sums and ranges
    of all lengths, as the best strategies known do; twice the singular value bound grows as n log^2 n. A larger k sees that a row over
    cells whose columns differ is of less use to each of them: it helps where tables share attributes.

    Args:
        gram: V = W'W, (n, n), float64.
        weights: v, (n,), non-negative, not all zero; they are divided by their sum.
    Source: docs/mathematics.md, section 5.
    """
    block, block_weights, copies = _equal_blocks(gram, weights)
    cell_fractions = block_weights / (copies * block_weights.sum())
    squares, columns = _eigen_columns(block, cell_fractions)
    rank = squares.size
    curve_ranks = np.unique(np.geomspace(1, rank, CURVES).astype(int)) - 1 if rank else ()
    curves = [
        _curve(columns, cell_fractions, np.minimum(1.0, squares[curve_rank] / squares), copies) for curve_rank in curve_ranks
    ]

    def proven(offset: float) -> float:
        missed = np.max([np.zeros(rank * copies + 1), *(curve.scaled(offset) for curve in curves)], axis=0)
        return _least_cost(np.maximum(-np.diff(missed), 0.0), offset)

    rounding = 64 * weights.size * np.finfo(float).eps  # of columns and lengths, relative
    return float(2.0 * max(proven(float(offset)) for offset in _offsets(weights.size)) * (1.0 - rounding))


def tables_bound(workload: Workload) -> float:
    """Of tables, however many cells: no strategy has a lower cost under Laplace noise (variance at epsilon = 1); 0 for others."""
    return max(separate_tables_bound(workload), marginals_bound(workload))


def marginals_bound(workload: Workload) -> float:
    """What ``shared_length_bound`` and twice ``dual_bound`` say of marginals whose cells have equal weights, in closed form; 0 for other
    queries, and for marginals of more than ``MAX_MARGINAL_AXES`` attributes together.

    W'W is sum_T v_T P_T with P_T the projector onto tables of T whose margins are zero, in which every cell has the same length. So every
    field is sum_T g_T P_T w_j, and <g_j, g_l> is told by the set of attributes in which the cells j and l agree.

    Source: docs/mathematics.md, section 5.
    """
    if not is_bounded_in_closed_form(workload):
        return 0.0
    axes = _contrast_axes(workload)
    sizes = [workload.domain.shape[axis] for axis in axes]
    # by sets of attributes: the squares of the columns of W, a share of all cells each, along every direction of a residual space, how
    # many directions it has, what its projector says of two cells by those in which they agree, and how many cells agree so
    squares = np.zeros(2 ** len(axes))
    for block in workload.blocks:
        query_factors = [
            [1 / n, 1 / n] if axis in block.asked_axes else [1.0, 0.0] for axis, n in zip(axes, sizes, strict=True)
        ]
        squares += block.weight**2 * _kron(query_factors)
    copies = _kron([1.0, n - 1.0] for n in sizes)
    projected = _kron([[1 / n, 1 / n], [-1 / n, 1 - 1 / n]] for n in sizes)
    agreement_fractions = _kron([1 - 1 / n, 1 / n] for n in sizes)
    order = np.argsort(-squares)[: np.count_nonzero(squares)]
    asked_squares, times = squares[order], copies[order]
    curve_ranks = np.unique(np.geomspace(1, len(order), CURVES).astype(int)) - 1
    damped = np.minimum(1.0, asked_squares[curve_ranks, None] / asked_squares)
    lengths = (damped**2 * asked_squares) @ times
    steps = damped * asked_squares / np.sqrt(lengths)[:, None]
    missed = np.pad(np.cumsum((steps * times)[:, ::-1], axis=1)[:, ::-1], ((0, 0), (0, 1)))
    alike = np.abs((damped**2 * asked_squares) @ projected[order]) * math.prod(sizes) / lengths[:, None]
    alike += 8 * squares.size * np.finfo(float).eps
    alignment_order = np.argsort(-alike, axis=1)
    reach = np.cumsum(agreement_fractions[alignment_order], axis=1)
    aligned = np.cumsum(agreement_fractions[alignment_order] * np.take_along_axis(alike, alignment_order, axis=1), axis=1)

    def proven(offset: float) -> float:
        scale = 1 / np.sqrt(np.minimum((aligned / (offset + reach)).max(axis=1), 1.0))
        envelope = _convex_envelope(steps * scale[:, None], missed * scale[:, None], times)
        return _least_cost(envelope[0], offset, envelope[1])

    singular = float(times @ np.sqrt(asked_squares)) ** 2
    return 2.0 * max(singular, *map(proven, _offsets(math.prod(sizes)))) * (1.0 - 1e-9)


def is_bounded_in_closed_form(workload: Workload) -> bool:
    """Whether ``marginals_bound`` knows a workload."""
    return (
        workload.kind.is_marginals
        and all(map(_is_table, workload.blocks))
        and len(_contrast_axes(workload)) <= MAX_MARGINAL_AXES
    )


def _contrast_axes(workload: Workload) -> list[int]:
    """The attributes that some table tells apart: cells that agree in them are one cell."""
    asked_axes = {axis for block in workload.blocks for axis in block.asked_axes}
    return [axis for axis in sorted(asked_axes) if workload.domain.shape[axis] > 1]


def _kron(factors: Iterable[Sequence[object]]) -> Matrix:
    return reduce(np.kron, map(np.asarray, factors), np.ones(1))


def _convex_envelope(steps: Matrix, missed: Matrix, times: Matrix) -> tuple[Matrix, Matrix]:
    """Steps, and how often each is there, of a convex curve that is nowhere above the largest of several and meets it at their corners.

    Args:
        steps: each curve falls by these, (curves, runs); times: how often, (runs,).
        missed: the curves at their corners, (curves, runs + 1).
    """
    top, runs = missed.argmax(axis=0), np.arange(times.size)
    left_step, right_step = steps[top[:-1], runs], steps[top[1:], runs]
    difference = missed[top[:-1], runs] - missed[top[1:], runs]
    until = np.divide(difference, left_step - right_step, out=np.zeros_like(difference), where=left_step > right_step)
    until = np.clip(until, 0.0, times)
    return np.concatenate([left_step, right_step]), np.concatenate([until, times - until])


def separate_tables_bound(workload: Workload) -> float:
    """Of tables that share no attribute, 2 n (n!^2 s prod_t w_t^(2 (s_t - 1)) / (s_t (s_t - 1)!^2))^(1/n), 0 for other queries: no
    strategy has a lower cost under Laplace noise (variance at epsilon = 1).

    Table t has s_t cells and the weight w_t; n = 1 + sum_t (s_t - 1) and s = sum_t w_t^2 / s_t. It is the optimum of a single table, and
    near that of tables of similar sizes beyond ten or so cells each.

    Source: Vaaler 1979 (sections of cubes); docs/mathematics.md, section 5.
    """
    blocks = workload.blocks
    asked_axes = [axis for block in blocks if block.separable for axis in block.asked_axes]
    if len(set(asked_axes)) < len(asked_axes) or not all(_is_table(block) for block in blocks):
        return 0.0
    tables = [(block.queries, block.weight) for block in blocks]
    rank = 1 + sum(cells - 1 for cells, _ in tables)
    volume = 2 * math.lgamma(rank + 1) + math.log(math.fsum(weight**2 / cells for cells, weight in tables))
    for cells, weight in tables:
        volume += 2 * (cells - 1) * math.log(weight) - math.log(cells) - 2 * math.lgamma(cells)
    return 2 * rank * math.exp(volume / rank) * (1.0 - 1e-12)


def _is_table(block: Block) -> bool:
    """Whether it asks for every value of some attributes, with one weight for all."""
    is_unscaled = block.separable and all(scale is None or (scale == 1).all() for scale in block.scales)
    return is_unscaled and all(isinstance(factor.unpadded, Identity | Total) for factor in block.factors)


def _eigen_columns(gram: Matrix, cell_fractions: Matrix) -> tuple[Matrix, Matrix]:
    """The eigenvalues l of S that are not 0, from the largest on, and the columns of W along its eigenvectors, (rank, n)."""
    values, vectors = lapack.eigh(gram)
    columns = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    squares, vectors = lapack.eigh((columns * cell_fractions) @ columns.T)
    rank = int((squares > squares.size * np.finfo(float).eps * squares[-1]).sum())
    return squares[::-1][:rank], vectors.T[::-1][:rank] @ columns


@dataclass(frozen=True)
class _Curve:
    """What k rows miss at least, from one field of unit vectors g_j, and how far a row can follow the field.

    Attributes:
        missed: for k = 0 .. rank.
        length, aligned: for m = 1 .. n, the most that the sum of v_i |<g_i, g_j>| over m cells i can be, of any cell j, and the least
            length, sum of v_i, of the m cells that reach it. Of several equal blocks of cells those of one: the others are orthogonal.
    """

    missed: Matrix
    length: Matrix
    aligned: Matrix

    def scaled(self, offset: float) -> Matrix:
        """``missed``, once the field is scaled so that a row of length s and entries of at most 1 gets at most (s (spread + s))^(1/2)."""
        if offset == 0:
            return self.missed  # unit vectors never give more than s
        followed = min(float((self.aligned / (offset + self.length)).max()), 1.0)
        return self.missed / math.sqrt(followed)


def _curve(columns: Matrix, cell_fractions: Matrix, damped: Matrix, copies: int) -> _Curve:
    """The field of one diagonal G, over so many blocks of cells that are all like the given one."""
    fields = damped[:, None] * columns
    lengths = np.linalg.norm(fields, axis=0)
    fields = np.divide(fields, lengths, out=np.zeros_like(fields), where=lengths > 0)
    product = (columns * cell_fractions) @ fields.T
    eigenvalues = lapack.eigvalsh((product + product.T) / 2)
    # never more than the true ones
    eigenvalues -= eigenvalues.size * np.finfo(float).eps * np.abs(eigenvalues).max()
    length, aligned = np.full(cell_fractions.size, np.inf), np.zeros(cell_fractions.size)
    for field_block in np.array_split(fields, -(-cell_fractions.size // 64), axis=1):
        alike = np.abs(field_block.T @ fields)
        order = np.argsort(-alike, axis=1)
        length = np.minimum(length, np.cumsum(cell_fractions[order], axis=1).min(axis=0))
        sums = np.cumsum(cell_fractions[order] * np.take_along_axis(alike, order, axis=1), axis=1)
        aligned = np.maximum(aligned, sums.max(axis=0))
    return _Curve(np.concatenate([np.cumsum(np.repeat(eigenvalues, copies))[::-1], [0.0]]), length, aligned)


def _offsets(cells: int) -> tuple[float, ...]:
    """Values of k: 0, and those from about a tenth of a cell's share to 1."""
    return 0.0, *(2.0 ** (-step / FINEST) for step in range(math.ceil(FINEST * math.log2(10 * cells))))


def _least_cost(steps: Matrix, offset: float, copies: Matrix | None = None) -> float:
    """min over s of sum_i steps_i^2 / (s_i (spread + s_i)) where sum_i s_i <= 1, from below: its dual at the multiplier that was found.

    Args:
        copies: how often each step is there, (n,); by default once.
    """
    times = np.ones_like(steps) if copies is None else copies
    times, steps = times[steps > 0], steps[steps > 0]
    squares = steps**2
    if not squares.size:
        return 0.0
    multiplier = 2.0 * float((times * squares ** (1 / 3)).sum()) ** 3  # the best one where the spread is 0
    for _ in range(NEWTON):
        # squares (spread + 2 s) / (s (spread + s))^2 = multiplier: in logarithms the slope is between 2 and 3
        target_logs = np.log(squares / multiplier)
        logs = (target_logs + math.log(2.0)) / 3
        for _ in range(NEWTON):
            s = np.exp(logs)
            excess = 2 * np.log(s * (offset + s)) - np.log(offset + 2 * s) - target_logs
            logs -= excess / (2 * (offset + 2 * s) / (offset + s) - 2 * s / (offset + 2 * s))
        s = np.exp(logs)
        value = float((times * squares / (s * (offset + s))).sum() + multiplier * ((times * s).sum() - 1.0))
        if abs((times * s).sum() - 1.0) <= 1e-7:
            break
        multiplier *= float((times * s).sum()) ** 2.5
    return value


def singular_value_bound(workload: Workload | Gram) -> float:
    """(sum_i sqrt(lambda_i(V)))^2 / n: a lower bound of J for every strategy.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
    Source: Li & Miklau 2013.
    """
    gram = gram_in_place(workload)
    return dual_bound(Gram(gram), np.ones(gram.shape[0]))


def laplace_bound(workload: Workload | Gram, weights: Matrix | None = None) -> float:
    """No strategy has a lower cost under Laplace noise (variance at epsilon = 1).

    The larger one of twice ``dual_bound`` (every column's L1 norm is at least its L2 norm) and, of up to 1,024 cells,
    ``shared_length_bound``.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
        weights: v, (n,), of the cells, non-negative, not all zero; by default all are equal.
    Source: Li & Miklau 2013, for the L2 length; docs/mathematics.md, section 5.
    """
    gram = gram_in_place(workload)
    cells = gram.shape[0]
    cell_weights = np.ones(cells) if weights is None else weights
    length_bound = shared_length_bound(linear_algebra.on_host(gram), cell_weights) if cells <= CELLS else 0.0
    return max(2.0 * dual_bound(Gram(gram), cell_weights), length_bound)


def dual_bound(workload: Workload | Gram, dual: Matrix) -> float:
    """LB(v) = (tr (D_v^1/2 V D_v^1/2)^1/2)^2 / sum(v), a lower bound of J for every v >= 0.

    Args:
        workload: a workload, or its gram W'W, (n, n), float64.
        dual: v, (n,), non-negative, not all zero.
    Source: docs/mathematics.md, section 2.
    """
    gram = gram_in_place(workload)
    weights = np.asarray(dual, dtype=np.float64)
    if weights.shape != (gram.shape[0],) or not np.isfinite(weights).all() or (weights < 0).any() or weights.sum() == 0:
        raise InvalidInput(
            f"{gram.shape[0]} non-negative dual weights are needed, not all zero; found shape {weights.shape}"
        )
    block, block_weights, copies = _equal_blocks(gram, weights) if linear_algebra.is_numpy(gram) else (gram, weights, 1)
    root = linear_algebra.like(block, np.sqrt(block_weights / block_weights.mean()))
    values = linear_algebra.eigenvalues(root[:, None] * block * root)
    return float((copies * proven_root_trace(values)) ** 2 / weights.size)


SMALLEST_GRAM = 128
"""Cells of which a decomposition takes no longer than SciPy's graphs take to be imported."""


def _equal_blocks(gram: Matrix, weights: Matrix) -> tuple[Matrix, Matrix, int]:
    """One of the blocks that a gram consists of, its weights, and how many there are, where all are equal: such as those of the groups
    of which the same statistics are asked. Else the whole."""
    if weights.size < SMALLEST_GRAM or gram[0].all():
        return gram, weights, 1
    count, labels = scipy.sparse.csgraph.connected_components(scipy.sparse.csr_array(gram != 0), directed=False)
    if (np.bincount(labels) * count != weights.size).any():
        return gram, weights, 1
    cells = np.argsort(labels, kind="stable").reshape(count, -1)
    block, block_weights = gram[np.ix_(cells[0], cells[0])], weights[cells[0]]
    is_equal = all(
        np.array_equal(gram[np.ix_(others, others)], block) and np.array_equal(weights[others], block_weights)
        for others in cells[1:]
    )
    return (block, block_weights, count) if is_equal else (gram, weights, 1)


MOST_CELLS = 1024
"""Cells up to which weights are evaluated before they are published: an eigen-decomposition each, of a tenth of a second."""
MAX_STORED_WEIGHTS = 4096
"""Cells up to which a solver's weights are kept and published."""
NEAR_BOUND = 2e-6
"""By how much of itself the bound of published weights may lie below the certificate's."""


GramComputation = Callable[[], Matrix]
"""W'W of the weighted rows, made or read when it is needed."""

Products = Callable[[], tuple[float, dict[int, Matrix]]]
"""A bound under Gaussian noise, and the weights of each attribute's values that prove it, computed when they are needed."""


def dual_weights(
    workload: Workload, compared: Sequence[Strategy], lower: float, compute_gram: GramComputation, product: Products
) -> DualWeights | None:
    """Weights that prove a lower bound of a workload's cost; None where none that are at hand come near it.

    Args:
        compared: the strategies that the bound may come from, all for one kind of noise.
        lower: the bound.
        compute_gram: W'W of the workload.
        product: the bound of unions of products.
    """
    norm, shape, cells = compared[0].norm, workload.domain.shape, workload.shape[1]
    if norm == "l1" and tables_bound(workload) >= lower * (1 - NEAR_BOUND):
        return DualWeights("equal")
    if cells > MOST_CELLS:
        return _weights_of_many_cells(workload, compared, lower / UNIT_VARIANCE[norm], product)
    gram = compute_gram()
    for weights in _candidate_weights(workload, compared, gram, product):
        cell_weights = weights.over_cells(shape)
        bound = dual_bound if norm == "l2" else laplace_bound
        if cell_weights.any() and bound(Gram(gram), cell_weights) >= lower * (1 - NEAR_BOUND):
            return weights
    return None


def _candidate_weights(
    workload: Workload, compared: Sequence[Strategy], gram: Matrix, product: Products
) -> Iterator[DualWeights]:
    """What is cheap first."""
    yield DualWeights("equal")
    for strategy in compared:
        solved = _solver_weights(strategy, workload)
        if solved is not None:
            yield DualWeights("cells", {0: solved})
    for strategy in compared:
        if strategy.lower_bound is not None and strategy.gap < 1e-3:
            yield DualWeights("cells", {0: _optimality_weights(strategy.operator.gram(), gram)})
    if workload.kind.is_separable:
        yield DualWeights("products", product()[1])


def _weights_of_many_cells(
    workload: Workload, compared: Sequence[Strategy], lower: float, product: Products
) -> DualWeights | None:
    """The weights of a solver that has converged, which are not evaluated again, or those of products."""
    for strategy in compared:
        solved = _solver_weights(strategy, workload)
        if solved is not None and strategy.gap < NEAR_BOUND:
            return DualWeights("cells", {0: solved})
    if workload.kind.is_dyadic or (workload.kind.is_filters and _series_bound(workload) >= lower * (1 - NEAR_BOUND)):
        return DualWeights("equal")
    proven, weights = product() if workload.kind.is_separable else (0.0, {})
    return DualWeights("products", weights) if proven >= lower * (1 - NEAR_BOUND) else None


def _series_bound(workload: Workload) -> float:
    """What equal weights prove for filters: around a circle they are the optimum's."""
    _, axes, filters = workload.kind.filters_along_axis
    if filters[0].circular:
        return math.inf
    return math.prod(workload.domain.shape[axis] for axis in axes) // filters[0].n * finite_series_bound(workload)


def _solver_weights(strategy: Strategy, workload: Workload) -> Matrix | None:
    """The solver's weights, one a cell."""
    dual = None if strategy.solve is None else strategy.solve.dual
    if dual is None or workload.shape[1] > MAX_STORED_WEIGHTS:
        return None
    if isinstance(strategy, SymmetricStrategy):
        return strategy.symmetry.over_cells(dual)
    return np.asarray(dual) if dual.shape == workload.shape[1:] else None


def _optimality_weights(precision: Matrix, gram: Matrix) -> Matrix:
    """diag(X^-1 V X^-1), which the dual weights are at an optimum X of full rank."""
    inverse = lapack.pinvh(precision, rtol=1e-11)
    return np.asarray(np.maximum(np.einsum("ij,jk,ki->i", inverse, gram, inverse, optimize=True), 0.0))
