"""From a noisy measurement to answers: one estimate for all queries, and the exact variance of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import scipy

from dpdist.engine import Engine, OnDone
from dpdist.errors import InvalidInput
from dpdist.operators import Hadamard, Identity, Matrix, Operator, Toeplitz, Total
from dpdist.operators.base import ROW_BLOCK_BYTES
from dpdist.passes import Side, Target, passes
from dpdist.privacy.noise import Noise
from dpdist.store import Store, StoredArray
from dpdist.strategies.coefficients import Coefficients
from dpdist.strategies.convolution import deviations, dyadic_spectra, filters_of, reading
from dpdist.strategies.dense_grid import DenseGrid
from dpdist.strategies.filter_grid import FilterGrid
from dpdist.strategies.hadamard_grid import HadamardGrid
from dpdist.strategies.term_grid import IntegerTerm, TermGrid, along
from dpdist.strategies.terms import block_variances, mean_answers, placed, row_squares, sums_to_zero
from dpdist.workloads import Basis, Block, Workload, integer_basis


@dataclass(frozen=True)
class Reader:
    """How answers derive from measured grid values.

    Attributes:
        spacing: grid unit of the measurement.
        units: for a direct strategy, spacing * M of each query: its answer is measured * spacing / unit.
        basis, inverse: else the basis B of the workload and B A^+ spacing, (r, p), with A the strategy on the grid; large,
            so it may be left out (None) and put in by ``with_inverse`` where it is used.
    """

    workload: Workload
    spacing: float
    units: Matrix | None = field(default=None, repr=False)
    basis: Basis | None = None
    inverse: Matrix | None = field(default=None, repr=False)

    def with_inverse(self, inverse: Matrix | None) -> Reader:
        """The same reader with the inverse put in, or taken out."""
        return replace(self, inverse=inverse)

    def estimate(self, measured: Matrix) -> Matrix:
        """What answers are computed from: the basis estimate, the noisy cells, or the measurements themselves."""
        if self.inverse is not None:
            return np.asarray(self.inverse @ measured.astype(np.float64))
        return np.asarray(measured * self.spacing)

    def answers(self, start: int, stop: int, estimate: Matrix, noise: Noise) -> tuple[Matrix, Matrix, Matrix]:
        """Answers of the unweighted queries start..stop, their standard errors, and half widths of 95 % intervals.

        Returns: three arrays of (stop - start,) float64.
        Source: Li & Miklau 2012, Prop. 4: Var(w xhat) = sigma^2 ||w A^+||^2.
        """
        if self.units is not None:
            units = self.units[start:stop]
            errors = noise.deviation * self.spacing / units
            return estimate[start:stop] / units, errors, errors * noise.half_width_95(1.0)
        if self.basis is None:
            rows = spread = self.workload.unweighted.rows(start, stop)
            unit = self.spacing
        else:
            assert self.inverse is not None
            rows = self.basis.coordinates(start, stop, weighted=False)
            spread, unit = rows @ self.inverse, 1.0
        squares = np.einsum("ij,ij->i", spread, spread)
        concentration = np.einsum("ij,ij,ij,ij->i", spread, spread, spread, spread) / np.maximum(squares**2, 1e-300)
        errors = np.sqrt(squares) * noise.deviation * unit
        return rows @ estimate, errors, errors * noise.half_width_95(concentration)

    def conditioned(self, estimate: Matrix, known: tuple[Block, ...], counts: Matrix, noise: Noise) -> tuple[Reader, Matrix]:
        """The reader and the estimate, given that some counts are public: equality constraints of the least squares.

        With S the noise weights of the known counts, everything is projected off them: xhat - K S'(S S')^-1 (S-answers - counts),
        K (I - S'(S S')^-1 S). Standard errors stay exact, and fall.

        Raises: InvalidInput when a count is no combination of the workload's queries, follows from the others, or cannot be
            true: the noisy measurement contradicts it by more than chance does once in 1e9.
        """
        reader = self._dense()
        assert reader.basis is not None
        assert reader.inverse is not None
        rows = np.concatenate([reader.basis.coordinates_of(block) for block in known])
        spread = rows @ reader.inverse
        inner = spread @ spread.T
        if np.linalg.matrix_rank(inner, hermitian=True) < inner.shape[0]:
            raise InvalidInput("one of the known counts follows from the others; leave it out")
        gap = rows @ estimate - counts
        away = np.abs(gap) / (np.sqrt(np.diag(inner)) * noise.deviation)
        if float(gap @ np.linalg.solve(inner, gap)) / noise.deviation**2 > scipy.stats.chi2.isf(1e-9, gap.size):
            worst = int(np.argmax(away))
            raise InvalidInput(
                f"the known count {counts[worst]:g} of {known[worst].name!r} contradicts the noisy records by {away[worst]:.0f} "
                "standard errors; correct or remove it under 'postprocess' and run again (nothing is charged twice)"
            )
        along = np.linalg.solve(inner, spread)
        cross = reader.inverse @ spread.T
        moved = estimate - cross @ np.linalg.solve(inner, gap)
        return replace(reader, inverse=reader.inverse - cross @ along), moved

    def non_negative(self, estimate: Matrix) -> Matrix:
        """The cells >= 0 that are closest to the estimate, weighted by the strategy's covariance, (cells,) float64.

        Source: accelerated projected gradient (Beck & Teboulle 2009, with restarts) on ||R (B x - that)||^2, R'R = (K K')^-1.
        """
        reader = self._dense()
        assert reader.basis is not None
        assert reader.inverse is not None
        cells = self.workload.shape[1]
        root = np.linalg.cholesky(reader.inverse @ reader.inverse.T)
        rows = scipy.linalg.solve_triangular(root, reader.basis.columns(np.arange(cells)), lower=True)
        target = scipy.linalg.solve_triangular(root, estimate, lower=True)
        return _non_negative_least_squares(rows, target)

    def _dense(self) -> Reader:
        """The same reader with its inverse written down. Raises: InvalidInput for answers without an estimate behind them."""
        if self.units is not None:
            raise InvalidInput(
                "answers of the Gaussian and Laplace mechanism have no common estimate; choose another mechanism"
            )
        if self.basis is not None:
            return self
        return replace(self, basis=Basis(self.workload, None, ()), inverse=np.eye(self.workload.shape[1]) * self.spacing)

    def rows_a_task(self) -> int:
        """Queries that a task answers: about a second of multiplications, the same on every machine."""
        work = 2.0 * self.basis.rank**2 if self.basis is not None else 16.0 * self.workload.shape[1]
        return int(min(2**22, max(self.rows_a_block(), TASK_WORK // max(work, 1.0))))

    def rows_a_block(self, block_bytes: int = ROW_BLOCK_BYTES) -> int:
        """Queries whose dense rows fit in a block."""
        width = self.basis.rank if self.basis is not None else self.workload.shape[1]
        return max(1, block_bytes // (16 * width))


def reader_of(workload: Workload, grid: DenseGrid, *, direct: bool) -> Reader:
    """The reader of a grid. Raises: InvalidInput when the strategy does not determine every answer."""
    if direct:
        units = grid.mixing * grid.spacing if grid.mixing.ndim == 1 else workload.weights
        return Reader(workload, grid.spacing, units=units)
    if grid.mixing.ndim == 1 and isinstance(grid.base, Identity):
        return Reader(workload, grid.spacing)
    basis = integer_basis(workload)
    if _fits(grid, basis):
        return Reader(workload, grid.spacing, basis=basis, inverse=_left_inverse(grid.mixing.astype(np.float64)))
    # rows over the cells: x is determined, its statistics B x are read from it
    whole = np.concatenate([block.astype(np.float64) for block in grid.row_blocks()])
    inverse = _left_inverse(whole)
    if basis.operator is not None:
        inverse = basis.operator.matvec(inverse)
    return Reader(workload, grid.spacing, basis=basis, inverse=inverse)


TASK_WORK = 4e10
"""Floating-point operations of a task: handing one out costs a hundredth of them."""

Measured = tuple[DenseGrid | TermGrid, Matrix, Noise]
"""A grid, what was measured on it, and the noise in it."""


def joint_reader(workload: Workload, parts: Sequence[Measured]) -> tuple[Reader, Matrix]:
    """One least-squares estimate from one or several measurements of the same records, and the reader of its answers.

    Each measurement is divided by its noise's deviation; the first one must determine every answer. Cells are written down:
    see ``JOINT_CELLS``.

    Args:
        parts: all with the same kind of noise.
    Returns: a reader for ``parts[0]``'s noise, and the estimate for it.
    """
    rows = np.concatenate(
        [block.astype(np.float64) / noise.deviation for grid, _, noise in parts for block in grid.row_blocks()]
    )
    values = np.concatenate([measured.astype(np.float64) / noise.deviation for _, measured, noise in parts])
    squares, vectors = scipy.linalg.eigh(rows.T @ rows, check_finite=False)
    kept = squares > rows.shape[0] * np.finfo(float).eps * squares[-1]
    inverse = (vectors[:, kept] / squares[kept]) @ (vectors[:, kept].T @ rows.T)
    basis = integer_basis(workload)
    if basis.operator is not None:
        inverse = basis.operator.matvec(inverse)
    reader = Reader(workload, 1.0, basis=basis, inverse=inverse / parts[0][2].deviation)
    return reader, inverse @ values


JOINT_CELLS = 4096
"""Up to here measurements are combined: every cell is written down."""


def _fits(grid: DenseGrid, basis: Basis) -> bool:
    """Whether the strategy mixes the very rows of the workload's basis."""
    if grid.mixing.ndim == 1:
        return False
    if basis.operator is None:
        return isinstance(grid.base, Identity)
    return grid.base.fingerprint == basis.operator.fingerprint


def _left_inverse(rows: Matrix) -> Matrix:
    """The pseudo-inverse of a matrix of full column rank. Raises: InvalidInput when it has not."""
    if rows.shape[0] == rows.shape[1]:
        return np.asarray(scipy.linalg.inv(rows, check_finite=False))
    q, r = scipy.linalg.qr(rows, mode="economic", check_finite=False)
    diagonal = np.abs(np.diag(r))
    if rows.shape[0] < rows.shape[1] or diagonal.min() <= 1e-12 * diagonal.max():
        raise InvalidInput("the strategy does not determine every cell; choose another mechanism for this workload")
    return np.asarray(scipy.linalg.solve_triangular(r, q.T, check_finite=False))


NON_NEGATIVE_STEPS = 5000
NON_NEGATIVE_TOLERANCE = 1e-9


def _non_negative_least_squares(rows: Matrix, target: Matrix) -> Matrix:
    """x >= 0 with the least ||rows x - target||, to a relative change of ``NON_NEGATIVE_TOLERANCE`` a step."""
    linear = rows.T @ target
    bound = float(np.linalg.norm(rows, 2)) ** 2
    x = np.zeros(rows.shape[1])
    ahead, momentum = x, 1.0
    for _ in range(NON_NEGATIVE_STEPS):
        moved = np.maximum(ahead - (rows.T @ (rows @ ahead) - linear) / bound, 0.0)
        if float((ahead - moved) @ (moved - x)) > 0:  # restart: the momentum points uphill
            momentum = 1.0
        renewed = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = moved + (momentum - 1.0) / renewed * (moved - x)
        change = float(np.linalg.norm(moved - x))
        x, momentum = moved, renewed
        if change <= NON_NEGATIVE_TOLERANCE * max(1.0, float(np.linalg.norm(x))):
            break
    return x


@dataclass(frozen=True)
class TermReader:
    """How answers derive from measured terms: the sum of what each term says, block by block of queries.

    Attributes:
        inverses: for every term, the pseudo-inverse of each of its factors, (n_i, p_i).
    """

    workload: Workload
    grid: TermGrid
    inverses: tuple[tuple[Matrix, ...], ...] = field(repr=False)

    def answers(self, block: Block, measured: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
        """Answers of a block's unweighted queries and their standard errors, both (queries,) float64.

        The estimate is xhat = sum over terms of (kron of pinv(M_i)) y / n_j over the attributes j outside; a block's factors act
        on it attribute by attribute. Noise is independent between terms, so variances add.
        """
        if not block.separable:
            raise InvalidInput(
                f"queries {block.name!r} are no product over attributes; choose mechanism 'coa' or 'identity'"
            )
        asked = dict(zip(block.axes, block.factors, strict=True))
        sizes = [factor.shape[0] for factor in block.factors]
        total = np.zeros(sizes)
        for (term, part), inverses in zip(self.grid.slices(), self.inverses, strict=True):
            factors = [asked.get(axis, Total(inverse.shape[0])) for axis, inverse in zip(term.axes, inverses, strict=True)]
            if any(sums_to_zero(f, inverse) for f, inverse in zip(factors, inverses, strict=True)):
                continue
            tensor = measured[part].astype(np.float64).reshape([f.shape[0] for f in term.factors]) * _unit(term)
            for position, (factor, inverse) in enumerate(zip(factors, inverses, strict=True)):
                tensor = _applied(factor, along(inverse, tensor, position), position)
            kept = tensor.reshape([n for axis, n in zip(term.axes, tensor.shape, strict=True) if axis in asked])
            kept = kept.reshape([n if axis in term.axes else 1 for axis, n in zip(block.axes, sizes, strict=True)])
            for place, axis in enumerate(block.axes):
                if axis not in term.axes:
                    kept = kept * placed(mean_answers(asked[axis]), place, len(sizes))
            total += kept
        parts = ((t.axes, inv, _unit(t) * noise.deviation) for t, inv in zip(self.grid.terms, self.inverses, strict=True))
        return total.ravel(), np.sqrt(block_variances(block, parts)).ravel()


def _unit(term: IntegerTerm) -> float:
    """What a measured integer of a term stands for."""
    return float(2.0**term.shift / term.multiplier)


def streamed_answers(
    store: Store,
    engine: Engine,
    reader: TermReader,
    measured: StoredArray,
    noise: Noise,
    names: Sequence[str],
    *,
    integer: bool,
    on_done: OnDone | None = None,
) -> list[StoredArray]:
    """Answers, standard errors and half widths of a streamed measurement, (queries,) float64 each, in two passes.

    Raises: InvalidInput when the workload is not the one product that the measurement is for.
    """
    (term,), (inverses,), (block,) = reader.grid.terms, reader.inverses, reader.workload.blocks
    asked = dict(zip(block.axes, block.factors, strict=True))
    factors = [asked.get(axis) for axis in term.axes]
    if block.asked_axes != term.axes or any(f is None for f in factors):
        raise InvalidInput(
            "a measurement of this size answers the product of queries that it was made for, and nothing else"
        )
    lines = tuple((f, inverse) for f, inverse in zip(factors, inverses, strict=True) if f is not None)
    unit = _unit(term)
    spreads = tuple(np.sqrt(row_squares(f, inverse)) for f, inverse in lines)
    deviation = unit * noise.deviation
    sizes = [(inverse.shape[1], inverse.shape[0], f.shape[0]) for f, inverse in lines]
    widest = math.prod(max(size) for size in sizes[1:])
    queries = math.prod(f.shape[0] for f, _ in lines[1:])
    half = noise.half_width_95(0.0)
    rows = math.prod(inverse.shape[1] for _, inverse in lines[1:])
    sides = [
        Side(rows, partial(_read_first, lines[0], unit), 4 * 8 * max(sizes[0])),
        Side(lines[0][0].shape[0], partial(_read_others, lines[1:], spreads, deviation, half, integer), 6 * 8 * widest),
    ]
    return passes(store, engine, measured, sides, [Target(name, queries, np.float64) for name in names], on_done=on_done)


Line = tuple[Operator, Matrix]
"""A factor of the workload, and the pseudo-inverse of the strategy's factor for the same attribute."""


def _read_first(line: Line, unit: float, start: int, slab: Matrix) -> Matrix:
    del start
    factor, inverse = line
    return np.asarray(factor.matvec(inverse @ np.ascontiguousarray(slab.T.astype(np.float64) * unit)))


def _read_others(
    lines: tuple[Line, ...],
    spreads: tuple[Matrix, ...],
    deviation: float,
    half: float,
    integer: bool,
    start: int,
    gathered: Matrix,
) -> tuple[Matrix, Matrix, Matrix]:
    tensor = gathered.reshape(gathered.shape[0], *(inverse.shape[1] for _, inverse in lines))
    for position, (factor, inverse) in enumerate(lines, start=1):
        tensor = _applied(factor, along(inverse, tensor, position), position)
    error = deviation * spreads[0][start : start + gathered.shape[0]]
    for spread in spreads[1:]:
        error = np.multiply.outer(error, spread)
    return (np.rint(tensor), error, half * error + 0.5) if integer else (tensor, error, half * error)


def formula_answers(workload: Workload, grid: HadamardGrid, measured: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of all formulas over binary attributes and their standard errors, both (queries,) float64."""
    transform = Hadamard(len(grid.axes))
    answers, errors = [], []
    for spectrum in dyadic_spectra(workload):
        reading = np.zeros(transform.n)
        reading[grid.characters] = spectrum[grid.characters] / grid.weights / transform.n
        values = np.zeros(transform.n)
        values[grid.characters] = measured
        answers.append(transform.matvec(reading * values))
        errors.append(np.full(transform.n, float(np.linalg.norm(reading)) * noise.deviation))
    return np.concatenate(answers), np.concatenate(errors)


def filtered_answers(workload: Workload, grid: FilterGrid, measured: Matrix, noise: Noise) -> tuple[Matrix, Matrix]:
    """Answers of all filters and their standard errors, both (queries,) float64: what was measured, filtered once more."""
    given = Coefficients(grid.coefficients * grid.spacing, grid.circular, grid.steps, grid.axes[grid.place], grid.axes)
    lines = measured.astype(np.float64).reshape(grid.coefficients.size, -1) * grid.spacing
    answers: list[Matrix] = []
    errors: list[Matrix] = []
    for each in filters_of(workload):
        found = reading(given, each)
        if grid.circular:
            values = scipy.fft.irfft(scipy.fft.rfft(lines, axis=0) * found[:, None], given.points, axis=0)[: grid.steps]
        else:
            values = Toeplitz(grid.steps, found).matvec(lines)
        spread = deviations(given, each) * noise.deviation * grid.spacing
        for column, rows in ((answers, values), (errors, np.repeat(spread[:, None], grid.series, axis=1))):
            others = [size for position, size in enumerate(grid.shape) if position != grid.place]
            column.append(np.moveaxis(rows.reshape(grid.steps, *others), 0, grid.place).ravel())
    return np.concatenate(answers), np.concatenate(errors)


def _applied(factor: Operator, tensor: Matrix, position: int) -> Matrix:
    """An operator applied along one axis of a tensor."""
    front = np.moveaxis(tensor, position, 0)
    flat = factor.matvec(np.ascontiguousarray(front).reshape(front.shape[0], -1))
    return np.moveaxis(flat.reshape(factor.shape[0], *front.shape[1:]), 0, position)


def term_reader(workload: Workload, grid: TermGrid) -> TermReader:
    """The reader of a term grid."""
    inverses = tuple(tuple(_pseudo_inverse(factor) for factor in term.factors) for term in grid.terms)
    return TermReader(workload, grid, inverses)


def _pseudo_inverse(factor: Matrix) -> Matrix:
    """M^+ of integer rows of full row rank, (n, p) float64."""
    real = factor.astype(np.float64)
    if real.shape[0] == real.shape[1]:
        return np.asarray(scipy.linalg.inv(real, check_finite=False))
    return np.asarray(scipy.linalg.solve(real @ real.T, real, assume_a="pos", check_finite=False).T)
