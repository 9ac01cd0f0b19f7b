"""Means as they are published: one row a mean, in a table of their own beside the answers that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dpdist.domain import Domain
from dpdist.page.numbers import digits_for, plain
from dpdist.page.tables import column_of, query_names, without_formulas
from dpdist.workloads import Block

PAGE_MEANS = 100
"""Means that the page lists; the file holds all."""


@dataclass(frozen=True)
class Mean:
    """A mean of amounts.

    Attributes:
        block, place: the group of queries over whose records it is taken, and which query of it.
        standard_error: by the delta method; None where there may be no record.
        low, high: the ends of its 95 % interval.
    """

    amounts: str
    block: Block
    place: int
    value: float
    standard_error: float | None
    low: float
    high: float


def table_of(means: Sequence[Mean], domain: Domain) -> pa.Table:
    """The published means: group, query, one column an attribute, mean, standard error, 95 % interval."""
    names, groups, queries = domain.columns, [], []
    texts: dict[str, list[str]] = {name: [] for name in names}
    for (amounts, _), some in groupby(means, key=lambda each: (each.amounts, id(each.block))):
        rows = list(some)
        first, last, block = rows[0].place, rows[-1].place + 1, rows[0].block
        query, columns = query_names(block, names, first, last)
        groups += [f"mean of {amounts} by {block.name}" if block.name != "total" else f"mean of {amounts}"] * len(rows)
        queries += query.to_pylist()
        for name in names:
            texts[name] += columns[name].to_pylist()
    errors = [each.standard_error for each in means]
    digits = _decimals([error for error in errors if error])
    return pa.table(
        {
            "group": groups,
            "query": pa.array(queries, pa.string()),
            **{column_of(name): pa.array(values, pa.string()) for name, values in texts.items()},
            "mean": [round(each.value, digits) for each in means],
            "standard_error": pa.array(
                [None if error is None else round(error, digits + 2) for error in errors], pa.float64()
            ),
            "low_95": [round(each.low, digits) for each in means],
            "high_95": [round(each.high, digits) for each in means],
        }
    )


def _decimals(errors: Sequence[float]) -> int:
    """A thousandth of the smallest error, as for answers: finer digits differ by machine."""
    return int(max(0, 3 - np.floor(np.log10(min(errors))))) if errors else 0


def write_means(means: pa.Table, file: BinaryIO) -> None:
    """The file of means."""
    options = pyarrow.csv.WriteOptions(quoting_style="needed")
    pyarrow.csv.write_csv(without_formulas(means), file, write_options=options)


def listed(means: pa.Table) -> list[dict[str, str]]:
    """The first means as texts, for the page: as many digits as the noise leaves."""
    rows = means.slice(0, PAGE_MEANS).to_pylist()
    return [{"group": row["group"], "query": row["query"], **_texts(row)} for row in rows]


def _texts(row: dict[str, Any]) -> dict[str, str]:
    half = (row["high_95"] - row["low_95"]) / 2
    shown = {name: plain(row[name], digits_for(half, row[name])) for name in ("mean", "low_95", "high_95")}
    error = row["standard_error"]
    return {**shown, "standard_error": "not known" if error is None else plain(error, digits_for(error))}
