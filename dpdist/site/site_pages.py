"""A small static site over all releases of a data set: series over periods, revisions, comparison, budget, methodology, feed, search."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.errors import InvalidInput
from dpdist.language import say, speaking
from dpdist.page.assets import PREVIEW, assets, below, day, embedded, template
from dpdist.page.chart_embedding import plot
from dpdist.page.charts.budget_timeline import MOST_ROWS, Spending, drawn_budget
from dpdist.page.charts.sparkline import small
from dpdist.page.domain_text import exclusions, found_in_records
from dpdist.page.findings import MOST_FINDINGS
from dpdist.page.headings import Words
from dpdist.privacy.ledger.budget_ledger import DatasetBudget
from dpdist.publish import release_folder
from dpdist.site import feeds, release_catalogue, release_comparison
from dpdist.site.editions import Edition, look_of, note_seen, seen_by
from dpdist.site.release_catalogue import CatalogueEntry
from dpdist.site.trends import Answers, alike, answers_of, called_in, latest, trends
from dpdist.storage.objects import atomic_folder

MARK = ".dpdist-site"
"""Of a site: the name of its data set."""
MOST_LISTED = 60
"""Releases that the list shows at once; the earlier ones are folded."""
AROUND = 12
"""Releases before and after one to which its page links, when it is reached from the site."""


def write(
    dataset: str,
    found: Sequence[Edition],
    budgets: Sequence[DatasetBudget],
    target: Path,
    *,
    address: str | None = None,
    coming: Sequence[date] = (),
) -> Path:
    """The site: its pages and a copy of every release's page and files. An existing site is replaced as ``drafts`` says.

    Args:
        address: where the site will be, for an RSS feed.
        coming: the days of the next releases.
    Raises: InvalidInput when the target holds something that is no site, or another data set's, or two folders hold one release.
    """
    if os.path.lexists(target) and not (target / MARK).is_file():
        raise InvalidInput(f"{target} exists and is not a site that dpdist wrote; move it away or choose another folder")
    if (target / MARK).is_file() and (other := (target / MARK).read_text(encoding="utf-8").strip()) != dataset:
        raise InvalidInput(f"{target} is the site of {other!r}; choose another folder with --out, or move it away")
    _check_distinct(found)
    with speaking(found[-1].certificate.get("language", "en")):
        return _write(dataset, found, budgets, target, address, sorted(coming))


def _write(
    dataset: str,
    found: Sequence[Edition],
    budgets: Sequence[DatasetBudget],
    target: Path,
    address: str | None,
    coming: Sequence[date],
) -> Path:
    called = called_in(found)
    answers = {one.release: answers_of(one, called[one.release]) for one in found}
    entries = release_catalogue.entries(found)
    name, budgets = release_catalogue.name_of(entries), [budget for budget in budgets if budget.dataset == dataset]
    links = dict(zip([one.release for one in found], links_of(found), strict=True))
    changed = release_catalogue.changed_since(found, answers, feeds.MOST_ENTRIES)
    noted, seen = seen_by(target), dict[str, tuple[str, str]]()
    try:
        with atomic_folder.draft_of(target) as draft:
            (draft / MARK).write_text(dataset + "\n", encoding="utf-8")
            for one in found:
                seen[one.release] = _copy(one, draft / one.release, target / one.release, noted.get(one.release))
            (draft / "index.html").write_text(
                index(name, entries, answers, budgets, links, coming, address), encoding="utf-8"
            )
            (draft / "methodology.html").write_text(methodology(name, found, budgets), encoding="utf-8")
            if (pair := release_comparison.newest_pair(found)) is not None:
                (draft / "compare.html").write_text(release_comparison.page(name, found, answers, pair), encoding="utf-8")
            (draft / "search.html").write_text(search_page(name, found, answers, links), encoding="utf-8")
            feeds.write(draft, name, entries, changed, address=address, coming=coming)
            note_seen(draft, seen)
            atomic_folder.replace(target, draft)
    except OSError as error:
        raise atomic_folder.could_not_write(target, error, "an older site there is unchanged") from None
    return target


def _check_distinct(found: Sequence[Edition]) -> None:
    seen: dict[str, Path] = {}
    for one in found:
        if one.release in seen:
            raise InvalidInput(
                f"{seen[one.release]} and {one.folder} both hold release {one.release!r}; move one of them away"
            )
        seen[one.release] = one.folder


def _copy(one: Edition, place: Path, earlier: Path, noted: tuple[str, str] | None) -> tuple[str, str]:
    """The files that a certificate names, and no others: those of an earlier copy get a second name where nothing changed.

    Args:
        noted: what ``seen_by`` the site of the earlier copy says.
    Returns: what the next site is to see.
    """
    same = noted is not None and noted == (one.stamp, look_of(earlier))
    names = (*one.certificate["files"], release_folder.SIGNATURE, release_folder.CERTIFICATE)
    for inner in {os.path.dirname(name) for name in names}:
        (place / inner).mkdir(parents=True, exist_ok=True)
    source, before, target = map(os.fspath, (one.folder, earlier, place))
    linked = True
    for name in names:
        if not (same and _linked(f"{before}/{name}", f"{target}/{name}")):
            shutil.copyfile(f"{source}/{name}", f"{target}/{name}")
            linked = False
    return noted if noted is not None and linked else (one.stamp, look_of(place))


def _linked(file: str, name: str) -> bool:
    """Whether a file got a second name, which not every file system gives."""
    try:
        os.link(file, name)
    except OSError:
        return False
    return True


def links_of(found: Sequence[Edition]) -> list[str]:
    """The address of each release's page, relative to the site: it names the releases around it, to which the page then links."""
    ids = [one.release for one in found]
    return [
        f"{release}/index.html?series={','.join(ids[max(0, place - AROUND) : place + AROUND + 1])}"
        for place, release in enumerate(ids)
    ]


def index(
    name: str,
    entries: Sequence[CatalogueEntry],
    answers: Mapping[str, Answers],
    budgets: Sequence[DatasetBudget],
    links: Mapping[str, str],
    coming: Sequence[date],
    address: str | None,
) -> str:
    """The index page: what changed over the periods, the releases, the budget. It loads nothing from anywhere."""
    found = [each.edition for each in entries]
    newest = found[-1]
    charts = [chart for kind in alike(found) for chart in _charts(name, kind, answers, whole=kind == found)]
    rows = [
        {
            "entry": each,
            "facts": each.edition.certificate,
            "link": links[each.edition.release],
            "published": str(each.published),
        }
        for each in entries
    ]
    return template("site.html").render(
        dataset=name,
        assets=assets(publisher=newest.look),
        rows=rows[::-1],
        most=MOST_LISTED,
        newest=newest,
        revised=[row for row, each in zip(rows[::-1], entries[::-1], strict=True) if each.replaces],
        coming=[str(each) for each in coming],
        about=release_catalogue.about(entries[-1]),
        fed=address is not None,
        picture=below(address, f"{newest.release}/{PREVIEW}") if PREVIEW in newest.certificate["files"] else "",
        trends=[{**chart, "place": place} for place, chart in enumerate(charts, 1)],
        compared=release_comparison.newest_pair(found) is not None,
        most_cards=MOST_FINDINGS,
        unchanged=[part["name"] for part in charts if part["unchanged"]],
        budget=_budget(budgets),
    )


def _charts(name: str, kind: Sequence[Edition], answers: Mapping[str, Answers], *, whole: bool) -> list[dict[str, Any]]:
    """The series of releases that count the same; titles say of which they are unless all do."""
    newest = kind[-1]
    words = Words.of(newest.certificate)
    which = "" if whole else say(" ({counted}, as in {release})", counted=words.counted, release=newest.release)
    return [
        {
            "name": figure.heading + which,
            "findings": [text] if text else [],
            "unchanged": not text and not np.isnan(figure.half).any(),
            "small": small(figure),
            "figures": [plot(figure, "", newest.release, name, words.counted)],
        }
        for figure, text in (
            (replace(each, name=words.heading(each.title, words.names)), text) for each, text in trends(kind, answers)
        )
    ]


def methodology(name: str, found: Sequence[Edition], budgets: Sequence[DatasetBudget]) -> str:
    """How the newest release was made, from its certificate, which was written from its spec."""
    newest = found[-1]
    return template("methodology.html").render(
        dataset=name,
        assets=assets(publisher=newest.look),
        newest=newest,
        facts=newest.certificate,
        words=Words.of(newest.certificate),
        exclusions=exclusions(newest.certificate),
        found=found_in_records(newest.certificate),
        releases=len(found),
        budgets=budgets,
    )


def _budget(budgets: Sequence[DatasetBudget]) -> dict[str, Any] | None:
    """The timeline, and in words how much of every period's cap was spent."""
    if not budgets:
        return None
    spendings = [Spending(budget.period, budget.course) for budget in budgets]
    rows = [
        {"period": budget.period, "releases": budget.releases, "left": spending.left}
        for budget, spending in zip(budgets, spendings, strict=True)
    ]
    return {
        "cap": str(budgets[-1].cap),
        "per": budgets[-1].cap.per,
        "rows": rows[: -MOST_ROWS - 1 : -1],
        "earlier": len(rows[:-MOST_ROWS]),
        "drawn": drawn_budget(spendings),
    }


MOST_FOUND = 60_000
"""Answers that the page holds: those of the newest releases."""


def search_page(dataset: str, found: Sequence[Edition], answers: Mapping[str, Answers], links: Mapping[str, str]) -> str:
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
