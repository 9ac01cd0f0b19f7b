"""Estimates: one least-squares estimate of everything that is asked, and the exact variance of every answer read from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import scipy

from dpdist.arrays import lapack
from dpdist.arrays.array_workspace import Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix
from dpdist.operators.linear_operator import ROW_BLOCK_BYTES
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.workloads import Basis, Block, Workload

TASK_WORK = 4e10
"""Floating-point operations of a task: handing one out costs a hundredth of them."""


@dataclass(frozen=True)
class LeastSquares:
    """How answers derive from an estimate.

    Attributes:
        spacing: grid unit of the measurement.
        basis, inverse: the basis B of the workload and B A^+ spacing, (r, p), with A the strategy on the grid; None where the
            measurement is the cells themselves. The inverse is large: tasks get it by reference.
    """

    workload: Workload
    spacing: float
    basis: Basis | None = None
    inverse: Matrix | None = field(default=None, repr=False)

    def estimate(self, measured: Matrix) -> Matrix:
        """What answers are computed from: the basis estimate, or the noisy cells."""
        if self.inverse is not None:
            return np.asarray(self.inverse @ measured.astype(np.float64))
        return np.asarray(measured * self.spacing)

    def answers(self, start: int, stop: int, estimate: Matrix, noise: Noise) -> tuple[Matrix, Matrix, Matrix]:
        """Answers of the unweighted queries start..stop, their standard errors, and half widths of 95 % intervals.

        Returns: three arrays of (stop - start,) float64.
        Source: Li & Miklau 2012, Prop. 4: Var(w xhat) = sigma^2 ||w A^+||^2.
        """
        if self.basis is None:
            rows = noise_weights = self.workload.unweighted.rows(start, stop)
            unit = self.spacing
        else:
            assert self.inverse is not None
            rows = self.basis.coordinates(start, stop, weighted=False)
            noise_weights, unit = rows @ self.inverse, 1.0
        squares = np.einsum("ij,ij->i", noise_weights, noise_weights)
        concentration = np.einsum("ij,ij,ij,ij->i", noise_weights, noise_weights, noise_weights, noise_weights) / np.maximum(
            squares**2, 1e-300
        )
        errors = np.sqrt(squares) * noise.deviation * unit
        return rows @ estimate, errors, errors * noise.half_width_95(concentration)

    def condition_on_counts(
        self, estimate: Matrix, known_blocks: tuple[Block, ...], counts: Matrix, noise: Noise
    ) -> tuple[LeastSquares, Matrix]:
        """The reader and the estimate, given that some counts are public: equality constraints of the least squares.

        With S the noise weights of the known counts, everything is projected off them: xhat - K S'(S S')^-1 (S-answers - counts),
        K (I - S'(S S')^-1 S). Standard errors stay exact, and fall.

        Raises: InvalidInput when a count is no combination of the workload's queries, follows from the others, or cannot be
            true: the noisy measurement contradicts it by more than chance does once in 1e9.
        """
        reader = self.dense()
        assert reader.basis is not None
        assert reader.inverse is not None
        rows = np.concatenate([reader.basis.coordinates_of(block) for block in known_blocks])
        noise_weights = rows @ reader.inverse
        inner = noise_weights @ noise_weights.T
        if np.linalg.matrix_rank(inner, hermitian=True) < inner.shape[0]:
            raise InvalidInput("one of the known counts follows from the others; leave it out")
        gap = rows @ estimate - counts
        standardised_gaps = np.abs(gap) / (np.sqrt(np.diag(inner)) * noise.deviation)
        if float(gap @ np.linalg.solve(inner, gap)) / noise.deviation**2 > scipy.stats.chi2.isf(1e-9, gap.size):
            worst = int(np.argmax(standardised_gaps))
            raise InvalidInput(
                f"the known count {counts[worst]:g} of {known_blocks[worst].name!r} contradicts the noisy records by "
                f"{standardised_gaps[worst]:.0f} "
                "standard errors; correct or remove it under 'postprocess' and run again (nothing is charged twice)"
            )
        solved_weights = np.linalg.solve(inner, noise_weights)
        cross = reader.inverse @ noise_weights.T
        shifted_estimate = estimate - cross @ np.linalg.solve(inner, gap)
        return replace(reader, inverse=reader.inverse - cross @ solved_weights), shifted_estimate

    def dense(self) -> LeastSquares:
        """The same with its inverse written down."""
        if self.basis is not None:
            return self
        return replace(self, basis=Basis(self.workload, None), inverse=np.eye(self.workload.shape[1]) * self.spacing)

    def rows_a_task(self) -> int:
        """Queries that a task answers: about a second of multiplications, the same on every machine."""
        work = 2.0 * self.basis.rank**2 if self.basis is not None else 16.0 * self.workload.shape[1]
        return int(min(2**22, max(self.rows_a_block(), TASK_WORK // max(work, 1.0))))

    def rows_a_block(self) -> int:
        """Queries whose dense rows fit in a block."""
        width = self.basis.rank if self.basis is not None else self.workload.shape[1]
        return max(1, ROW_BLOCK_BYTES // (16 * width))


@dataclass(frozen=True)
class Estimate:
    """One estimate for all queries of a workload.

    Attributes:
        values: what answers are computed from.
        known_blocks: queries whose counts are public, on which it is conditioned.
        biased: whether the estimate has an error beside the noise that is not known: half widths are left out (NaN).
    """

    least_squares: LeastSquares
    values: Matrix = field(repr=False)
    noise: Noise
    known_blocks: tuple[Block, ...] = ()
    biased: bool = False

    def condition_on_counts(self, known_blocks: tuple[Block, ...], counts: Matrix) -> Estimate:
        """The estimate under public counts. Raises: InvalidInput when they cannot be true (``LeastSquares.condition_on_counts``)."""
        reader, values = self.least_squares.condition_on_counts(self.values, known_blocks, counts, self.noise)
        return replace(self, least_squares=reader, values=values, known_blocks=known_blocks)

    def answers(self, answer_request: AnswerRequest) -> Answers:
        """Every answer, by blocks of queries on the engine."""
        reader = self.least_squares
        queries = reader.workload.shape[0]
        with answer_request.work.scratch() as inner:
            inverse = None if reader.inverse is None else SharedArray.write(reader.inverse, inner)
            values = SharedArray.write(self.values, inner)
            task = partial(_answer_queries, replace(reader, inverse=None), inverse, values, self.noise, self.biased)
            return answer_request.fill(queries, min(reader.rows_a_task(), max(1, queries)), task)


@dataclass(frozen=True)
class SharedArray:
    """An array that tasks read from where it was written, once for all tasks of a stage on one worker."""

    vector: Vector
    shape: tuple[int, ...]

    @classmethod
    def write(cls, values: Matrix, work: Workspace) -> SharedArray:
        """The array, written to a workspace."""
        return cls(work.write(ArrayVector(values.ravel())), values.shape)

    @cached_property
    def values(self) -> Matrix:
        """The array."""
        return to_array(self.vector).reshape(self.shape)

    def __reduce__(self) -> tuple[type[SharedArray], tuple[Vector, tuple[int, ...]]]:
        return SharedArray, (self.vector, self.shape)


def _answer_queries(
    reader: LeastSquares,
    inverse: SharedArray | None,
    estimate: SharedArray,
    noise: Noise,
    biased: bool,
    start: int,
    stop: int,
) -> list[Matrix]:
    """Answers, errors and half widths of some queries: a task."""
    filled = reader if inverse is None else replace(reader, inverse=inverse.values)
    values, step = estimate.values, reader.rows_a_block()
    row_blocks = [
        filled.answers(block_start, min(stop, block_start + step), values, noise) for block_start in range(start, stop, step)
    ]
    answers, errors, half = (np.concatenate(column) for column in zip(*row_blocks, strict=True))
    if biased:
        half = np.full_like(half, np.nan)  # the error bars know the noise only
    return [answers, errors, half]


def inverse_for_queries(rows: Matrix, query_gram: Callable[[], Matrix]) -> Matrix:
    """The pseudo-inverse of rows that may leave open what nobody asks for.

    Args:
        query_gram: gives V'V of the rows V that are asked for, over the columns of ``rows``, where it is needed.
    Raises: InvalidInput when the rows do not determine what is asked for.
    """
    try:
        return left_inverse(rows)
    except (np.linalg.LinAlgError, InvalidInput):
        inverse, gram = np.linalg.pinv(rows, rcond=1e-12), query_gram()
        unresolved = np.eye(rows.shape[1]) - inverse @ rows
        if float(np.einsum("ij,ik,kj->", unresolved, gram, unresolved)) > 1e-12 * float(np.trace(gram)):
            raise InvalidInput(
                "the strategy does not determine every answer; choose another mechanism for this workload"
            ) from None
        return np.asarray(inverse)


def left_inverse(rows: Matrix) -> Matrix:
    """The pseudo-inverse of a matrix of full column rank. Raises: InvalidInput when it has not."""
    if rows.shape[0] == rows.shape[1]:
        return np.asarray(lapack.inv(rows))
    q, r = lapack.qr(rows, mode="economic")
    diagonal = np.abs(np.diag(r))
    if rows.shape[0] < rows.shape[1] or diagonal.min() <= 1e-12 * diagonal.max():
        raise InvalidInput("the strategy does not determine every cell; choose another mechanism for this workload")
    return np.asarray(lapack.solve_triangular(r, q.T))
