"""How to cite a release."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.content.destination import Written
from dpdist.page import citation
from dpdist.publish.output_file import Output, Unfinished, yaml_text


class Citation(Output):
    """A citation for programs that keep literature; with ``about`` also as a Citation File."""

    files = r"CITATION\.cff|citation\.bib|citation\.json"
    about = "How to cite the release: BibTeX, CSL-JSON and, with `about`, the Citation File Format."

    def write(self, release: Unfinished) -> Sequence[Written]:
        content, place = release.content, release.place
        written = [
            place.put("citation.bib", citation.bibtex(content).encode()),
            place.put("citation.json", citation.csl(content).encode()),
        ]
        known = citation.cff(content)
        return written if known is None else [place.put("CITATION.cff", yaml_text(known)), *written]
