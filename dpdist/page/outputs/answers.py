"""The tables of answers."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.page.outputs.base import Output, Unfinished
from dpdist.page.places import Written
from dpdist.page.tables import write_tables


class AnswerTables(Output):
    """The answers as Parquet, CSV and Zarr, as far as the release asks for them."""

    files = r"answers\.(parquet|csv)|answers\.(parquet|zarr)/.+"
    about = "The answers as text, one row for each."

    def write(self, release: Unfinished) -> Sequence[Written]:
        return write_tables(release.content, release.digits, release.place, release.spread)
