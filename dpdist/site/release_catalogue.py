"""The releases of a site as entries of its calendar, of its feeds and of its list, with what replaced what."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise, takewhile
from typing import Any

from dpdist.content.release_summary import answered
from dpdist.language import later, say
from dpdist.page import citation
from dpdist.page.assets import day
from dpdist.site.editions import Comparable, Edition
from dpdist.site.trends import Answers, alike, changes, latest

MOST_CHANGES = 3
"""Sentences of an entry about what changed since the period before."""


@dataclass(frozen=True)
class CatalogueEntry:
    """A release among the others of its site.

    Attributes:
        title: of its page, its id where it has none of its own.
        published: the day that its publisher gives, else its period; None where neither is known.
        revision: 1, or more where it is a later release of its period that counts the same.
        replaces, replaced_by: the ids of such releases before and after it; empty where there is none.
    """

    edition: Edition
    title: str
    published: date | None
    revision: int
    replaces: str
    replaced_by: str

    @property
    def name(self) -> str:
        """Its title, or its data set and period where it has none; and the revision that it is."""
        one, title = self.edition, self.title
        if title == one.release:
            period = f", {day(one.period)}" if one.period != one.release else ""
            title = f"{one.certificate['dataset']}{period} ({one.release})"
        return say("{title}, revision {revision}", title=title, revision=self.revision) if self.revision > 1 else title

    def sentences(self, changed: Sequence[str]) -> list[str]:
        """What readers of a feed or of a calendar want to know.

        Args:
            changed: sentences about what changed since the period before.
        """
        facts = self.edition.certificate
        privacy = facts["privacy"]
        delta = say(" at delta {delta:.0e}", delta=privacy["delta"]) if privacy["delta"] else ""
        told = later("{queries:,} answers, each with its 95 % interval; epsilon {epsilon:.4g}{delta}.")
        return [
            *([say("Period {period}.", period=day(facts["period"]))] if facts["period"] else []),
            *([say("Replaces {release}.", release=self.replaces)] if self.replaces else []),
            *([say("Replaced by {release}.", release=self.replaced_by)] if self.replaced_by else []),
            *changed[:MOST_CHANGES],
            say(told, queries=answered(facts), epsilon=privacy["epsilon"], delta=delta),
        ]


def entries(found: Sequence[Edition]) -> list[CatalogueEntry]:
    """One for each release, in their order."""
    before: dict[tuple[str, Comparable], list[str]] = {}
    for one in found:
        before.setdefault((one.period, one.quantity), []).append(one.release)
    out = []
    for one in found:
        same = before[one.period, one.quantity]
        place = same.index(one.release)
        (given,), period = _file(one, "citation.json", json.loads) or [{}], one.certificate["period"]
        published = date(*given["issued"]["date-parts"][0]) if "issued" in given else period and date.fromisoformat(period)
        replaces, replaced_by = same[place - 1] if place else "", same[place + 1] if place + 1 < len(same) else ""
        out.append(CatalogueEntry(one, given.get("title", one.release), published or None, place + 1, replaces, replaced_by))
    return out


def name_of(entries: Sequence[CatalogueEntry]) -> str:
    """What a site is called: what its releases' titles have in common up to their end or a mark; its data set where that is nothing."""
    titles = [each.title for each in entries if each.title != each.edition.release]
    common = "".join(letters[0] for letters in takewhile(lambda some: len(set(some)) == 1, zip(*titles, strict=False)))
    marked = re.match(r"(.*\S)\s*[,:;(–—]", common)
    return common if common in titles else marked[1] if marked else str(entries[-1].edition.certificate["dataset"])


def changed_since(found: Sequence[Edition], answers: Mapping[str, Answers], newest: int) -> dict[str, list[str]]:
    """Sentences about what changed since the period before, for as many of the newest releases as asked for."""
    asked = {one.release for one in found[-newest:]}
    out = {}
    for kind in alike(found):
        ones = latest(kind)
        for first, second in pairwise(ones):
            if second.release in asked:
                out[second.release] = changes(first, second, answers)
    return out


def about(entry: CatalogueEntry) -> dict[str, Any]:
    """Who publishes a release, its licence, whom to ask and how to cite it, from its citation files."""
    from dpdist.process import yaml_text

    given = _file(entry.edition, "CITATION.cff", lambda text: yaml_text.parsed(text, "CITATION.cff", exact=False)[0])
    (contact,) = given.get("contact", [{}])
    facts = {
        "authors": [author["name"] for author in given.get("authors", [])],
        "year": str(entry.published.year) if entry.published else "",
        "address": given.get("url", ""),
    }
    return {
        "cited": citation.sentence(entry.title, entry.edition.release, facts),
        "curator": contact.get("name") or ", ".join(facts["authors"]),
        "contact": contact.get("email") or contact.get("website"),
        "license": given.get("license"),
        "address": facts["address"],
    }


def _file(one: Edition, name: str, read: Callable[[str], Any]) -> Any:
    """What a file of a release holds; nothing where it has none."""
    return read((one.folder / name).read_text(encoding="utf-8")) if name in one.certificate["files"] else {}
