"""What lies beyond the bounds of a release, counted of each person's records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpdist.api.steps import Attribute, CountedSizes, PartitionedRecords, Rows, count_pairs, groups_of, number_persons
from dpdist.plugins.truncation_loss.noisy_loss import FINEST, NoisyBoundLoss

Numbers = NDArray[np.int64]
Values = NDArray[np.float64]


def count_truncation_loss(records: PartitionedRecords, rule: NoisyBoundLoss, *, persons: bool) -> CountedSizes:
    """What lies beyond the bounds: of persons the records that do not count, of those that do the amounts outside their range.

    Args:
        persons: whether persons are counted in each group, so that their further records in a group are no loss.
    Raises: as ``PartitionedRecords.record_batches``.
    """
    columns = [records.domain.attribute(name) for name in rule.columns]

    def count_part(rows: Rows, *amounts: Values) -> Numbers:
        counted_positions, blocks = records.counted_positions(rows), []
        if rule.most_lost_records is not None:
            person = number_persons(rows)
            kept_per_person = np.bincount(person[counted_positions], minlength=person.max(initial=-1) + 1)
            several = count_pairs(person, groups_of(rows, records.domain))[0] if persons else person
            blocks.append(
                rule.person_totals(kept_per_person, np.bincount(several, minlength=kept_per_person.size) - kept_per_person)
            )
        excess = (
            _excess(column_amounts[counted_positions], column)
            for column_amounts, column in zip(amounts, columns, strict=True)
        )
        return np.concatenate(
            [*blocks, *(rule.amount_totals(column_amounts[~np.isnan(column_amounts)]) for column_amounts in excess)]
        )

    return records.sum_parts(sum(rule.sizes), count_part, *columns)


def _excess(values: Values, column: Attribute) -> Values:
    """How far every amount lies outside the range, in ``FINEST`` parts of it: 0 within it, below it negative, NaN where there is none."""
    assert column.amounts is not None
    low, high = column.amounts.range
    with np.errstate(invalid="ignore", over="ignore"):
        excess = np.where(values > high, values - high, np.where(values < low, values - low, 0.0)) * (FINEST / (high - low))
    return np.where(np.isnan(values), np.nan, excess)
