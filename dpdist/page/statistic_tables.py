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
from dpdist.content.number_format import digits_for, plain
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
class Row:
    """A statistic of amounts over the records of one query.

    Attributes:
        amounts: the column, or both.
        block, place: the group of queries over whose records it is taken, and which query of it.
        made: with its interval.
    """

    amounts: str
    block: Block
    place: int
    made: Estimated

    @property
    def columns(self) -> list[str]:
        """The columns of amounts."""
        return self.amounts.split(" and ")

    @property
    def group(self) -> str:
        """What its group is called, as published tables have it."""
        what = f"{self.made.statistic} of {self.amounts}"
        return what if self.block.name == "total" else f"{what} by {self.block.name}"


def table_of(rows: Sequence[Row], domain: Domain, *, means: bool = False) -> pa.Table:
    """The published statistics: group, query, one column an attribute, what it is, value, standard error, 95 % interval.

    Args:
        means: whether all are means, whose column of values says so.
    """
    made = [each.made for each in rows]
    decimals = {
        kind: _decimals([each.standard_error for each in made if each.statistic == kind and each.standard_error])
        for kind in {each.statistic for each in made}
    }
    digits = [decimals[each.statistic] for each in made]
    values = _floats(round(each.value, count) for each, count in zip(made, digits, strict=True))
    named = (
        {"mean": values} if means else {"statistic": arrow_arrays.texts(each.statistic for each in made), "value": values}
    )
    return pa.table({**_named(rows, domain), **named, **_errors(rows, digits)})


TABLES: dict[str, Callable[[Sequence[Row], Domain], pa.Table]] = {MEANS: partial(table_of, means=True), VARIANCES: table_of}
"""How the rows of each table are written."""


def _named(rows: Sequence[Row], domain: Domain) -> dict[str, Any]:
    """Group, query and one column an attribute of what describes the queries of some blocks, one after the other."""
    titled = [(each.group, each.block, each.place) for each in rows]
    names, groups, queries = domain.columns, [], []
    texts: dict[str, list[str]] = {name: [] for name in names}
    for (group, _), some in groupby(titled, key=lambda each: (each[0], id(each[1]))):
        asked = list(some)
        (_, block, first), last = asked[0], asked[-1][2] + 1
        query, columns = query_names(block, names, first, last)
        groups += [group] * len(asked)
        queries += query.to_pylist()
        for name in names:
            texts[name] += columns[name].to_pylist()
    attributes = {column_of(name): arrow_arrays.texts(values) for name, values in texts.items()}
    return {"group": arrow_arrays.texts(groups), "query": arrow_arrays.texts(queries), **attributes}


def _errors(rows: Sequence[Row], digits: Sequence[int]) -> dict[str, Any]:
    """The columns of standard errors and of the ends of intervals."""
    pairs = list(zip([each.made for each in rows], digits, strict=True))
    return {
        "standard_error": _floats(each.standard_error and round(each.standard_error, count + 2) for each, count in pairs),
        "low_95": _floats(round(each.low, count) for each, count in pairs),
        "high_95": _floats(round(each.high, count) for each, count in pairs),
    }


def _floats(values: Iterable[float | None]) -> pa.Array:
    found = np.array(list(values), dtype=np.float64)
    return arrow_arrays.numbers(found, missing=np.isnan(found))


def _decimals(errors: Sequence[float]) -> int:
    """A thousandth of the smallest error, as for answers: finer digits differ by machine."""
    return int(max(0, 3 - np.floor(np.log10(min(errors))))) if errors else 0


def write_rows(rows: pa.Table, file: BinaryIO) -> None:
    """The file of means, or of variances."""
    options = pyarrow.csv.WriteOptions(quoting_style="needed")
    pyarrow.csv.write_csv(without_formulas(rows), file, write_options=options)


def named(rows: pa.Table, called: Mapping[str, Mapping[str, str]]) -> pa.Table:
    """The rows with what readers call the values of attributes.

    Args:
        called: by column, of each text of it.
    """
    for column in called:
        if column in rows.column_names:
            texts = [called[column].get(text, text) for text in rows[column].to_pylist()]
            rows = rows.set_column(rows.column_names.index(column), column, arrow_arrays.texts(texts))
    return rows


def value_of(rows: pa.Table) -> str:
    """The column of the values."""
    return "mean" if "mean" in rows.column_names else "value"


def listed(rows: pa.Table, words: Words, names: Sequence[str]) -> list[dict[str, str]]:
    """The first means or variances as texts, for the page: as many digits as the noise leaves.

    Args:
        names: of the attributes and levels.
    """
    return [
        {"group": words.heading(row["group"], names), **_over(row, words, names), **_texts(row, value_of(rows))}
        for row in rows.slice(0, PAGE_MEANS).to_pylist()
    ]


def _over(row: dict[str, Any], words: Words, names: Sequence[str]) -> dict[str, str]:
    """Over which records a statistic is taken: values of attributes by themselves, and with their titles."""
    given = {words.title(name): row[column_of(name)] for name in names if row.get(column_of(name))}
    values = ", ".join(given.values()) or row["query"]
    return {"values": values, "query": ", ".join(f"{title} {each}" for title, each in given.items()) if given else values}


def _texts(row: dict[str, Any], value: str) -> dict[str, str]:
    half = (row["high_95"] - row["low_95"]) / 2
    columns = {"value": value, "low_95": "low_95", "high_95": "high_95"}
    shown = {name: plain(row[column], digits_for(half, row[column])) for name, column in columns.items()}
    error = row["standard_error"]
    return {**shown, "standard_error": say("not known") if error is None else plain(error, digits_for(error))}
