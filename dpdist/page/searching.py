"""A page that finds tables and answers of all releases of a site, without a server: the page holds what it searches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpdist.language import say
from dpdist.page.assets import assets, day, embedded, template
from dpdist.page.editions import Edition
from dpdist.page.trends import Answers, alike, latest
from dpdist.page.words import Words

MOST_FOUND = 60_000
"""Answers that the page holds: those of the newest releases."""


def page(dataset: str, found: Sequence[Edition], answers: Mapping[str, Answers], links: Mapping[str, str]) -> str:
    """The page.

    Args:
        links: of each release, the address of its page, relative to the site.
    """
    tables = _tables(found, answers)
    left, data = MOST_FOUND, list[dict[str, Any] | None]()
    for table in tables:
        left -= len(table["answers"])
        data.append(_data(table, links) if left >= 0 else None)
    return template("search.html").render(
        dataset=dataset,
        assets=assets("search.js", publisher=found[-1].look),
        tables=[{**table, "link": links[table["release"]]} for table in tables],
        missing=data.count(None),
        data=embedded(data),
    )


def _tables(found: Sequence[Edition], answers: Mapping[str, Answers]) -> list[dict[str, Any]]:
    """Each group of what counts the same, from its newest release, and in how many periods it was published."""
    out = list[dict[str, Any]]()
    for kind in alike(found):
        seen: dict[str, dict[str, Any]] = {}
        for one in reversed(latest(kind)):
            for group, queries in answers[one.release].items():
                if group not in seen:
                    words = Words.of(one.certificate)
                    title = words.heading(group, words.names)
                    seen[group] = {"title": title, "release": one.release, "answers": queries, "periods": 0}
                    seen[group] |= {"counted": words.counted, "period": day(one.period)}
                seen[group]["periods"] += 1
        out += seen.values()
    return out


def _data(table: Mapping[str, Any], links: Mapping[str, str]) -> dict[str, Any]:
    pairs = table["answers"].values()
    return {
        "title": table["title"],
        "about": say("{counted}, {period}", counted=table["counted"], period=table["period"]),
        "link": links[table["release"]],
        "query": list(table["answers"]),
        "value": [value for value, _ in pairs],
        "half": [None if math.isnan(half) else round(half, 6) for _, half in pairs],
    }
