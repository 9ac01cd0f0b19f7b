"""What a page says of the rows of a thresholded histogram that are not published."""

from __future__ import annotations

import pytest

from dpdist.plugins.page import thresholded_sentences

ROWS = {
    "of": ["country", "page"],
    "rows": 12,
    "cells": 2 * 10**9,
    "at_least": 60,
    "share": 0.8,
    "expected_false_rows": 0.002,
    "published_half_of_the_time": 60,
    "published_almost_always": 95,
}
TOTALS = [
    {"keys": {"country": "DE"}, "rest": 1200.4, "total": 1500.0, "high_95": 1230.9},
    {"keys": {"country": "FR"}, "rest": 800.0, "total": 900.0, "high_95": 830.5},
    {"keys": {}, "rest": 2000.4, "total": 2400.0, "high_95": 2030.9},
]
ALL_ROWS = (
    "thresholded.csv has 12 of 2,000,000,000 combinations of country, page: those whose noisy count is at least 60, from 80% of the "
    "budget. Of combinations without records 0.002 are expected among them; one of 60 is published half of the time, one of 95 almost "
    "always"
)


def sentences(**more: object) -> list[str]:
    said = thresholded_sentences.thresholded_sentences({"thresholded": {**ROWS, **more}})
    return [sentence.replace("\u2060", "").replace("\u00a0", " ").replace("\u202f", " ") for sentence in said]


def test_what_is_published_and_what_all_others_have_together() -> None:
    assert thresholded_sentences.thresholded_sentences({}) == []
    assert sentences() == [ALL_ROWS]
    assert sentences(rest={"measured": "rest", "totals": TOTALS}) == [
        ALL_ROWS,
        "All other combinations of DE: 1,200 ± 30; all together: 1,500",
        "All other combinations of FR: 800 ± 30; all together: 900",
        "All other combinations: 2,000 ± 30; all together: 2,400",
    ]
    of_all = {**TOTALS[2], "high_95": 2430.5}
    assert sentences(rest={"measured": "totals", "totals": [of_all]})[1] == (
        "All combinations: 2,400 ± 30; without those published: 2,000"
    )


def test_of_very_many_totals_the_first_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholded_sentences, "MOST_TOTALS", 1)
    said = sentences(rest={"measured": "rest", "totals": TOTALS})
    assert (len(said), said[-1]) == (3, "thresholded_rest.csv has 3 such totals")
