"""Terms on the integer grid: what is measured of the tables, its exact sensitivity, and two passes where a table is too large."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Vector, to_array
from dpdist.arrays.transpose_passes import Target, TransformPass, slab_bytes
from dpdist.domain import Domain, Layout
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import (
    MEMORY_COPIES,
    Counts,
    IntegerMeasurement,
    Norm,
    StageBytes,
    answer_bytes,
    check_published_size,
    grid_bits,
    shard_bytes,
)
from dpdist.measurement.integer_terms import CONVERTED_BYTES, IntegerTerm, round_term, split_by_term
from dpdist.measurement.sensitivity.bounded_totals import Totals, term_l2_squared
from dpdist.measurement.term_reconstruction import (
    Inverses,
    MeasuredTerm,
    block_answers,
    inverses_of,
    invert_terms,
    product_answers,
    read_term,
    read_terms,
)
from dpdist.operators import Matrix, Total
from dpdist.operators.kronecker_product import largest_tensor_size
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.reconstruction.axis_factors import IdentityFactor, MatrixFactor
from dpdist.reconstruction.kronecker_terms import NO_DIRECTIONS, Directions, Term, is_identity, total_variance
from dpdist.reconstruction.product_space import ProductSpace, SpaceTerm
from dpdist.size_limits import SIZES, Sizes
from dpdist.stability import Neighbours
from dpdist.workloads import Block, Workload

MAX_DEVIATIONS = 6.1
"""Standard errors that a known number may be away from the measured one: chance goes beyond once in 1e9."""


def _condition_on_total(
    workload: Workload, answers: Answers, total_term: MeasuredTerm, directions: Directions, records: float
) -> Answers:
    """The answers and their errors, conditioned on the number of records.

    Its noise is uncorrelated with that of everything else that was measured, so that a query which counts the share m of records that are
    spread as the strategy spreads them is corrected by m times what the measured number is away, and loses m^2 times its variance.

    Args:
        answers: unbiased, by least squares.
        total_term: what is known of the number of records.
    Raises: InvalidInput when the number cannot be true.
    """
    sizes = workload.domain.shape
    everyone = Block("all records", (0,), (Total(sizes[0]),), (("all",),))
    (measured,), (error,) = block_answers(everyone, [total_term], directions)
    deviations = abs(measured - records) / error
    if deviations > MAX_DEVIATIONS:
        raise InvalidInput(
            f"the known count {records:g} of 'all records' contradicts the noisy records by {deviations:.0f} standard errors; correct "
            "or remove "
            "it under 'postprocess' and run again (nothing is charged twice)"
        )
    unit_total = replace(total_term, values=np.full(total_term.values.shape, 1.0 / total_term.unit))
    counted_shares = np.concatenate([block_answers(block, [unit_total], directions)[0] for block in workload.blocks])
    values, errors, half = (to_array(vector) for vector in (answers.answer, answers.error, answers.half_width))
    reduced_errors = np.sqrt(np.maximum(errors**2 - (counted_shares * error) ** 2, 0.0))
    reduced_errors = np.where(reduced_errors > ROUNDING * errors, reduced_errors, 0.0)
    widths = np.divide(half, errors, out=np.zeros_like(half), where=errors > 0)
    return Answers(
        ArrayVector(values + counted_shares * (records - measured)),
        ArrayVector(reduced_errors),
        ArrayVector(widths * reduced_errors),
    )


ROUNDING = 1e-6
"""Standard errors that are this small a share of what they were are rounding error: what is asked is the number of records itself."""


DIGESTED_ROWS = 64
"""Rows of a factor that are written down at once for the digest: an identity is a view."""
INVERTING_COPIES = 4
"""Arrays of a factor's size while it is inverted."""
ROW_COPIES = 8
"""Copies of a slab while it is multiplied: wrapped and real, in and out, limbs, transposed."""


@dataclass(frozen=True)
class TermMeasurement(IntegerMeasurement):
    """Terms on the integer grid: what is measured, its exact sensitivity, and how it is read.

    Attributes:
        spacing: grid unit.
        sensitivity_squared: bound of the squared L2 distance between z of neighbouring histograms, grid units, exact
            integers throughout: columns, then at most one unit a value for the rounding of the shifts.
        directions: of attributes whose rows are orthogonal to something else than all ones.
    """

    terms: tuple[IntegerTerm, ...]
    shape: tuple[int, ...]
    spacing: float
    sensitivity_squared: int
    norm: Norm = "l2"
    sizes: Sizes = SIZES
    directions: Directions = field(default_factory=dict)

    @property
    def is_streamed(self) -> bool:
        """Whether the one table is too large to be held: it is measured in two passes, first attribute last."""
        return (
            len(self.terms) == 1
            and len(self.terms[0].axes) > 1
            and math.prod(self.terms[0].shape) > self.sizes.streamed_cells
        )

    @property
    def rows(self) -> int:
        """Number of measured values."""
        return sum(term.rows for term in self.terms)

    @cached_property
    def column_squared(self) -> int:
        return _squared_distance(self.terms, "add-remove", 1)

    def total_variance(self, workload: Workload, work: Workspace) -> float:
        inverted_terms = invert_terms(self.terms, self.inverses(work))
        return sum(total_variance(block, inverted_terms, self.directions) for block in workload.blocks)

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute sets whose tables are needed: those not inside another one."""
        sets = [term.axes for term in self.terms]
        return tuple(s for s in sets if not any(set(s) < set(other_axes) for other_axes in sets))

    @property
    def digest(self) -> str:
        """SHA-256 of all terms: the noise key is bound to it."""
        content = hashlib.sha256(repr((self.shape, self.spacing, self.sensitivity_squared, self.is_streamed)).encode())
        for axis, direction in sorted(self.directions.items()):
            content.update(repr((axis, direction.tolist())).encode())
        for term in self.terms:
            content.update(repr((term.axes, term.multiplier, term.shift, term.shape)).encode())
            for factor in term.factors:
                for start in range(0, len(factor), DIGESTED_ROWS):
                    content.update(np.ascontiguousarray(factor[start : start + DIGESTED_ROWS]).data)
        return content.hexdigest()

    def row_blocks(self) -> Iterator[Matrix]:
        """The measured rows over all cells, (k, cells) float64, term by term: for domains that can be written down."""
        for term in self.terms:
            yield Term(term.axes, term.factors, term.multiplier / 2.0**term.shift).operator(self.shape).dense()

    def inverses(self, work: Workspace) -> Inverses:
        """The inverses of all factors, term by term."""
        return work.largest(inverses_of, self.terms, self.directions)

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        """Slabs where the one table is too large to be held, else copies of the tables and of z."""
        if self.is_streamed:
            measure = shard_bytes(max(layout.size, self.rows)) + 2 * CONVERTED_BYTES
            return StageBytes(measure, slab_bytes(worker_bytes, max(layout.size, self.rows)) + self._inverse_bytes)
        values = MEMORY_COPIES * 8 * (layout.size + self.rows) + 2 * CONVERTED_BYTES
        return StageBytes(values, answer_bytes(workload) + self._inverse_bytes)

    @property
    def _matrix_sizes(self) -> list[int]:
        """Entries of every factor that is written down: all but identities."""
        return [factor.size for term in self.terms for factor in term.factors if not is_identity(factor)]

    @property
    def _inverse_bytes(self) -> int:
        """The inverses of all factors, and what inverting the largest takes."""
        sizes = self._matrix_sizes
        return 8 * (sum(sizes) + INVERTING_COPIES * max(sizes, default=0))

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        if self.is_streamed:
            return self._measure_in_passes(counts, work, report_progress)
        counts.check_groups(
            tuple(axis for axis, factor in zip(term.axes, term.factors, strict=True) if is_identity(factor))
            for term in self.terms
        )
        return ArrayVector(np.concatenate([term.measure(counts.table(term.axes)) for term in self.terms]))

    def _measure_in_passes(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None) -> Vector:
        """z of a Kronecker strategy; the first attribute's index runs fastest."""
        (term,) = self.terms
        counts.check(work)
        (p, n), rest = term.factors[0].shape, term.factors[1:]
        width = math.prod(f.shape[0] for f in rest)
        sides = [
            TransformPass(
                n, partial(_apply_other_factors, term), ROW_COPIES * 8 * largest_tensor_size(f.shape for f in rest)
            ),
            TransformPass(width, partial(_apply_first_factor, term), ROW_COPIES * 8 * max(n, p)),
        ]
        return work.run_passes(counts.values, sides, [Target(p, np.int64)], report_progress)[0]

    @property
    def measures_total(self) -> bool:
        return len(self.terms) > 1 and any(not term.axes for term in self.terms)

    def answers_given_total(
        self, workload: Workload, answers: Answers, measured: Vector, noise: Noise, records: float
    ) -> Answers:
        return _condition_on_total(workload, answers, self._total(to_array(measured), noise), self.directions, records)

    def _total(self, measured: Matrix, noise: Noise) -> MeasuredTerm:
        """What is known of the number of records."""
        ((term, values),) = ((term, values) for term, values in split_by_term(self.terms, measured) if not term.axes)
        return read_term(term, values, (), noise)

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """Every block of queries straight from the measured terms."""
        inverses, blocks, columns = self.inverses(answer_request.work), workload.blocks, []
        if self.is_streamed:
            return product_answers(self.terms[0], inverses[0], workload, z, noise, answer_request)
        term_readings = read_terms(self.terms, inverses, to_array(z), noise)
        for completed, block in enumerate(blocks, start=1):
            columns.append(block_answers(block, term_readings, self.directions))
            answer_request.show_step(completed, len(blocks))
        answer, error = (np.concatenate(column) for column in zip(*columns, strict=True))
        return answer_request.write(answer, error, error * noise.half_width_95(0.0))

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> ProductSpace:
        """The terms; what was measured in two passes is put in the order of the others."""
        check_published_size(self.rows + sum(self._matrix_sizes), most_bytes)
        values = to_array(measured)
        if self.is_streamed:
            first_rows = self.terms[0].factors[0].shape[0]
            values = np.ascontiguousarray(values.reshape(-1, first_rows).T).ravel()
        terms = []
        for term in self.terms:
            axis_factors = zip(term.axes, term.factors, strict=True)
            factors = tuple(
                IdentityFactor(f.shape[0]) if is_identity(f) else MatrixFactor(f, self.directions.get(axis))
                for axis, f in axis_factors
            )
            terms.append(SpaceTerm(term.axes, factors, term.multiplier, term.shift))
        return ProductSpace(tuple(terms), shape, values, self.directions)


def term_measurement(
    terms: Sequence[Term],
    domain: Domain,
    *,
    neighbours: Neighbours,
    most_records: int,
    directions: Directions = NO_DIRECTIONS,
) -> TermMeasurement:
    """Round terms to integers so that the whole has a sensitivity of about 2^30 grid units.

    Args:
        most_records: as for ``round_dense_strategy``.
    Raises: InvalidInput when a term has so many attributes that too few bits are left for each.
    """
    unit = math.sqrt(sum(term.square for term in terms))
    spacing = unit * 2.0 ** -grid_bits(domain.max_abs_shares)
    whole, totals = tuple(round_term(term, spacing, directions) for term in terms), Totals.of(domain)
    moved = _squared_distance(whole, neighbours, most_records, None if totals is None else (totals, len(domain.shape) - 1))
    return TermMeasurement(whole, domain.shape, spacing, moved, sizes=domain.sizes, directions=directions)


def _squared_distance(
    terms: Sequence[IntegerTerm], neighbours: Neighbours, most_records: int, totals: tuple[Totals, int] | None = None
) -> int:
    """How far one change moves all terms at most, squared; ``totals``: where the total of a person's amounts on an attribute is bounded."""
    squares, rounded_rows = 0, 0
    for term in terms:
        if totals is None:
            distance = (
                term.square if neighbours == "add-remove" else max(term.square, 2 * (term.square - term.least_product))
            )
            squares += most_records**2 * -(-distance // 4**term.shift)
        else:
            squares += -(-term_l2_squared(totals[0], term, totals[1], neighbours) // 4**term.shift)
        rounded_rows += term.rows if term.shift else 0
    return ((math.isqrt(squares - 1) + 1) + (math.isqrt(rounded_rows - 1) + 1 if rounded_rows else 0)) ** 2


def _apply_other_factors(term: IntegerTerm, start: int, slab: Matrix) -> Matrix:
    """All factors but the first: (columns, rows of the slab, 2), the products modulo 2^64 and the bits of the real ones."""
    table = slab.reshape(-1, *term.shape[1:])
    wrapped, real = term.products(table, table.astype(np.float64), tuple(range(1, len(term.factors))))
    products = (wrapped.reshape(slab.shape[0], -1), real.reshape(slab.shape[0], -1).view(np.int64))
    return np.stack([block.T for block in products], axis=2)


def _apply_first_factor(term: IntegerTerm, start: int, slab: Matrix) -> tuple[Matrix]:
    wrapped = np.ascontiguousarray(slab[:, :, 0].T)
    real = np.ascontiguousarray(slab[:, :, 1].T).view(np.float64)
    wrapped, real = term.products(wrapped, real, (0,))
    return (term.round_products(np.ascontiguousarray(wrapped.T).ravel(), np.ascontiguousarray(real.T).ravel()),)
