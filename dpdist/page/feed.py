"""Feeds of a site's releases: JSON Feed 1.1, and RSS 2.0 where the site's address is known, which RSS needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from email.utils import format_datetime
from pathlib import Path
from xml.etree import ElementTree

from dpdist.language import later, say
from dpdist.page.assets import day
from dpdist.page.editions import Edition


def write(folder: Path, dataset: str, found: Sequence[Edition], address: str | None) -> None:
    """``feed.json``, and ``feed.xml`` with an address; the newest release first.

    Args:
        address: where the site will be, such as https://example.org/tables.
    """
    base = "" if address is None else address.rstrip("/") + "/"
    items = [
        {
            "id": f"{base}{one.release}/",
            "url": f"{base}{one.release}/index.html",
            "title": _title(dataset, one),
            "content_text": _summary(one),
            **({"date_published": f"{one.certificate['period']}T00:00:00Z"} if one.certificate["period"] else {}),
        }
        for one in reversed(found)
    ]
    feed = {
        "version": "https://jsonfeed.org/version/1.1",
        "title": say("{dataset}: differentially private releases", dataset=dataset),
        "items": items,
    }
    if address is not None:
        feed |= {"home_page_url": base, "feed_url": f"{base}feed.json"}
        (folder / "feed.xml").write_text(_rss(dataset, base, found), encoding="utf-8")
    (folder / "feed.json").write_text(json.dumps(feed, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _title(dataset: str, one: Edition) -> str:
    period = f", {day(one.certificate['period'])}" if one.certificate["period"] else ""
    return f"{dataset}{period} ({one.release})"


def _summary(one: Edition) -> str:
    privacy = one.certificate["privacy"]
    delta = say(" at delta {delta:.0e}", delta=privacy["delta"]) if privacy["delta"] else ""
    period = say("Period {period}.", period=day(one.certificate["period"])) if one.certificate["period"] else ""
    told = later("{queries:,} answers, each with its 95 % interval; epsilon {epsilon:.4g}{delta}.")
    answers = say(told, queries=one.certificate["queries"], epsilon=privacy["epsilon"], delta=delta)
    return " ".join(filter(None, [period, answers]))


def _rss(dataset: str, base: str, found: Sequence[Edition]) -> str:
    root = ElementTree.Element("rss", version="2.0")
    channel = ElementTree.SubElement(root, "channel")
    title, about = say("{dataset}: differentially private releases", dataset=dataset), say("New and revised tables.")
    _texts(channel, title=title, link=base, description=about)
    for one in reversed(found):
        item = ElementTree.SubElement(channel, "item")
        _texts(item, title=_title(dataset, one), link=f"{base}{one.release}/index.html", description=_summary(one))
        ElementTree.SubElement(item, "guid", isPermaLink="false").text = f"{dataset}/{one.release}"
        if one.certificate["period"]:
            midnight = date.fromisoformat(one.certificate["period"])
            _texts(item, pubDate=format_datetime(_utc(midnight)))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _texts(parent: ElementTree.Element, **texts: str) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(parent, name).text = text


def _utc(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
