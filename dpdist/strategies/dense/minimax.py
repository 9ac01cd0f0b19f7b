"""The strategy whose worst query has the least error, for any workload, with a proof of how close it is.

    minimise  max_i w_i X^-1 w_i'   subject to  diag X <= 1.

For weights l >= 0 of the queries and v >= 0 of the cells, both summing to one, || D_l^1/2 W D_v^1/2 ||_*^2 is a lower bound (the
dual of the factorisation norm gamma_2(W)^2), and the X of its polar decomposition is a strategy. Both weights follow the fixed point
v <- v diag X, l <- l diag(W X^-1 W'), over-relaxed and Anderson-accelerated in their logarithms; a barrier keeps the weights of
cells and queries that do not matter away from zero (docs/mathematics.md, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.errors import InvalidInput
from dpdist.operators import Dense, Kronecker, Matrix, Operator, Product
from dpdist.strategies.dense.trace_problem import EPSILON
from dpdist.strategies.dual_certificates import DualWeights, LargestBound
from dpdist.strategies.representations import DenseStrategy
from dpdist.strategies.strategy import OnStep, Solve, Step, Stop, check_start, check_workload, ignore_step, proven_root_trace
from dpdist.workloads import Basis, Workload, integer_basis

MEMORY = 5
RELAXATION = 1.5
LARGEST_STEP = 3.0
"""In the logarithm of a weight."""
BARRIER = 0.25
"""Part of the tolerance that the barrier may cost."""
CHECKPOINT = 2**16
"""Up to so many weights are kept after every step, so that an interrupted solve goes on."""
PATIENCE = 60


def least_worst(
    workload: Workload,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 500,
    on_step: OnStep = ignore_step,
    start: Matrix | None = None,
) -> DenseStrategy:
    """The strategy whose largest error (standard error times the query's weight) is least.

    Args:
        workload: the queries, (m, n).
        tolerance: certified relative gap of the largest variance at which the solve stops.
        max_iterations: of the solve.
        on_step: called with a ``Step`` after every iteration; may raise ``Cancelled``.
        start: checkpoint of an interrupted solve: the weights of queries and cells.
    Returns: a strategy with its total cost; ``solve`` records the largest variance at sensitivity 1 and its certified gap.
    Raises: InvalidInput when the workload asks for nothing.
    Source: gamma_2 and its dual: Haagerup; Lee, Shraibman, Spalek 2008; for queries: Edmonds, Nikolov, Ullman 2020.
    """
    if not 0 < tolerance < 1:
        raise InvalidInput(f"the tolerance is a relative gap in (0, 1), found {tolerance!r}")
    factored_queries = _factor_queries(check_workload(workload))
    queries, cells = factored_queries.queries, factored_queries.cells
    weights = np.full(queries + cells, 1.0)
    if start is not None:
        weights = np.maximum(check_start(start, weights.shape), EPSILON)
    weights = _normalise(weights, queries)
    pull = BARRIER * tolerance / (queries + cells)
    best: tuple[float, _Point] | None = None
    lower, proving, eighs, since, smallest = 0.0, weights, 0, 0, np.inf
    history: list[Step] = []
    points: list[Matrix] = []
    steps: list[Matrix] = []
    stop: Stop = "iteration limit"
    for iteration in range(1, max_iterations + 1):
        point = _evaluate(factored_queries, weights)
        eighs += 1
        if point.lower > lower:
            lower, proving = point.lower, weights
        if best is None or point.upper < best[0]:
            best = (point.upper, point)
        gap = best[0] / lower - 1.0 if lower > 0 else np.inf
        since = 0 if gap < 0.95 * smallest else since + 1
        smallest = gap if since == 0 else smallest
        checkpoint = weights if weights.size <= CHECKPOINT else None
        history.append(Step(iteration, best[0], gap, checkpoint=checkpoint))
        on_step(history[-1])
        if gap <= tolerance:
            stop = "converged"
            break
        if since > PATIENCE:
            stop = "stalled"
            break
        normaliser = np.concatenate([np.full(queries, 1.0 + queries * pull), np.full(cells, 1.0 + cells * pull)])
        points.append(np.log(weights))
        steps.append(RELAXATION * np.log((point.ratios + pull / weights) / normaliser))
        del points[: -MEMORY - 1], steps[: -MEMORY - 1]
        weights = _normalise(np.exp(_accelerate(points, steps, weights)), queries)
    assert best is not None
    cost = best[1].total
    proof = factored_queries.proof(workload, proving) if weights.size <= CHECKPOINT else None
    record = Solve("least worst query", stop, tuple(history), history[-1].checkpoint, eighs, largest=proof)
    return DenseStrategy("coa", factored_queries.strategy(best[1].mixing), cost, None, record)


@dataclass(frozen=True)
class _QueryBlock:
    """Queries of one block over some coordinates."""

    operator: Operator
    weight: float
    basis_rows: Matrix | None

    def gram(self, size: int, weights: Matrix) -> Matrix:
        """C' diag(weights) C over all coordinates."""
        block_gram = self.weight**2 * self.operator.weighted_gram(weights)
        if self.basis_rows is None:
            return block_gram
        gram = np.zeros((size, size))
        gram[np.ix_(self.basis_rows, self.basis_rows)] = block_gram
        return gram

    def variances(self, form: Matrix) -> Matrix:
        """diag(C form C')."""
        block_form = form if self.basis_rows is None else form[np.ix_(self.basis_rows, self.basis_rows)]
        return self.weight**2 * self.operator.row_quadratics(block_form)


@dataclass(frozen=True)
class _FactoredQueries:
    """W = C Q' B: rows C over coordinates, Q' onto their span (None: all of it), columns B of the distinct cells (None: the identity)."""

    basis: Basis
    query_blocks: tuple[_QueryBlock, ...]
    rank: int
    span: Matrix | None
    columns: Matrix | None

    @property
    def queries(self) -> int:
        return sum(query_block.operator.shape[0] for query_block in self.query_blocks)

    @property
    def cells(self) -> int:
        return self.rank if self.columns is None else int(self.columns.shape[1])

    def gram(self, weights: Matrix) -> Matrix:
        """The gram of the queries under their weights, over the span."""
        size = self.basis.rank
        starts = np.cumsum([0, *(query_block.operator.shape[0] for query_block in self.query_blocks)])
        whole = np.zeros((size, size))
        for query_block, start, stop in zip(self.query_blocks, starts[:-1], starts[1:], strict=True):
            whole += query_block.gram(size, weights[start:stop])
        return whole if self.span is None else self.span.T @ whole @ self.span

    def variances(self, form: Matrix) -> Matrix:
        """c form c' of every query, for a form over the span."""
        whole = form if self.span is None else self.span @ form @ self.span.T
        return np.concatenate([query_block.variances(whole) for query_block in self.query_blocks])

    def proof(self, workload: Workload, weights: Matrix) -> LargestBound:
        """The weights of queries and of cells: of those with equal columns the first one has them all."""
        cells = np.zeros(workload.shape[1])
        cells[slice(None) if self.basis.operator is None else self.basis.representatives] = weights[self.queries :]
        blocks = np.split(weights[: self.queries], np.cumsum([block.queries for block in workload.blocks])[:-1])
        answers = tuple(
            (1.0, (block_weights,)) if block.axes else (float(block_weights[0]), ())
            for block, block_weights in zip(workload.blocks, blocks, strict=True)
        )
        return LargestBound(DualWeights("cells", {0: cells}), answers)

    def strategy(self, mixing: Matrix) -> Operator:
        """A over all cells."""
        over_basis = mixing if self.span is None else mixing @ self.span.T
        return Dense(over_basis) if self.basis.operator is None else Product(Dense(over_basis), self.basis.operator)


def _factor_queries(workload: Workload) -> _FactoredQueries:
    """The queries over the coordinates of their integer basis, and over their span where that is smaller."""
    basis = integer_basis(workload)
    if basis.operator is None:
        shape = workload.domain.shape
        query_blocks = tuple(_QueryBlock(b.operator(shape, scaled=True), b.weight, None) for b in workload.blocks)
        columns = None
    else:
        query_blocks = tuple(
            _QueryBlock(_local(block.scaled(factors)), block.weight, basis_rows)
            for block, (factors, basis_rows) in zip(workload.blocks, basis.blocks, strict=True)
        )
        columns = basis.columns(basis.representatives)
    whole = _FactoredQueries(basis, query_blocks, basis.rank, None, columns)
    values, vectors = lapack.eigh(whole.gram(np.ones(whole.queries)), driver="evd")
    nonzero = values > values.size * EPSILON * max(float(values[-1]), 0.0)
    if not nonzero.any():
        raise InvalidInput(
            "every query of the workload is zero, so there is nothing to answer; give queries that count some cell"
        )
    if nonzero.all():
        return whole
    span = np.ascontiguousarray(vectors[:, nonzero])
    return replace(whole, rank=int(nonzero.sum()), span=span, columns=span.T if columns is None else span.T @ columns)


def _local(factors: tuple[Operator, ...]) -> Operator:
    return factors[0] if len(factors) == 1 else Kronecker(factors)


@dataclass(frozen=True)
class _Point:
    """The dual at some weights.

    Attributes:
        lower, upper: of the largest variance at sensitivity 1.
        ratios: diag(W X^-1 W') and diag X over their weighted means; all ones at the optimum where the weights are positive.
        mixing: of the strategy that has the upper bound, over the span.
        total: its total cost.
    """

    lower: float
    upper: float
    ratios: Matrix
    mixing: Matrix
    total: float


def _evaluate(factored_queries: _FactoredQueries, weights: Matrix) -> _Point:
    """Both bounds from one eigen-decomposition of K = R H R', R'R the gram of the queries and H that of the cells."""
    of_queries, of_cells = weights[: factored_queries.queries], weights[factored_queries.queries :]
    root, exact = _root(factored_queries.gram(of_queries))
    factor = root if factored_queries.columns is None else root @ factored_queries.columns
    gram = (factor * of_cells) @ factor.T
    values, vectors = lapack.eigh(gram, driver="evd", overwrite_a=True)
    roots = np.sqrt(np.maximum(values, EPSILON * values[-1]))
    trace = float(roots.sum())
    mixing = (vectors.T @ root) / np.sqrt(roots)[:, None]  # X = (mixing B)' (mixing B)
    over_cells = mixing if factored_queries.columns is None else mixing @ factored_queries.columns
    squares = np.einsum("ai,ai->i", over_cells, over_cells)
    back = lapack.solve_triangular(root, vectors * np.sqrt(roots))
    inverse = back @ back.T
    variances = factored_queries.variances(inverse)
    ratios = np.concatenate([variances, squares]) / trace
    largest = float(squares.max())
    point = _Point(
        proven_root_trace(values) ** 2 if exact else 0.0,
        largest * float(variances.max()),
        ratios,
        mixing / np.sqrt(largest),
        largest * float(variances.sum()),
    )
    if factored_queries.columns is not None:
        return point
    # every cell is a coordinate: X rescaled to unit diagonal errs by the second order of v only
    length = np.sqrt(squares)
    variances = factored_queries.variances(length[:, None] * inverse * length)
    if float(variances.max()) >= point.upper:
        return point
    return replace(point, upper=float(variances.max()), mixing=mixing / length, total=float(variances.sum()))


def _root(gram: Matrix) -> tuple[Matrix, bool]:
    """Upper triangular R with R'R = gram up to rounding, and whether it is; a ridge makes an indefinite gram definite.

    With a ridge the strategy is as good as any, but nothing is proven about a lower bound.
    """
    ridge = 0.0
    scale = float(np.diag(gram).max())
    for _ in range(8):
        try:
            shifted = gram if ridge == 0.0 else gram + ridge * np.eye(gram.shape[0])
            return np.asarray(lapack.cholesky(shifted, lower=False)), ridge == 0.0
        except scipy.linalg.LinAlgError:
            ridge = max(10.0 * ridge, gram.shape[0] * EPSILON * scale)
    raise InvalidInput("the gram of the queries is not positive semidefinite; a workload holds finite rows")


def _normalise(weights: Matrix, queries: int) -> Matrix:
    """Weights of queries and of cells, each summing to one."""
    return np.concatenate([weight_group / weight_group.sum() for weight_group in (weights[:queries], weights[queries:])])


def _accelerate(points: list[Matrix], steps: list[Matrix], weights: Matrix) -> Matrix:
    """The next logarithms: Anderson's mixture of the last points, in the norm of the weights (those near zero hardly count)."""
    step = steps[-1]
    if len(points) > 1:
        moved = np.diff(np.array(points), axis=0).T
        changed = np.diff(np.array(steps), axis=0).T
        norm = np.sqrt(weights)
        mix = lapack.lstsq(norm[:, None] * changed, norm * step, cond=1e-8)[0]
        step = np.clip(step - (moved + changed) @ mix, -LARGEST_STEP, LARGEST_STEP)
    return np.asarray(points[-1] + step)
