"""The data dictionary."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.content.destination import WrittenFile
from dpdist.content.table_rows import csv_text
from dpdist.publish.column_descriptions import columns_of_answers
from dpdist.publish.output_file import Output, ReleaseDraft


class Dictionary(Output):
    """Every column of the answers with its type and its meaning."""

    files = r"dictionary\.csv"
    about = "The data dictionary: every column with its type and meaning."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        text = csv_text([("column", "type", "meaning"), *columns_of_answers(release.content)])
        return [release.destination.write_bytes("dictionary.csv", text.encode())]
