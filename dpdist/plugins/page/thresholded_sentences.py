"""What a page says of a thresholded histogram: which rows are published, and what all others have together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.api.pages import say, translatable

MOST_TOTALS = 12
"""Of a thresholded histogram that a page says; the others stand in its file."""
TOTAL_TEXTS = {
    ("rest", True): translatable("All other combinations of {keys}: {rest:,.0f} ± {half:,.0f}; all together: {total:,.0f}"),
    ("rest", False): translatable("All other combinations: {rest:,.0f} ± {half:,.0f}; all together: {total:,.0f}"),
    ("totals", True): translatable(
        "All combinations of {keys}: {total:,.0f} ± {half:,.0f}; without those published: {rest:,.0f}"
    ),
    ("totals", False): translatable("All combinations: {total:,.0f} ± {half:,.0f}; without those published: {rest:,.0f}"),
}
"""By what was measured, and whether there is a total for each of several keys."""


def thresholded_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """Which rows of a thresholded histogram are published, where there is one."""
    if (facts := certificate.get("thresholded")) is None:
        return []
    sentence = translatable(
        "thresholded.csv has {rows:,} of {cells:,} combinations of {keys}: those whose noisy count is at least {at_least:,.12g}, from "
        "{share:.0%} of the budget. Of combinations without records {expected_false_rows:,.2g} are expected among them; one of "
        "{published_half_of_the_time:,} is published half of the time, one of {published_almost_always:,} almost always"
    )
    keys, numbers = ", ".join(facts["of"]), {name: facts[name] for name in facts if name not in ("of", "cells")}
    return [say(sentence, cells=int(facts["cells"]), keys=keys, **numbers), *_rest_sentences(facts.get("rest"))]


def _rest_sentences(rest: Mapping[str, Any] | None) -> list[str]:
    """What all other rows have together, and all rows, for some of the keys of columns."""
    if rest is None:
        return []
    sentences, totals = [], rest["totals"]
    for row in totals[:MOST_TOTALS]:
        half, keys = row["high_95"] - row["rest" if rest["measured"] == "rest" else "total"], ", ".join(row["keys"].values())
        template = TOTAL_TEXTS[rest["measured"], bool(keys)]
        sentences.append(say(template, keys=keys, rest=row["rest"], total=row["total"], half=half))
    if len(totals) > MOST_TOTALS:
        sentences.append(say("thresholded_rest.csv has {totals:,} such totals", totals=len(totals)))
    return sentences
