"""Means and variances as they are published: one row each, in tables of their own beside the answers that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dpdist.content.answer_tables import query_names, without_formulas
from dpdist.content.table_rows import column_of
from dpdist.domain import Domain
from dpdist.process import arrow_arrays
from dpdist.statistics.statistic import MEANS, VARIANCES, Estimated
from dpdist.workloads import Block


@dataclass(frozen=True)
class StatisticRow:
    """A statistic of amounts over the records of one query.

    Attributes:
        columns: of amounts, one or two.
        block, query_index: the group of queries over whose records it is taken, and which query of it.
        estimate: with its interval.
    """

    columns: Sequence[str]
    block: Block
    query_index: int
    estimate: Estimated

    @property
    def group(self) -> str:
        """What its group is called, as published tables have it."""
        statistic_name = f"{self.estimate.statistic} of {' and '.join(self.columns)}"
        return statistic_name if self.block.is_total else f"{statistic_name} by {self.block.name}"


def _statistics_table(rows: Sequence[StatisticRow], domain: Domain, *, means: bool = False) -> pa.Table:
    """The published statistics: group, query, one column an attribute, what it is, value, standard error, 95 % interval.

    Args:
        means: whether all are means, whose column of values says so.
    """
    estimates = [entry.estimate for entry in rows]
    decimals = {
        kind: _decimals([entry.standard_error for entry in estimates if entry.statistic == kind and entry.standard_error])
        for kind in {entry.statistic for entry in estimates}
    }
    digits = [decimals[entry.statistic] for entry in estimates]
    values = _number_column(round(entry.value, count) for entry, count in zip(estimates, digits, strict=True))
    value_columns = (
        {"mean": values}
        if means
        else {"statistic": arrow_arrays.texts(entry.statistic for entry in estimates), "value": values}
    )
    return pa.table({**_query_columns(rows, domain), **value_columns, **_error_columns(rows, digits)})


TABLES: dict[str, Callable[[Sequence[StatisticRow], Domain], pa.Table]] = {
    MEANS: partial(_statistics_table, means=True),
    VARIANCES: _statistics_table,
}
"""How the rows of each table are written."""


def _query_columns(rows: Sequence[StatisticRow], domain: Domain) -> dict[str, Any]:
    """Group, query and one column an attribute of what describes the queries of some blocks, one after the other."""
    titled = [(entry.group, entry.block, entry.query_index) for entry in rows]
    names, groups, queries = domain.columns, [], []
    texts: dict[str, list[str]] = {name: [] for name in names}
    for (group, _), group_rows in groupby(titled, key=lambda entry: (entry[0], id(entry[1]))):
        rows_of_block = list(group_rows)
        (_, block, first_query), stop_query = rows_of_block[0], rows_of_block[-1][2] + 1
        query, columns = query_names(block, names, first_query, stop_query)
        groups += [group] * len(rows_of_block)
        queries += query.to_pylist()
        for name in names:
            texts[name] += columns[name].to_pylist()
    attributes = {column_of(name): arrow_arrays.texts(values) for name, values in texts.items()}
    return {"group": arrow_arrays.texts(groups), "query": arrow_arrays.texts(queries), **attributes}


def _error_columns(rows: Sequence[StatisticRow], digits: Sequence[int]) -> dict[str, Any]:
    """The columns of standard errors and of the ends of intervals."""
    pairs = list(zip([entry.estimate for entry in rows], digits, strict=True))
    return {
        "standard_error": _number_column(
            entry.standard_error and round(entry.standard_error, count + 2) for entry, count in pairs
        ),
        "low_95": _number_column(round(entry.low, count) for entry, count in pairs),
        "high_95": _number_column(round(entry.high, count) for entry, count in pairs),
    }


def _number_column(values: Iterable[float | None]) -> pa.Array:
    numbers = np.array(list(values), dtype=np.float64)
    return arrow_arrays.numbers(numbers, missing=np.isnan(numbers))


def _decimals(errors: Sequence[float]) -> int:
    """A thousandth of the smallest error, as for answers: finer digits differ by machine."""
    return int(max(0, 3 - np.floor(np.log10(min(errors))))) if errors else 0


def write_rows(rows: pa.Table, file: BinaryIO) -> None:
    """The file of means, or of variances."""
    options = pyarrow.csv.WriteOptions(quoting_style="needed")
    pyarrow.csv.write_csv(without_formulas(rows), file, write_options=options)
