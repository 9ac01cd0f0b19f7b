"""Two releases side by side: every difference with the interval that both noises leave."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.content.number_format import plain, with_interval
from dpdist.language import say
from dpdist.page.assets import assets, embedded, template
from dpdist.page.chart_embedding import plot
from dpdist.page.charts import Axis, Figure
from dpdist.page.findings import jointly
from dpdist.page.headings import Words
from dpdist.site.editions import Edition
from dpdist.site.trends import Answers, alike, draws_of, share_noise

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


def differences(first: Answers, second: Answers, *, shared: bool) -> list[Difference]:
    """Every common query's difference; the ones that stand out of the noise most come first.

    The noises of two measurements are independent: half widths add as squares. For the same share of 95 % that is exact for Gaussian
    noise and wider than needed for Laplace noise. Noise that both hold may also add up: then half widths add.

    Args:
        shared: whether both may hold the same noise.
    """
    keys = [(group, query) for group, queries in second.items() for query in queries if query in first.get(group, {})]
    if not keys:
        return []
    pairs = np.array([[first[group][query], second[group][query]] for group, query in keys])
    halves = pairs[:, :, 1]
    half = halves.sum(axis=1) if shared else np.hypot(halves[:, 0], halves[:, 1])
    change = pairs[:, 1, 0] - pairs[:, 0, 0]
    sure = np.abs(change) > jointly(half)
    order = np.argsort(-np.abs(change) / np.maximum(np.nan_to_num(half, nan=np.inf), 1e-9), kind="stable")
    return [
        Difference(keys[i][0], keys[i][1], float(pairs[i, 0, 0]), float(pairs[i, 1, 0]), float(half[i]), bool(sure[i]))
        for i in order
    ]


def newest_pair(found: Sequence[Edition]) -> tuple[Edition, Edition] | None:
    """The newest two releases that count the same, None where no two do."""
    pairs = [(kind[-2], kind[-1]) for kind in alike(found) if len(kind) > 1]
    return pairs[0] if pairs else None


def page(dataset: str, found: Sequence[Edition], answers: Mapping[str, Answers], pair: tuple[Edition, Edition]) -> str:
    """The page that compares two releases of one quantity, and with its script any two that count the same."""
    first, second = pair
    both = [answers[one.release] for one in (first, second)]
    shared = share_noise(first, second)
    listed = differences(*both, shared=shared)
    held = {one.release for one in pair}
    numbers = sum(sum(map(len, answers[release].values())) for release in held)
    for one in reversed(found):
        if one.release not in held:
            numbers += sum(map(len, answers[one.release].values()))
            if numbers > MOST_NUMBERS:
                break
            held.add(one.release)
    shown = [one for one in reversed(found) if one.release in held]
    rows = [
        (f"{one.query}", _signed(one), say("yes" if one.sure else "no"), plain(one.before, 1), plain(one.after, 1))
        for one in listed[:MOST_SHOWN]
    ]
    return template("compare.html").render(
        dataset=dataset,
        assets=assets("compare.js", publisher=found[-1].look),
        first=first,
        second=second,
        counted=Words.of(second.certificate).counted,
        shared=shared,
        total=len(listed),
        sure=sum(one.sure for one in listed),
        rows=rows,
        figure=_figure(listed, second, dataset, Words.of(second.certificate).counted),
        held=shown,
        data=embedded(_data(shown, answers)),
    )


def _figure(listed: Sequence[Difference], second: Edition, dataset: str, counted: str) -> dict[str, Any] | None:
    """The first differences as bars, by size; None where some have no interval."""
    some = sorted(listed[:MOST_DRAWN], key=lambda one: -one.change)
    if not some or any(math.isnan(one.half) for one in some):
        return None
    change, half = (np.array([[getattr(one, name)] for one in some]) for name in ("change", "half"))
    axis = Axis("", [one.query for one in some])
    title, measure = say("Differences of {dataset}", dataset=dataset), say("Difference, {counted}", counted=counted)
    figure = Figure("bars", title, axis, ("",), change, half, measure)
    return plot(figure, "", second.release, dataset, counted)


def _signed(one: Difference) -> str:
    text = with_interval(one.change, one.half)
    return text if one.change < 0 else f"+{text}"


def _data(held: Sequence[Edition], answers: Mapping[str, Answers]) -> dict[str, Any]:
    """Answers of the releases by common keys, which draws several of them hold, and which releases count the same."""
    keys = list(
        dict.fromkeys((group, query) for one in held for group, part in answers[one.release].items() for query in part)
    )
    columns = {}
    for one in held:
        part = answers[one.release]
        pairs = [part.get(group, {}).get(query) for group, query in keys]
        columns[one.release] = [
            [None if pair is None else pair[0] for pair in pairs],
            [None if pair is None or pair[1] != pair[1] else round(pair[1], 6) for pair in pairs],
        ]
    seen = Counter(draw for one in held for draw in draws_of(one))
    several = {draw: place for place, draw in enumerate(draw for draw, times in seen.items() if times > 1)}
    shared = {one.release: sorted(several[draw] for draw in draws_of(one) & several.keys()) for one in held}
    kinds = list(dict.fromkeys(one.quantity for one in held))
    counts = {one.release: kinds.index(one.quantity) for one in held}
    return {"keys": keys, "releases": columns, "shared": shared, "kinds": counts}
