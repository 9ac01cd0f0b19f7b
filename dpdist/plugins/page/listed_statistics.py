"""The means and variances that the page lists, as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dpdist.api.outputs import arrow_arrays
from dpdist.api.pages import Words, column_of, digits_for, format_number, say

PAGE_MEANS = 100
"""Means that the page lists; the file holds all."""


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


def listed_rows(rows: pa.Table, words: Words, names: Sequence[str]) -> list[dict[str, str]]:
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
