"""A small static site over all releases of a data set: series over periods, revisions, comparison, budget, methodology, feed."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.errors import InvalidInput, StoreError
from dpdist.language import say, speaking
from dpdist.machine import drafts
from dpdist.page import comparison, document, feed, report
from dpdist.page.assets import assets, template
from dpdist.page.charts.budget import Spending
from dpdist.page.comparable import Comparable
from dpdist.page.plots import plot
from dpdist.page.trends import Answers, Edition, alike, answers_of, trends
from dpdist.page.words import Words
from dpdist.privacy.ledger import DatasetBudget

MARK = ".dpdist-site"
"""Of a site: the name of its data set."""
AROUND = 12
"""Releases before and after one to which its page links, when it is reached from the site."""


def releases_in(
    folder: Path, dataset: str, *, ledger: str | None = None, known: Mapping[str, str] | None = None
) -> tuple[list[Edition], list[str]]:
    """Whole releases of a data set below a folder, by period and id; and of each folder that is left out, why.

    Args:
        ledger, known: a ledger's name, and the release of each certificate that it has published, by the SHA-256 of its bytes.
    Raises: InvalidInput when there are none.
    """
    found, others, left_out = [], set(), []
    for path in sorted(folder.rglob(report.CERTIFICATE)):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue  # drafts
        try:
            certificate = report.certificate_of(path.parent)
        except StoreError as error:
            left_out.append(str(error))
            continue
        if certificate.get("dataset") != dataset:
            others.add(str(certificate.get("dataset")))
        elif _is_of(certificate, ledger) and hashlib.sha256(path.read_bytes()).hexdigest() not in (known or {}):
            left_out.append(
                f"{path.parent}: this ledger has not published it; get the release's files again, or move it away"
            )
        else:
            found.append(Edition(path.parent, certificate))
    if not found:
        elsewhere = f"; there are releases of {', '.join(sorted(others))}" if others else ""
        first = f"; {left_out[0]}" if left_out else "; publish one there, or name their folder with --releases"
        cure = elsewhere or first
        raise InvalidInput(f"no complete release of {dataset!r} lies below {folder}{cure}")
    return sorted(found, key=lambda one: (one.period, one.release)), left_out


def _is_of(certificate: Mapping[str, Any], ledger: str | None) -> bool:
    budget = certificate.get("budget")
    return ledger is not None and isinstance(budget, Mapping) and budget.get("ledger") == ledger


def write(
    dataset: str, found: Sequence[Edition], budgets: Sequence[DatasetBudget], target: Path, *, address: str | None = None
) -> Path:
    """The site: its pages and a copy of every release's page and files. An existing site is replaced as ``drafts`` says.

    Args:
        address: where the site will be, for an RSS feed.
    Raises: InvalidInput when the target holds something that is no site, or another data set's, or two folders hold one release.
    """
    if os.path.lexists(target) and not (target / MARK).is_file():
        raise InvalidInput(f"{target} exists and is not a site that dpdist wrote; move it away or choose another folder")
    if (target / MARK).is_file() and (other := (target / MARK).read_text(encoding="utf-8").strip()) != dataset:
        raise InvalidInput(f"{target} is the site of {other!r}; choose another folder with --out, or move it away")
    _check_distinct(found)
    with speaking(found[-1].certificate.get("language", "en")):
        return _write(dataset, found, budgets, target, address)


def _write(
    dataset: str, found: Sequence[Edition], budgets: Sequence[DatasetBudget], target: Path, address: str | None
) -> Path:
    answers = {one.release: answers_of(one) for one in found}
    try:
        with drafts.draft_of(target) as draft:
            (draft / MARK).write_text(dataset + "\n", encoding="utf-8")
            for one in found:
                _copy(one, draft / one.release)
            (draft / "index.html").write_text(index(dataset, found, answers, budgets), encoding="utf-8")
            (draft / "methodology.html").write_text(methodology(dataset, found, budgets), encoding="utf-8")
            if (pair := comparison.newest_pair(found)) is not None:
                (draft / "compare.html").write_text(comparison.page(dataset, found, answers, pair), encoding="utf-8")
            feed.write(draft, dataset, found, address)
            drafts.replace(target, draft)
    except OSError as error:
        raise drafts.could_not_write(target, error, "an older site there is unchanged") from None
    return target


def _check_distinct(found: Sequence[Edition]) -> None:
    seen: dict[str, Path] = {}
    for one in found:
        if one.release in seen:
            raise InvalidInput(
                f"{seen[one.release]} and {one.folder} both hold release {one.release!r}; move one of them away"
            )
        seen[one.release] = one.folder


def _copy(one: Edition, place: Path) -> None:
    """The files that a certificate names, and no others."""
    for name in (*one.certificate["files"], report.SIGNATURE, report.CERTIFICATE):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one.folder / name, place / name)


def index(dataset: str, found: Sequence[Edition], answers: Mapping[str, Answers], budgets: Sequence[DatasetBudget]) -> str:
    """The index page: what changed over the periods, the releases, the budget. It loads nothing from anywhere."""
    seen: Counter[tuple[str, Comparable]] = Counter()
    rows: list[dict[str, Any]] = []
    for place, one in enumerate(found):
        seen[one.period, one.quantity] += 1
        around = [each.release for each in found[max(0, place - AROUND) : place + AROUND + 1]]
        link = f"{one.release}/index.html?series={','.join(around)}"
        rows.append(
            {"facts": one.certificate, "period": one.period, "revision": seen[one.period, one.quantity], "link": link}
        )
    newest = found[-1]
    charts = [chart for kind in alike(found) for chart in _charts(dataset, kind, answers, whole=kind == found)]
    revised = [row for row in rows if row["revision"] > 1]
    return template("site.html").render(
        dataset=dataset,
        assets=assets(publisher=newest.look),
        rows=rows[::-1],
        newest=newest,
        revised=revised,
        trends=charts,
        compared=comparison.newest_pair(found) is not None,
        findings=[(part["finding"], k + 1) for k, part in enumerate(charts) if part["finding"]][: document.MOST_FINDINGS],
        unchanged=[part["title"] for part in charts if part["unchanged"]],
        budget=_budget([budget for budget in budgets if budget.dataset == dataset]),
    )


def _charts(dataset: str, kind: Sequence[Edition], answers: Mapping[str, Answers], *, whole: bool) -> list[dict[str, Any]]:
    """The series of releases that count the same; titles say of which they are unless all do."""
    newest = kind[-1]
    words = Words.of(newest.certificate)
    which = "" if whole else say(" ({counted}, as in {release})", counted=words.counted, release=newest.release)
    return [
        {
            "title": figure.heading + which,
            "finding": text,
            "unchanged": not text and not np.isnan(figure.half).any(),
            "figure": plot(figure, "", newest.release, dataset, words.counted),
        }
        for figure, text in (
            (replace(each, name=words.heading(each.title, words.attributes)), text) for each, text in trends(kind, answers)
        )
    ]


def methodology(dataset: str, found: Sequence[Edition], budgets: Sequence[DatasetBudget]) -> str:
    """How the newest release was made, from its certificate, which was written from its spec."""
    newest = found[-1]
    return template("methodology.html").render(
        dataset=dataset,
        assets=assets(publisher=newest.look),
        newest=newest,
        facts=newest.certificate,
        words=Words.of(newest.certificate),
        exclusions=document.exclusions(newest.certificate),
        releases=len(found),
        budgets=[budget for budget in budgets if budget.dataset == dataset],
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
        "rows": rows[::-1],
        "drawn": document.drawn_budget(spendings),
    }
