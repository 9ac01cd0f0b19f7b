"""What the page calls the values of attributes, for whoever reads the answers, and for the site of the data set."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dpdist.content.destination import WrittenFile
from dpdist.content.table_rows import MOST_QUERIES, VALUES
from dpdist.language import use_language
from dpdist.page.headings import Words
from dpdist.page.value_labels import column_value_labels
from dpdist.process import arrow_arrays
from dpdist.publish.output_file import Output, ReleaseDraft
from dpdist.publish.outputs.amount_tables import write_statistics


class ValueLabels(Output):
    """A row for each text of a column of the answers that the page calls something else."""

    files = r"values\.csv"
    about = (
        "What the page calls the texts in the columns of the answers, where that is another text: places by their names, bins and times in "
        "the page's language. The site of the data set takes them from here. Groups of more than 5,000 queries are left out."
    )

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        content = release.content
        with use_language(content.certificate.get("language", "en")):
            labels_by_column = column_value_labels(
                content.workload, content.boundaries, Words.of(content.certificate), MOST_QUERIES
            )
        rows = [(column, text, name) for column, names in labels_by_column.items() for text, name in names.items()]
        if not rows:
            return []
        columns = dict(zip(("column", "value", "called"), map(arrow_arrays.texts, zip(*rows, strict=True)), strict=True))
        return write_statistics(release, VALUES, pa.table(columns))
