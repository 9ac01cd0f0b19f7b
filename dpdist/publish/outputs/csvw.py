"""The columns of ``answers.csv`` as CSV on the Web (https://www.w3.org/TR/tabular-metadata)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpdist.content.destination import Written
from dpdist.content.release_content import Content
from dpdist.publish.column_descriptions import columns_of_answers, description
from dpdist.publish.output_file import Output, Unfinished, json_text


class Csvw(Output):
    """The columns of the CSV file of answers, where there is one."""

    files = r"answers\.csv-metadata\.json"
    about = "The columns of `answers.csv` as [CSV on the Web](https://www.w3.org/TR/tabular-metadata/)."

    def write(self, release: Unfinished) -> Sequence[Written]:
        if "answers.csv" not in release.digests:
            return []
        return [release.place.put("answers.csv-metadata.json", json_text(_csvw(release.content)))]


def _csvw(content: Content) -> dict[str, Any]:
    """CSV on the Web (https://www.w3.org/TR/tabular-metadata): the columns of ``answers.csv``."""
    return {
        "@context": "http://www.w3.org/ns/csvw",
        "url": "answers.csv",
        "dc:title": content.title,
        "dc:description": description(content),
        "tableSchema": {
            "columns": [
                {
                    "name": f"c{place}_{re.sub(r'[^A-Za-z0-9]', '_', name)}",
                    "titles": name,
                    "dc:description": text,
                    "datatype": kind,
                }
                for place, (name, kind, text) in enumerate(columns_of_answers(content))
            ]
        },
    }
