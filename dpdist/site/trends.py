"""What the releases of a data set say over its periods: a series for each query, with the revisions that replaced others."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpdist.content.feasible_intervals import half_width
from dpdist.content.number_format import capitalised, with_interval
from dpdist.content.table_rows import MOST_QUERIES, NUMBERS, VALUES, titled, values_in
from dpdist.language import later, say
from dpdist.operators import Matrix
from dpdist.page.assets import day
from dpdist.page.charts import Axis, Clock, Figure
from dpdist.page.findings import jointly
from dpdist.page.headings import Words, titles
from dpdist.publish import release_folder
from dpdist.site.editions import Comparable, Edition

MOST_LINES = 4
"""Queries of a group that are drawn over the periods."""
MOST_ROWS = 200_000
"""Releases of more answers are neither drawn over the periods nor compared."""

Answers = dict[str, dict[str, tuple[float, float]]]
"""Group, query, answer and half width of its 95 % interval (NaN where none is known)."""


def draws_of(one: Edition) -> set[str]:
    """Names of the draws that a release may hold: of its stream, and of its measurements."""
    stream = one.certificate["stream"]
    return {*one.certificate["measurements"].values(), *([f"stream {stream['name']}"] if stream else [])}


def share_noise(first: Edition, second: Edition) -> bool:
    """Whether two releases may hold the same draws: parts of one stream, or estimates from common measurements."""
    return not draws_of(first).isdisjoint(draws_of(second))


def alike(found: Sequence[Edition]) -> list[list[Edition]]:
    """The releases by what they count, in their order; what the newest one counts comes first."""
    kinds: dict[Comparable, list[Edition]] = {}
    for one in reversed(found):
        kinds.setdefault(one.quantity, []).insert(0, one)
    return list(kinds.values())


def latest(found: Sequence[Edition]) -> list[Edition]:
    """Every period's last release of what the newest one counts: it replaces the earlier ones of that period."""
    return list({one.period: one for one in alike(found)[0]}.values())


@dataclass(frozen=True)
class ReaderNames:
    """What readers call what a release counts by.

    Attributes:
        titles: of its attributes and levels, by their names.
        values: of the texts in the columns of its answers, by column, where they are called something else.
    """

    titles: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]]

    @staticmethod
    def by(one: Edition) -> ReaderNames:
        """As a release's certificate and its file of values say."""
        known = values_in(one.folder / VALUES) if VALUES in one.certificate["files"] else {}
        return ReaderNames(titles(one.certificate["method"]), known)

    @property
    def anything(self) -> bool:
        """Whether something is called otherwise than in the files."""
        return bool(self.values) or any(name != title for name, title in self.titles.items())


def called_in(found: Sequence[Edition]) -> dict[str, ReaderNames]:
    """What readers call what each release counts by: as the newest one says that counts the same."""
    return {one.release: called for kind in alike(found) for called in [ReaderNames.by(kind[-1])] for one in kind}


def answers_of(one: Edition, called: ReaderNames) -> Answers:
    """A release's answers; none where it has no table or too many rows."""
    if not release_folder.has_rows(one.folder) or one.certificate["queries"] > MOST_ROWS:
        return {}
    out: Answers = {}
    named = called.anything
    for row in release_folder.first_rows(one.folder, group=None, limit=0)[0]:
        answer, *interval = (row[name] for name in NUMBERS)
        query = titled(row, called.titles, called.values) if named else row["query"]
        out.setdefault(row["group"], {})[query] = (answer, half_width(answer, *interval))
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


def changes(first: Edition, second: Edition, answers: Mapping[str, Answers]) -> list[str]:
    """Of each group that both releases answer, the sentence about its largest change, where one stands out of the noise."""
    counted, shared = Words.of(second.certificate).counted, share_noise(first, second)
    found = []
    for group, queries in answers[second.release].items():
        before = answers[first.release].get(group, {})
        common = [query for query in queries if query in before]
        if common:
            pairs = np.array([[part[query] for query in common] for part in (before, queries)])
            found.append(_change(common, pairs[:, :, 0], pairs[:, :, 1], first.period, counted, shared=shared))
    return [text for text in found if text]


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
    return figure, _change(queries, values[-2:], half[-2:], axis.labels[-2], counted, shared=shared)


def _change(queries: list[str], values: Matrix, half: Matrix, before: str, counted: str, *, shared: bool) -> str:
    """The largest change since the period before, if it stands out of the noise of all answers of the group; else nothing.

    Args:
        values, half: before and after, (2, queries).
    """
    change = values[1] - values[0]
    spread = half.sum(axis=0) if shared else np.hypot(half[0], half[1])
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
