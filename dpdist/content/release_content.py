"""What is published of a release: its answers, their errors, its certificate; and how it is written down."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, Constant, Vector, batches, least_positive, to_array
from dpdist.content.feasible_intervals import ANYWHERE, Ends
from dpdist.content.measurement_file import FILE, Evidence, Measurement
from dpdist.content.release_summary import count_unanswered
from dpdist.content.suppression import Suppression
from dpdist.operators import Matrix, Toeplitz
from dpdist.size_limits import SIZES, Sizes
from dpdist.version import version
from dpdist.workloads import Block, Workload

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["parquet", "csv", "zarr"]
CSV_ROWS = 5_000_000
"""Up to so many answers are written as CSV, too, if the spec does not say."""
PARQUET_ROWS = 2**28
"""Up to so many have names and a table; beyond, the Zarr arrays are what is published."""


@dataclass(frozen=True)
class AnsweredSteps:
    """The rows of a group of filters that are answered: those at whose step the whole filter lies within the series.

    Attributes:
        shape: of the group's rows, an axis a factor.
        axis: that of the steps.
        steps: that are answered.
    """

    shape: tuple[int, ...]
    axis: int
    steps: range

    @staticmethod
    def of(block: Block, steps: range) -> AnsweredSteps:
        """Of a group of filters."""
        axis = next(
            factor_index for factor_index, factor in enumerate(block.factors) if isinstance(factor.unpadded, Toeplitz)
        )
        shape = tuple(factor.shape[0] for factor in block.factors)
        return AnsweredSteps(shape, axis, range(steps.start, min(steps.stop, shape[axis])))

    @property
    def unanswered_count(self) -> int:
        """How many rows of the group are not answered."""
        return count_unanswered(self.facts())

    def is_answered(self, start: int, stop: int) -> Matrix:
        """Which of some rows of the group are answered."""
        step = np.unravel_index(np.arange(start, stop), self.shape)[self.axis]
        return np.asarray((step >= self.steps.start) & (step < self.steps.stop))

    def facts(self) -> dict[str, Any]:
        """For a certificate."""
        return {"shape": list(self.shape), "axis": self.axis, "first": self.steps.start, "stop": self.steps.stop}


@dataclass(frozen=True)
class ReleaseContent:
    """Everything that is published. Answers, standard errors and half widths of 95 % intervals have one row a query.

    Half widths are NaN where no interval can be given.

    Attributes:
        formats: the tables that are written; None: those that the number of answers allows.
        measurements: what the answers were computed from, by its file, where it is published, too; of a part of a stream also what the
            whole of it will measure, all values zero yet.
        about: what the publisher says of the data product; empty where nothing is said.
        statistics: the tables of means and of variances of amounts that are asked for, by their names.
        step_tables: the columns of the tables that parts of the budget found before the plan, by their files.
        suppression: which answers are shown; None: all of them.
        verifier: whether a copy of the verifier lies beside the files.
        ends: of each block where its true answers can lie, and intervals are cut; () for anywhere.
        counted: of each block of the workload whether its answers are numbers of records, which suppression compares; () for all.
        theme: what the publisher gives of its own to the page, which a plugin writes; None where that is nothing.
        boundaries: where values lie on a map, by attribute.
        answered_steps: of each block the rows that are answered, where its filters may reach beyond the series; () for all.
    """

    release: str
    title: str
    workload: Workload
    answer: Vector
    error: Vector
    half_width: Vector
    certificate: dict[str, Any]
    formats: tuple[Format, ...] | None = None
    sizes: Sizes = SIZES
    measurements: Mapping[str, tuple[Measurement, Evidence]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, pa.Table] = field(default_factory=dict)
    step_tables: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    suppression: Suppression | None = None
    verifier: bool = False
    counted: tuple[bool, ...] = ()
    ends: tuple[Ends, ...] = ()
    answered_steps: tuple[AnsweredSteps | None, ...] = ()
    theme: Any = None
    boundaries: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measurement(self) -> Measurement | None:
        """What the answers were computed from, where it is published."""
        return self.measurements[FILE][0] if self.measurements else None

    def is_answered(self, start: int, stop: int) -> Matrix:
        """Which of some rows are answered: all but those at whose step a filter reaches beyond its series."""
        is_answered = np.ones(stop - start, dtype=bool)
        for (block_start, block), block_steps in zip(self.workload.block_starts(), self.answered_steps, strict=False):
            low, high = max(start, block_start), min(stop, block_start + block.queries)
            if block_steps is not None and low < high:
                is_answered[low - start : high - start] = block_steps.is_answered(low - block_start, high - block_start)
        return is_answered

    def is_compared(self, start: int, stop: int) -> Matrix:
        """Which of some rows suppression compares."""
        counted = np.array(self.counted or (True,) * len(self.workload.blocks))
        return np.asarray(counted[self._blocks_of(start, stop)]) & self.is_answered(start, stop)

    def _blocks_of(self, start: int, stop: int) -> Matrix:
        """The number of the block of some rows."""
        ends = np.cumsum([block.queries for block in self.workload.blocks])
        return np.searchsorted(ends, np.arange(start, stop), side="right")

    def rounded(self, start: int, stop: int, digits: int) -> tuple[Matrix, Matrix, Matrix]:
        """Answers, standard errors and half widths of some rows, to as many digits as are published.

        Suppressed answers, those whose filter reaches beyond its series, and their half widths are NaN. Where some are suppressed, the half
        widths of the others are those of intervals given that they are shown; NaN where such an interval has no end.
        """
        answer, error, half = self._published_columns(start, stop, digits)
        if self.suppression is not None:
            limits = np.array(self.ends_of_blocks)[self._blocks_of(start, stop)].T
            low, high = (np.clip(end, *limits) for end in self._ends(start, stop, answer, error, half))
            half = np.round(np.maximum(high - answer, answer - low), digits + 2)
            half[np.isinf(half)] = np.nan
        return answer, error, half

    def intervals(self, start: int, stop: int, digits: int, ends: Ends) -> tuple[Matrix, Matrix, Matrix, Matrix]:
        """Answers, standard errors and both ends of the intervals of some rows of a block whose true answers lie between ``ends``."""
        answer, error, half = self._published_columns(start, stop, digits)
        low, high = self._ends(start, stop, answer, error, half)
        return answer, error, np.clip(low, *ends), np.clip(high, *ends)

    def _published_columns(self, start: int, stop: int, digits: int) -> tuple[Matrix, Matrix, Matrix]:
        """Answers, standard errors and half widths, rounded; NaN where none is shown."""
        answer = np.round(self.answer.read(start, stop), digits)
        answer += 0.0  # no negative zero
        error, half = (_round_column(column, start, stop, digits + 2) for column in (self.error, self.half_width))
        if self.suppression is not None:
            hidden = self.is_compared(start, stop) & ~self.suppression.is_shown(answer, error)
            answer[hidden], half = np.nan, np.where(hidden, np.nan, half)
        if self.answered_steps:
            is_unanswered = ~self.is_answered(start, stop)
            answer[is_unanswered], half = np.nan, np.where(is_unanswered, np.nan, half)
        return answer, error, half

    def _ends(self, start: int, stop: int, answer: Matrix, error: Matrix, half: Matrix) -> tuple[Matrix, Matrix]:
        """Both ends of the intervals, given that the answer is shown where some are not."""
        ends = answer - half, answer + half
        return (
            ends
            if self.suppression is None
            else self.suppression.intervals(answer, error, ends, self.is_compared(start, stop))
        )

    @property
    def ends_of_blocks(self) -> tuple[Ends, ...]:
        """Where the true answers of each block can lie."""
        return self.ends or (ANYWHERE,) * len(self.workload.blocks)


def _round_column(column: Vector, start: int, stop: int, digits: int) -> Matrix:
    """Some values of a column, rounded, which are not to be changed: of one that holds one number, that stands in memory once."""
    if isinstance(column, Constant):
        return np.broadcast_to(np.round(column.read(0, 1), digits), stop - start)
    return np.round(column.read(start, stop), digits)


def with_columns_in_memory(content: ReleaseContent) -> ReleaseContent:
    """The content with its columns in memory, if they are no longer than a batch of rows.

    Every read of a stored column reads a whole shard and its digest, and the groups are read one by one for each file.
    """
    if content.answer.size > content.sizes.batch_rows:
        return content
    answer, error, half_width = (
        ArrayVector(to_array(column)) for column in (content.answer, content.error, content.half_width)
    )
    return replace(content, answer=answer, error=error, half_width=half_width)


def with_suppression(content: ReleaseContent, digits: int) -> ReleaseContent:
    """The content whose certificate says how many answers are shown, and how often suppression errs."""
    rule = content.suppression
    if rule is None:
        return content
    compared_batches = [(bounds, content.is_compared(*bounds)) for bounds in batches(content.answer.size)]
    blocks = content.workload.blocks
    starts = np.cumsum([0, *(block.queries for block in blocks)])
    by_block = np.zeros(len(blocks), dtype=np.int64)
    for (start, stop), compared in compared_batches:
        shown_rows = start + np.flatnonzero(compared & ~np.isnan(content.rounded(start, stop, digits)[0]))
        by_block += np.bincount(np.searchsorted(starts, shown_rows, side="right") - 1, minlength=len(blocks))
    shown = int(by_block.sum())
    shown_groups = {block.name for block, rows in zip(blocks, by_block, strict=True) if rows}
    counts = zip(blocks, content.counted or (True,) * len(blocks), strict=True)
    hidden = list(dict.fromkeys(block.name for block, counted in counts if counted and block.name not in shown_groups))
    errors = (np.round(content.error.read(*bounds)[compared], digits + 2) for bounds, compared in compared_batches)
    predicted = rule.predict_rates(errors)
    facts = {
        **rule.facts,
        "shown": shown,
        "answers": sum(int(compared.sum()) for _, compared in compared_batches),
        **asdict(predicted),
    }
    facts |= {"hidden_groups": hidden} if hidden else {}
    return replace(content, certificate={**content.certificate, "suppression": facts})


def formats_of(content: ReleaseContent) -> tuple[Format, ...]:
    """The tables that are written."""
    if content.formats is not None:
        return content.formats
    size = content.answer.size
    return ("parquet", "csv") if size <= CSV_ROWS else ("parquet", "zarr") if size <= PARQUET_ROWS else ("zarr",)


def decimals_of(errors: Vector) -> int:
    """Decimals to publish: a thousandth of the smallest standard error; finer digits are noise and differ by machine."""
    return int(max(0, 3 - np.floor(np.log10(least_positive(errors)))))


def versions() -> dict[str, str]:
    """Versions that may decide the bytes of what is published."""
    return {"python": platform.python_version(), "dpdist": version(), **_package_versions()}


@cache
def _package_versions() -> dict[str, str]:
    packages = ("numpy", "scipy", "numba", "zarr", "pyarrow")
    return {name: importlib.metadata.version(name) for name in packages}
