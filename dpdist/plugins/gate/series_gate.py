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
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpdist.api.gates import Context, StoreError, parse_location, release_folder
from dpdist.plugins.gate.file_gate import record_files
from dpdist.plugins.gate.held_releases import HeldRelease

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.api.gates import Release
    from dpdist.plugins.gate.drift_test import UnlikelySlope
    from dpdist.plugins.gate.outlier_test import Answers, UnlikelyAnswer

MOST_PERIODS = 110
"""So many earlier periods are compared: two years of weeks."""
MOST_COMPARISONS = 300
"""So many answers are: groups of queries with the fewest first, for these are of the most records each."""
DRIFT_SHARE = 0.25
"""Of the false alarms a year are for slow drifts, the rest for single answers."""
MOST_NAMED = 5
"""Outliers that a message names."""


@dataclass(frozen=True)
class PublishedPeriod:
    """What was published of an earlier period.

    Attributes:
        day: on which the period begins.
        answers: its table.
    """

    day: datetime.date
    certificate: Any
    answers: pa.Table


@dataclass(frozen=True)
class Series:
    """Answers of periods, one a row, the newest last.

    Attributes:
        days: on which the periods begin.
        deviations: standard deviations of the noise in each answer.
        names: of the answers.
    """

    days: list[float]
    answers: Answers
    deviations: Answers
    names: list[str]

    @property
    def newest(self) -> Answers:
        """The answers of the last period."""
        return np.asarray(self.answers[-1])


def check_release(context: Context, release: Release) -> None:
    """Warn of answers that earlier periods make very unlikely, or hold the release back. Raises: ReleaseHeld."""
    job, gate = release.job, release.job.outputs.gate
    action, false_alarms = ("warn", 1.0) if gate is None else (gate.action, gate.false_alarms)
    if job.guarantee.period is None or action == "none":
        return
    if context.ledger.publications(job.release):  # it has passed: a repeated run writes the same bytes, whatever came since
        return
    held = HeldRelease.from_job(context.home, job)
    held.check_not_void()
    sentences = _find_outliers(context, release, false_alarms)
    if action == "warn":
        for sentence in sentences[:MOST_NAMED]:
            context.progress("warning", sentence)
    elif sentences:
        held.hold_back(sentences, "charged and measured, but not published", "Look at the records")
    held.let_through()
    record_files(context, job)


def _find_outliers(context: Context, release: Release, false_alarms: float) -> list[str]:
    """A sentence for each answer, or share of records that are not complete, that earlier periods make very unlikely."""
    editions = read_editions(context, release)
    series = [
        each for each in (answer_series(editions, release), completeness_series(editions, release.certificate)) if each
    ]
    comparisons = sum(each.newest.size for each in series)
    sentences = []
    for each in series:
        outliers, drifts = compare_with_history(each, false_alarms, comparisons)
        sentences += [_outlier_sentence(outlier, each.names[outlier.index], len(each.days) - 1) for outlier in outliers]
        sentences += [_drift_sentence(drift, each.names[drift.index], len(each.days) - 1) for drift in drifts]
    return sentences


def compare_with_history(
    series: Series, false_alarms: float, comparisons: int
) -> tuple[list[UnlikelyAnswer], list[UnlikelySlope]]:
    """The newest answers that are outliers beside earlier ones, and those that drift.

    Args:
        false_alarms: so many a year are expected at most, of both.
        comparisons: answers of a period, of this series and of those that are compared with it.
    """
    from dpdist.plugins.gate.drift_test import find_drifts  # they import scipy.special
    from dpdist.plugins.gate.outlier_test import comparison_level, find_outliers, periods_a_year

    a_year = periods_a_year(series.days)
    level = comparison_level((1 - DRIFT_SHARE) * false_alarms, a_year, comparisons)
    drift_level = min(0.5, DRIFT_SHARE * false_alarms / (a_year * max(comparisons, 1)))
    history, deviations = series.answers[:-1], series.deviations[:-1]
    outliers = find_outliers(history, deviations, series.newest, series.deviations[-1], level)
    drifts = find_drifts(series.answers, series.deviations, a_year, drift_level)
    unlikely = {outlier.index for outlier in outliers}
    return outliers, [drift for drift in drifts if drift.index not in unlikely]


def read_editions(context: Context, release: Release) -> list[PublishedPeriod]:
    """What the ledger has published of the same questions for earlier periods, the newest last."""
    ledger, editions = context.ledger, list[PublishedPeriod]()
    for name in reversed(dict.fromkeys(ledger.published().values())):
        edition = _published_edition(ledger, name, release.certificate)
        if edition is not None:
            editions.append(edition)
        if len(editions) == MOST_PERIODS:
            break
    return sorted(editions, key=lambda edition: edition.day)


def answer_series(editions: Sequence[PublishedPeriod], release: Release) -> Series | None:
    """Answers, those of the release last; None where there is nothing to compare with."""
    columns, period = release.columns, release.job.guarantee.period
    complete = [
        edition for edition in editions if edition.answers.num_rows == columns.answer.size
    ]  # 'suppress' leaves rows out
    if not complete or period is None:
        return None
    last = complete[-1].answers
    groups = np.array(last["group"].to_pylist(), dtype=object)
    starts = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), groups.size]
    compared = _compared_answers(starts)
    queries = last["query"].to_pylist()
    rows = [
        np.array([edition.answers[name].to_numpy()[compared] for edition in complete], dtype=np.float64)
        for name in ("answer", "standard_error")
    ]
    newest = [
        np.asarray(column.read(0, column.size), dtype=np.float64)[compared] for column in (columns.answer, columns.error)
    ]
    answers, deviations = (np.vstack([earlier, own]) for earlier, own in zip(rows, newest, strict=True))
    names = [f"{queries[index]} ({groups[index]})" for index in compared]
    return Series(
        [*(float(edition.day.toordinal()) for edition in complete), float(period.toordinal())], answers, deviations, names
    )


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
    return Series(days, shares, deviations, names)


def _class_shares(certificate: Any) -> tuple[list[float], list[float]]:
    """The shares with a missing value and outside the domain, and the standard deviations that the noise gives them."""
    facts, laplace = certificate["completeness"], certificate["privacy"]["noise"] == "Laplace"
    counts, deviation = np.array(facts["values"], dtype=np.float64), facts["scale"] * (2**0.5 if laplace else 1.0)
    total = max(float(counts.sum()), deviation)  # of hardly any records nothing is known
    shares = counts[1:] / total
    return shares.tolist(), (deviation / total * np.sqrt(1 - 2 * shares + 3 * shares**2)).tolist()


def _published_edition(ledger: Any, name: str, certificate: Any) -> PublishedPeriod | None:
    """A published release, if it has an earlier period and asked the same of the same data set."""
    publication = ledger.publications(name)[-1]
    location = parse_location(publication.location)
    try:
        text = bytes((location / "release.json").read_bytes())
        other = json.loads(text)
        if hashlib.sha256(text).hexdigest() != publication.certificate or not _is_earlier(other, certificate):
            return None
        with location.local_copy() as folder:
            table, _ = release_folder.load_release(Path(folder))
    except (StoreError, OSError, ValueError, KeyError):
        return None  # a release that was moved away, or that is damaged, is no evidence
    return PublishedPeriod(datetime.date.fromisoformat(other["period"]), other, table)


def _is_earlier(other: Any, certificate: Any) -> bool:
    """Whether another certificate has the same questions to the same data set, for an earlier period."""
    return bool(
        other["dataset"] == certificate["dataset"]
        and other["method"]["meaning"] == certificate["method"]["meaning"]
        and other["period"]
        and other["period"] < certificate["period"]
    )


def _compared_answers(first_rows: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The answers that are compared: whole groups, those with the fewest answers first."""
    groups = sorted(pairwise(first_rows), key=lambda group: group[1] - group[0])
    compared: list[int] = []
    for first, end in groups:
        if len(compared) + end - first > MOST_COMPARISONS:
            break
        compared.extend(range(first, end))
    return np.array(sorted(compared), dtype=np.int64)


def _drift_sentence(drift: UnlikelySlope, name: str, periods: int) -> str:
    growth = f"{drift.growth:+,.4g} a period for {drift.periods} periods beside its trend and season"
    return f"{name} drifts: it changes by {growth}, where {periods} earlier periods make ± {drift.half_width:,.4g} likely"


def _outlier_sentence(outlier: UnlikelyAnswer, name: str, periods: int) -> str:
    likely = f"{outlier.forecast:,.6g} ± {outlier.half_width:,.4g}"
    return f"{name} is {outlier.answer:,.6g}, where {periods} earlier periods make {likely} likely"
