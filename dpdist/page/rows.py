"""Short published tables as rows of plain values, read without Arrow, which alone takes 60 MB (benchmarks/start.py)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpdist.language import say

FORMULA = r"^'*[=+\-@\t\r]"
"""Texts that spreadsheets would run, or would be taken for such after an apostrophe was taken away."""
SHORT_BYTES = 2**21
"""Files of answers up to this size are read here: about 20,000 answers, in a tenth of a second."""
NUMBERS = ("answer", "standard_error", "low_95", "high_95")

_MARKED = re.compile(r"'" + FORMULA[1:])


def without_formula(value: Any) -> Any:
    """A value for CSV: a text that spreadsheets would run gets an apostrophe in front (``dpdist.page.tables.without_formulas``)."""
    return f"'{value}" if isinstance(value, str) and re.match(FORMULA, value) else value


def short_rows(folder: Path) -> Iterator[dict[str, Any]] | None:
    """The rows of a release's ``answers.csv``, as its Parquet file holds them; None where the file is missing or long."""
    path = folder / "answers.csv"
    return _rows(path) if path.is_file() and path.stat().st_size <= SHORT_BYTES else None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    csv.field_size_limit(SHORT_BYTES)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield {name: _number(text) if name in NUMBERS else _text(text) for name, text in row.items()}


def _number(text: str) -> float | None:
    return float(text) if text else None


def _text(text: str) -> str:
    """A text as it was before it got an apostrophe for spreadsheets."""
    return text[1:] if _MARKED.match(text) else text


def column_of(name: str) -> str:
    """The column of an attribute."""
    reserved = ("group", "query", "answer", "standard_error", "low_95", "high_95")
    return f"attribute_{name}" if name in reserved else name


def _up_to(value: str) -> str:
    """The value of a cumulative count in the language that is spoken."""
    return say("up to {label}", label=value.removeprefix("up to ")) if value.startswith("up to ") else value


def titled(row: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """The query of a published row with titles in place of names; as it is where it has a name of its own."""
    query, cumulative = str(row["query"]), str(row.get("group")).startswith("cdf of ")
    given = {
        f"{name} {value}": f"{title} {_up_to(value) if cumulative else value}"
        for name, title in titles.items()
        if (value := row.get(column_of(name)))
    }
    parts = sorted(given, key=query.find)
    return ", ".join(given[part] for part in parts) if parts and ", ".join(parts) == query else query
