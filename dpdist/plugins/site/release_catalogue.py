"""The releases of a site as entries of its calendar, of its feeds and of its list, with what replaced what."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise, takewhile
from typing import Any

from dpdist.api.pages import citation, say, translatable
from dpdist.api.releases import count_answered
from dpdist.plugins.page.assets import format_day
from dpdist.plugins.site.editions import ComparisonKey, Edition
from dpdist.plugins.site.trends import Answers, describe_changes, group_comparable, latest_editions

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
        edition, title = self.edition, self.title
        if title == edition.release:
            period = f", {format_day(edition.period)}" if edition.period != edition.release else ""
            title = f"{edition.certificate['dataset']}{period} ({edition.release})"
        return say("{title}, revision {revision}", title=title, revision=self.revision) if self.revision > 1 else title

    def sentences(self, changed: Sequence[str]) -> list[str]:
        """What readers of a feed or of a calendar want to know.

        Args:
            changed: sentences about what changed since the period before.
        """
        facts = self.edition.certificate
        privacy = facts["privacy"]
        delta = say(" at delta {delta:.0e}", delta=privacy["delta"]) if privacy["delta"] else ""
        summary_template = translatable("{queries:,} answers, each with its 95 % interval; epsilon {epsilon:.4g}{delta}.")
        return [
            *([say("Period {period}.", period=format_day(facts["period"]))] if facts["period"] else []),
            *([say("Replaces {release}.", release=self.replaces)] if self.replaces else []),
            *([say("Replaced by {release}.", release=self.replaced_by)] if self.replaced_by else []),
            *changed[:MOST_CHANGES],
            say(summary_template, queries=count_answered(facts), epsilon=privacy["epsilon"], delta=delta),
        ]


def catalogue_entries(editions: Sequence[Edition]) -> list[CatalogueEntry]:
    """One for each release, in their order."""
    releases_by_quantity: dict[tuple[str, ComparisonKey], list[str]] = {}
    for edition in editions:
        releases_by_quantity.setdefault((edition.period, edition.quantity), []).append(edition.release)
    release_entries = []
    for edition in editions:
        revisions = releases_by_quantity[edition.period, edition.quantity]
        revision_index = revisions.index(edition.release)
        (citation,), period = _read_release_file(edition, "citation.json", json.loads) or [{}], edition.certificate["period"]
        published = (
            date(*citation["issued"]["date-parts"][0]) if "issued" in citation else period and date.fromisoformat(period)
        )
        replaces = revisions[revision_index - 1] if revision_index else ""
        replaced_by = revisions[revision_index + 1] if revision_index + 1 < len(revisions) else ""
        release_entries.append(
            CatalogueEntry(
                edition, citation.get("title", edition.release), published or None, revision_index + 1, replaces, replaced_by
            )
        )
    return release_entries


def site_name(entries: Sequence[CatalogueEntry]) -> str:
    """What a site is called: what its releases' titles have in common up to their end or a mark; its data set where that is nothing."""
    titles = [entry.title for entry in entries if entry.title != entry.edition.release]
    common = "".join(
        letters[0]
        for letters in takewhile(lambda candidate_letters: len(set(candidate_letters)) == 1, zip(*titles, strict=False))
    )
    common_title = re.match(r"(.*\S)\s*[,:;(–—]", common)
    return (
        common if common in titles else common_title[1] if common_title else str(entries[-1].edition.certificate["dataset"])
    )


def change_sentences(editions: Sequence[Edition], answers: Mapping[str, Answers], newest: int) -> dict[str, list[str]]:
    """Sentences about what changed since the period before, for as many of the newest releases as asked for."""
    recent_releases = {edition.release for edition in editions[-newest:]}
    sentences = {}
    for kind in group_comparable(editions):
        period_editions = latest_editions(kind)
        for earlier_edition, later_edition in pairwise(period_editions):
            if later_edition.release in recent_releases:
                sentences[later_edition.release] = describe_changes(earlier_edition, later_edition, answers)
    return sentences


def publication_facts(entry: CatalogueEntry) -> dict[str, Any]:
    """Who publishes a release, its licence, whom to ask and how to cite it, from its citation files."""
    from dpdist.api.planning import yaml_text

    citation_file = _read_release_file(
        entry.edition, "CITATION.cff", lambda text: yaml_text.parsed(text, "CITATION.cff", exact=False)[0]
    )
    (contact,) = citation_file.get("contact", [{}])
    facts = {
        "authors": [author["name"] for author in citation_file.get("authors", [])],
        "year": str(entry.published.year) if entry.published else "",
        "address": citation_file.get("url", ""),
    }
    return {
        "cited": citation.format_citation(entry.title, entry.edition.release, facts),
        "curator": contact.get("name") or ", ".join(facts["authors"]),
        "contact": contact.get("email") or contact.get("website"),
        "license": citation_file.get("license"),
        "address": facts["address"],
    }


def _read_release_file(edition: Edition, name: str, parse: Callable[[str], Any]) -> Any:
    """What a file of a release holds; nothing where it has none."""
    return parse((edition.folder / name).read_text(encoding="utf-8")) if name in edition.certificate["files"] else {}
