"""Tables whose rows stand for several records each: how many, as a column of whole numbers says.

A record is then no row. It is what the publisher says that the column counts, and the guarantee is for that: one of them more or less
moves one number by one. Only the publisher can know that; what can be seen is refused where it cannot be true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpdist.errors import InvalidSpec
from dpdist.measurement.integer_measurement import MOST_RECORDS
from dpdist.sources.reader_errors import reading
from dpdist.sources.source_labels import SourceLabel

if TYPE_CHECKING:
    import pyarrow as pa


def counted_rows(table: pa.Table, column: str, source_label: SourceLabel) -> tuple[pa.Table, NDArray[np.int64]]:
    """The rows that stand for a record at least, and for how many. A row of none says what a missing row says.

    Raises: InvalidSpec for what counts no records: no whole numbers, missing ones, negative ones.
    """
    import pyarrow.compute as pc

    from dpdist.process import arrow_arrays
    from dpdist.sources.formats.column_conversion import Unconvertible, convert_column

    try:
        with reading(source_label):
            number_column = convert_column(table[column], "whole")
    except Unconvertible as error:
        raise InvalidSpec(f"{source_label}: the column of counts {column!r} {error}") from None
    if number_column.null_count:
        raise InvalidSpec(
            f"{source_label}: the column of counts {column!r} has values that are no whole numbers; write 0, or leave these rows out"
        )
    ends = pc.min_max(number_column).as_py()
    if table.num_rows:
        check_range(ends["min"], ends["max"], f"the column of counts {column!r}", source_label)
    numbers = arrow_arrays.values_of(number_column)
    has_records = numbers > 0
    return table.filter(arrow_arrays.numbers(has_records)), numbers[has_records]


def check_range(smallest: int, largest: int, column_label: str, source_label: SourceLabel) -> None:
    """Accept numbers of records. Raises: InvalidSpec, without a number of them."""
    if smallest < 0 or largest > MOST_RECORDS:
        fault = "a negative number" if smallest < 0 else "a number that is too large"
        raise InvalidSpec(
            f"{source_label}: {column_label} holds {fault}; allowed are numbers of records, 0 to {MOST_RECORDS:,}"
        )
