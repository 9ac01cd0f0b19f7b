"""Statistics of amounts: made of measured sums, with intervals that know how the noise in them varies together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dpdist.arrays.lazy_vector import ArrayVector, batches
from dpdist.content.measurement_file import MOST_BYTES, Measurement
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import IntegerMeasurement
from dpdist.operators import Identity, Matrix, Operator
from dpdist.query.linear_functions import FunctionBatch, LinearFunction, decompose_function
from dpdist.query.published_release import GROUPS_AT_ONCE, UNPUBLISHED, ExpectedValues, PublishedRelease
from dpdist.spec.job_workload import JobWorkload
from dpdist.statistics.statistic import Statistic
from dpdist.statistics.statistic_registry import STATISTICS, statistic_for
from dpdist.workloads import Block

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.page.statistic_tables import StatisticRow


def derived_statistic_names(job_workload: JobWorkload) -> list[str]:
    """The statistics that are asked for and that are published beside the sums that they are made of."""
    return [entry.statistic.key() for entry in job_workload.entries if entry.statistic.is_derived]


def derived_groups(job_workload: JobWorkload) -> list[str]:
    """The groups of those statistics, as published tables have them: their errors depend on how many records there are."""
    domain, groups = job_workload.measured.domain.grouped, list[str]()
    for entry in job_workload.entries:
        if not entry.statistic.is_derived:
            continue
        columns = " and ".join(entry.statistic.columns)
        for block in entry.kind.counts(domain, job_workload.measured.folder).blocks:
            by = "" if block.is_total else f" by {block.name}"
            groups += [f"{name} of {columns}{by}" for name in STATISTICS[entry.statistic.key()].published]
    return groups


def check_means(job_workload: JobWorkload, measurement: IntegerMeasurement) -> None:
    """Accept means and variances whose joint errors are known. Raises: InvalidInput, before anything is charged."""
    statistic_name = next(iter(derived_statistic_names(job_workload)), None)
    if statistic_name is None:
        return
    reason = reason_unpublished(measurement, job_workload.measured.domain.shape)
    if reason is not None:
        raise InvalidInput(
            f"the errors of {statistic_name}s are not known here ({reason}); ask for 'sum' in place of {statistic_name!r}"
        )


def reason_unpublished(measurement: IntegerMeasurement, shape: tuple[int, ...]) -> str | None:
    """Why readers do not get the measurement, of which they ask further questions; None where they do."""
    try:
        measurement.measured_space(ArrayVector(np.zeros(measurement.rows, dtype=np.int64)), shape, MOST_BYTES)
    except InvalidInput as reason:
        return str(reason)
    return None


def statistics(job_workload: JobWorkload, measurement: Measurement) -> dict[str, pa.Table]:
    """Every statistic that are asked for with its interval, by the tables that they are published in.

    A variance comes with its root, the standard deviation, and a correlation with the covariance.
    """
    from dpdist.page.statistic_tables import TABLES

    rows_by_table: dict[str, list[StatisticRow]] = {}
    for table, rows in statistic_rows(job_workload, measurement):
        rows_by_table.setdefault(table, []).extend(rows)
    return {table: TABLES[table](rows, job_workload.measured.domain.grouped) for table, rows in rows_by_table.items()}


def statistic_rows(
    job_workload: JobWorkload, measurement: Measurement, expected: ExpectedValues | None = None
) -> Iterator[tuple[str, list[StatisticRow]]]:
    """The statistics of each group of queries, with the name of the table that they are published in.

    Args:
        expected: as for ``PublishedRelease.statistics``.
    """
    from dpdist.page.statistic_tables import StatisticRow

    domain, published = job_workload.measured.domain.grouped, PublishedRelease(UNPUBLISHED, measurement)
    published_groups: set[tuple[object, ...]] = set()
    for entry in job_workload.entries:
        if not entry.statistic.is_derived:
            continue
        statistic, names = STATISTICS[entry.statistic.key()], entry.statistic.columns
        axes = [measurement.domain.axis(name) for name in names]
        workload = entry.kind.counts(domain, job_workload.measured.folder)
        for block in workload.blocks:
            together: dict[Statistic, list[str]] = {}  # a variance and its root are made of the same sums
            for published_name in statistic.published:
                group = (published_name, names, block.name, *(factor.fingerprint for factor in block.factors))
                if group not in published_groups:  # by an entry before, as covariances beside correlations
                    together.setdefault(statistic_for(published_name), []).append(published_name)
                published_groups.add(group)
            for names_together in together.values():
                rows = [
                    StatisticRow(names, block, first_query + index // len(names_together), estimate)
                    for first_query, batch in _function_batches(block, workload.domain.shape)
                    for index, estimate in enumerate(published.statistics(names_together, axes, batch, expected))
                ]
                for position in range(len(names_together)):
                    yield statistic.table, rows[position :: len(names_together)]


def _function_batches(block: Block, shape: tuple[int, ...]) -> Iterator[tuple[int, FunctionBatch]]:
    """The queries of a block as linear functions of the cells, some at a time, with the number of the first."""
    for start, stop in batches(block.queries, GROUPS_AT_ONCE):
        if not block.separable:
            (whole,), sizes = block.factors, [shape[axis] for axis in block.axes]
            rows = whole.rows(start, stop).astype(np.float64).reshape(-1, *sizes)
            yield start, FunctionBatch([decompose_function(block.axes, row) for row in rows])
            continue
        indices = np.unravel_index(np.arange(start, stop), [factor.shape[0] for factor in block.factors])
        parts = {
            axis: _rows_over_values(factor, row_numbers)
            for axis, factor, row_numbers in zip(block.axes, block.factors, indices, strict=True)
        }
        functions = [
            LinearFunction(((1.0, {axis: rows[number] for axis, (_, rows) in parts.items()}),))
            for number in range(stop - start)
        ]
        yield start, FunctionBatch(functions, {axis: values for axis, (values, _) in parts.items() if values is not None})


def _rows_over_values(factor: Operator, row_numbers: Matrix) -> tuple[Matrix | None, Matrix]:
    """The values that some rows count, and the rows over these; without the values where they are all."""
    distinct, positions = np.unique(row_numbers, return_inverse=True)
    if isinstance(factor, Identity):
        return distinct, np.eye(distinct.size)[positions]
    rows = np.concatenate([factor.rows(int(row), int(row) + 1) for row in distinct]).astype(np.float64)
    return None, rows[positions]
