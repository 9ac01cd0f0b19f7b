"""The page for readers, and what other programs take from it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dpdist.api.outputs import Output, ReleaseDraft, WrittenFile, arrow_arrays, json_text, write_statistics
from dpdist.api.pages import MOST_QUERIES, VALUES, use_language
from dpdist.plugins.page.chart_words import ChartWords
from dpdist.plugins.page.release_page import release_page
from dpdist.plugins.page.theme import DEFAULT_THEME, THEME_FILE
from dpdist.plugins.page.value_labels import column_value_labels


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
                content.workload, content.boundaries, ChartWords.of(content.certificate), MOST_QUERIES
            )
        rows = [(column, text, name) for column, names in labels_by_column.items() for text, name in names.items()]
        if not rows:
            return []
        columns = dict(zip(("column", "value", "called"), map(arrow_arrays.texts, zip(*rows, strict=True)), strict=True))
        return write_statistics(release, VALUES, pa.table(columns))


class Appearance(Output):
    """Name, logo, colours and font, where the spec gives them."""

    files = r"site\.json"
    about = "With `site`: the publisher's name, logo, colours and font, from which the site of the data set takes them."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        theme = release.content.theme
        return (
            [] if theme in (None, DEFAULT_THEME) else [release.destination.write_bytes(THEME_FILE, json_text(theme.facts()))]
        )


class WebPage(Output):
    """The page: one file, which needs no server."""

    files = r"index\.html"
    about = "The page for readers: answers with charts, the guarantee, the method. It is one file and needs no server."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        return [
            release.destination.write_bytes(
                "index.html",
                release_page(
                    release.content, release.digits, [written_file.name for written_file in release.written]
                ).encode(),
            )
        ]


VALUE_LABELS, APPEARANCE, PAGE = ValueLabels(), Appearance(), WebPage()
