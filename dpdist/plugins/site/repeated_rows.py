"""Rows of thresholded histograms that several releases of a data set publish, with links to these releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpdist.api.releases import ThresholdedRow
from dpdist.plugins.page.assets import load_template, page_assets
from dpdist.plugins.site.editions import Edition
from dpdist.plugins.site.trends import group_comparable, latest_editions

MOST_LINKED_ROWS = 1_000
"""Rows that the page shows: those with the largest newest counts."""


@dataclass(frozen=True)
class RepeatedRow:
    """A row that two releases or more publish.

    Attributes:
        keys: of its columns.
        counts: the row in each of these releases, in the order of their periods.
    """

    keys: tuple[str, ...]
    counts: tuple[tuple[Edition, ThresholdedRow], ...]


def repeated_rows(editions: Sequence[Edition]) -> list[RepeatedRow]:
    """The rows that several periods publish of the same keys' columns, counted alike; the largest newest count first."""
    rows: dict[tuple[Any, ...], list[tuple[Edition, ThresholdedRow]]] = {}
    for number, kind in enumerate(group_comparable(editions)):
        for edition in latest_editions(kind):
            for row in edition.thresholded_rows:
                rows.setdefault((number, *row.keys.items()), []).append((edition, row))
    repeated = [
        RepeatedRow(tuple(key for _, key in keys), tuple(counts)) for (_, *keys), counts in rows.items() if len(counts) > 1
    ]
    return sorted(repeated, key=lambda row: (-row.counts[-1][1].value, row.keys))


def repeated_rows_page(
    dataset: str, editions: Sequence[Edition], rows: Sequence[RepeatedRow], links: Mapping[str, str]
) -> str:
    """The page.

    Args:
        links: of each release, the address of its page, relative to the site.
    """
    return load_template("rows.html", __package__).render(
        dataset=dataset,
        assets=page_assets(publisher=editions[-1].theme, package=__package__),
        rows=rows[:MOST_LINKED_ROWS],
        total=len(rows),
        links=links,
    )
