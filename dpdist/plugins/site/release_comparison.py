"""Two releases side by side: every difference with the interval that both noises leave."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.api.pages import Words, format_number, say, simultaneous_half_widths
from dpdist.plugins.page.assets import embed_json, load_template, page_assets
from dpdist.plugins.page.chart_embedding import embed_chart
from dpdist.plugins.page.charts import Axis, Figure
from dpdist.plugins.page.charts.text_layout import with_interval
from dpdist.plugins.site.editions import Edition
from dpdist.plugins.site.trends import Answers, draw_names, group_comparable, may_share_noise

MOST_SHOWN = 20
"""Differences in the page itself; its script shows the others."""
MOST_DRAWN = 10
MOST_NUMBERS = 120_000
"""Answers that the page holds for its script: those of the newest releases."""


@dataclass(frozen=True)
class Difference:
    """How much more the second release counts.

    Attributes:
        half: half width of the difference's 95 % interval.
        sure: whether it stays on one side of zero when the intervals hold for all differences at once.
    """

    group: str
    query: str
    before: float
    after: float
    half: float
    sure: bool

    @property
    def change(self) -> float:
        """The difference."""
        return self.after - self.before


def differences(older: Answers, newer: Answers, *, shares_draws: bool) -> list[Difference]:
    """Every common query's difference; the ones that stand out of the noise most come first.

    The noises of two measurements are independent: half widths add as squares. For the same share of 95 % that is exact for Gaussian
    noise and wider than needed for Laplace noise. Noise that both hold may also add up: then half widths add.

    Args:
        shares_draws: whether both may hold the same noise.
    """
    keys = [(group, query) for group, queries in newer.items() for query in queries if query in older.get(group, {})]
    if not keys:
        return []
    pairs = np.array([[older[group][query], newer[group][query]] for group, query in keys])
    halves = pairs[:, :, 1]
    half = halves.sum(axis=1) if shares_draws else np.hypot(halves[:, 0], halves[:, 1])
    change = pairs[:, 1, 0] - pairs[:, 0, 0]
    sure = np.abs(change) > simultaneous_half_widths(half)
    order = np.argsort(-np.abs(change) / np.maximum(np.nan_to_num(half, nan=np.inf), 1e-9), kind="stable")
    return [
        Difference(keys[i][0], keys[i][1], float(pairs[i, 0, 0]), float(pairs[i, 1, 0]), float(half[i]), bool(sure[i]))
        for i in order
    ]


def newest_pair(editions: Sequence[Edition]) -> tuple[Edition, Edition] | None:
    """The newest two releases that count the same, None where no two do."""
    pairs = [(kind[-2], kind[-1]) for kind in group_comparable(editions) if len(kind) > 1]
    return pairs[0] if pairs else None


def comparison_page(
    dataset: str, editions: Sequence[Edition], answers: Mapping[str, Answers], pair: tuple[Edition, Edition]
) -> str:
    """The page that compares two releases of one quantity, and with its script any two that count the same."""
    older, newer = pair
    answer_pair = [answers[edition.release] for edition in (older, newer)]
    shares_draws = may_share_noise(older, newer)
    all_differences = differences(*answer_pair, shares_draws=shares_draws)
    included_releases = {edition.release for edition in pair}
    numbers = sum(sum(map(len, answers[release].values())) for release in included_releases)
    for edition in reversed(editions):
        if edition.release not in included_releases:
            numbers += sum(map(len, answers[edition.release].values()))
            if numbers > MOST_NUMBERS:
                break
            included_releases.add(edition.release)
    included_editions = [edition for edition in reversed(editions) if edition.release in included_releases]
    rows = [
        (
            f"{edition.query}",
            _signed_difference(edition),
            say("yes" if edition.sure else "no"),
            format_number(edition.before, 1),
            format_number(edition.after, 1),
        )
        for edition in all_differences[:MOST_SHOWN]
    ]
    return load_template("compare.html", __package__).render(
        dataset=dataset,
        assets=page_assets("compare.js", publisher=editions[-1].theme, package=__package__),
        first=older,
        second=newer,
        counted=Words.of(newer.certificate).counted,
        shared=shares_draws,
        total=len(all_differences),
        sure=sum(edition.sure for edition in all_differences),
        rows=rows,
        figure=_difference_figure(all_differences, newer, dataset, Words.of(newer.certificate).counted),
        held=included_editions,
        data=embed_json(_comparison_data(included_editions, answers)),
    )


def _difference_figure(
    all_differences: Sequence[Difference], newer: Edition, dataset: str, counted: str
) -> dict[str, Any] | None:
    """The first differences as bars, by size; None where some have no interval."""
    drawn_differences = sorted(all_differences[:MOST_DRAWN], key=lambda difference: -difference.change)
    if not drawn_differences or any(math.isnan(difference.half) for difference in drawn_differences):
        return None
    change, half = (
        np.array([[getattr(difference, name)] for difference in drawn_differences]) for name in ("change", "half")
    )
    axis = Axis("", [difference.query for difference in drawn_differences])
    title, measure = say("Differences of {dataset}", dataset=dataset), say("Difference, {counted}", counted=counted)
    figure = Figure("bars", title, axis, ("",), change, half, measure)
    return embed_chart(figure, "", newer.release, dataset, counted)


def _signed_difference(difference: Difference) -> str:
    text = with_interval(difference.change, difference.half)
    return text if difference.change < 0 else f"+{text}"


def _comparison_data(editions: Sequence[Edition], answers: Mapping[str, Answers]) -> dict[str, Any]:
    """Answers of the releases by common keys, which draws several of them hold, and which releases count the same."""
    keys = list(
        dict.fromkeys(
            (group, query)
            for edition in editions
            for group, release_answers in answers[edition.release].items()
            for query in release_answers
        )
    )
    columns = {}
    for edition in editions:
        release_answers = answers[edition.release]
        pairs = [release_answers.get(group, {}).get(query) for group, query in keys]
        columns[edition.release] = [
            [None if pair is None else pair[0] for pair in pairs],
            [None if pair is None or pair[1] != pair[1] else round(pair[1], 6) for pair in pairs],
        ]
    draw_counts = Counter(draw for edition in editions for draw in draw_names(edition))
    draw_numbers = {
        draw: draw_index for draw_index, draw in enumerate(draw for draw, times in draw_counts.items() if times > 1)
    }
    shared_draws = {
        edition.release: sorted(draw_numbers[draw] for draw in draw_names(edition) & draw_numbers.keys())
        for edition in editions
    }
    kinds = list(dict.fromkeys(edition.quantity for edition in editions))
    counts = {edition.release: kinds.index(edition.quantity) for edition in editions}
    return {"keys": keys, "releases": columns, "shared": shared_draws, "kinds": counts}
