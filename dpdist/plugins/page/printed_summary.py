"""The summary of a release on one sheet of paper: so many tables, means and quantiles, and sentences on what is not counted, as fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dpdist.api.pages import fills_range, number_text, say
from dpdist.plugins.page.charts.text_layout import wrap_text

COLUMN_WIDTH, SHEET_WIDTH = 230.0, 790.0
"""Room of a line in a column of tables, and over the whole sheet, in pixels of charts' letters."""
MOST_SHEET_ROWS, MOST_STATISTIC_ROWS, MOST_EXCLUSION_ROWS = 56, 8, 11
"""Lines below the title, and of these at most for means and quantiles, and for what is not counted."""
CHART_ROWS = 4
"""Lines that a small chart takes."""
TABLES_PER_ROW = 3
"""Tables side by side."""
MOST_VALUES_PER_GROUP = 4
"""Means or quantiles of one group that are told."""
UNLIMITED_ROWS = 1_000
"""Lines of one text, none of which is cut: what does not fit is left to the page."""


@dataclass(frozen=True)
class Sheet:
    """What the sheet holds.

    Attributes:
        tables: sections of the page.
        told: of means and quantiles a line for each of the first groups.
        excluded: what is not counted.
        left: how many tables, groups of means and quantiles, and sentences of ``excluded`` only the page has.
    """

    tables: list[dict[str, Any]]
    told: list[str]
    excluded: list[str]
    left: tuple[int, int, int]

    @staticmethod
    def of(
        sections: Sequence[dict[str, Any]],
        statistic_texts: Sequence[str],
        excluded: Sequence[str],
        bound_texts: Sequence[str],
    ) -> Sheet:
        """The first ones that fit below the sentences ``bound_texts``; of the sections those with a sentence."""
        sections_with_findings = [section for section in sections if section["findings"]]
        rows = [
            sections_with_findings[start : start + TABLES_PER_ROW]
            for start in range(0, len(sections_with_findings), TABLES_PER_ROW)
        ]
        fitting_exclusions = excluded[: _count_fitting(_line_counts(excluded), MOST_EXCLUSION_ROWS)]
        fitting_statistics = statistic_texts[: _count_fitting(_line_counts(statistic_texts), MOST_STATISTIC_ROWS)]
        free = MOST_SHEET_ROWS - sum(_line_counts([*bound_texts, *fitting_exclusions, *fitting_statistics]))
        tables = sections_with_findings[: TABLES_PER_ROW * _count_fitting(map(_row_height, rows), free)]
        omitted_counts = (
            len(sections_with_findings) - len(tables),
            len(statistic_texts) - len(fitting_statistics),
            len(excluded) - len(fitting_exclusions),
        )
        return Sheet(tables, list(fitting_statistics), list(fitting_exclusions), omitted_counts)


def _count_fitting(counts: Iterator[int], max_lines: int) -> int:
    """How many of the first fit into so many lines."""
    fit, total = 0, 0
    for count in counts:
        total += count
        if total > max_lines:
            break
        fit += 1
    return fit


def _line_counts(texts: Sequence[str]) -> Iterator[int]:
    return (len(wrap_text(text, SHEET_WIDTH, UNLIMITED_ROWS)[0]) for text in texts)


def _row_height(row: Sequence[dict[str, Any]]) -> int:
    def section_height(section: dict[str, Any]) -> int:
        texts = (section["name"], section["findings"][0])
        return (
            sum(len(wrap_text(text, COLUMN_WIDTH, UNLIMITED_ROWS)[0]) for text in texts)
            + (CHART_ROWS if section["small"] else 0)
            + 1
        )

    return max(map(section_height, row))


def statistic_texts(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """A line for each group of means or variances, as ``means.listed`` lists them: the first ones with their intervals."""
    return [
        _statistic_text(group, [(row["values"], row["value"], row["low_95"], row["high_95"]) for row in group_rows])
        for group, group_rows in groupby(rows, key=lambda row: row["group"])
    ]


def quantile_texts(facts: Mapping[str, Any] | None) -> list[str]:
    """The same of quantiles: a line for each column of amounts and each share."""
    quantile_lines = []
    by_quantile = groupby(facts["rows"] if facts else (), key=lambda row: (row["of"], row["at"]))
    for (column, probability), rows in by_quantile:
        assert facts is not None
        column_title = facts["columns"][column].get("title") or column
        name = (
            say("Median of {told}", told=column_title)
            if probability == 0.5
            else say("Quantile {at:g} of {told}", at=probability, told=column_title)
        )
        value_texts = [
            (
                ", ".join(map(str, row["group"].values())),
                *(number_text(row[value_name]) for value_name in ("value", "low_95", "high_95")),
            )
            for row in rows
            if not fills_range(row, facts)
        ]
        if value_texts:
            quantile_lines.append(_statistic_text(name, value_texts))
    return quantile_lines


def _statistic_text(name: str, rows: Sequence[tuple[str, ...]]) -> str:
    value_texts = [
        f"{query} {value} ({say('{low} to {high}', low=low, high=high)})".strip()
        for query, value, low, high in rows[:MOST_VALUES_PER_GROUP]
    ]
    return f"{name}: {'; '.join(value_texts)}{'; …' if len(rows) > MOST_VALUES_PER_GROUP else ''}"
