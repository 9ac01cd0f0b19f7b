"""How to cite a release."""

from __future__ import annotations

from collections.abc import Sequence

from dpdist.api.outputs import Output, ReleaseDraft, WrittenFile, yaml_document
from dpdist.api.pages import citation


class Citation(Output):
    """A citation for programs that keep literature; with ``about`` also as a Citation File."""

    files = r"CITATION\.cff|citation\.bib|citation\.json"
    about = "How to cite the release: BibTeX, CSL-JSON and, with `about`, the Citation File Format."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        content, destination = release.content, release.destination
        written = [
            destination.write_bytes("citation.bib", citation.bibtex(content).encode()),
            destination.write_bytes("citation.json", citation.csl_json(content).encode()),
        ]
        citation_facts = citation.citation_file_format(content)
        return (
            written
            if citation_facts is None
            else [destination.write_bytes("CITATION.cff", yaml_document(citation_facts)), *written]
        )


CITATION = Citation()
