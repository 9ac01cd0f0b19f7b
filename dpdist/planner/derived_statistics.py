"""Statistics of amounts: made of measured sums, with intervals that know how the noise in them varies together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dpdist.arrays.lazy_vector import Held
from dpdist.content.measurement_file import MOST_BYTES, Measurement
from dpdist.errors import InvalidInput
from dpdist.measurement.integer_measurement import Grid
from dpdist.query.linear_functions import Linear, products_of
from dpdist.query.published_release import UNPUBLISHED, Expected, Published
from dpdist.spec.job import AskedQueries
from dpdist.statistics.statistic_registry import STATISTICS
from dpdist.workloads import Block, Workload

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.page.statistic_tables import Row


def made_of_sums(asked: AskedQueries) -> list[str]:
    """The statistics that are asked for and that are published beside the sums that they are made of."""
    return [entry.statistic.key() for entry in asked.entries if entry.statistic.made]


def check_means(asked: AskedQueries, grid: Grid) -> None:
    """Accept means and variances whose joint errors are known. Raises: InvalidInput, before anything is charged."""
    made = next(iter(made_of_sums(asked)), None)
    if made is None:
        return
    try:
        grid.space(Held(np.zeros(grid.rows, dtype=np.int64)), asked.measured.domain.shape, MOST_BYTES)
    except InvalidInput as reason:
        raise InvalidInput(
            f"the errors of {made}s are not known here ({reason}); ask for 'sum' in place of {made!r}"
        ) from None


def statistics(asked: AskedQueries, measurement: Measurement) -> dict[str, pa.Table]:
    """Every statistic that are asked for with its interval, by the tables that they are published in.

    A variance comes with its root, the standard deviation, and a correlation with the covariance.
    """
    from dpdist.page.statistic_tables import TABLES

    found: dict[str, list[Row]] = {}
    for table, rows in made_rows(asked, measurement):
        found.setdefault(table, []).extend(rows)
    return {table: TABLES[table](rows, asked.measured.domain.grouped) for table, rows in found.items()}


def made_rows(
    asked: AskedQueries, measurement: Measurement, expected: Expected | None = None
) -> Iterator[tuple[str, list[Row]]]:
    """The statistics of each group of queries, with the name of the table that they are published in.

    Args:
        expected: as for ``Published.statistics``.
    """
    from dpdist.page.statistic_tables import Row

    domain, published = asked.measured.domain.grouped, Published(UNPUBLISHED, measurement)
    for entry in asked.entries:
        if not entry.statistic.made:
            continue
        statistic, names = STATISTICS[entry.statistic.key()], entry.statistic.columns
        of = [measurement.domain.axis(name) for name in names]
        workload = entry.kind.counts(domain, asked.measured.folder)
        for block in workload.blocks:
            linear = list(_linear(block, workload))
            for told in statistic.published:
                made = published.statistics(told, of, linear, expected)
                yield statistic.table, [Row(" and ".join(names), block, place, each) for place, each in enumerate(made)]


def _linear(block: Block, workload: Workload) -> Iterator[Linear]:
    """The queries of a block as linear functions of the cells."""
    shape = workload.domain.shape
    if not block.separable:
        (whole,), sizes = block.factors, [shape[axis] for axis in block.axes]
        for place in range(block.queries):
            yield products_of(block.axes, whole.rows(place, place + 1)[0].reshape(sizes).astype(np.float64))
        return
    rows = [factor.dense().astype(np.float64) for factor in block.factors]
    for places in np.ndindex(*(len(each) for each in rows)):
        vectors = {axis: each[place] for axis, each, place in zip(block.axes, rows, places, strict=True)}
        yield Linear(((1.0, vectors),))
