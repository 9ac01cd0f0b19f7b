"""The columns of ``answers.csv`` as CSV on the Web (https://www.w3.org/TR/tabular-metadata)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpdist.api.outputs import Output, ReleaseContent, ReleaseDraft, WrittenFile, columns_of_answers, description, json_text


class Csvw(Output):
    """The columns of the CSV file of answers, where there is one."""

    files = r"answers\.csv-metadata\.json"
    about = "The columns of `answers.csv` as [CSV on the Web](https://www.w3.org/TR/tabular-metadata/)."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        if "answers.csv" not in release.digests:
            return []
        return [release.destination.write_bytes("answers.csv-metadata.json", json_text(_csvw_facts(release.content)))]


CSVW = Csvw()


def _csvw_facts(content: ReleaseContent) -> dict[str, Any]:
    """CSV on the Web (https://www.w3.org/TR/tabular-metadata): the columns of ``answers.csv``."""
    return {
        "@context": "http://www.w3.org/ns/csvw",
        "url": "answers.csv",
        "dc:title": content.title,
        "dc:description": description(content),
        "tableSchema": {
            "columns": [
                {
                    "name": f"c{column_index}_{re.sub(r'[^A-Za-z0-9]', '_', name)}",
                    "titles": name,
                    "dc:description": text,
                    "datatype": kind,
                }
                for column_index, (name, kind, text) in enumerate(columns_of_answers(content))
            ]
        },
    }
