"""A small static site over all releases of a data set: periods over time, revisions, the budget's burn-down."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpdist import drafts
from dpdist.errors import InvalidInput, StoreError
from dpdist.page import charts, document, report
from dpdist.privacy.accounting import Loss
from dpdist.privacy.ledger import Budget

MOST_LINES = 4
"""Queries that are drawn over the periods."""
MOST_QUERIES = 12
"""Groups of more queries are not drawn over the periods."""


@dataclass(frozen=True)
class Published:
    """A published release: its folder and its certificate."""

    folder: Path
    certificate: dict[str, Any]

    @property
    def period(self) -> str:
        """Its period, or its id where it has none."""
        return str(self.certificate["period"] or self.certificate["release"])


def releases_in(folder: Path, dataset: str) -> list[Published]:
    """Whole releases of a data set below a folder, by period and id; others are left out.

    Raises: InvalidInput when there are none.
    """
    found, others = [], set()
    for path in sorted(folder.rglob(report.CERTIFICATE)):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue  # drafts
        try:
            certificate = report.certificate_of(path.parent)
        except StoreError:
            continue
        if certificate.get("dataset") == dataset:
            found.append(Published(path.parent, certificate))
        else:
            others.add(str(certificate.get("dataset")))
    if not found:
        known = f"; there are releases of {', '.join(sorted(others))}" if others else ""
        raise InvalidInput(f"no whole release of {dataset!r} lies below {folder}{known}")
    return sorted(found, key=lambda one: (one.period, one.certificate["release"]))


def write(dataset: str, found: Sequence[Published], budgets: Sequence[Budget], target: Path) -> Path:
    """The site: an index and a copy of every release's page and files. An existing site is replaced as ``drafts`` says.

    Raises: InvalidInput when the target holds something that is no site, or two folders hold one release.
    """
    if os.path.lexists(target) and not (target / MARK).is_file():
        raise InvalidInput(f"{target} exists and is no site of dpdist; move it away or choose another folder")
    _check_distinct(found)
    try:
        with drafts.draft_of(target) as draft:
            (draft / MARK).write_text(dataset + "\n", encoding="utf-8")
            for one in found:
                _copy(one, draft / one.certificate["release"])
            (draft / "index.html").write_text(index(dataset, found, budgets), encoding="utf-8")
            drafts.replace(target, draft)
    except OSError as error:
        raise drafts.could_not_write(target, error, "an older site there is unchanged") from None
    return target


def _check_distinct(found: Sequence[Published]) -> None:
    seen: dict[str, Path] = {}
    for one in found:
        release = one.certificate["release"]
        if release in seen:
            raise InvalidInput(f"{seen[release]} and {one.folder} both hold release {release!r}; move one of them away")
        seen[release] = one.folder


def _copy(one: Published, place: Path) -> None:
    """The files that a certificate names, and no others."""
    for name in (*one.certificate["files"], report.CERTIFICATE):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one.folder / name, place / name)


MARK = ".dpdist-site"


def index(dataset: str, found: Sequence[Published], budgets: Sequence[Budget]) -> str:
    """The index page: what changed over the periods, the releases, the budget. It loads nothing from anywhere."""
    seen: dict[str, int] = {}
    rows = []
    for one in found:
        seen[one.period] = seen.get(one.period, 0) + 1
        rows.append({"facts": one.certificate, "period": one.period, "revision": seen[one.period]})
    return document.template("site.html").render(
        dataset=dataset,
        rows=rows[::-1],
        trends=_trends(found),
        burndowns=[_burndown(b) for b in budgets if b.dataset == dataset],
    )


def _trends(found: Sequence[Published]) -> list[dict[str, str]]:
    """Groups of few queries that every period's latest release answers, over the periods."""
    latest = {one.period: one for one in found}
    if len(latest) < 2:
        return []
    answers: list[dict[tuple[str, str], tuple[float, float]]] = []
    for one in latest.values():
        if not (one.folder / "answers.parquet").exists():
            return []
        rows = report.load(one.folder)[0].to_pylist()
        answers.append({(row["group"], row["query"]): _with_half(row) for row in rows})
    common = [key for key in answers[0] if all(key in some for some in answers)]
    groups: dict[str, list[str]] = {}
    for group, query in common:
        groups.setdefault(group, []).append(query)
    out = []
    for group, queries in groups.items():
        if len(queries) > MOST_QUERIES:
            continue
        series = {}
        for query in queries[:MOST_LINES]:
            pairs = np.array([some[group, query] for some in answers])
            series[query] = (pairs[:, 0], np.nan_to_num(pairs[:, 1]))
        out.append({"title": group, "chart": charts.lines(list(latest), series, "period")})
    return out


def _with_half(row: dict[str, Any]) -> tuple[float, float]:
    half = float("nan") if row["low_95"] is None else (row["high_95"] - row["low_95"]) / 2
    return row["answer"], half


def _burndown(budget: Budget) -> dict[str, Any]:
    """What is left of a budget after each release, as a share of what there was."""
    course = budget.course
    return {
        "period": budget.period,
        "cap": str(budget.cap),
        "releases": budget.releases,
        "left": float(budget.left / budget.cap.left(Loss(), budget.rule)),
        "chart": document.burndown(course),
    }
