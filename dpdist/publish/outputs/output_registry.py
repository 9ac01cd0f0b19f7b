"""The outputs of a release, in the order in which they are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dpdist.content.destination import WrittenFile
from dpdist.plugin_registry import plugin_objects
from dpdist.publish.output_file import Output, ReleaseDraft
from dpdist.publish.outputs.amount_tables import Means, ThresholdedTable, Variances
from dpdist.publish.outputs.answer_files import AnswerTables
from dpdist.publish.outputs.data_dictionary import Dictionary
from dpdist.publish.outputs.measurement_output import PublishedMeasurement
from dpdist.publish.outputs.plain_page import PlainPage

TABLES: list[Output] = [AnswerTables(), PublishedMeasurement(), Means(), Variances(), ThresholdedTable()]
"""What is written first: outputs of plugins describe it."""


def all_outputs() -> list[Output]:
    """The outputs of a release with those of plugins, in the order in which they are written."""
    pages = [*plugin_objects("pages")] or [PlainPage()]  # written last: they list what there is
    return [*TABLES, *plugin_objects("outputs"), Dictionary(), *pages]


def write_all(release: ReleaseDraft) -> list[WrittenFile]:
    """The files of every output. Each sees what those before it wrote."""
    for output in all_outputs():
        release = replace(release, written=(*release.written, *output.write(release)))
    return list(release.written)


def patterns() -> Iterator[str]:
    """Regular expressions of the names of all files that a publisher writes before the certificate."""
    yield from (output.files for output in all_outputs())
