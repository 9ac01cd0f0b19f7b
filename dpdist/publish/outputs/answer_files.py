"""The tables of answers."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.content.answer_tables import write_tables
from dpdist.content.destination import WrittenFile
from dpdist.publish.output_file import Output, ReleaseDraft


class AnswerTables(Output):
    """The answers as Parquet, CSV and Zarr, as far as the release asks for them."""

    files = r"answers\.(parquet|csv)|answers\.(parquet|zarr)/.+"
    about = "The answers as text, one row for each."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        return write_tables(release.content, release.digits, release.destination, release.task_map)
