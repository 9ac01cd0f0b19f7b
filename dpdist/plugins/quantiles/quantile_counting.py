"""The records that count by group and by their amounts in some columns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpdist.api.steps import Attribute, Domain, PartitionedRecords, codes_of, count_pairs

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class CountedValues:
    """How many records of each group have which amount, and how many records were read.

    Attributes:
        values: for each column the group, the steps above its smallest amount, and the number of records; rising by group and steps.
    """

    values: tuple[Numbers, ...] = field(repr=False)
    records_read: int = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the numbers: only a commitment of it may be written down."""
        hasher = hashlib.sha256()
        for column_values in self.values:
            hasher.update(column_values.shape[1].to_bytes(8, "little") + column_values.astype("<i8").tobytes())
        return hasher.hexdigest()


def values_by_group(records: PartitionedRecords, group_names: Sequence[str], columns: Sequence[Attribute]) -> CountedValues:
    """The records that count by group and by their amounts in some columns. Records in no labelled group are left out.

    Raises: as ``PartitionedRecords.record_batches``.
    """
    values_by_column, records_read = [np.zeros((3, 0), dtype=np.int64) for _ in columns], 0
    with closing(records.record_batches(*columns)) as parts_reader:
        for rows, amounts, number in parts_reader:
            counted_positions, records_read = records.counted_positions(rows), records_read + number
            group, has_labels = _labelled_groups(rows["cell"][counted_positions], records.domain, group_names)
            for column_index, (column, values) in enumerate(zip(columns, amounts, strict=True)):
                assert column.amounts is not None
                steps = column.amounts.steps_of(values[counted_positions])
                is_selected = has_labels & (steps >= 0)
                earlier_values, numbers = values_by_column[column_index], np.ones(int(is_selected.sum()), dtype=np.int64)
                extended_values = np.concatenate([earlier_values, [group[is_selected], steps[is_selected], numbers]], axis=1)
                values_by_column[column_index] = np.stack(
                    count_pairs(extended_values[0], extended_values[1], extended_values[2])
                )
    return CountedValues(tuple(values_by_column), records_read)


def _labelled_groups(cells: Numbers, domain: Domain, group_names: Sequence[str]) -> tuple[Numbers, NDArray[np.bool_]]:
    """The group of every record by some attributes, and whether it is one that has labels."""
    codes = codes_of(cells, domain)
    group, has_labels = np.zeros(cells.size, dtype=np.int64), np.ones(cells.size, dtype=bool)
    for name in group_names:
        code, shown = codes[domain.axis(name)], domain.attribute(name).shown
        group, has_labels = group * shown + code, has_labels & (code < shown)
    return group, has_labels
