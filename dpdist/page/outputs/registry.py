"""The outputs of a release, in the order in which they are written: one line each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dpdist.page.outputs.amounts import Means, Quantiles, Variances
from dpdist.page.outputs.answers import AnswerTables
from dpdist.page.outputs.appearance import Appearance
from dpdist.page.outputs.base import Output, Unfinished
from dpdist.page.outputs.citation import Citation
from dpdist.page.outputs.croissant import Croissant
from dpdist.page.outputs.csvw import Csvw
from dpdist.page.outputs.deployment import Deployment
from dpdist.page.outputs.dictionary import Dictionary
from dpdist.page.outputs.event import Event
from dpdist.page.outputs.measured import PublishedMeasurement
from dpdist.page.outputs.preview import Preview
from dpdist.page.outputs.values import CalledValues
from dpdist.page.outputs.verifier import Verifier
from dpdist.page.outputs.web_page import WebPage
from dpdist.page.places import Written

OUTPUTS: list[Output] = [
    AnswerTables(),
    PublishedMeasurement(),
    Means(),
    Variances(),
    Quantiles(),
    Croissant(),
    Dictionary(),
    CalledValues(),
    Event(),
    Csvw(),
    Deployment(),
    Citation(),
    Verifier(),
    Appearance(),
    Preview(),
    WebPage(),
]


def write_all(release: Unfinished) -> list[Written]:
    """The files of every output. Each sees what those before it wrote."""
    for output in OUTPUTS:
        release = replace(release, written=(*release.written, *output.write(release)))
    return list(release.written)


def patterns() -> Iterator[str]:
    """Regular expressions of the names of all files that a publisher writes before the certificate."""
    yield from (output.files for output in OUTPUTS)
