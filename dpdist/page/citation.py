"""How a release is cited, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpdist.language import say

if TYPE_CHECKING:
    from dpdist.content.release_content import ReleaseContent


def citation_sentence(content: ReleaseContent) -> str:
    """The citation as a sentence."""
    return format_citation(content.title, content.release, citation_facts(content))


def format_citation(title: str, release: str, facts: Mapping[str, Any]) -> str:
    """A citation.

    Args:
        facts: ``authors``, ``year`` and ``address``, which may be empty.
    """
    year = f" ({facts['year']})" if facts["year"] else ""
    whole = f"{', '.join(facts['authors'])}{year}: " if facts["authors"] else ""
    release_sentence = say("Differentially private release {release}.", release=release)
    return " ".join(filter(None, [f"{whole}{title}.", release_sentence, facts["address"]]))


def citation_facts(content: ReleaseContent) -> dict[str, Any]:
    """Authors, day and year of publication, and address of a release, as far as they are known."""
    about = content.about
    published = about.get("published") or content.certificate.get("period") or ""
    is_full_date = re.fullmatch(r"\d{4}-\d\d-\d\d", published)
    return {
        "authors": list(about.get("authors") or filter(None, [about.get("curator")])),
        "published": published if is_full_date else "",
        "year": published[:4] if is_full_date else "",
        "address": about.get("address") or "",
    }


def link_address(text: str) -> str:
    """Where a publisher's text leads, if it is a web or mail address, or the name of a licence in SPDX's list; else nothing."""
    if re.fullmatch(r"https?://[^\s\"<>]+", text):
        return text
    if re.fullmatch(r"[^\s@:/?#]+@[\w.-]+", text):
        return f"mailto:{text}"
    return f"https://spdx.org/licenses/{text}.html" if re.fullmatch(r"(CC|ODC|ODbL|PDDL|OGL)[\w.-]*\d", text) else ""
