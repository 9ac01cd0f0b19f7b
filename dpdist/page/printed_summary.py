"""The summary of a release on one sheet of paper: so many tables, means and quantiles, and sentences on what is not counted, as fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dpdist.content.number_format import number_text
from dpdist.language import say
from dpdist.page.charts.text_layout import lines

COLUMN, ACROSS = 230.0, 790.0
"""Room of a line in a column of tables, and over the whole sheet, in pixels of charts' letters."""
LINES, TOLD, EXCLUDED = 56, 8, 11
"""Lines below the title, and of these at most for means and quantiles, and for what is not counted."""
CHART = 4
"""Lines that a small chart takes."""
BESIDE = 3
"""Tables side by side."""
FIRST_TOLD = 4
"""Means or quantiles of one group that are told."""
MOST = 1_000
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
    def of(sections: Sequence[dict[str, Any]], told: Sequence[str], excluded: Sequence[str], above: Sequence[str]) -> Sheet:
        """The first ones that fit below the sentences ``above``; of the sections those with a sentence."""
        seen = [each for each in sections if each["findings"]]
        rows = [seen[start : start + BESIDE] for start in range(0, len(seen), BESIDE)]
        sure = excluded[: _fitting(_counts(excluded), EXCLUDED)]
        some = told[: _fitting(_counts(told), TOLD)]
        free = LINES - sum(_counts([*above, *sure, *some]))
        tables = seen[: BESIDE * _fitting(map(_tall, rows), free)]
        left = len(seen) - len(tables), len(told) - len(some), len(excluded) - len(sure)
        return Sheet(tables, list(some), list(sure), left)


def _fitting(counts: Iterator[int], most: int) -> int:
    """How many of the first fit into so many lines."""
    fit, taken = 0, 0
    for count in counts:
        taken += count
        if taken > most:
            break
        fit += 1
    return fit


def _counts(texts: Sequence[str]) -> Iterator[int]:
    return (len(lines(text, ACROSS, MOST)[0]) for text in texts)


def _tall(row: Sequence[dict[str, Any]]) -> int:
    def tall(section: dict[str, Any]) -> int:
        texts = (section["name"], section["findings"][0])
        return sum(len(lines(text, COLUMN, MOST)[0]) for text in texts) + (CHART if section["small"] else 0) + 1

    return max(map(tall, row))


def of_statistics(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """A line for each group of means or variances, as ``means.listed`` lists them: the first ones with their intervals."""
    return [
        _line(group, [(row["values"], row["value"], row["low_95"], row["high_95"]) for row in some])
        for group, some in groupby(rows, key=lambda row: row["group"])
    ]


def of_quantiles(facts: Mapping[str, Any] | None) -> list[str]:
    """The same of quantiles: a line for each column of amounts and each share."""
    out = []
    by_quantile = groupby(facts["rows"] if facts else (), key=lambda row: (row["of"], row["at"]))
    for (of, at), rows in by_quantile:
        assert facts is not None
        told = facts["columns"][of].get("title") or of
        name = say("Median of {told}", told=told) if at == 0.5 else say("Quantile {at:g} of {told}", at=at, told=told)
        texts = [
            (
                ", ".join(map(str, row["group"].values())),
                *(number_text(row[each]) for each in ("value", "low_95", "high_95")),
            )
            for row in rows
        ]
        out.append(_line(name, texts))
    return out


def _line(name: str, rows: Sequence[tuple[str, ...]]) -> str:
    told = [
        f"{query} {value} ({say('{low} to {high}', low=low, high=high)})".strip()
        for query, value, low, high in rows[:FIRST_TOLD]
    ]
    return f"{name}: {'; '.join(told)}{'; …' if len(rows) > FIRST_TOLD else ''}"
