"""Feeds and a calendar of a site's releases: JSON Feed 1.1, iCalendar, and RSS 2.0 where the site's address is known, which RSS needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from xml.etree import ElementTree

from dpdist.api.pages import say
from dpdist.plugins.site.release_catalogue import CatalogueEntry

MOST_ENTRIES = 50
"""The newest releases, which a feed has; the calendar has all."""
MOST_OCTETS = 74
"""Of a line of iCalendar, without the space before what goes on."""
_ATOM = "http://www.w3.org/2005/Atom"
ElementTree.register_namespace("atom", _ATOM)


def write_feeds(
    folder: Path,
    name: str,
    entries: Sequence[CatalogueEntry],
    changed: Mapping[str, Sequence[str]],
    *,
    address: str | None = None,
    coming: Sequence[date] = (),
) -> None:
    """``feed.json`` and ``calendar.ics``, and ``feed.xml`` with an address; the newest release first.

    Args:
        name: what the site is called.
        changed: sentences about what changed since the period before, by release.
        address: where the site will be, such as https://example.org/tables.
        coming: the days of the next releases.
    """
    base = "" if address is None else address.rstrip("/") + "/"
    sentences_by_release = {
        entry.edition.release: " ".join(entry.sentences(changed.get(entry.edition.release, ()))) for entry in entries
    }
    newest = list(reversed(entries))[:MOST_ENTRIES]
    items = [
        {
            "id": f"{base}{entry.edition.release}/",
            "url": f"{base}{entry.edition.release}/index.html",
            "title": entry.name,
            "content_text": sentences_by_release[entry.edition.release],
            **({"date_published": f"{entry.published}T00:00:00Z"} if entry.published else {}),
        }
        for entry in newest
    ]
    feed = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": say("{dataset}: differentially private releases", dataset=name),
        "items": items,
    }
    if address is not None:
        feed |= {"home_page_url": base, "feed_url": f"{base}feed.json"}
        (folder / "feed.xml").write_text(_rss_text(name, base, newest, sentences_by_release), encoding="utf-8")
    (folder / "feed.json").write_text(json.dumps(feed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "calendar.ics").write_bytes(_calendar_text(name, base, entries, sentences_by_release, coming).encode())


def _rss_text(name: str, base: str, newest: Sequence[CatalogueEntry], sentences_by_release: Mapping[str, str]) -> str:
    root = ElementTree.Element("rss", version="2.0")
    channel = ElementTree.SubElement(root, "channel")
    title, about = say("{dataset}: differentially private releases", dataset=name), say("New and revised tables.")
    _add_text_elements(channel, title=title, link=base, description=about)
    self_link = {"href": f"{base}feed.xml", "rel": "self", "type": "application/rss+xml"}
    ElementTree.SubElement(channel, f"{{{_ATOM}}}link", self_link)
    for entry in newest:
        release = entry.edition.release
        item = ElementTree.SubElement(channel, "item")
        _add_text_elements(
            item, title=entry.name, link=f"{base}{release}/index.html", description=sentences_by_release[release]
        )
        ElementTree.SubElement(item, "guid", isPermaLink="false").text = f"{entry.edition.certificate['dataset']}/{release}"
        if entry.published:
            midnight = datetime(entry.published.year, entry.published.month, entry.published.day, tzinfo=UTC)
            _add_text_elements(item, pubDate=format_datetime(midnight))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_text_elements(parent: ElementTree.Element, **texts: str) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(parent, name).text = text


def _calendar_text(
    name: str, base: str, entries: Sequence[CatalogueEntry], sentences_by_release: Mapping[str, str], coming: Sequence[date]
) -> str:
    """iCalendar (RFC 5545): a day for each release and revision, and for those that are announced."""
    calendar_lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//dpdist//site//EN", f"X-WR-CALNAME:{_escape_text(name)}"]
    dataset = entries[-1].edition.certificate["dataset"]
    for entry in entries:
        if entry.published:
            release = entry.edition.release
            link = [f"URL:{base}{release}/index.html"] if base else []
            calendar_lines += _event_lines(
                f"{release}@{dataset}",
                entry.published,
                entry.name,
                [f"DESCRIPTION:{_escape_text(sentences_by_release[release])}", *link],
            )
    for coming_day in coming:
        calendar_lines += _event_lines(
            f"{coming_day}@{dataset}", coming_day, say("{dataset}: next release", dataset=name), []
        )
    return "".join(f"{_fold_line(calendar_line)}\r\n" for calendar_line in [*calendar_lines, "END:VCALENDAR"])


def _event_lines(name: str, event_day: date, title: str, extra_lines: Sequence[str]) -> list[str]:
    begin, end = f"{event_day:%Y%m%d}", f"{event_day + timedelta(days=1):%Y%m%d}"
    head_lines = [
        f"UID:{_escape_text(name)}",
        f"DTSTAMP:{begin}T000000Z",
        f"DTSTART;VALUE=DATE:{begin}",
        f"DTEND;VALUE=DATE:{end}",
    ]
    return ["BEGIN:VEVENT", *head_lines, f"SUMMARY:{_escape_text(title)}", *extra_lines, "TRANSP:TRANSPARENT", "END:VEVENT"]


def _escape_text(text: str) -> str:
    return re.sub(r"([\\;,])", r"\\\1", text).replace("\n", r"\n")


def _fold_line(text_line: str) -> str:
    """A line of at most 75 octets, which goes on after a line break and a space."""
    rest, segments = text_line.encode(), []
    while len(rest) > MOST_OCTETS:
        end = next(
            position for position in range(MOST_OCTETS, 0, -1) if rest[position] & 0xC0 != 0x80
        )  # where a letter begins
        segments.append(rest[:end])
        rest = rest[end:]
    return b"\r\n ".join([*segments, rest]).decode()
