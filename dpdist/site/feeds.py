"""Feeds and a calendar of a site's releases: JSON Feed 1.1, iCalendar, and RSS 2.0 where the site's address is known, which RSS needs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from xml.etree import ElementTree

from dpdist.language import say
from dpdist.site.release_catalogue import CatalogueEntry

MOST_ENTRIES = 50
"""The newest releases, which a feed has; the calendar has all."""
OCTETS = 74
"""Of a line of iCalendar, without the space before what goes on."""
_ATOM = "http://www.w3.org/2005/Atom"
ElementTree.register_namespace("atom", _ATOM)


def write(
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
    told = {each.edition.release: " ".join(each.sentences(changed.get(each.edition.release, ()))) for each in entries}
    newest = list(reversed(entries))[:MOST_ENTRIES]
    items = [
        {
            "id": f"{base}{each.edition.release}/",
            "url": f"{base}{each.edition.release}/index.html",
            "title": each.name,
            "content_text": told[each.edition.release],
            **({"date_published": f"{each.published}T00:00:00Z"} if each.published else {}),
        }
        for each in newest
    ]
    feed = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": say("{dataset}: differentially private releases", dataset=name),
        "items": items,
    }
    if address is not None:
        feed |= {"home_page_url": base, "feed_url": f"{base}feed.json"}
        (folder / "feed.xml").write_text(_rss(name, base, newest, told), encoding="utf-8")
    (folder / "feed.json").write_text(json.dumps(feed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "calendar.ics").write_bytes(_calendar(name, base, entries, told, coming).encode())


def _rss(name: str, base: str, newest: Sequence[CatalogueEntry], told: Mapping[str, str]) -> str:
    root = ElementTree.Element("rss", version="2.0")
    channel = ElementTree.SubElement(root, "channel")
    title, about = say("{dataset}: differentially private releases", dataset=name), say("New and revised tables.")
    _texts(channel, title=title, link=base, description=about)
    itself = {"href": f"{base}feed.xml", "rel": "self", "type": "application/rss+xml"}
    ElementTree.SubElement(channel, f"{{{_ATOM}}}link", itself)
    for each in newest:
        release = each.edition.release
        item = ElementTree.SubElement(channel, "item")
        _texts(item, title=each.name, link=f"{base}{release}/index.html", description=told[release])
        ElementTree.SubElement(item, "guid", isPermaLink="false").text = f"{each.edition.certificate['dataset']}/{release}"
        if each.published:
            midnight = datetime(each.published.year, each.published.month, each.published.day, tzinfo=UTC)
            _texts(item, pubDate=format_datetime(midnight))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _texts(parent: ElementTree.Element, **texts: str) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(parent, name).text = text


def _calendar(
    name: str, base: str, entries: Sequence[CatalogueEntry], told: Mapping[str, str], coming: Sequence[date]
) -> str:
    """iCalendar (RFC 5545): a day for each release and revision, and for those that are announced."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//dpdist//site//EN", f"X-WR-CALNAME:{_escaped(name)}"]
    dataset = entries[-1].edition.certificate["dataset"]
    for each in entries:
        if each.published:
            release = each.edition.release
            link = [f"URL:{base}{release}/index.html"] if base else []
            lines += _event(
                f"{release}@{dataset}", each.published, each.name, [f"DESCRIPTION:{_escaped(told[release])}", *link]
            )
    for on in coming:
        lines += _event(f"{on}@{dataset}", on, say("{dataset}: next release", dataset=name), [])
    return "".join(f"{_folded(line)}\r\n" for line in [*lines, "END:VCALENDAR"])


def _event(name: str, on: date, title: str, more: Sequence[str]) -> list[str]:
    begin, end = f"{on:%Y%m%d}", f"{on + timedelta(days=1):%Y%m%d}"
    known = [f"UID:{_escaped(name)}", f"DTSTAMP:{begin}T000000Z", f"DTSTART;VALUE=DATE:{begin}", f"DTEND;VALUE=DATE:{end}"]
    return ["BEGIN:VEVENT", *known, f"SUMMARY:{_escaped(title)}", *more, "TRANSP:TRANSPARENT", "END:VEVENT"]


def _escaped(text: str) -> str:
    return re.sub(r"([\\;,])", r"\\\1", text).replace("\n", r"\n")


def _folded(line: str) -> str:
    """A line of at most 75 octets, which goes on after a line break and a space."""
    rest, parts = line.encode(), []
    while len(rest) > OCTETS:
        end = next(place for place in range(OCTETS, 0, -1) if rest[place] & 0xC0 != 0x80)  # where a letter begins
        parts.append(rest[:end])
        rest = rest[end:]
    return b"\r\n ".join([*parts, rest]).decode()
