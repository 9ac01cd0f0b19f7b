"""The data dictionary."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from dpdist.page.outputs.base import Output, Unfinished
from dpdist.page.outputs.columns import columns_of_answers
from dpdist.page.places import Written
from dpdist.page.rows import without_formula


class Dictionary(Output):
    """Every column of the answers with its type and its meaning."""

    files = r"dictionary\.csv"
    about = "The data dictionary: every column with its type and meaning."

    def write(self, release: Unfinished) -> Sequence[Written]:
        rows, out = [("column", "type", "meaning"), *columns_of_answers(release.content)], io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(map(without_formula, row) for row in rows)
        return [release.place.put("dictionary.csv", out.getvalue().encode())]
