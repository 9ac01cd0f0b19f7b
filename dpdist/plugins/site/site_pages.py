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

from dpdist.api import InvalidInput
from dpdist.api.holds import ReleaseHold
from dpdist.api.pages import Words, exclusion_sentences, say, use_language
from dpdist.api.releases import DatasetBudget, atomic_folder, release_folder
from dpdist.plugins.page.assets import embed_json, format_day, load_template, page_assets
from dpdist.plugins.page.chart_embedding import embed_chart
from dpdist.plugins.page.charts.budget_timeline import MOST_ROWS, Spending, budget_timelines
from dpdist.plugins.page.charts.sparkline import draw_sparkline
from dpdist.plugins.page.findings import MOST_FINDINGS
from dpdist.plugins.site import feeds, release_catalogue, release_comparison, repeated_rows
from dpdist.plugins.site.editions import Edition, copy_stamp, read_stamps, write_stamps
from dpdist.plugins.site.release_catalogue import CatalogueEntry
from dpdist.plugins.site.series_certificate import held_releases, write_series_certificate
from dpdist.plugins.site.trends import (
    Answers,
    describe_revision,
    group_comparable,
    latest_editions,
    read_answers,
    reader_names_by_release,
    trend_charts,
)

SITE_MARKER = ".dpdist-site"
"""Of a site: the name of its data set."""
MOST_LIST_ROWS = 60
"""Releases that the list shows at once; the earlier ones are folded."""
NEIGHBOURING_RELEASES = 12
"""Releases before and after one to which its page links, when it is reached from the site."""


def write_site(
    dataset: str,
    editions: Sequence[Edition],
    budgets: Sequence[DatasetBudget],
    target: Path,
    *,
    address: str | None = None,
    coming: Sequence[date] = (),
    holds: Sequence[ReleaseHold] = (),
) -> Path:
    """The site: its pages and a copy of every release's page and files. An existing site is replaced as ``atomic_folder`` says.

    Args:
        address: where the site will be, for an RSS feed.
        coming: the days of the next releases.
        holds: the releases of the data set that were held.
    Raises: InvalidInput when the target holds something that is no site, or another data set's, or two folders hold one release.
    """
    if os.path.lexists(target) and not (target / SITE_MARKER).is_file():
        raise InvalidInput(f"{target} exists and is not a site that dpdist wrote; move it away or choose another folder")
    if (target / SITE_MARKER).is_file() and (
        other_dataset := (target / SITE_MARKER).read_text(encoding="utf-8").strip()
    ) != dataset:
        raise InvalidInput(f"{target} is the site of {other_dataset!r}; choose another folder with --out, or move it away")
    _check_distinct(editions)
    with use_language(editions[-1].certificate.get("language", "en")):
        return _write_pages(dataset, editions, budgets, target, address, sorted(coming), holds)


def _write_pages(
    dataset: str,
    editions: Sequence[Edition],
    budgets: Sequence[DatasetBudget],
    target: Path,
    address: str | None,
    coming: Sequence[date],
    holds: Sequence[ReleaseHold],
) -> Path:
    reader_names = reader_names_by_release(editions)
    answers = {edition.release: read_answers(edition, reader_names[edition.release]) for edition in editions}
    entries = release_catalogue.catalogue_entries(editions)
    name, budgets = release_catalogue.site_name(entries), [budget for budget in budgets if budget.dataset == dataset]
    links = dict(zip([edition.release for edition in editions], release_links(editions), strict=True))
    changed = release_catalogue.change_sentences(editions, answers, feeds.MOST_ENTRIES)
    held = held_releases(holds, entries)
    earlier_stamps, stamps = read_stamps(target), dict[str, tuple[str, str]]()
    try:
        with atomic_folder.draft_of(target) as draft:
            (draft / SITE_MARKER).write_text(dataset + "\n", encoding="utf-8")
            for edition in editions:
                stamps[edition.release] = _copy_release(
                    edition, draft / edition.release, target / edition.release, earlier_stamps.get(edition.release)
                )
            (draft / "index.html").write_text(
                index_page(name, entries, answers, budgets, links, coming, address, held), encoding="utf-8"
            )
            write_series_certificate(draft, dataset, entries, held)
            (draft / "methodology.html").write_text(methodology_page(name, editions, budgets), encoding="utf-8")
            if (pair := release_comparison.newest_pair(editions)) is not None:
                (draft / "compare.html").write_text(
                    release_comparison.comparison_page(name, editions, answers, pair), encoding="utf-8"
                )
            if rows := repeated_rows.repeated_rows(editions):
                page = repeated_rows.repeated_rows_page(name, editions, rows, links)
                (draft / "rows.html").write_text(page, encoding="utf-8")
            (draft / "search.html").write_text(search_page(name, editions, answers, links), encoding="utf-8")
            feeds.write_feeds(draft, name, entries, changed, address=address, coming=coming)
            write_stamps(draft, stamps)
            atomic_folder.replace(target, draft)
    except OSError as error:
        raise atomic_folder.could_not_write(target, error, "an older site there is unchanged") from None
    return target


def _check_distinct(editions: Sequence[Edition]) -> None:
    folders: dict[str, Path] = {}
    for edition in editions:
        if edition.release in folders:
            raise InvalidInput(
                f"{folders[edition.release]} and {edition.folder} both hold release {edition.release!r}; move one of them away"
            )
        folders[edition.release] = edition.folder


def _copy_release(edition: Edition, folder: Path, earlier: Path, earlier_stamps: tuple[str, str] | None) -> tuple[str, str]:
    """The files that a certificate names, and no others: those of an earlier copy get a second name where nothing changed.

    Args:
        earlier_stamps: what ``read_stamps`` has of the release in the site of the earlier copy.
    Returns: what the next site is to see.
    """
    is_unchanged = earlier_stamps is not None and earlier_stamps == (edition.stamp, copy_stamp(earlier))
    names = (*edition.certificate["files"], release_folder.SIGNATURE, release_folder.CERTIFICATE)
    for inner in {os.path.dirname(name) for name in names}:
        (folder / inner).mkdir(parents=True, exist_ok=True)
    source, before, target = map(os.fspath, (edition.folder, earlier, folder))
    all_linked = True
    for name in names:
        if not (is_unchanged and _try_link(f"{before}/{name}", f"{target}/{name}")):
            shutil.copyfile(f"{source}/{name}", f"{target}/{name}")
            all_linked = False
    return earlier_stamps if earlier_stamps is not None and all_linked else (edition.stamp, copy_stamp(folder))


def _try_link(file: str, name: str) -> bool:
    """Whether a file got a second name, which not every file system gives."""
    try:
        os.link(file, name)
    except OSError:
        return False
    return True


def release_links(editions: Sequence[Edition]) -> list[str]:
    """The address of each release's page, relative to the site: it names the releases around it, to which the page then links."""
    ids = [edition.release for edition in editions]
    return [
        f"{release}/index.html?series={','.join(ids[max(0, index - NEIGHBOURING_RELEASES) : index + NEIGHBOURING_RELEASES + 1])}"
        for index, release in enumerate(ids)
    ]


def index_page(
    name: str,
    entries: Sequence[CatalogueEntry],
    answers: Mapping[str, Answers],
    budgets: Sequence[DatasetBudget],
    links: Mapping[str, str],
    coming: Sequence[date],
    address: str | None,
    held: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The index page: what changed over the periods, the releases, the budget. It loads nothing from anywhere."""
    editions = [entry.edition for entry in entries]
    newest = editions[-1]
    charts = [
        chart for kind in group_comparable(editions) for chart in _trend_charts(name, kind, answers, whole=kind == editions)
    ]
    rows = [
        {
            "entry": entry,
            "facts": entry.edition.certificate,
            "link": links[entry.edition.release],
            "published": str(entry.published),
            "changes": describe_revision(entry.replaces, entry.edition.release, answers) if entry.replaces else [],
        }
        for entry in entries
    ]
    return load_template("site.html", __package__).render(
        dataset=name,
        assets=page_assets(publisher=newest.theme),
        rows=rows[::-1],
        most=MOST_LIST_ROWS,
        newest=newest,
        revised=[row for row, entry in zip(rows[::-1], entries[::-1], strict=True) if entry.replaces],
        coming=[str(entry) for entry in coming],
        held=held,
        about=release_catalogue.publication_facts(entries[-1]),
        fed=address is not None,
        trends=[{**chart, "place": chart_number} for chart_number, chart in enumerate(charts, 1)],
        compared=release_comparison.newest_pair(editions) is not None,
        has_repeated_rows=bool(repeated_rows.repeated_rows(editions)),
        most_cards=MOST_FINDINGS,
        unchanged=[trend["name"] for trend in charts if trend["unchanged"]],
        budget=_budget_facts(budgets),
    )


def _trend_charts(
    name: str, kind: Sequence[Edition], answers: Mapping[str, Answers], *, whole: bool
) -> list[dict[str, Any]]:
    """The series of releases that count the same; titles say of which they are unless all do."""
    newest = kind[-1]
    words = Words.of(newest.certificate)
    suffix = "" if whole else say(" ({counted}, as in {release})", counted=words.counted, release=newest.release)
    return [
        {
            "name": figure.heading + suffix,
            "findings": [text] if text else [],
            "unchanged": not text and not np.isnan(figure.half).any(),
            "small": draw_sparkline(figure),
            "figures": [embed_chart(figure, "", newest.release, name, words.counted)],
        }
        for figure, text in (
            (replace(trend_figure, name=words.heading(trend_figure.title, words.names)), text)
            for trend_figure, text in trend_charts(kind, answers)
        )
    ]


def methodology_page(name: str, editions: Sequence[Edition], budgets: Sequence[DatasetBudget]) -> str:
    """How the newest release was made, from its certificate, which was written from its spec."""
    newest = editions[-1]
    return load_template("methodology.html", __package__).render(
        dataset=name,
        assets=page_assets(publisher=newest.theme),
        newest=newest,
        facts=newest.certificate,
        words=Words.of(newest.certificate),
        exclusions=exclusion_sentences(newest.certificate),
        found=_values_from_records(newest.certificate),
        releases=len(editions),
        budgets=budgets,
    )


def _budget_facts(budgets: Sequence[DatasetBudget]) -> dict[str, Any] | None:
    """The timeline, and in words how much of every period's cap was spent."""
    if not budgets:
        return None
    spendings = [Spending(budget.period, budget.remaining_by_release) for budget in budgets]
    rows = [
        {"period": budget.period, "releases": budget.releases, "left": spending.remaining_share}
        for budget, spending in zip(budgets, spendings, strict=True)
    ]
    return {
        "cap": str(budgets[-1].cap),
        "per": budgets[-1].cap.per,
        "rows": rows[: -MOST_ROWS - 1 : -1],
        "earlier": len(rows[:-MOST_ROWS]),
        "drawn": budget_timelines(spendings),
    }


MOST_SEARCHED_ANSWERS = 60_000
"""Answers that the page holds: those of the newest releases."""


def search_page(dataset: str, editions: Sequence[Edition], answers: Mapping[str, Answers], links: Mapping[str, str]) -> str:
    """The page.

    Args:
        links: of each release, the address of its page, relative to the site.
    """
    tables = _search_tables(editions, answers)
    remaining_answers, data = MOST_SEARCHED_ANSWERS, list[dict[str, Any] | None]()
    for table in tables:
        remaining_answers -= len(table["answers"])
        data.append(_table_data(table, links) if remaining_answers >= 0 else None)
    return load_template("search.html", __package__).render(
        dataset=dataset,
        assets=page_assets("search.js", publisher=editions[-1].theme, package=__package__),
        tables=[{**table, "link": links[table["release"]]} for table in tables],
        missing=data.count(None),
        data=embed_json(data),
    )


def _search_tables(editions: Sequence[Edition], answers: Mapping[str, Answers]) -> list[dict[str, Any]]:
    """Each group of what counts the same, from its newest release, and in how many periods it was published."""
    tables = list[dict[str, Any]]()
    for kind in group_comparable(editions):
        tables_by_group: dict[str, dict[str, Any]] = {}
        for edition in reversed(latest_editions(kind)):
            for group, queries in answers[edition.release].items():
                if group not in tables_by_group:
                    words = Words.of(edition.certificate)
                    title = words.heading(group, words.names)
                    tables_by_group[group] = {"title": title, "release": edition.release, "answers": queries, "periods": 0}
                    tables_by_group[group] |= {"counted": words.counted, "period": format_day(edition.period)}
                tables_by_group[group]["periods"] += 1
        tables += tables_by_group.values()
    return tables


def _table_data(table: Mapping[str, Any], links: Mapping[str, str]) -> dict[str, Any]:
    pairs = table["answers"].values()
    return {
        "title": table["title"],
        "about": say("{counted}, {period}", counted=table["counted"], period=table["period"]),
        "link": links[table["release"]],
        "query": list(table["answers"]),
        "value": [value for value, _ in pairs],
        "half": [None if math.isnan(half) else round(half, 6) for _, half in pairs],
    }


def _values_from_records(certificate: Mapping[str, Any]) -> str:
    """Which values of attributes were found in the records; empty where all were declared."""
    names, edges = certificate.get("selections", ()), certificate.get("chosen_edges", ())
    name_texts = [say("the names of {attribute}", attribute=facts["attribute"]) for facts in names]
    return ", ".join([*name_texts, *(say("the bins of {attribute}", attribute=facts["of"]) for facts in edges)])
