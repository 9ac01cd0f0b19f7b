"""The answers of a measured release beside those that its series has published: warned of, or held back, before anything is published.

Only noisy answers are compared, which are published or about to be, so that neither an alarm nor a held release tells more of the
records than these do, and nothing is charged.
"""

from __future__ import annotations

import datetime
import hashlib
import json
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
class Series:
    """Answers of earlier periods, one a row, the newest last.

    Attributes:
        days: on which the periods begin.
        names: of the answers.
        first_rows: where each group of answers begins, and their number at the end.
    """

    days: list[float]
    answers: Answers
    deviations: Answers
    names: list[str]
    first_rows: list[int]


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
    """A sentence for each answer that earlier periods make very unlikely."""
    series, job = read_series(context, release), release.job
    if series is None or job.guarantee.period is None:
        return []
    from dpdist.plugins.gate.outlier_test import periods_a_year

    columns = release.columns
    indices = _compared_answers(series.first_rows)
    answers, deviation = (
        np.asarray(column.read(0, column.size), dtype=np.float64)[indices] for column in (columns.answer, columns.error)
    )
    a_year = periods_a_year([*series.days, float(job.guarantee.period.toordinal())])
    outliers, drifts = compare_with_history(
        series.answers[:, indices], series.deviations[:, indices], answers, deviation, false_alarms, a_year
    )
    names, periods = [series.names[index] for index in indices], len(series.days)
    return [
        *(_outlier_sentence(outlier, names[outlier.index], periods) for outlier in outliers),
        *(_drift_sentence(drift, names[drift.index], periods) for drift in drifts),
    ]


def compare_with_history(
    history: Answers, deviations: Answers, answers: Answers, deviation: Answers, false_alarms: float, a_year: float
) -> tuple[list[UnlikelyAnswer], list[UnlikelySlope]]:
    """The newest answers that are outliers beside earlier ones, and those that drift.

    Args:
        history, deviations, answers, deviation: as in ``find_outliers``.
        false_alarms: so many a year are expected at most, of both.
        a_year: periods of a year.
    """
    from dpdist.plugins.gate.drift_test import find_drifts  # they import scipy.special
    from dpdist.plugins.gate.outlier_test import comparison_level, find_outliers

    level = comparison_level((1 - DRIFT_SHARE) * false_alarms, a_year, answers.size)
    drift_level = min(0.5, DRIFT_SHARE * false_alarms / (a_year * max(answers.size, 1)))
    outliers = find_outliers(history, deviations, answers, deviation, level)
    drifts = find_drifts(np.vstack([history, answers]), np.vstack([deviations, deviation]), a_year, drift_level)
    unlikely = {outlier.index for outlier in outliers}
    return outliers, [drift for drift in drifts if drift.index not in unlikely]


def read_series(context: Context, release: Release) -> Series | None:
    """What the ledger has published of the same questions for earlier periods; None where there is nothing to compare with."""
    certificate, ledger = release.certificate, context.ledger
    editions: list[tuple[datetime.date, pa.Table]] = []
    for name in reversed(dict.fromkeys(ledger.published().values())):
        found = _published_answers(ledger, name, certificate)
        if found is not None and found[1].num_rows == release.columns.answer.size:  # 'suppress' leaves rows out
            editions.append(found)
        if len(editions) == MOST_PERIODS:
            break
    if not editions:
        return None
    editions.sort(key=lambda edition: edition[0])
    last = editions[-1][1]
    groups = np.array(last["group"].to_pylist(), dtype=object)
    starts = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), groups.size]
    names = [f"{query} ({group})" for group, query in zip(groups, last["query"].to_pylist(), strict=True)]
    answers, deviations = (
        np.array([table[column].to_numpy() for _, table in editions], dtype=np.float64)
        for column in ("answer", "standard_error")
    )
    return Series([float(day.toordinal()) for day, _ in editions], answers, deviations, names, starts)


def _published_answers(ledger: Any, name: str, certificate: Any) -> tuple[datetime.date, pa.Table] | None:
    """The period and the answers of a published release, if it has an earlier period and asked the same of the same data set."""
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
    return datetime.date.fromisoformat(other["period"]), table


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
