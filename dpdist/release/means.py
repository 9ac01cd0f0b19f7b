"""Means and variances of amounts: made of measured sums, with intervals that know how the noise in them varies together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpdist.arrays.vector import Held, batches
from dpdist.asking.products import Linear, products_of
from dpdist.asking.published import SPREADS_AT_ONCE, Published
from dpdist.asking.questions import powers
from dpdist.asking.spreads import CORRELATION, COVARIANCE, STANDARD_DEVIATION, VARIANCE
from dpdist.domain.amounts import AMOUNT, PRESENT
from dpdist.errors import InvalidInput
from dpdist.grids.base import Grid
from dpdist.page.measurement import MOST_BYTES, Measurement
from dpdist.spec.job import Asked
from dpdist.spec.queries import counts_of
from dpdist.workloads import Block, Workload

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.page.means import Mean

AT_ONCE = 256
"""Means whose covariances are computed together."""


def check_means(asked: Asked, grid: Grid) -> None:
    """Accept means and variances whose joint errors are known. Raises: InvalidInput, before anything is charged."""
    made = asked.derived
    if made is None:
        return
    try:
        grid.space(Held(np.zeros(grid.rows, dtype=np.int64)), asked.measured.domain.shape, MOST_BYTES)
    except InvalidInput as reason:
        raise InvalidInput(
            f"the errors of {made}s are not known here ({reason}); ask for 'sum' in place of {made!r}"
        ) from None


def means(asked: Asked, measurement: Measurement) -> pa.Table | None:
    """Every mean that is asked for with its Fieller interval; None where none is."""
    from dpdist.page.means import table_of

    domain, folder = asked.measured.domain.grouped, asked.measured.folder
    entries = [entry for entry in asked.entries if entry.mean]
    found: list[Mean] = []
    for entry in entries:
        workload = counts_of(entry, domain, folder)
        rows = [(block, place, each) for block in workload.blocks for place, each in enumerate(_linear(block, workload))]
        for start, stop in batches(len(rows), AT_ONCE):
            found += _means(Published({}, measurement), entry.mean or "", rows[start:stop])
    return table_of(found, domain) if entries else None


def _means(published: Published, amounts: str, some: Sequence[tuple[Block, int, Linear]]) -> Iterator[Mean]:
    """Some means. The true one lies between the ends of the range, so that an interval never goes beyond them."""
    from dpdist.page.means import Mean

    domain = published.measurement.domain
    axis = domain.axis(amounts)
    attribute = domain.attributes[axis]
    assert attribute.amounts is not None
    low, high = attribute.amounts.range
    added, present = (powers(attribute, what) for what in (AMOUNT, PRESENT))
    pairs = [(among.within({axis: added}), among.within({axis: present})) for *_, among in some]
    for (block, place, _), ratio in zip(some, published.ratios(pairs), strict=True):
        value, first, last = ratio.within(low, high)
        yield Mean(amounts, block, place, value, ratio.standard_error, first, last)


def variances(asked: Asked, measurement: Measurement) -> pa.Table | None:
    """Every variance, covariance and correlation that a spec asks for with its interval; None where it asks for none.

    A variance comes with its root, the standard deviation, and a correlation with the covariance.
    """
    from dpdist.page.means import table_of_variances

    domain = asked.measured.domain.grouped
    found: list[Mean] = []
    for entry in asked.entries:
        statistic, names = entry.statistic or ("", ())
        if statistic not in BESIDE:
            continue
        workload = counts_of(entry, domain, asked.measured.folder)
        for block in workload.blocks:
            for each in BESIDE[statistic]:
                found += _spreads(Published({}, measurement), each, names, block, list(_linear(block, workload)))
    return table_of_variances(found, domain) if found else None


BESIDE = {VARIANCE: (VARIANCE, STANDARD_DEVIATION), COVARIANCE: (COVARIANCE,), CORRELATION: (CORRELATION, COVARIANCE)}
"""What is published for each statistic that a spec asks for."""


def _spreads(
    published: Published, statistic: str, names: Sequence[str], block: Block, linear: Sequence[Linear]
) -> Iterator[Mean]:
    """A statistic of columns of amounts for every query of a block."""
    from dpdist.page.means import Mean

    of = [published.measurement.domain.axis(name) for name in names]
    for start, stop in batches(len(linear), SPREADS_AT_ONCE):
        for place, each in enumerate(published.spreads(statistic, of, linear[start:stop]), start):
            ends = each.value, each.standard_error, each.low, each.high
            yield Mean(" and ".join(names), block, place, *ends, each.statistic)


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
