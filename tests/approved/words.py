"""Words that hang on numbers: what the product turns into words or rounds, below, at and above each limit."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from dpdist.content.number_format import digits_for, format_number, join_with_and, number_text
from dpdist.content.release_summary import certified_text, compared_error_text, difference_notes, fills_range, summary_line
from dpdist.content.suppression import SuppressionRates
from dpdist.language import LANGUAGES, use_language
from dpdist.page.domain_text import edges_sentences, exclusion_sentences, selection_sentences
from dpdist.page.edition_text import edition_sentences
from dpdist.page.truncation_text import bound_loss_sentences
from dpdist.planner.certificate import unit_facts
from dpdist.plugins.page.chart_embedding import interval_caption
from dpdist.plugins.page.chart_words import bin_names
from dpdist.plugins.page.charts import Axis, Figure
from dpdist.plugins.page.charts.axis_ticks import (
    round_numbers_within,
    round_time_ticks,
    rounded_class_limits,
    value_scale_of,
)
from dpdist.plugins.page.charts.chart_data import Clock
from dpdist.plugins.page.charts.text_layout import with_interval, wrap_text
from dpdist.plugins.page.findings import finding_sentence
from dpdist.plugins.page.thresholded_sentences import thresholded_sentences
from dpdist.privacy.privacy_unit import PersonsInGroups, ProtectedPersons, ProtectedRecords
from dpdist.privacy.risk_in_words import guess_sentence, headline_sentence
from tests.plugins.page.test_findings import bars, steps

NOT_KNOWN, INFINITE = float("nan"), float("inf")


def words_of_numbers(publisher: object) -> Iterator[str]:
    """A line for each number and what is said of it."""
    del publisher
    yield from _risk()
    yield from _numbers()
    yield from _findings()
    yield from _captions()
    yield from _axes()
    yield from _exclusions()
    yield from _losses()
    yield from _of_rows()


def _risk() -> Iterator[str]:
    yield "== how well a unit is hidden"
    units = (
        ProtectedRecords("add-remove", 1),
        ProtectedPersons("replace-one", 2, "who"),
        ProtectedRecords("add-remove", 3, "visits"),
    )
    for unit in units:
        for rate in (0.1, 0.101, 0.5, 0.501, 0.95, 0.951):
            yield f"{rate}: {headline_sentence(rate, unit)}"
        yield guess_sentence(0.118, unit)


def _numbers() -> Iterator[str]:
    yield "== numbers"
    for value in (0.0, -0.004, 0.5, -12.25, 999.5, 9999.0, 10_000.0, -10_000.0, 1_234_567.0):
        yield f"{value}: {format_number(value)} | {format_number(value, 2)} | {number_text(value)}"
    for half in (0.0, NOT_KNOWN, INFINITE, 0.0099, 0.01, 0.099, 0.1, 0.99, 1.0, 9.99, 10.0, 11.0):
        yield f"half width {half}: {digits_for(half)} {digits_for(half, 0.5)} {digits_for(half, 1000.5)}"
        yield " | ".join(with_interval(value, half) for value in (0.4, 99.94, 100.0, -1234.5))
    yield with_interval(4.1, 0.3, (3.9, 4.5))
    for code in LANGUAGES:
        with use_language(code):
            texts = (format_number(-1234.5, 1), format_number(12_345.0), join_with_and(["a", "b", "c"]), number_text(0.25))
            yield f"{code}: {' | '.join(texts)}"
    yield " | ".join((join_with_and(["a"]), join_with_and(["a", "b"])))
    for gap in (None, -1e-9, 9.9e-4, 1e-3, 0.5, 11.0):
        yield f"gap {gap}: {certified_text(gap)}"
    for end in ("low", "high"):
        for beyond in (-1, 0, 1):
            row = {"of": "x", "low_95": 0, "high_95": 9} | {f"{end}_95": (0 if end == "low" else 9) + beyond}
            yield f"{row}: {fills_range(row, {'columns': {'x': {'from': 0, 'to': 9}}})}"
    mechanism = {"name": "identity", "unit": "records", "cost": 4.0, "rmse": None, "certified_gap": None}
    compared: list[dict[str, Any]] = [{"cost": None, "rmse": None}, {"cost": 9.0, "rmse": 3.0}, {"cost": 9.0, "rmse": None}]
    for other in compared:
        yield f"{other}: {compared_error_text(other, mechanism)}"
    privacy = {"delta": 0.0, "epsilon": 0.5}
    facts = {"release": "r", "queries": 1200, "cells": 18, "mechanism": mechanism, "privacy": privacy}
    yield summary_line(facts)
    yield summary_line(
        facts | {"mechanism": mechanism | {"rmse": 2.5, "certified_gap": 0.0}, "privacy": privacy | {"delta": 1e-9}}
    )
    for post_processing, consistent in (([], True), ([], False), (["answers were rounded"], True)):
        certificate = {"post_processing": post_processing, "mechanism": {"consistent": consistent}}
        yield f"{certificate}: {difference_notes(certificate)}"


def _findings() -> Iterator[str]:
    yield "== what charts show"
    for half in (10.0, 20.0, 40.0):
        for values in (
            [100.0, 99.0],
            [100.0, 70.0, 65.0],
            [100.0, 90.0, 20.0, 10.0],
            [100.0] * 4 + [20.0],
            [30.0, -5.0, 3.0],
            [12.0],
        ):
            yield f"bars {values} ± {half}: {finding_sentence(bars(values, half), 'people')}"
    for values, halves in (
        ([50.0, 400.0, 100.0], 20.0),
        ([380.0, 400.0, 100.0], 20.0),
        ([390.0, 400.0, 395.0, 399.0], 20.0),
        ([-2.0, 30.0, 25.0], [40.0, 5.0, 5.0]),
        ([30.0, 29.0], 5.0),
        ([400.0, 300.0], NOT_KNOWN),
    ):
        yield f"bars {values} ± {halves}: {finding_sentence(bars(values, halves), 'people')}"
    yield f"sums: {finding_sentence(bars([9.0, 3.0], 20.0), 'EUR', 'sum')}"
    for peak in (
        [1, 9, 1, 1, 1, 1],
        [1, 9, 8.9, 1, 1, 1],
        [1, 9, 8.5, 8.9, 1, 1],
        [9, 8.9, 9, 8.9, 9, 8.9],
        [0.1] * 6,
        [9, 9],
    ):
        for half in (0.05, 1.0, 6.0):
            values = [float(value) for value in peak]
            yield f"steps {values} ± {half}: {finding_sentence(steps(values, half), 'people')}"
            rising = [float(value) for value in np.cumsum(values)]
            for kind in ("below", "at or below"):
                yield f"{kind} {rising} ± {half}: {finding_sentence(steps(rising, half, cumulative=kind), 'people')}"
    for answer, changes in (("sum", {}), ("count", {"widths": np.full(6, 2.0)}), ("count", {"kind": "curve"})):
        for half in (0.05, 20.0):
            chart = steps([1.0, 9.0, 1.0, 1.0, 1.0, 1.0], half)
            chart = replace(chart, **changes)
            yield f"{answer} {sorted(changes)} ± {half}: {finding_sentence(chart, 'people', answer)}"
    pairs = Figure(
        "bars",
        "x and y",
        Axis("x", ["a", "b"]),
        ("c", "d"),
        np.array([[9.0, 1], [2, 3]]),
        np.ones((2, 2)),
        "Records",
        Axis("y", ["c", "d"]),
    )
    yield f"combinations: {finding_sentence(pairs, 'people')}"
    series = replace(steps([1.0, 3.0, 9.0], 0.5), title="running sum", kind="curve")
    yield f"running sum: {finding_sentence(series, 'people')}"


def _captions() -> Iterator[str]:
    yield "== captions"
    for half in (0.0, NOT_KNOWN, 0.05, 0.11, 0.125, 0.13, 1.0):
        yield f"steps up to 10 ± {half}: {interval_caption(steps([1.0, 10.0], half))} | bars: {interval_caption(bars([1.0, 10.0], half))}"
    yield interval_caption(replace(bars([1.0, 10.0], 1.0), dots=True))


def _axes() -> Iterator[str]:
    yield "== axes"
    for edges in ([0, 1, 2, 3], [0, 3, 6, 12], [0, 1, 2], [0, 10, 20], [0.5, 1.5, 2.5], [0, 9_999, 10_000], [0, 5]):
        for open_ends in (False, True):
            yield f"bins {edges} {open_ends}: {bin_names(np.array(edges, dtype=float), open_ends=open_ends)}"
    for low, high in product(
        (0.0, -0.5, -3.0), (0.0, 0.03, 1.0, 7.0, 60.0, 999.0, 4.3e6, 9.9e6, 43e6, 1e7, 2.5e9, 1e10, 3e12, 1e13)
    ):
        scale = value_scale_of(low, high)
        yield f"from {low} to {high}: {[scale.text(tick) for tick in scale.ticks]} {scale.word}"
    for low, high, most in ((0, 12, 6), (0, 100, 6), (3, 4, 5), (0.2, 0.9, 4), (1990, 2030, 5)):
        yield f"round numbers from {low} to {high}: {round_numbers_within(low, high, most)}"
    for peak in (5.0, 40.0, 1234.0):
        yield f"classes up to {peak}: {rounded_class_limits(peak, 7)}"
    for step, length in product(("minute", "hour", "day", "week", "month", "quarter", "year"), (1, 5, 24, 60, 400)):
        clock = Clock(0.0, datetime.datetime(2025, 12, 30, 22, 0), step)
        ticks = round_time_ticks(clock, 0.0, float(length), 6)
        yield f"{length} {step}s: {[(round(number, 4), text) for number, text in ticks]} {clock.text(float(length))}"
    for width in (20.0, 60.0, 200.0):
        yield f"{width} pixels: {wrap_text('Armed Forces and Administration', width)}"


def _exclusions() -> Iterator[str]:
    yield "== what is not counted"

    def said(**changes: Any) -> Iterable[str]:
        facts = {"title": None, "outside": "error"} | changes
        return exclusion_sentences({"method": {"attributes": {"age": facts}}, "privacy": {"most_groups_of_one_person": 3}})

    for outside, other, missing in product(("error", "drop", "clip"), (None, "drop", "others"), (None, "drop", "unknown")):
        yield f"{outside} {other} {missing}: {said(outside=outside, other=other, missing=missing)}"
    yield str(said(total="all"))
    for bound in (1, 2, 3):
        yield f"{bound} groups: {said(persons_by={'week': bound}, level_titles={'week': 'Week'})}"
    amounts: dict[str, Any] = {"title": None, "from": 0, "to": 500, "step": 0.01, "missing": None}
    method: dict[str, Any]
    changes: dict[str, Any]
    for changes in ({}, {"missing": "drop"}, {"most_per_person": 1000}):
        method = {"attributes": {}, "sums": {"paid": amounts | changes}}
        yield f"{changes}: {exclusion_sentences({'method': method})}"
    for missing in ("drop", "each"):
        method = {"attributes": {}, "missing_persons": missing, "record": "one visit"}
        yield f"{missing}: {exclusion_sentences({'method': method})}"
    method = {"counted": "visits", "attributes": {"town": {"title": "Town"}}}
    selection = {
        "attribute": "town", "names": 5, "share": 0.1, "selected_half_of_the_time": 1300, "selected_almost_always": 1600, "delta": 1e-9,
        "names_per_person": 20, "selected_half_of_the_time_beside_others": 55, "selected_almost_always_beside_others": 71,
    }  # fmt: skip
    for changes in ({}, {"names": None}, {"names_per_person": None}):
        yield str(selection_sentences({"method": method, "selections": [selection | changes]}))
    for edges in (None, [0, 5, 9]):
        yield str(
            edges_sentences({"method": method, "chosen_edges": [{"of": "town", "bins": 4, "edges": edges, "share": 0.1}]})
        )


SHARE = {"share": 0.125, "low_95": 0.1, "high_95": 0.15}
WIDE = {"share": 0.5, "low_95": 0.1, "high_95": 0.601}
HIDDEN = {"share": 0.0, "low_95": 0.0, "high_95": 0.3}


def _losses() -> Iterator[str]:
    yield "== what bounds leave out"
    persons = ProtectedPersons("add-remove", 3, "who")

    def said(unit: Any = persons, counted: str = "visits", method: dict[str, Any] | None = None, **parts: Any) -> list[str]:
        facts = {"privacy": unit_facts(unit), "method": {"counted": counted, **(method or {})}, **parts}
        return bound_loss_sentences(facts)

    yield str(said(ProtectedRecords("add-remove", 1)))
    for most, counted in product((1, 1200), ("records", "visits")):
        yield f"{most} {counted}: {said(ProtectedPersons('add-remove', most, 'who'), counted)}"
    for most, groups in product((1, 2), (1, 4)):
        unit = PersonsInGroups("add-remove", most, "who", most_groups=groups)
        yield f"{most} in {groups} groups: {said(unit)} | persons: {said(unit, method={'persons': {}})}"
    for of in ("persons", "records"):
        yield f"{of}: {said(ProtectedRecords('add-remove', 1), completeness={'of': of, 'missing': SHARE, 'outside': WIDE, 'share': 0.05})}"
    for records in (SHARE, WIDE):
        yield str(said(chosen_bound={"share": 0.1, "up_to": 40, "persons_beyond": SHARE, "records_left_out": records}))
        yield str(
            said(chosen_groups={"share": 0.1, "up_to": 40, "persons_in_more_groups": SHARE, "groups_left_out": records})
        )
    for column, down_to in product(({}, {"title": "Paid", "unit": "EUR"}), (0, -50)):
        chosen = {
            "of": "paid",
            "from": -5,
            "to": 143,
            "share": 0.2,
            "down_to": down_to,
            "up_to": 2000,
            "amounts_beyond": SHARE,
            "sum_left_out": SHARE,
        }
        yield str(said(method={"sums": {"paid": column}}, chosen_ranges=[chosen]))
    for beyond, records in product((SHARE, HIDDEN), (SHARE, HIDDEN)):
        left_out = {"share": 0.05, "most": 40, "persons": {"beyond": beyond, "records": records, "up_to": 2}, "amounts": {}}
        yield f"persons {beyond['low_95']}, records {records['low_95']}: {said(left_out=left_out)}"
    yield str(said(PersonsInGroups("add-remove", 1, "who", most_groups=4), left_out=left_out, method={"persons": {}}))


ROWS = {
    "of": ["country", "page"], "rows": 12, "cells": 2 * 10**9, "at_least": 60, "share": 0.8, "expected_false_rows": 0.002,
    "published_half_of_the_time": 60, "published_almost_always": 95,
}  # fmt: skip


def _of_rows() -> Iterator[str]:
    yield "== rows above a threshold, earlier editions, and answers that are suppressed"
    total = {"rest": 1200.4, "total": 1500.0, "high_95": 1530.9}
    for measured, keys, many in product(("rest", "totals"), ({"country": "DE"}, {}), (1, 12, 13)):
        facts = ROWS | {"rest": {"measured": measured, "totals": many * [total | {"keys": keys}]}}
        said = thresholded_sentences({"thresholded": facts})
        yield f"{measured} {keys} {many}: {len(said)} sentences, the last ones {said[-2:]}"
    for changed in (0, 3):
        revised = {"group": "age", "release": "w1", "changed": changed, "answers": 1200, "largest_change": 2.5}
        yield str(edition_sentences({"revises": [revised]}))
    for rates in (SuppressionRates(0.0, 0.0228, 0.0, 120.0), SuppressionRates(0.05, 0.5, 0.25, 1200.0)):
        yield rates.sentence(50.0)
