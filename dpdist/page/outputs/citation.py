"""How to cite a release."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.page import citing
from dpdist.page.outputs.base import Output, Unfinished, yaml_text
from dpdist.page.places import Written


class Citation(Output):
    """A citation for programs that keep literature; with ``about`` also as a Citation File."""

    files = r"CITATION\.cff|citation\.bib|citation\.json"
    about = "How to cite the release: BibTeX, CSL-JSON and, with `about`, the Citation File Format."

    def write(self, release: Unfinished) -> Sequence[Written]:
        content, place = release.content, release.place
        written = [
            place.put("citation.bib", citing.bibtex(content).encode()),
            place.put("citation.json", citing.csl(content).encode()),
        ]
        known = citing.cff(content)
        return written if known is None else [place.put("CITATION.cff", yaml_text(known)), *written]
