"""A strategy in whole numbers: what is measured, the exact sensitivity, and the answers that are made of them.

Every representation of a strategy has a measurement of its own. What depends on the representation is a method here: nothing outside asks
which class a measurement has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from dpdist.arrays.array_workspace import ProgressCallback, Workspace
from dpdist.arrays.lazy_vector import Vector, to_array
from dpdist.domain import Layout
from dpdist.errors import InvalidInput
from dpdist.operators import Matrix, TallMatrix
from dpdist.operators.linear_operator import ROW_BLOCK_BYTES
from dpdist.privacy.accounting import Loss
from dpdist.privacy.keys import Secret
from dpdist.privacy.noise import Noise
from dpdist.privacy.noise_distributions import Kind
from dpdist.process.resource_limits import cores
from dpdist.reconstruction.answer_vectors import AnswerRequest, Answers
from dpdist.reconstruction.joint_estimate import JOINT_CELLS, NoisyMeasurement, joint_estimate
from dpdist.reconstruction.least_squares import Estimate
from dpdist.reconstruction.measured_space import MeasuredSpace
from dpdist.size_limits import SIZES
from dpdist.stability import Distance
from dpdist.workloads import Workload

Norm = Literal["l2", "l1"]
"""What Gaussian noise and what Laplace noise has to hide: the L2 and the L1 distance."""
GRID_BITS = 30
"""A strategy of unit sensitivity has columns of at most 2^30 on the grid: z fits int64 for up to 2^32 records."""
MOST_RECORDS = 2**32
SHARE_BITS = 4
"""Where records are divided into shares, so many bits of their number are taken from the bound on records, the others from the grid."""
MEMORY_COPIES = 6
"""Copies of counts and measurements that measuring and reading hold at once, where they are not worked on shard by shard."""
SHARD_COPIES = 4
"""Copies of a shard while it is read, changed, hashed and written."""
SMALL_BYTES = 2**20
"""What a shard takes beside its values."""


@dataclass(frozen=True)
class StageBytes:
    """What measuring takes in the process that runs the flow, and what a task of answering takes."""

    measure: int
    answer: int


@dataclass(frozen=True)
class SelectedTable:
    """A table that was measured because of what had been measured before.

    Attributes:
        axes: its attributes.
        deviation: of the noise in a cell, counts.
    """

    axes: tuple[int, ...]
    deviation: float


class Stream(Protocol):
    """A measurement whose steps are measured as they become known, each from itself and earlier ones."""

    def steps_of(self, exact: Vector, start: int, stop: int) -> Vector:
        """The measured values of some steps."""

    def first_step_counts(self, table: Matrix, stop: int) -> Matrix:
        """The counts of the first steps, of the table that is measured."""

    def measurement_of_steps(self, steps: int) -> IntegerMeasurement:
        """The measurement of the first steps."""

    def with_participations(self, distance: Distance) -> IntegerMeasurement:
        """The measurement for one person in several steps, which ``distance`` bounds."""

    @property
    def axes(self) -> tuple[int, ...]:
        """The attributes of the measured table."""


class IntegerMeasurement(ABC):
    """Whole numbers z that are measured.

    Attributes:
        spacing: grid unit.
        sensitivity_squared: exact bound of the squared distance (L2, or L1 for Laplace noise) between z of neighbouring
            histograms: what it makes of the ``Distance`` that it was built for.
        norm: "l2" or "l1", the distance that the noise has to hide.
    """

    spacing: float
    sensitivity_squared: int
    norm: Norm

    @property
    @abstractmethod
    def rows(self) -> int:
        """p, the number of measured values."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """SHA-256 of everything that is measured: the noise key is bound to it."""

    @abstractmethod
    def memory(self, workload: Workload, layout: Layout, worker_bytes: int) -> StageBytes:
        """Upper bounds of what measuring and answering take (tests compare them with the measured peaks)."""

    @abstractmethod
    def exact_values(self, counts: Counts, work: Workspace, report_progress: ProgressCallback | None = None) -> Vector:
        """z without noise: private. Raises: InvalidInput for more records than z can count without overflow."""

    def answers(self, workload: Workload, z: Vector, noise: Noise, answer_request: AnswerRequest) -> Answers:
        """Every answer with its standard error and the half width of its interval, in the order of the workload's queries.

        Raises: InvalidInput when it does not determine every answer.
        """
        return self.estimate(workload, z, noise, answer_request.work).answers(answer_request)

    @property
    def tables(self) -> tuple[tuple[int, ...], ...]:
        """The attribute sets whose tables are counted; none where every cell is."""
        return ()

    @property
    def sensitivity(self) -> float:
        """The sensitivity in grid units, for reports; the exact one is its square."""
        return math.sqrt(self.sensitivity_squared)

    @property
    def column_squared(self) -> int | None:
        """At most how far one record (where records are divided, one share) moves z, squared as ``sensitivity_squared`` is: costs are
        counted in it. None where the strategy's own sensitivity says it exactly."""
        return None

    def total_variance(self, workload: Workload, work: Workspace) -> float | None:
        """Total variance of all (weighted) answers for noise of deviation 1, as the whole numbers have it. None where rounding left the
        strategy as it was, up to a factor."""
        return None

    def with_contributions(self, moved: Distance) -> IntegerMeasurement | None:
        """The measurement for changes in several cells or steps, as much in each as it was made for; None where it does not know them."""
        if moved.participations is None or moved.groups > 1 or self.stream is None:
            return None
        return self.stream.with_participations(moved)

    @property
    def stream(self) -> Stream | None:
        """The same as one that is measured step by step, None if it cannot be."""
        return None

    def noise(self, budget: Loss) -> Noise:
        """The least whole-scale noise that keeps a release within a budget of the right kind."""
        kind = Kind.hiding(self.norm)
        return Noise(kind, kind.scale(self.sensitivity_squared, budget))

    def loss(self, budget: Loss, noise: Noise) -> Loss:
        """What the release is charged: its budget, and for Gaussian noise its slack."""
        return noise.kind.loss(budget, self.sensitivity_squared, noise.scale, self.rows)

    def add_noise(self, exact: Vector, key: Secret, noise: Noise, budget: Loss) -> Vector:
        """z + noise, drawn where it is read. Only ``dpdist.pipeline.measure`` calls it, with the key of a reserved charge (law 1)."""
        return NoisyVector(exact, key, noise)

    @property
    def cell_multiple(self) -> int | None:
        """What every cell is measured times, where all cells are and nothing else; else None."""
        return None

    def row_blocks(self) -> Iterator[Matrix] | None:
        """The measured rows over all cells, (k, cells), block by block; None where z is no linear function of the counts that can
        be written down, so that it cannot be joined with other measurements."""
        return None

    def allows_estimate(self, cells: int, *, jointly: bool) -> bool:
        """Whether one estimate of all cells can be made of a measurement (``jointly``: and of others), before anything is measured."""
        return cells <= JOINT_CELLS and self.row_blocks() is not None

    def estimate(
        self,
        workload: Workload,
        measured: Vector,
        noise: Noise,
        work: Workspace,
    ) -> Estimate:
        """One estimate for all queries: least squares over all rows.

        Raises: InvalidInput where there are no rows.
        """
        if self.row_blocks() is None:
            raise InvalidInput(
                "a measurement of this kind has no common estimate of the cells; choose mechanism 'coa' or 'identity'"
            )
        return joint_estimate(workload, [NoisyMeasurement(self, measured, noise)], work)

    @property
    def postprocessing(self) -> str | None:
        """What reading a measurement does to answers, beside estimating them; None where nothing else."""
        return None

    @property
    def adds_up_steps(self) -> bool:
        """Whether ``exact`` refuses more steps of all amounts together than z can hold, whatever the number of records."""
        return False

    @property
    def measures_total(self) -> bool:
        """Whether the number of records is measured apart from everything else, as ``answers_given_total`` needs it."""
        return False

    def answers_given_total(
        self, workload: Workload, answers: Answers, measured: Vector, noise: Noise, records: float
    ) -> Answers:
        """Unbiased answers and their errors, given the number of records. Raises: InvalidInput when it cannot be true."""
        raise InvalidInput("a measurement of this kind does not measure the number of records apart from everything else")

    def selected_tables(self, measured: Vector, noise: Noise) -> Sequence[SelectedTable]:
        """The tables that were chosen while they were measured, in their order; none where the spec alone decides."""
        return ()

    def measured_space(self, measured: Vector, shape: tuple[int, ...], most_bytes: int) -> MeasuredSpace:
        """The measurement with its strategy, as readers get it: everything in it is public once it is committed.

        Args:
            shape: sizes of the domain's attributes.
        Raises: InvalidInput, which says why, where it is not a set of linear functions or takes more than ``most_bytes``.
        """
        raise InvalidInput("its rows are not linear functions that the spec alone decides")


@dataclass(frozen=True)
class Counts:
    """What was counted.

    Attributes:
        values: the counts of all cells, or of the tables that ``layout`` names: private.
        records: as many records as were read, a bound of how many are counted; None where that was not kept.
    """

    values: Vector
    layout: Layout
    records: int | None = None

    def table(self, axes: tuple[int, ...]) -> Matrix:
        """The table of some attributes."""
        return self.layout.table(to_array(self.values), axes)

    def cells(self) -> Matrix:
        """All counts, few enough to be measured."""
        x = to_array(self.values)
        self.check_limit(int(x.sum()))
        return x

    def check(self, work: Workspace) -> None:
        """Raises: InvalidInput for more records than z can hold, as they are bounded without holding the counts."""
        counted = sum(work.fold(_sum, self.values)) if self.records is None else self.records * self.layout.shares_per_record
        self.check_limit(counted)

    def check_cells(self, work: Workspace) -> None:
        """Raises: InvalidInput for more records in a cell than z can hold, where each of its values is of one cell."""
        try:
            self.check(work)
        except InvalidInput:  # in all cells together
            self.check_limit(max(work.fold(_largest, self.values)), "records in a cell")

    def check_groups(self, axes_of_terms: Iterable[tuple[int, ...]]) -> None:
        """Raises: InvalidInput for more records in a group than z can hold, where each of its values is of one group of a table.

        Args:
            axes_of_terms: the attributes whose values make the groups of each table.
        """
        try:
            self.check_limit(int(self.table(())))
        except InvalidInput:  # in all groups together
            if self.layout.max_abs_shares > self.layout.shares_per_record:  # shares with signs cancel in the sum of a group
                raise
            for axes in axes_of_terms:
                self.check_limit(int(self.table(axes).max()), "records in a group")

    def check_limit(self, counted: int, unit_name: str = "records") -> None:
        """Raises: InvalidInput for more shares of records than z can hold."""
        check_record_limit(counted, self.layout.shares_per_record, self.layout.max_abs_shares, unit_name)


def _sum(start: int, values: Matrix) -> int:
    return int(values.sum())


def _largest(start: int, values: Matrix) -> int:
    return int(np.abs(values).max(initial=0))


@dataclass(frozen=True)
class NoisyVector:
    """Exact values with the noise of their positions under a key. Never pickled: the key refuses it."""

    exact: Vector
    key: Secret = field(repr=False)
    noise: Noise

    @property
    def size(self) -> int:
        """Number of values."""
        return self.exact.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.dtype(np.int64)

    @property
    def bytes_each(self) -> int:
        """Bytes that a value takes while it is read."""
        return self.exact.bytes_each + 8

    @property
    def digest(self) -> str:
        """Nothing tells noise from other noise before it is drawn."""
        raise NotImplementedError

    def read(self, start: int, stop: int) -> Matrix:
        """Values start..stop; the same noise whenever they are read."""
        drawn = self.noise.draw(self.key.reveal(), start=start, count=stop - start)
        drawn += self.exact.read(start, stop)
        return drawn


def check_published_size(values: int, most_bytes: int) -> None:
    """Raises: InvalidInput for a measurement and a strategy of more whole numbers than are written down for readers."""
    if 8 * values > most_bytes:
        raise InvalidInput(f"it takes {8 * values / 2**20:,.0f} MiB, and up to {most_bytes / 2**20:,.0f} MiB are published")


def grid_bits(shares_per_record: int) -> int:
    """Bits of the longest column on the grid where every record is divided into so many shares: z fits int64.

    >>> grid_bits(1), grid_bits(2**20)
    (30, 14)
    """
    return GRID_BITS - max(0, (shares_per_record - 1).bit_length() - SHARE_BITS)


def check_record_limit(
    counted: int, shares_per_record: int = 1, max_abs_shares: int = 0, unit_name: str = "records"
) -> None:
    """Raises: InvalidInput for more records than z can hold.

    Args:
        counted: records, or where each is divided into ``shares_per_record`` all shares together.
        max_abs_shares: the most shares of a record, whatever their signs; 0 where none is negative.
        unit_name: what is counted, in the plural.
    """
    reach = max(shares_per_record, max_abs_shares)
    record_limit = MOST_RECORDS << (GRID_BITS - grid_bits(reach))
    if counted * reach > record_limit * shares_per_record:
        raise InvalidInput(
            f"the grid holds up to {record_limit // reach} {unit_name} without overflow; split the data set by period"
        )


def shard_bytes(values: int) -> int:
    """What measuring so many values shard by shard takes."""
    return SHARD_COPIES * min((cores() + 1) * SIZES.shard_bytes, 8 * values + SMALL_BYTES)


def answer_bytes(workload: Workload, inverse_bytes: int | None = None) -> int:
    """What a task of answering takes: the inverse of the strategy and some rows of queries."""
    inverse = MEMORY_COPIES * 8 * min(workload.shape[0], 2**22) if inverse_bytes is None else inverse_bytes
    has_row_source = any(isinstance(factor, TallMatrix) for block in workload.blocks for factor in block.factors)
    rows = min(ROW_BLOCK_BYTES, 8 * workload.shape[0] * workload.shape[1] + SMALL_BYTES)
    return 3 * inverse + 3 * rows + (SIZES.row_block_bytes if has_row_source else 0)
