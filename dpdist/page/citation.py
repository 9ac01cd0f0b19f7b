"""How a release is cited: in words, and for programs that keep literature (Citation File Format, BibTeX, CSL)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpdist.language import say
from dpdist.page.assets import link_address

if TYPE_CHECKING:
    from dpdist.content.release_content import ReleaseContent


def citation_sentence(content: ReleaseContent) -> str:
    """The citation as a sentence."""
    return format_citation(content.title, content.release, _citation_facts(content))


def format_citation(title: str, release: str, facts: Mapping[str, Any]) -> str:
    """A citation.

    Args:
        facts: ``authors``, ``year`` and ``address``, which may be empty.
    """
    year = f" ({facts['year']})" if facts["year"] else ""
    whole = f"{', '.join(facts['authors'])}{year}: " if facts["authors"] else ""
    release_sentence = say("Differentially private release {release}.", release=release)
    return " ".join(filter(None, [f"{whole}{title}.", release_sentence, facts["address"]]))


def citation_file_format(content: ReleaseContent) -> dict[str, Any] | None:
    """Citation File Format 1.2.0; None where no author is known, which it needs."""
    about, facts = content.about, _citation_facts(content)
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
    facts = _citation_facts(content)
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
    facts = _citation_facts(content)
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


def _citation_facts(content: ReleaseContent) -> dict[str, Any]:
    about = content.about
    published = about.get("published") or content.certificate.get("period") or ""
    is_full_date = re.fullmatch(r"\d{4}-\d\d-\d\d", published)
    return {
        "authors": list(about.get("authors") or filter(None, [about.get("curator")])),
        "published": published if is_full_date else "",
        "year": published[:4] if is_full_date else "",
        "address": about.get("address") or "",
    }


def _escape_tex(text: str) -> str:
    """A text whose characters TeX does not read as commands."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(character, f"\\{character}" if character in "{}$&#_%" else character) for character in text)
