"""The data dictionary."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from dpdist.page.outputs.base import Output, Unfinished
from dpdist.page.outputs.columns import columns_of_answers
from dpdist.page.places import Written


class Dictionary(Output):
    """Every column of the answers with its type and its meaning."""

    files = r"dictionary\.csv"
    about = "The data dictionary: every column with its type and meaning."

    def write(self, release: Unfinished) -> Sequence[Written]:
        text = _dictionary(columns_of_answers(release.content))
        return [release.place.put("dictionary.csv", text.encode())]


def _dictionary(columns: list[tuple[str, str, str]]) -> str:
    """The data dictionary: one row a column."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([("column", "type", "meaning"), *map(_without_formula, columns)])
    return out.getvalue()


def _without_formula(row: tuple[str, str, str]) -> tuple[str, ...]:
    """Texts that spreadsheets would run get an apostrophe, as in the answers."""
    return tuple(f"'{text}" if re.match(r"'*[=+\-@\t\r]", text) else text for text in row)
