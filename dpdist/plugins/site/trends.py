"""What the releases of a data set say over its periods: a series for each query, with the revisions that replaced others."""

from __future__ import annotations

import csv
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpdist.api.pages import (
    Words,
    capitalised,
    edition_sentences,
    say,
    simultaneous_half_widths,
    titles_by_name,
    translatable,
)
from dpdist.api.releases import (
    MOST_QUERIES,
    NUMBERS,
    VALUES,
    Matrix,
    half_width,
    release_folder,
    titled_query,
    unescape_text,
)
from dpdist.plugins.page.assets import format_day
from dpdist.plugins.page.charts import Axis, Clock, Figure
from dpdist.plugins.page.charts.text_layout import with_interval
from dpdist.plugins.site.editions import ComparisonKey, Edition

MOST_CURVES = 4
"""Queries of a group that are drawn over the periods."""
MOST_ROWS = 200_000
"""Releases of more answers are neither drawn over the periods nor compared."""

Answers = dict[str, dict[str, tuple[float, float]]]
"""Group, query, answer and half width of its 95 % interval (NaN where none is known)."""


def draw_names(edition: Edition) -> set[str]:
    """Names of the draws that a release may hold: of its stream, and of its measurements."""
    stream = edition.certificate["stream"]
    return {*edition.certificate["measurements"].values(), *([f"stream {stream['name']}"] if stream else [])}


def may_share_noise(edition: Edition, other_edition: Edition) -> bool:
    """Whether two releases may hold the same draws: parts of one stream, or estimates from common measurements."""
    return not draw_names(edition).isdisjoint(draw_names(other_edition))


def group_comparable(editions: Sequence[Edition]) -> list[list[Edition]]:
    """The releases by what they count, in their order; what the newest one counts comes first."""
    kinds: dict[ComparisonKey, list[Edition]] = {}
    for edition in reversed(editions):
        kinds.setdefault(edition.quantity, []).insert(0, edition)
    return list(kinds.values())


def latest_editions(editions: Sequence[Edition]) -> list[Edition]:
    """Every period's last release of what the newest one counts: it replaces the earlier ones of that period."""
    return list({edition.period: edition for edition in group_comparable(editions)[0]}.values())


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
    def from_edition(edition: Edition) -> ReaderNames:
        """As a release's certificate and its file of values say."""
        value_labels = read_value_labels(edition.folder / VALUES) if VALUES in edition.certificate["files"] else {}
        return ReaderNames(titles_by_name(edition.certificate["method"]), value_labels)

    @property
    def has_other_names(self) -> bool:
        """Whether something is called otherwise than in the files."""
        return bool(self.values) or any(name != title for name, title in self.titles.items())


def reader_names_by_release(editions: Sequence[Edition]) -> dict[str, ReaderNames]:
    """What readers call what each release counts by: as the newest one says that counts the same."""
    return {
        edition.release: reader_names
        for kind in group_comparable(editions)
        for reader_names in [ReaderNames.from_edition(kind[-1])]
        for edition in kind
    }


def read_answers(edition: Edition, reader_names: ReaderNames) -> Answers:
    """A release's answers; none where it has no table or too many rows."""
    if not release_folder.has_rows(edition.folder) or edition.certificate["queries"] > MOST_ROWS:
        return {}
    answers: Answers = {}
    has_names = reader_names.has_other_names
    for row in release_folder.first_rows(edition.folder, group=None, limit=0)[0]:
        answer, *interval = (row[name] for name in NUMBERS)
        query = titled_query(row, reader_names.titles, reader_names.values) if has_names else row["query"]
        answers.setdefault(row["group"], {})[query] = (answer, half_width(answer, *interval))
    return {group: queries for group, queries in answers.items() if len(queries) <= MOST_QUERIES}


def trend_charts(editions: Sequence[Edition], answers: Mapping[str, Answers]) -> list[tuple[Figure, str]]:
    """Charts over the periods with a sentence each, for groups that every period's last release answers; of what the newest one counts.

    Args:
        answers: by release.
    """
    period_editions = latest_editions(editions)
    if len(period_editions) < 2:
        return []
    counted = Words.of(period_editions[-1].certificate).counted
    shares_draws = may_share_noise(period_editions[-2], period_editions[-1])
    axis = period_axis([edition.period for edition in period_editions])
    charts = []
    for group, queries in answers[period_editions[-1].release].items():
        answers_by_period = [answers[edition.release].get(group, {}) for edition in period_editions]
        common = [query for query in queries if all(query in period_answers for period_answers in answers_by_period)]
        if common:
            charts.append(_trend_chart(group, common, answers_by_period, axis, counted, shares_draws=shares_draws))
    return charts


def describe_changes(older: Edition, newer: Edition, answers: Mapping[str, Answers]) -> list[str]:
    """Of each group that both releases answer, the sentence about its largest change, where one stands out of the noise."""
    counted, shares_draws = Words.of(newer.certificate).counted, may_share_noise(older, newer)
    sentences = []
    for group, queries in answers[newer.release].items():
        older_answers = answers[older.release].get(group, {})
        common = [query for query in queries if query in older_answers]
        if common:
            pairs = np.array([[period_answers[query] for query in common] for period_answers in (older_answers, queries)])
            sentences.append(
                _largest_change(common, pairs[:, :, 0], pairs[:, :, 1], older.period, counted, shares_draws=shares_draws)
            )
    return [text for text in sentences if text]


def describe_revision(replaced: str, release: str, answers: Mapping[str, Answers]) -> list[str]:
    """Of each group that a release and the one that it replaces both answer, how many answers differ, and by how much at most."""
    facts = []
    for group, queries in answers[release].items():
        earlier = answers[replaced].get(group, {})
        changes = [abs(answer - earlier[query][0]) for query, (answer, _) in queries.items() if query in earlier]
        if changes:
            facts.append(
                {
                    "group": group,
                    "release": replaced,
                    "answers": len(changes),
                    "changed": sum(change > 0 for change in changes),
                    "largest_change": round(max(changes), 2),
                }
            )
    return edition_sentences({"revises": facts})


def period_axis(names: Sequence[str]) -> Axis:
    """Periods along an axis: days at their distance in time, other names one after the other."""
    try:
        days = [datetime.date.fromisoformat(name).toordinal() for name in names]
    except ValueError:
        return Axis("", list(names), np.arange(len(names) + 1.0), named=True)
    start = datetime.datetime.fromordinal(days[0])
    return Axis(say("period"), list(names), np.array([*days, days[-1] + 1.0]) - days[0], clock=Clock(0.0, start, "day"))


def _trend_chart(
    group: str,
    queries: list[str],
    answers_by_period: list[dict[str, tuple[float, float]]],
    axis: Axis,
    counted: str,
    *,
    shares_draws: bool,
) -> tuple[Figure, str]:
    number_pairs = np.array([[period_answers[query] for query in queries] for period_answers in answers_by_period])
    values, half = number_pairs[:, :, 0], number_pairs[:, :, 1]
    picked, note = np.arange(len(queries)), ""
    if len(queries) > MOST_CURVES:
        moved = np.ptp(values, axis=0) / np.maximum(np.nan_to_num(half).mean(axis=0), 1e-9)
        moved[np.argmax(values[-1])] = np.inf
        picked = np.sort(np.argsort(-moved, kind="stable")[:MOST_CURVES])
        note_text = translatable(
            "Drawn are, of {all:,} answers, the largest one and the {others} others that moved most compared with their noise."
        )
        note = say(note_text, all=len(queries), others=MOST_CURVES - 1)
    names = tuple(queries[i] for i in picked) if len(queries) > 1 else ("",)
    measure = capitalised(counted)
    figure = Figure("curve", group, axis, names, values[:, picked], half[:, picked], measure, note=note)
    return figure, _largest_change(queries, values[-2:], half[-2:], axis.labels[-2], counted, shares_draws=shares_draws)


def _largest_change(
    queries: list[str], values: Matrix, half: Matrix, older_period: str, counted: str, *, shares_draws: bool
) -> str:
    """The largest change since the period before, if it stands out of the noise of all answers of the group; else nothing.

    Args:
        values, half: before and after, (2, queries).
    """
    change = values[1] - values[0]
    half_widths = half.sum(axis=0) if shares_draws else np.hypot(half[0], half[1])
    if np.isnan(half_widths).any():
        return ""
    top = int(np.argmax(np.abs(change) / np.maximum(half_widths, 1e-9)))
    if abs(change[top]) <= simultaneous_half_widths(half_widths)[top]:
        return ""
    return say(
        "{query}: {much} more {counted} than in the period of {before}."
        if change[top] > 0
        else "{query}: {much} fewer {counted} than in the period of {before}.",
        query=capitalised(queries[top]),
        much=with_interval(abs(change[top]), half_widths[top]),
        counted=counted,
        before=format_day(older_period),
    )


def read_value_labels(path: Path) -> dict[str, dict[str, str]]:
    """What the page of a release calls the texts of each column, from its file (``dpdist.plugins.page.page_outputs.ValueLabels``)."""
    labels: dict[str, dict[str, str]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for column, text, label in (map(unescape_text, row.values()) for row in csv.DictReader(file)):
            labels.setdefault(column, {})[text] = label
    return labels
