"""Dense strategies on the integer grid, and their exact sensitivity.

A strategy A is rounded once, to integers: A_grid = M B with M integer and B the integer rows of a basis (or of the
strategy itself). z = M (B x) is exact in int64, so is its sensitivity; z + discrete Gaussian noise is all that is ever
derived from the records. Rounding M bends the strategy by less than 2^-29 of its sensitivity, and M stays invertible, so
answers stay exactly unbiased.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from dpdist.arrays import lapack
from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import ArrayVector, Constant, LazyVector, Vector, scaled, to_array
from dpdist.domain import Domain, Layout
from dpdist.measurement.integer_measurement import (
    MEMORY_COPIES,
    SMALL_BYTES,
    Counts,
    IntegerMeasurement,
    Norm,
    StageBytes,
    answer_bytes,
    check_published_size,
    grid_bits,
    shard_bytes,
)
from dpdist.measurement.sensitivity.bounded_totals import Totals, totals_l1, totals_l2_squared
from dpdist.measurement.sensitivity.column_norms import l1_sensitivity, row_blocks, sensitivity_squared
from dpdist.measurement.sensitivity.group_contribution import exact_gram, squared_cells_bound
from dpdist.operators import Dense, Identity, Matrix, Operator, Product
from dpdist.privacy.noise import Noise
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.reconstruction.axis_factors import IdentityFactor
from dpdist.reconstruction.joint_estimate import JOINT_CELLS
from dpdist.reconstruction.least_squares import Estimate, LeastSquares, inverse_for_queries
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.reconstruction.product_space import ProductSpace, SpaceTerm
from dpdist.reconstruction.row_space import RowSpace, SubsetRows
from dpdist.reconstruction.table_reduction import TableReduction, reads_tables
from dpdist.size_limits import Sizes
from dpdist.stability import Distance, Neighbours
from dpdist.workloads import Basis, Workload, integer_basis
from dpdist.workloads.integer_basis import SubsetBasis

COMPLETION = 2.0**-15
"""Weight of the directions nobody asks for, added so that the rounded strategy stays invertible; costs below 1e-8."""
SAFE_PIVOT = 1e-4
"""Ratio of the pivots of the queries' gram above which all that is measured is asked for."""
COMPLETION_L1 = 2.0**-20
"""The same for Laplace noise, where it costs about 2e-6 of the error; full-rank strategies need none."""
COMPLETION_BITS = 8
"""Bits that such a row keeps on a grid that has fewer, because records are divided: 2^-8 of a column of 2^16, say."""
PAIRED_CELLS = 2048
"""Up to here the products of all columns are looked at, for persons in several cells: 32 MiB each."""
DIGEST_BYTES = 2**29
"""Measurements of more cells alike are named by their number and not by all of them."""
DIGEST_ROWS = 2**16
"""Rows that are hashed at once."""


@dataclass(frozen=True)
class DenseMeasurement(IntegerMeasurement):
    """An integer strategy M B and how to read its measurements.

    Attributes:
        mixing: M, int64: (p, r), or (p,) for a diagonal.
        base: B, integer rows over the cells.
        spacing: grid unit: the strategy is spacing * M B.
        sensitivity_squared: exact bound of the squared distance (L2, or L1 for Laplace noise) between z of neighbouring
            histograms, grid units.
        norm: "l2" or "l1", the distance that the noise has to hide.
        column_bound: the square of the longest column of z, in that norm, where it was worked out for the bound.
    """

    mixing: Matrix = field(repr=False)
    base: Operator
    spacing: float
    sensitivity_squared: int
    norm: Norm = "l2"
    column_bound: int | None = field(default=None, kw_only=True)

    @property
    def rows(self) -> int:
        """p, the number of measured values."""
        return int(self.mixing.shape[0])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of M and B: the noise key is bound to it, so that no other strategy can meet the same noise."""
        content = hashlib.sha256()
        if self.mixing.size * 8 <= DIGEST_BYTES or self.cell_multiple is None:
            for start in range(0, self.rows, DIGEST_ROWS):  # the number of all cells takes no memory before it is copied
                content.update(np.ascontiguousarray(self.mixing[start : start + DIGEST_ROWS]).data)
        else:
            content.update(f"all {self.cell_multiple}".encode())
        facts = (self.mixing.shape, self.base.fingerprint, self.spacing, self.sensitivity_squared, self.norm)
        content.update(repr(facts).encode())
        return content.hexdigest()

    @property
    def cell_multiple(self) -> int | None:
        """k when z = k x: every cell is measured alike."""
        return int(self.mixing[0]) if self._is_uniform and isinstance(self.base, Identity) else None

    def row_blocks(self) -> Iterator[Matrix]:
        """Rows of M B over all cells, (k, cells) int64, block by block."""
        return row_blocks(self.mixing, self.base)

    def apply(self, statistics: Matrix) -> Matrix:
        """z = M t for t = B x, exact in int64 (intermediate overflow wraps and cancels, the result fits)."""
        if self.mixing.ndim == 1:
            return np.asarray(self.mixing * statistics)
        return np.asarray(self.mixing @ statistics)

    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        """Shards where the cells are measured and they or tables of them are published, else copies of the counts or of z, and M."""
        if self.cell_multiple is not None and workload.kind.is_cells:
            return StageBytes(shard_bytes(max(layout.size, self.rows)), 0)
        if self.cell_multiple is not None and reads_tables(workload):
            answer = SMALL_BYTES + TableReduction(workload, self.spacing).task_bytes()
            return StageBytes(shard_bytes(max(layout.size, self.rows)), answer)
        answer = answer_bytes(workload, int(self.mixing.nbytes))
        if self.cell_multiple is not None:
            return StageBytes(MEMORY_COPIES * 8 * layout.size, answer)
        over_cells = 0 if isinstance(self.base, SubsetBasis) else layout.size
        return StageBytes(MEMORY_COPIES * 8 * (self.rows + over_cells) + 2 * int(self.mixing.nbytes), answer)

    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        """z: a reference to the counts where it is a multiple of them; B x is summed block by block where B reads single cells."""
        if self.cell_multiple is not None:
            counts.check_cells(work)
            times = partial(_multiply, self.cell_multiple)
            return LazyVector(self.rows, (counts.values,), times, 16, f"{self.cell_multiple} times", np.dtype(np.int64))
        if isinstance(self.base, SubsetBasis):
            sums = np.sum(work.fold(partial(_statistics, self.base), counts.values), axis=0)
            counts.check_limit(int(sums[-1]))
            return ArrayVector(self.apply(sums[:-1]))
        return ArrayVector(self.apply(np.asarray(self.base.matvec(counts.cells()), dtype=np.int64)))

    @property
    def _is_uniform(self) -> bool:
        """Whether z = k B x: a multiple of the strategy itself."""
        return self.mixing.ndim == 1 and self.mixing.strides == (0,)

    @cached_property
    def column_squared(self) -> int | None:
        if self._is_uniform:
            return None
        if self.column_bound is not None:
            return self.column_bound
        if self.norm == "l1":
            return l1_sensitivity(self.mixing, self.base, "add-remove") ** 2
        return sensitivity_squared(self.mixing, self.base, "add-remove")

    def total_variance(self, workload: Workload, work: Workspace) -> float | None:
        return None if self._is_uniform else work.largest(self._total_variance, workload)

    def _total_variance(self, workload: Workload) -> float:
        least_squares = self.least_squares(workload)
        assert least_squares.basis is not None
        assert least_squares.inverse is not None
        gram = least_squares.basis.gram()
        try:
            factor = lapack.cholesky(gram, lower=False)
            pivots = np.diag(factor)
            if pivots.min() > SAFE_PIVOT * pivots.max():
                return float(np.square(factor @ least_squares.inverse).sum())
        except np.linalg.LinAlgError:
            pass
        squares, vectors = lapack.eigh(gram)
        # what nobody asks for may have an error of 2^15
        nonzero = squares > squares.size * np.finfo(float).eps * squares[-1]
        return float((squares[nonzero] @ np.square(vectors[:, nonzero].T @ least_squares.inverse)).sum())

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """The cells as they are where they are asked for, read as they are needed; tables of them; else one least-squares estimate."""
        if self.cell_multiple is not None and not workload.kind.is_cells and reads_tables(workload):
            reader = TableReduction(workload, self.spacing)
            task = partial(reader.answers, z, noise)
            queries = workload.shape[0]
            return answer_request.fill(queries, reader.rows_a_task(), task)
        if not self.gives_cells(workload):
            return super().answers(workload, z, noise, answer_request)
        error = noise.deviation * self.spacing
        half = error * float(noise.half_width_95(1.0))
        return Answers(scaled(z, self.spacing), Constant(error, z.size), Constant(half, z.size))

    def gives_cells(self, workload: Workload) -> bool:
        """Whether the measured cells are the answers."""
        return self.cell_multiple is not None and workload.kind.is_cells

    def least_squares(self, workload: Workload) -> LeastSquares:
        """The estimate's inverse. Raises: InvalidInput when the strategy does not determine every answer."""
        if self.mixing.ndim == 1 and isinstance(self.base, Identity):
            return LeastSquares(workload, self.spacing)
        basis = integer_basis(workload)
        if self._mixes_basis(basis):
            inverse = inverse_for_queries(self.mixing.astype(np.float64), basis.gram)
        else:  # rows over the cells, from which the statistics B x are read
            rows = np.concatenate([block.astype(np.float64) for block in self.row_blocks()])
            inverse = inverse_for_queries(rows, workload.gram)
            inverse = inverse if basis.operator is None else basis.operator.matvec(inverse)
        return LeastSquares(workload, self.spacing, basis=basis, inverse=inverse)

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        """The cells themselves, or M B: B by name where it is a basis or the cells, else its rows."""
        if self.cell_multiple is not None:
            check_published_size(self.rows, most_bytes)
            cells = SpaceTerm(
                tuple(range(len(shape))), tuple(IdentityFactor(size) for size in shape), multiplier=self.cell_multiple
            )
            return ProductSpace((cells,), shape, to_array(measured))
        named = isinstance(self.base, SubsetBasis | Identity)
        check_published_size(
            self.rows + self.mixing.size + (0 if named else self.base.shape[0] * self.base.shape[1]), most_bytes
        )
        base: SubsetRows | Matrix | None = None
        if isinstance(self.base, SubsetBasis):
            base = SubsetRows(self.base.codes, self.base.family)
        elif not named:
            base = self.base.dense().astype(np.int64)
        return RowSpace(np.ascontiguousarray(self.mixing), base, shape, to_array(measured))

    def _mixes_basis(self, basis: Basis) -> bool:
        """Whether the strategy mixes the very rows of the workload's basis."""
        if self.mixing.ndim == 1:
            return False
        if basis.operator is None:
            return isinstance(self.base, Identity)
        return self.base.fingerprint == basis.operator.fingerprint

    def with_contributions(self, moved: Distance) -> IntegerMeasurement:
        """What cells of one row of one entry each add is orthogonal: the squared length grows with their number (L1: the length does).

        Of other rows the products of columns count, where no record lowers a count and there are few enough cells; elsewhere lengths add
        up (the triangle inequality).
        """
        several = moved.groups * (moved.participations or 1)
        triangle_bound = replace(self, sensitivity_squared=self.sensitivity_squared * several**2)
        if moved.participations is not None:
            return triangle_bound
        if self.mixing.ndim == 1 and isinstance(self.base, Identity):
            factor = moved.groups if self.norm == "l2" else moved.groups**2
            return replace(self, sensitivity_squared=self.sensitivity_squared * factor)
        if self.norm == "l1" or moved.signed or self.base.shape[1] > PAIRED_CELLS:
            return triangle_bound
        gram = sum((exact_gram(block) for block in self.row_blocks()), np.int64(0))
        squared = squared_cells_bound(np.asarray(gram), moved.groups, replaced=moved.replaced) * moved.records**2
        return replace(self, sensitivity_squared=min(squared, triangle_bound.sensitivity_squared))

    def allows_estimate(self, cells: int, *, jointly: bool) -> bool:
        return not jointly or cells <= JOINT_CELLS

    def estimate(
        self,
        workload: Workload,
        measured: Vector,
        noise: Noise,
        work: Workspace,
    ) -> Estimate:
        """Least squares over its rows, whose inverse the largest worker computes."""
        least_squares = work.largest(self.least_squares, workload)
        return Estimate(least_squares, least_squares.estimate(to_array(measured)), noise)


@dataclass(frozen=True)
class DirectMeasurement(DenseMeasurement):
    """The workload's own queries, measured one by one: answers are the measurements, without a common estimate."""

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """Each measurement in the unit of its query."""
        task = partial(_in_units, z, self.spacing, self._units(workload), noise)
        return answer_request.fill(z.size, max(1, min(DIRECT_ROWS, z.size)), task)

    def _units(self, workload: Workload) -> Matrix:
        """How much of its query each row measures: of rows that rounding bent, by their projection, which is all of equal coefficients."""
        if self.mixing.ndim == 1:
            return self.mixing * self.spacing
        queries = workload.unweighted.dense()
        along, squares = (np.einsum("ij,ij->i", rows, queries) for rows in (self.mixing, queries))
        return np.asarray(np.divide(along * self.spacing, squares, out=workload.weights, where=squares > 0))

    def _total_variance(self, workload: Workload) -> float:
        return float(np.square(workload.weights * self.spacing / self._units(workload)).sum())

    def allows_estimate(self, cells: int, *, jointly: bool) -> bool:
        return False


DIRECT_ROWS = 2**22
"""Queries that a task of ``DirectMeasurement`` answers."""


def _in_units(measured: Vector, spacing: float, units: Matrix, noise: Noise, start: int, stop: int) -> list[Matrix]:
    errors = noise.deviation * spacing / units[start:stop]
    answers, half = measured.read(start, stop) * spacing / units[start:stop], errors * noise.half_width_95(1.0)
    return [answers, errors, half]


def _multiply(factor: int, start: int, count: int, values: Matrix) -> Matrix:
    return np.asarray(np.multiply(values, factor, out=values if values.flags.writeable else None))


def _statistics(base: SubsetBasis, start: int, block: Matrix) -> Matrix:
    """B x over some cells, and their sum."""
    return np.append(base.matvec_cells(start, block), block.sum()).astype(np.int64)


def round_dense_strategy(
    base: Operator,
    real: Matrix | None,
    unit: float,
    norm: Norm,
    domain: Domain,
    *,
    neighbours: Neighbours,
    most_records: int,
    form: type[DenseMeasurement] = DenseMeasurement,
) -> DenseMeasurement:
    """A = M B in whole numbers, for integer rows B.

    Args:
        real: M before it is rounded; None for the identity.
        unit: the sensitivity of A.
        most_records: how many records one change touches, each counted as often as it has shares.
    """
    bits, totals, sizes = grid_bits(domain.max_abs_shares), Totals.of(domain), domain.sizes
    spacing = unit * 2.0**-bits
    if real is None:
        mixing = np.broadcast_to(np.int64(round(2.0**bits / unit)), base.shape[:1])  # takes no memory
        spacing = 1.0 / float(mixing[0])
    else:
        mixing = np.rint(real / spacing).astype(np.int64)
    if totals is not None:
        return form(mixing, base, spacing, _within_totals(mixing, base, totals, norm, neighbours, sizes), norm)
    exact = (
        sensitivity_squared(mixing, base, neighbours, sizes)
        if norm == "l2"
        else l1_sensitivity(mixing, base, neighbours, sizes) ** 2
    )
    column = exact if neighbours == "add-remove" else None
    return form(mixing, base, spacing, exact * most_records**2, norm, column_bound=column)


DIFFERING_GROUPS = 4
"""Groups that two persons can differ in most, each with records of no amount in one and of the largest amounts in another."""


def _within_totals(mixing: Matrix, base: Operator, totals: Totals, norm: Norm, neighbours: Neighbours, sizes: Sizes) -> int:
    """The sensitivity, squared, where the total of a person is bounded; of cells that are measured alike a few groups show it."""
    if mixing.ndim == 1 and mixing.strides == (0,) and isinstance(base, Identity):
        few = min(base.shape[1], DIFFERING_GROUPS * totals.bins)
        mixing, base = mixing[:few], Identity(few)
    blocks = row_blocks(mixing, base)
    if norm == "l1":
        return totals_l1(totals, blocks, neighbours, sizes) ** 2
    return totals_l2_squared(totals, blocks, neighbours, sizes)


def integer_rows(operator: Operator, workload: Workload, norm: Norm) -> tuple[Operator, Matrix | None]:
    """Integer rows B and real, invertible mixing M (None: the identity) with A = M B."""
    spare = 2.0 ** (COMPLETION_BITS - grid_bits(workload.domain.max_abs_shares))
    if isinstance(operator, Product) and isinstance(operator.left_factor, Dense):
        return operator.right_factor, complete_rank(operator.left_factor.array, norm, spare)
    if operator.integral:
        return operator, None
    rows = operator.dense()
    basis = integer_basis(workload)
    if basis.operator is not None:
        over_cells = basis.columns(np.arange(operator.shape[1]))
        mixing = lapack.lstsq(over_cells.T, rows.T)[0].T
        if float(np.abs(mixing @ over_cells - rows).max()) <= 1e-10 * float(np.abs(rows).max()):
            return basis.operator, complete_rank(mixing, norm, spare)
    return Identity(operator.shape[1]), complete_rank(rows, norm, spare)


def direct_rows(operator: Operator, workload: Workload) -> tuple[Operator, Matrix]:
    """The same for the queries themselves: integer rows under their weights where they are integral, else rows over the cells."""
    if workload.unweighted.integral:
        return workload.unweighted, workload.weights
    return Identity(workload.shape[1]), operator.dense()


def complete_rank(mixing: Matrix, norm: Norm = "l2", min_weight: float = 0.0) -> Matrix:
    """M with small rows added, so that it has full column rank: directions nobody asks for, which noise must not meet.

    "l2": the null space, whose squares add up to nothing. "l1": single columns outside a pivot set, since L1 lengths add.

    Args:
        min_weight: of their weight: a grid of few bits would round smaller ones to nothing.
    """
    rows, columns = mixing.shape
    if rows == columns:
        return mixing
    _, singular, right_vectors = lapack.svd(mixing, full_matrices=rows < columns)  # of many rows the others are never read
    rank = int((singular > max(rows, columns) * np.finfo(float).eps * singular[0]).sum())
    if rank == columns:
        return mixing
    if norm == "l1":
        *_, order = lapack.qr(mixing, mode="economic", pivoting=True)
        largest = float(np.abs(mixing).sum(axis=0).max())
        return np.vstack([mixing, max(COMPLETION_L1, min_weight) * largest * np.eye(columns)[order[rank:]]])
    largest = float(np.sqrt(np.einsum("ij,ij->j", mixing, mixing).max()))
    return np.vstack([mixing, max(COMPLETION, min_weight) * largest * right_vectors[rank:]])
