"""Short published tables as rows of plain values, read without Arrow, which alone takes 60 MB (benchmarks/command_start.py)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMULA = r"^'*[=+\-@\t\r]"
"""Texts that spreadsheets would run, or would be taken for such after an apostrophe was taken away."""
SHORT_BYTES = 2**21
"""Files of answers up to this size are read here: about 20,000 answers, in a tenth of a second."""
NUMBERS = ("answer", "standard_error", "low_95", "high_95")
STATISTIC_NUMBERS = ("mean", "value", *NUMBERS[1:])
"""Columns of numbers in the tables of means and variances."""
THRESHOLDED_FILE, THRESHOLDED_NUMBERS = "thresholded.csv", ("value", "low_95", "high_95")
"""The rows of a thresholded histogram, and the columns of them that are no keys."""
COLUMNS_OF_TABLES = frozenset({"group", "query", "statistic", "of", "at", *NUMBERS, *STATISTIC_NUMBERS})
"""Columns of the tables of answers, of statistics and of quantiles beside those of attributes."""
VALUES = "values.csv"
MOST_QUERIES = 5000
"""Groups of more queries are not drawn over the periods of a site, nor are their texts in ``values.csv``."""

_ESCAPED_FORMULA = re.compile(r"'" + FORMULA[1:])


def without_formula(value: Any) -> Any:
    """A value for CSV: a text that spreadsheets would run gets an apostrophe in front
    (``dpdist.content.answer_tables.without_formulas``)."""
    return f"'{value}" if isinstance(value, str) and re.match(FORMULA, value) else value


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV that spreadsheets run nothing of, with a line feed after each; texts that hold a line end are quoted.

    Until Python 3.13 its writer quotes carriage returns only where they end lines.
    """
    lines, line = [], io.StringIO()
    writer = csv.writer(line, lineterminator="\r\n")
    for row in rows:
        writer.writerow(map(without_formula, row))
        lines.append(line.getvalue().removesuffix("\r\n"))
        line.seek(0)
        line.truncate()
    return "".join(f"{text}\n" for text in lines)


def short_rows(folder: Path) -> Iterator[dict[str, Any]] | None:
    """The rows of a release's ``answers.csv``, as its Parquet file holds them; None where the file is missing or long."""
    path = folder / "answers.csv"
    return _read_rows(path) if path.is_file() and path.stat().st_size <= SHORT_BYTES else None


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(SHORT_BYTES)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield {name: parse_number(text) if name in NUMBERS else unescape_text(text) for name, text in row.items()}


def parse_number(text: str) -> float | None:
    """The number of a field; None where it is empty."""
    return float(text) if text else None


def unescape_text(text: str) -> str:
    """A text as it was before it got an apostrophe for spreadsheets."""
    return text[1:] if _ESCAPED_FORMULA.match(text) else text


@dataclass(frozen=True)
class ThresholdedRow:
    """A published row of a thresholded histogram.

    Attributes:
        keys: by the names of their columns.
        value: the noisy count, records.
        low_95, high_95: the ends of its interval, records.
    """

    keys: Mapping[str, str]
    value: float
    low_95: float
    high_95: float


def read_thresholded_rows(folder: Path) -> list[ThresholdedRow]:
    """The rows of a release's thresholded histogram, in the order of their cells."""
    with (folder / THRESHOLDED_FILE).open(encoding="utf-8", newline="") as file:
        return [
            ThresholdedRow(
                {name: unescape_text(text) for name, text in row.items() if name not in THRESHOLDED_NUMBERS},
                *(float(row[name]) for name in THRESHOLDED_NUMBERS),
            )
            for row in csv.DictReader(file)
        ]


def quantiles_group(column: str, facts: Mapping[str, Any]) -> str:
    """What the quantiles of a column of amounts are called, as tables of means and variances have it.

    Args:
        facts: ``quantiles`` of the certificate.
    """
    return f"quantiles of {column}" + (f" by {' x '.join(facts['by'])}" if facts["by"] else "")


def column_of(name: str) -> str:
    """The column of an attribute: it has no name that another column of a published table has."""
    return f"attribute_{name}" if name in COLUMNS_OF_TABLES else name


def answer_columns(attributes: Iterable[str]) -> list[str]:
    """The columns of the table of answers (``dpdist.content.answer_tables.answer_batches``), in their order."""
    return ["group", "query", *map(column_of, attributes), *NUMBERS]


def titled_query(row: Mapping[str, Any], titles: Mapping[str, str], values: Mapping[str, Mapping[str, str]]) -> str:
    """The query of a published row as its page lists it; as it is where it has a name of its own.

    Args:
        titles: of attributes and levels, by their names.
        values: what the texts of a column are called, by column, where that is another text.
    """
    query, titled_parts = str(row["query"]), {}
    for name, title in titles.items():
        column = column_of(name)
        if text := row.get(column):
            titled_parts[f"{name} {text}"] = f"{title} {values.get(column, {}).get(text, text)}"
    ordered_texts = sorted(titled_parts, key=query.find)
    return (
        ", ".join(titled_parts[original_text] for original_text in ordered_texts)
        if ordered_texts and ", ".join(ordered_texts) == query
        else query
    )
