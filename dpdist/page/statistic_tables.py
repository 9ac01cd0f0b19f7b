"""Means and variances as they are published: one row each, in tables of their own beside the answers that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dpdist.content.answer_tables import query_names, without_formulas
from dpdist.content.number_format import digits_for, format_number
from dpdist.content.table_rows import column_of
from dpdist.domain import Domain
from dpdist.language import say
from dpdist.page.headings import Words
from dpdist.process import arrow_arrays
from dpdist.statistics.statistic import MEANS, VARIANCES, Estimated
from dpdist.workloads import Block

PAGE_MEANS = 100
"""Means that the page lists; the file holds all."""


@dataclass(frozen=True)
class StatisticRow:
    """A statistic of amounts over the records of one query.

    Attributes:
        amounts: the column, or both.
        block, place: the group of queries over whose records it is taken, and which query of it.
        estimate: with its interval.
    """

    amounts: str
    block: Block
    query_index: int
    estimate: Estimated

    @property
    def columns(self) -> list[str]:
        """The columns of amounts."""
        return self.amounts.split(" and ")

    @property
    def group(self) -> str:
        """What its group is called, as published tables have it."""
        statistic_name = f"{self.estimate.statistic} of {self.amounts}"
        return statistic_name if self.block.name == "total" else f"{statistic_name} by {self.block.name}"


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


def with_value_labels(rows: pa.Table, labels_by_column: Mapping[str, Mapping[str, str]]) -> pa.Table:
    """The rows with what readers call the values of attributes.

    Args:
        labels_by_column: by column, of each text of it.
    """
    for column in labels_by_column:
        if column in rows.column_names:
            texts = [labels_by_column[column].get(text, text) for text in rows[column].to_pylist()]
            rows = rows.set_column(rows.column_names.index(column), column, arrow_arrays.texts(texts))
    return rows


def value_column(rows: pa.Table) -> str:
    """The column of the values."""
    return "mean" if "mean" in rows.column_names else "value"


def page_rows(rows: pa.Table, words: Words, names: Sequence[str]) -> list[dict[str, str]]:
    """The first means or variances as texts, for the page: as many digits as the noise leaves.

    Args:
        names: of the attributes and levels.
    """
    return [
        {
            "group": words.heading(row["group"], names),
            **_population_texts(row, words, names),
            **_number_texts(row, value_column(rows)),
        }
        for row in rows.slice(0, PAGE_MEANS).to_pylist()
    ]


def _population_texts(row: dict[str, Any], words: Words, names: Sequence[str]) -> dict[str, str]:
    """Over which records a statistic is taken: values of attributes by themselves, and with their titles."""
    values_by_title = {words.title(name): row[column_of(name)] for name in names if row.get(column_of(name))}
    values = ", ".join(values_by_title.values()) or row["query"]
    return {
        "values": values,
        "query": ", ".join(f"{title} {value}" for title, value in values_by_title.items()) if values_by_title else values,
    }


def _number_texts(row: dict[str, Any], value: str) -> dict[str, str]:
    half = (row["high_95"] - row["low_95"]) / 2
    columns = {"value": value, "low_95": "low_95", "high_95": "high_95"}
    shown = {name: format_number(row[column], digits_for(half, row[column])) for name, column in columns.items()}
    error = row["standard_error"]
    return {**shown, "standard_error": say("not known") if error is None else format_number(error, digits_for(error))}
