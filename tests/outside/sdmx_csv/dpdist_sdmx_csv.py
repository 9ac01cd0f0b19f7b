"""Published answers as SDMX-CSV 2.0: a row an answer, with the columns of the data structure that statistical offices exchange."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from dpdist.api import Plugin
from dpdist.api.outputs import Output, ReleaseDraft, WrittenFile, answer_batches

COLUMNS = ("STRUCTURE", "STRUCTURE_ID", "ACTION", "TABLE", "QUERY", "OBS_VALUE", "STANDARD_ERROR", "LOW_95", "HIGH_95")


class SdmxCsv(Output):
    """The answers and their errors as observations."""

    files = r"answers\.sdmx\.csv"
    about = "The answers as SDMX-CSV."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        text, content = io.StringIO(), release.content
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        structure = ("dataflow", f"DPDIST:{content.certificate['dataset'].upper().replace('-', '_')}(1.0)", "I")
        for batch in answer_batches(content, 0, content.answer.size, release.digits):
            for row in batch.to_pylist():
                values = (row[name] for name in ("group", "query", "answer", "standard_error", "low_95", "high_95"))
                writer.writerow((*structure, *values))
        return [release.destination.write_bytes("answers.sdmx.csv", text.getvalue().encode())]


OUTPUT = SdmxCsv()
PLUGIN = Plugin("sdmx_csv", outputs=("dpdist_sdmx_csv:OUTPUT",))
