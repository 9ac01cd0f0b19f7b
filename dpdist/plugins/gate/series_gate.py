"""The answers of a measured release beside those that its series has published: warned of, or held back, before anything is published.

Only noisy answers are compared, which are published or about to be, so that neither an alarm nor a held release tells more of the
records than these do, and nothing is charged.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpdist.api.gates import Context, PublishedTable, StoreError, parse_location, release_folder
from dpdist.plugins.gate.file_gate import record_files
from dpdist.plugins.gate.gate_section import gate_of
from dpdist.plugins.gate.group_shares import DividedGroup, divided_groups
from dpdist.plugins.gate.held_releases import HeldRelease
from dpdist.plugins.gate.series_comparison import Series, find_unlikely, unlikely_sentences

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.api.gates import Release

Places = np.ndarray[Any, np.dtype[np.int64]]
MOST_PERIODS = 110
"""So many earlier periods are compared: two years of weeks."""
MOST_COMPARISONS = 300
"""So many answers are: groups of queries with the fewest first, for these are of the most records each."""
COLUMNS = ("group", "query", "answer", "standard_error")
"""Of a published table those that are read."""
MOST_NAMED = 5
"""Outliers that a message names."""


@dataclass(frozen=True)
class PublishedPeriod:
    """What was published of an earlier period.

    Attributes:
        day: on which the period begins.
        answers: the rows of its table that are compared; None where it leaves some out, as 'suppress' does.
    """

    day: datetime.date
    certificate: Any
    answers: pa.Table | None


def check_release(context: Context, release: Release) -> None:
    """Warn of answers that earlier periods make very unlikely, or hold the release back. Raises: ReleaseHeld."""
    job, gate = release.job, gate_of(release.job)
    if job.guarantee.period is None or gate.action == "none":
        return
    if context.ledger.publications(job.release):  # it has passed: a repeated run writes the same bytes, whatever came since
        return
    held = HeldRelease.from_job(context.home, job)
    held.check_not_void()
    sentences = _find_outliers(context, release, gate.false_alarms)
    if gate.action == "warn":
        for sentence in sentences[:MOST_NAMED]:
            context.progress("warning", sentence)
    elif sentences:
        held.hold_back(sentences, "charged and measured, but not published", "Look at the records")
    held.let_through()
    record_files(context, job)


def _find_outliers(context: Context, release: Release, false_alarms: float) -> list[str]:
    """A sentence for each answer, and each share, that earlier periods make very unlikely."""
    starts = np.cumsum([0, *(block.queries for block in release.plan.workload.blocks)]).tolist()
    compared = _compared_answers(starts)
    editions = read_editions(context, release, compared)
    answers = answer_series(editions, release, compared)
    completeness = completeness_series(editions, release.certificate)
    series = [each for each in (answers, completeness) if each is not None]
    width = float(release.plan.noise.half_width_95(1.0))
    return [sentence for found in find_unlikely(series, false_alarms) for sentence in unlikely_sentences(found, width)]


def read_editions(context: Context, release: Release, compared: Places) -> list[PublishedPeriod]:
    """What the ledger has published of the same questions for earlier periods, the newest last.

    Args:
        compared: places of the answers that are read.
    """
    ledger, editions = context.ledger, list[PublishedPeriod]()
    for name in reversed(dict.fromkeys(ledger.published().values())):
        edition = _published_edition(ledger, name, release, compared)
        if edition is not None:
            editions.append(edition)
        if len(editions) == MOST_PERIODS:
            break
    return sorted(editions, key=lambda edition: edition.day)


def answer_series(editions: Sequence[PublishedPeriod], release: Release, compared: Places) -> Series | None:
    """Answers that are compared, those of the release last; None where there is nothing to compare with."""
    columns, period = release.columns, release.job.guarantee.period
    complete = [(edition, edition.answers) for edition in editions if edition.answers is not None]
    if not complete or period is None or not compared.size:
        return None
    rows = [
        np.array([table[name].to_numpy() for _, table in complete], dtype=np.float64)
        for name in ("answer", "standard_error")
    ]
    newest = [
        np.asarray(column.read(0, column.size), dtype=np.float64)[compared] for column in (columns.answer, columns.error)
    ]
    answers, deviations = (np.vstack([earlier, own]) for earlier, own in zip(rows, newest, strict=True))
    last = complete[-1][1]
    names = [f"{query} ({group})" for query, group in zip(last["query"].to_pylist(), last["group"].to_pylist(), strict=True)]
    days = [*(float(edition.day.toordinal()) for edition, _ in complete), float(period.toordinal())]
    return Series(days, answers, deviations, names, _divided_groups(release, compared))


def _divided_groups(release: Release, compared: Places) -> list[DividedGroup]:
    """The groups of queries, of those that are compared, whose answers divide records."""
    blocks, counted = release.plan.workload.blocks, release.job.workload.block_counts_records
    starts = np.cumsum([0, *(block.queries for block in blocks)])
    is_whole = np.isin(starts[:-1], compared) & np.isin(starts[1:] - 1, compared) & np.array(counted)
    places = [int(np.searchsorted(compared, starts[number])) for number in np.flatnonzero(is_whole)]
    return divided_groups(release.plan, [blocks[number] for number in np.flatnonzero(is_whole)], places)


def completeness_series(editions: Sequence[PublishedPeriod], certificate: Any) -> Series | None:
    """The shares of records, or persons, that are not complete, those of the release last; None where they are not measured."""
    certificates = [*(edition.certificate for edition in editions), certificate]
    measured = [each for each in certificates if each.get("completeness")]
    if not certificate.get("completeness") or len(measured) < 2:
        return None
    shares, deviations = (np.array(rows) for rows in zip(*map(_class_shares, measured), strict=True))
    noun = certificate["completeness"]["of"]
    names = [f"the share of {noun} with a missing value", f"the share of {noun} outside the domain"]
    days = [float(datetime.date.fromisoformat(each["period"]).toordinal()) for each in measured]
    return Series(days, shares, deviations, names, is_share=True)


def _class_shares(certificate: Any) -> tuple[list[float], list[float]]:
    """The shares with a missing value and outside the domain, and the standard deviations that the noise gives them."""
    facts, laplace = certificate["completeness"], certificate["privacy"]["noise"] == "Laplace"
    counts, deviation = np.array(facts["values"], dtype=np.float64), facts["scale"] * (2**0.5 if laplace else 1.0)
    total = max(float(counts.sum()), deviation)  # of hardly any records nothing is known
    shares = counts[1:] / total
    return shares.tolist(), (deviation / total * np.sqrt(1 - 2 * shares + 3 * shares**2)).tolist()


def _published_edition(ledger: Any, name: str, release: Release, compared: Places) -> PublishedPeriod | None:
    """A published release, if it has an earlier period and asked the same of the same data set."""
    publication = ledger.publications(name)[-1]
    location = parse_location(publication.location)
    try:
        text = bytes((location / "release.json").read_bytes())
        other = json.loads(text)
        if hashlib.sha256(text).hexdigest() != publication.certificate or not _is_earlier(other, release.certificate):
            return None
        with location.local_copy() as folder:
            release_folder.certificate_of(Path(folder))
            table = PublishedTable.of_release(Path(folder))
            is_complete = table.row_count == release.columns.answer.size
            answers = table.load_rows(compared, COLUMNS) if is_complete else None
    except (StoreError, OSError, ValueError, KeyError):
        return None  # a release that was moved away, or that is damaged, is no evidence
    return PublishedPeriod(datetime.date.fromisoformat(other["period"]), other, answers)


def _is_earlier(other: Any, certificate: Any) -> bool:
    """Whether another certificate has the same questions to the same data set, for an earlier period."""
    return bool(
        other["dataset"] == certificate["dataset"]
        and other["method"]["meaning"] == certificate["method"]["meaning"]
        and other["period"]
        and other["period"] < certificate["period"]
    )


def _compared_answers(first_rows: list[int]) -> Places:
    """The answers that are compared: whole groups, those with the fewest answers first."""
    groups = sorted(pairwise(first_rows), key=lambda group: group[1] - group[0])
    totals = accumulate(end - first for first, end in groups)
    rows = [range(*group) for group, total in zip(groups, totals, strict=True) if total <= MOST_COMPARISONS]
    return np.array(sorted(chain.from_iterable(rows)), dtype=np.int64)
