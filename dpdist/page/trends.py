"""What the releases of a data set say over its periods: a series for each query, with the revisions that replaced others."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpdist.language import later, say
from dpdist.look import PLAIN, Look
from dpdist.operators import Matrix
from dpdist.page import report
from dpdist.page.assets import day
from dpdist.page.charts import Axis, Clock, Figure
from dpdist.page.comparable import Comparable
from dpdist.page.findings import jointly
from dpdist.page.intervals import half_width
from dpdist.page.numbers import capitalised, with_interval
from dpdist.page.outputs import appearance
from dpdist.page.rows import NUMBERS
from dpdist.page.words import Words

MOST_LINES = 4
"""Queries of a group that are drawn over the periods."""
MOST_QUERIES = 5000
"""Groups of more queries are not drawn over the periods."""
MOST_ROWS = 200_000
"""Releases of more answers are neither drawn over the periods nor compared."""

Answers = dict[str, dict[str, tuple[float, float]]]
"""Group, query, answer and half width of its 95 % interval (NaN where none is known)."""


@dataclass(frozen=True)
class Edition:
    """A published release: its folder and its certificate."""

    folder: Path
    certificate: dict[str, Any]

    @property
    def release(self) -> str:
        """Its id."""
        return str(self.certificate["release"])

    @property
    def period(self) -> str:
        """Its period, or its id where it has none."""
        return str(self.certificate["period"] or self.certificate["release"])

    @property
    def look(self) -> Look:
        """What its publisher gave of its own."""
        if appearance.FILE not in self.certificate["files"]:
            return PLAIN
        return Look(**json.loads((self.folder / appearance.FILE).read_bytes()))

    @property
    def quantity(self) -> Comparable:
        """What its numbers are: only those of equal ones are compared."""
        return Comparable.of(self.certificate)


def share_noise(first: Edition, second: Edition) -> bool:
    """Whether two releases may hold the same draws: parts of one stream, or estimates from common measurements."""
    one, other = first.certificate, second.certificate
    if one.get("stream") and other.get("stream") and one["stream"]["name"] == other["stream"]["name"]:
        return True
    drawn = [set((each.get("measurements") or {}).values()) for each in (one, other)]
    return bool(drawn[0] & drawn[1])


def alike(found: Sequence[Edition]) -> list[list[Edition]]:
    """The releases by what they count, in their order; what the newest one counts comes first."""
    kinds: dict[Comparable, list[Edition]] = {}
    for one in reversed(found):
        kinds.setdefault(one.quantity, []).insert(0, one)
    return list(kinds.values())


def latest(found: Sequence[Edition]) -> list[Edition]:
    """Every period's last release of what the newest one counts: it replaces the earlier ones of that period."""
    return list({one.period: one for one in alike(found)[0]}.values())


def answers_of(one: Edition) -> Answers:
    """A release's answers; none where it has no table or too many rows."""
    if not (one.folder / "answers.parquet").exists() or one.certificate["queries"] > MOST_ROWS:
        return {}
    out: Answers = {}
    columns = report.load(one.folder)[0].select(["group", "query", *NUMBERS]).to_pydict()
    for group, query, answer, *interval in zip(*columns.values(), strict=True):
        out.setdefault(group, {})[query] = (answer, half_width(answer, *interval))
    return {group: queries for group, queries in out.items() if len(queries) <= MOST_QUERIES}


def trends(found: Sequence[Edition], answers: Mapping[str, Answers]) -> list[tuple[Figure, str]]:
    """Charts over the periods with a sentence each, for groups that every period's last release answers; of what the newest one counts.

    Args:
        answers: by release.
    """
    ones = latest(found)
    if len(ones) < 2:
        return []
    counted = Words.of(ones[-1].certificate).counted
    shared = share_noise(ones[-2], ones[-1])
    axis = periods([one.period for one in ones])
    out = []
    for group, queries in answers[ones[-1].release].items():
        parts = [answers[one.release].get(group, {}) for one in ones]
        common = [query for query in queries if all(query in part for part in parts)]
        if common:
            out.append(_trend(group, common, parts, axis, counted, shared=shared))
    return out


def periods(names: Sequence[str]) -> Axis:
    """Periods along an axis: days at their distance in time, other names one after the other."""
    try:
        days = [datetime.date.fromisoformat(name).toordinal() for name in names]
    except ValueError:
        return Axis("", list(names), np.arange(len(names) + 1.0), named=True)
    start = datetime.datetime.fromordinal(days[0])
    return Axis(say("period"), list(names), np.array([*days, days[-1] + 1.0]) - days[0], clock=Clock(0.0, start, "day"))


def _trend(
    group: str, queries: list[str], parts: list[dict[str, tuple[float, float]]], axis: Axis, counted: str, *, shared: bool
) -> tuple[Figure, str]:
    both = np.array([[part[query] for query in queries] for part in parts])
    values, half = both[:, :, 0], both[:, :, 1]
    picked, note = np.arange(len(queries)), ""
    if len(queries) > MOST_LINES:
        moved = np.ptp(values, axis=0) / np.maximum(np.nan_to_num(half).mean(axis=0), 1e-9)
        moved[np.argmax(values[-1])] = np.inf
        picked = np.sort(np.argsort(-moved, kind="stable")[:MOST_LINES])
        told = later(
            "Drawn are, of {all:,} answers, the largest one and the {others} others that moved most compared with their noise."
        )
        note = say(told, all=len(queries), others=MOST_LINES - 1)
    names = tuple(queries[i] for i in picked) if len(queries) > 1 else ("",)
    measure = capitalised(counted)
    figure = Figure("curve", group, axis, names, values[:, picked], half[:, picked], measure, note=note)
    spread = half[-2:].sum(axis=0) if shared else np.hypot(half[-2], half[-1])
    return figure, _change(queries, values[-1] - values[-2], spread, axis.labels[-2], counted)


def _change(queries: list[str], change: Matrix, spread: Matrix, before: str, counted: str) -> str:
    """The largest change since the period before, if it stands out of the noise of all answers of the group; else nothing."""
    if np.isnan(spread).any():
        return ""
    top = int(np.argmax(np.abs(change) / np.maximum(spread, 1e-9)))
    if abs(change[top]) <= jointly(spread)[top]:
        return ""
    return say(
        "{query}: {much} more {counted} than in the period of {before}."
        if change[top] > 0
        else "{query}: {much} fewer {counted} than in the period of {before}.",
        query=capitalised(queries[top]),
        much=with_interval(abs(change[top]), spread[top]),
        counted=counted,
        before=day(before),
    )
