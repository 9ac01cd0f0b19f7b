"""Persons by their number of records or groups, and records by their amount."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpdist.api.steps import CountedSizes, PartitionedRecords, Rows, count_pairs, groups_of, number_persons

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]


def records_of_persons(records: PartitionedRecords, largest_count: int, *, groups: bool = False) -> CountedSizes:
    """Persons by the number of their records that lie within the domain; whoever has more than ``largest_count`` counts as having so many.

    Args:
        groups: whether all records of a person in one group are taken for one.
    Raises: as ``PartitionedRecords.record_batches``.
    """

    def count_part(rows: Rows) -> Numbers:
        person = number_persons(rows)
        several = count_pairs(person, groups_of(rows, records.domain))[0] if groups else person
        return np.bincount(np.minimum(np.bincount(several), largest_count), minlength=largest_count + 1)

    return records.sum_parts(largest_count + 1, count_part)


def counts_of_amounts(records: PartitionedRecords, name: str, largest_step: int) -> CountedSizes:
    """The records that count by their amount, in steps above the smallest one; whatever is larger than ``largest_step`` counts as that.

    Raises: as ``PartitionedRecords.record_batches``.
    """
    column = records.domain.attribute(name)

    def count_part(rows: Rows, amounts: Values) -> Numbers:
        assert column.amounts is not None
        steps = column.amounts.steps_of(amounts[records.counted_positions(rows)])
        return np.bincount(steps[steps >= 0], minlength=largest_step + 1)

    return records.sum_parts(largest_step + 1, count_part, column)
