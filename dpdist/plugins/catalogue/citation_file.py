"""How to cite a release."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from dpdist.api.outputs import Output, ReleaseContent, ReleaseDraft, WrittenFile, yaml_document
from dpdist.api.pages import citation_facts, link_address


class Citation(Output):
    """A citation for programs that keep literature; with ``about`` also as a Citation File."""

    files = r"CITATION\.cff|citation\.bib|citation\.json"
    about = "How to cite the release: BibTeX, CSL-JSON and, with `about`, the Citation File Format."

    def write(self, release: ReleaseDraft) -> Sequence[WrittenFile]:
        content, destination = release.content, release.destination
        written = [
            destination.write_bytes("citation.bib", bibtex(content).encode()),
            destination.write_bytes("citation.json", csl_json(content).encode()),
        ]
        cff = citation_file_format(content)
        return written if cff is None else [destination.write_bytes("CITATION.cff", yaml_document(cff)), *written]


CITATION = Citation()


def citation_file_format(content: ReleaseContent) -> dict[str, Any] | None:
    """Citation File Format 1.2.0; None where no author is known, which it needs."""
    about, facts = content.about, citation_facts(content)
    if not about:
        return None
    contact_address = about.get("contact") or ""
    contact_field = {"email": contact_address} if "@" in contact_address else {"website": contact_address}
    contact = [{"name": about["curator"], **contact_field}] if link_address(contact_address) else None
    optional_fields = {
        "contact": contact,
        "date-released": facts["published"],
        "license": about.get("license"),
        "url": facts["address"],
    }
    return {
        "cff-version": "1.2.0",
        "message": "If you use these answers, please cite them with their release id.",
        "type": "dataset",
        "title": content.title,
        "version": content.release,
        "authors": [{"name": name} for name in facts["authors"]],
        **{name: value for name, value in optional_fields.items() if value},
        "abstract": about["description"],
    }


def bibtex(content: ReleaseContent) -> str:
    """An entry ``@misc``."""
    facts = citation_facts(content)
    fields = {
        "author": " and ".join(f"{{{_escape_tex(name)}}}" for name in facts["authors"]),
        "title": f"{{{_escape_tex(content.title)}}}",
        "year": facts["year"],
        "version": _escape_tex(content.release),
        "url": facts["address"],
        "note": f"Differentially private release {_escape_tex(content.release)}",
    }
    field_lines = [f"  {name} = {{{value}}}" for name, value in fields.items() if value]
    return "@misc{" + re.sub(r"[^A-Za-z0-9._-]", "", content.release) + ",\n" + ",\n".join(field_lines) + "\n}\n"


def csl_json(content: ReleaseContent) -> str:
    """CSL-JSON 1.0."""
    facts = citation_facts(content)
    day = facts["published"]
    optional_fields = {
        "author": [{"literal": name} for name in facts["authors"]],
        "issued": {"date-parts": [[int(date_part) for date_part in day.split("-")]]} if day else None,
        "URL": facts["address"],
    }
    item = {"id": content.release, "type": "dataset", "title": content.title, "version": content.release}
    return (
        json.dumps([item | {name: value for name, value in optional_fields.items() if value}], indent=1, ensure_ascii=False)
        + "\n"
    )


def _escape_tex(text: str) -> str:
    """A text whose characters TeX does not read as commands."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(character, f"\\{character}" if character in "{}$&#_%" else character) for character in text)
