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

from dpdist.api import InvalidInput, ReleaseHeld
from dpdist.api.gates import Context, StoreError, parse_location, private_file, private_folder, release_folder, rename

if TYPE_CHECKING:
    import pyarrow as pa

    from dpdist.api.gates import Release
    from dpdist.plugins.gate.outlier_test import Answers, UnlikelyAnswer

MOST_PERIODS = 110
"""So many earlier periods are compared: two years of weeks."""
MOST_COMPARISONS = 300
"""So many answers are: groups of queries with the fewest first, for these are of the most records each."""
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
    held = HeldRelease(context.home, job.release)
    void_reason = (held.facts() or {}).get("void")
    if void_reason:
        raise ReleaseHeld(
            f"{job.release} is void ({void_reason}) and is never published; correct the records, and publish them under a new release "
            "id, which is a new charge"
        )
    series = read_series(context, release)
    if series is None:
        return
    from dpdist.plugins.gate.outlier_test import comparison_level, find_outliers, periods_a_year  # it imports scipy.special

    columns = release.columns
    indices = _compared_answers(series.first_rows)
    answers, deviation = (
        np.asarray(column.read(0, column.size), dtype=np.float64)[indices] for column in (columns.answer, columns.error)
    )
    level = comparison_level(
        false_alarms, periods_a_year([*series.days, float(job.guarantee.period.toordinal())]), indices.size
    )
    outliers = find_outliers(series.answers[:, indices], series.deviations[:, indices], answers, deviation, level)
    sentences = [_sentence(outlier, series.names[indices[outlier.index]], len(series.days)) for outlier in outliers]
    if not sentences:
        return
    if action == "warn":
        for sentence in sentences[:MOST_NAMED]:
            context.progress("warning", sentence)
        return
    if held.is_approved(sentences):
        return
    held.write_outliers(sentences)
    more = f", and {len(sentences) - 1:,} more" if len(sentences) > 1 else ""
    raise ReleaseHeld(
        f"{job.release} is held, charged and measured, but not published: {sentences[0]}{more}. Look at the records; 'dpdist gate "
        f"{job.release}' lists all, 'dpdist gate {job.release} --publish --why REASON' lets the next run publish it, --void instead of "
        "--publish never"
    )


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


def _sentence(outlier: UnlikelyAnswer, name: str, periods: int) -> str:
    likely = f"{outlier.forecast:,.6g} ± {outlier.half_width:,.4g}"
    return f"{name} is {outlier.answer:,.6g}, where {periods} earlier periods make {likely} likely"


@dataclass(frozen=True)
class HeldRelease:
    """What is known of a release that is held: a file in the state folder, which is the operator's."""

    home: Path
    release: str

    @property
    def path(self) -> Path:
        """Where it stands."""
        return self.home / "held" / f"{self.release}.json"

    def facts(self) -> dict[str, Any] | None:
        """The outliers, the reason for which it is published all the same ("why") or never ("void"), and all events with their reasons;
        None where it is not held."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else None

    def write_outliers(self, sentences: list[str]) -> None:
        """Write down why it is held."""
        if (self.facts() or {}).get("outliers") != sentences:  # a repeated run is held for the same reason
            self._write({"outliers": sentences}, "held", "; ".join(sentences))

    def approve(self, why: str) -> None:
        """Let the next run publish it. Raises: InvalidInput for one that is void."""
        facts = self.facts() or {}
        if facts.get("void"):
            raise InvalidInput(
                f"{self.release} is void ({facts['void']}); publish the corrected records under a new release id"
            )
        self._write({"outliers": facts.get("outliers", []), "why": why}, "approved", why)

    def declare_void(self, why: str) -> None:
        """Keep it from ever being published; what it was charged stays charged."""
        self._write({"outliers": (self.facts() or {}).get("outliers", []), "void": why}, "void", why)

    def is_approved(self, sentences: list[str]) -> bool:
        """Whether somebody who saw these outliers lets it be published."""
        facts = self.facts()
        return facts is not None and bool(facts.get("why")) and set(sentences) <= set(facts["outliers"])

    def _write(self, facts: dict[str, Any], event: str, reason: str) -> None:
        private_folder(self.path.parent)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        facts["events"] = [*(self.facts() or {}).get("events", []), {"event": event, "at": now, "reason": reason}]
        draft = self.path.with_suffix(".new")
        private_file(draft)
        draft.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")
        rename(draft, self.path)
