"""How a release is cited: in words, and for programs that keep literature (Citation File Format, BibTeX, CSL)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpdist.language import say
from dpdist.page.assets import link

if TYPE_CHECKING:
    from dpdist.content.release_content import Content


def in_words(content: Content) -> str:
    """The citation as a sentence."""
    return sentence(content.title, content.release, _facts(content))


def sentence(title: str, release: str, facts: Mapping[str, Any]) -> str:
    """A citation.

    Args:
        facts: ``authors``, ``year`` and ``address``, which may be empty.
    """
    year = f" ({facts['year']})" if facts["year"] else ""
    whole = f"{', '.join(facts['authors'])}{year}: " if facts["authors"] else ""
    told = say("Differentially private release {release}.", release=release)
    return " ".join(filter(None, [f"{whole}{title}.", told, facts["address"]]))


def cff(content: Content) -> dict[str, Any] | None:
    """Citation File Format 1.2.0; None where no author is known, which it needs."""
    about, facts = content.about, _facts(content)
    if not about:
        return None
    reached = about.get("contact") or ""
    way = {"email": reached} if "@" in reached else {"website": reached}
    contact = [{"name": about["curator"], **way}] if link(reached) else None
    given = {
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
        **{name: value for name, value in given.items() if value},
        "abstract": about["description"],
    }


def bibtex(content: Content) -> str:
    """An entry ``@misc``."""
    facts = _facts(content)
    fields = {
        "author": " and ".join(f"{{{_tex(name)}}}" for name in facts["authors"]),
        "title": f"{{{_tex(content.title)}}}",
        "year": facts["year"],
        "version": _tex(content.release),
        "url": facts["address"],
        "note": f"Differentially private release {_tex(content.release)}",
    }
    lines = [f"  {name} = {{{value}}}" for name, value in fields.items() if value]
    return "@misc{" + re.sub(r"[^A-Za-z0-9._-]", "", content.release) + ",\n" + ",\n".join(lines) + "\n}\n"


def csl(content: Content) -> str:
    """CSL-JSON 1.0."""
    facts = _facts(content)
    day = facts["published"]
    given = {
        "author": [{"literal": name} for name in facts["authors"]],
        "issued": {"date-parts": [[int(part) for part in day.split("-")]]} if day else None,
        "URL": facts["address"],
    }
    item = {"id": content.release, "type": "dataset", "title": content.title, "version": content.release}
    return json.dumps([item | {name: value for name, value in given.items() if value}], indent=1, ensure_ascii=False) + "\n"


def _facts(content: Content) -> dict[str, Any]:
    about = content.about
    published = about.get("published") or content.certificate.get("period") or ""
    known = re.fullmatch(r"\d{4}-\d\d-\d\d", published)
    return {
        "authors": list(about.get("authors") or filter(None, [about.get("curator")])),
        "published": published if known else "",
        "year": published[:4] if known else "",
        "address": about.get("address") or "",
    }


def _tex(text: str) -> str:
    """A text whose characters TeX does not read as commands."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(each, f"\\{each}" if each in "{}$&#_%" else each) for each in text)
