"""The columns of ``answers.csv`` as CSV on the Web (https://www.w3.org/TR/tabular-metadata)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dpdist.content.destination import WrittenFile
from dpdist.content.release_content import ReleaseContent
from dpdist.publish.column_descriptions import columns_of_answers, description
from dpdist.publish.output_file import Output, ReleaseDraft, json_text


class Csvw(Output):
    """The columns of the CSV file of answers, where there is one."""

    files = r"answers\.csv-metadata\.json"
    about = "The columns of `answers.csv` as [CSV on the Web](https://www.w3.org/TR/tabular-metadata/)."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        if "answers.csv" not in release.digests:
            return []
        return [release.destination.write_bytes("answers.csv-metadata.json", json_text(_csvw_facts(release.content)))]


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
