"""Questions in the page: the same answers as ``dpdist ask``, from a small measurement alone; a large one names the command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist.errors import InvalidInput
from dpdist.query.published_release import Answer, load_published
from dpdist.storage.objects import parse_location
from tests.page.browsing import browser, page, shown, violations
from tests.support import small_release
from tests.support.small_release import run

__all__ = ["browser", "page"]  # fixtures
SPECS: dict[str, dict[str, Any]] = {
    "rows": {"mechanism": "coa"},
    "cells, Laplace": {
        "mechanism": "identity",
        "budget": {"epsilon": 2},
        "ledger": {"dataset": "small", "cap": {"epsilon": 2}},
    },
    "products": {"mechanism": "residual"},
    "public number": {"mechanism": "coa", "neighbours": "replace-one"},
    "some rows, Laplace": {
        "mechanism": "laplace",
        "budget": {"epsilon": 2},
        "ledger": {"dataset": "small", "cap": {"epsilon": 2}},
    },
    "rows over cells": {"mechanism": "wavelet"},
}


def ask_page(page: Any, **selections: str) -> tuple[str, list[dict[str, Any]]]:
    """The question in words, and the rows that the page answers."""
    for name, value in selections.items():
        page.locator(f"#ask [name='{name.replace('_', '-')}']").select_option(value)
    page.get_by_role("button", name="Answer", exact=True).click()
    command = page.locator("#ask-command code").text_content()
    rows = page.locator("#ask-answers tbody tr").evaluate_all(
        "rows => rows.map(row => ({...row.answer, cells: [...row.cells].map(cell => cell.textContent)}))"
    )
    return json.loads(command.split(" ", 3)[3]), rows


def written(value: float | str | None, digits: int) -> str:
    """As the command writes it."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:,.{digits}f}".replace("-", "−")
    return value or ""


def compare(rows: list[dict[str, Any]], found: tuple[Answer, ...]) -> None:
    assert len(rows) == len(found)
    for row, answer in zip(rows, found, strict=True):
        expected = {"value": answer.value, "error": answer.standard_error, "low": answer.low, "high": answer.high}
        for name, value in expected.items():
            if isinstance(value, float) and math.isfinite(value):
                assert row[name] == pytest.approx(value, rel=1e-9, abs=1e-6), (answer, row)
            else:
                assert row[name] in (value, None) or math.isnan(float(row[name])), (answer, row)
        digits = 4 if isinstance(answer.value, float) and abs(answer.value) < 10 else 1
        assert row["cells"][1] == written(answer.value, digits)
        if answer.low is not None:
            assert row["cells"][3] == f"{written(answer.low, digits)} to {written(answer.high, digits)}"
        assert row["cells"][4] == answer.remark


@pytest.mark.parametrize(
    "which", ["rows", *(pytest.param(name, marks=pytest.mark.slow) for name in SPECS if name != "rows")]
)
def test_the_page_answers_as_the_command_does(home: Path, page: Any, which: str) -> None:
    folder = run(small_release.write(home.parent / "data", **SPECS[which]), home).folder
    page.goto((folder / "index.html").as_uri())
    release = load_published(parse_location(folder))
    kinds = page.locator("#ask [name=what] option").evaluate_all("all => all.map(one => one.value)")
    assert kinds == ["count", "share", "difference", "total:0", "mean:0", "median:0"]
    random = np.random.default_rng(4)
    for kind in kinds:
        for by in ("", "1") if kind == "mean:0" else ("", "0", "1"):
            one = str(random.integers(3)) if by != "" else ""
            chosen = {"one_2_first": "1"} if kind == "share" else {"one_1_first": "", "one_2_first": ""}
            narrow = {"one_0_first": "3", "one_0_last": "9"} if by == "" else {"one_0_first": "", "one_0_last": ""}
            other = {"other_0_last": str(random.integers(2, 11))} if kind in ("share", "difference") else {}
            if which in (
                "rows",
                "public number",
                "products",
                "some rows, Laplace",
            ):  # two attributes at a time were measured
                other, narrow = ({}, narrow) if by == "" and kind != "share" else (other if by == "0" else {}, {})
                chosen = chosen if by == "" or kind == "share" else chosen | {"one_2_first": ""}
            if kind == "difference":
                chosen["one_2_first"] = one or "0"
            blank = {"one_0_first": "", "one_0_last": "", "other_0_last": ""} if kind in ("share", "difference") else {}
            question, rows = ask_page(page, what=kind, by=by, **{**blank, **chosen, **narrow, **other})
            compare(rows, release.ask(question))


def test_published_quantiles_are_answered_as_they_are_published(home: Path, page: Any) -> None:
    of = {"of": {"age at home": {"from": 0, "to": 20}}, "by": ["sex", "work"], "at": [0.5, 0.9]}
    records = {"path": "records.parquet", "columns": {"age at home": "age"}}
    folder = run(small_release.write(home.parent / "data", mechanism="coa", quantiles=of, records=records), home).folder
    page.goto((folder / "index.html").as_uri())
    release = load_published(parse_location(folder))
    options = page.locator("#ask [name=what] option[value^=chosen]").evaluate_all("all => all.map(one => one.textContent)")
    assert options == ["Median of age at home", "Quantile 0.9 of age at home"]
    for kind, at in (("chosen:0", 0.5), ("chosen:1", 0.9)):
        question, rows = ask_page(page, what=kind)
        assert question == f"quantile {at} of 'age at home' by sex, work"
        found = release.ask(question)
        compare(rows, found)
        published_rows = [row["value"] for row in release.certificate["quantiles"]["rows"] if row["at"] == at]
        assert [row["value"] for row in rows] == published_rows == [answer.value for answer in found]
    assert page.locator("#ask [name=by]").is_hidden()


def test_what_was_not_measured_together_is_said(home: Path, page: Any) -> None:
    folder = run(small_release.write(home.parent / "data", mechanism="coa"), home).folder
    page.goto((folder / "index.html").as_uri())
    for name, value in (("one-0-first", "3"), ("one-1-first", "0"), ("one-2-first", "1")):
        page.locator(f"#ask [name='{name}']").select_option(value)
    page.locator("#ask [name='what']").press("Enter")
    page.get_by_role("button", name="Answer", exact=True).press("Enter")
    told = page.locator("#ask-told").text_content()
    assert told == "The release did not measure these together, so nobody knows: age, sex, work."
    assert page.locator("#ask-answers").is_hidden()
    with pytest.raises(InvalidInput, match="did not measure"):
        load_published(parse_location(folder)).ask("count where age>=3, sex=f, work=b")


@pytest.mark.slow
def test_questions_are_accessible_everywhere(home: Path, browser: Any) -> None:
    folder = run(small_release.write(home.parent / "data", mechanism="coa"), home).folder
    for screen, look in (("phone", "dark"), ("desk", "light")):
        page = shown(browser, folder / "index.html", screen, look)
        ask_page(page, what="share", by="0", one_1_first="0")
        assert page.locator("#ask-told").text_content() == "12 answers"
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.context.close()


def test_a_large_measurement_names_the_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.plugins.page.solved_measurement.MOST_NUMBERS", 100)
    folder = run(small_release.write(home.parent / "data", mechanism="coa"), home).folder
    text = (folder / "index.html").read_text()
    assert "This page does not answer them itself: a page holds measurements of up to" in text
    assert "dpdist ask small-1 &#34;count by age&#34;" in text or 'dpdist ask small-1 "count by age"' in text
    assert 'id="ask"' not in text


def test_a_form_of_too_many_values_names_the_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdist.plugins.page.question_panel.MOST_VALUES", 16)  # 12 ages, 2 sexes and 3 kinds of work
    text = (run(small_release.write(home.parent / "data", mechanism="coa"), home).folder / "index.html").read_text()
    assert "its attributes have more than the 16 values that a page lists" in text
    assert 'id="ask"' not in text


def test_tables_that_were_chosen_in_rounds_are_left_to_the_command(home: Path) -> None:
    """Whatever combines all tables is biased there, since which tables there are depends on the noise of those before."""
    tables = [{"marginals": {"ways": [1, 2]}}]
    folder = run(small_release.write(home.parent / "data", mechanism="adaptive", workload=tables), home).folder
    text = (folder / "index.html").read_text()
    assert "whose tables were not chosen in rounds" in text
    assert 'id="ask"' not in text
    assert load_published(parse_location(folder)).ask("count by age")


@pytest.mark.parametrize(
    ("workload", "example"),
    [
        ([{"relation": {"of": {"age": 1, "years": -1}, "at_most": [0]}}], None),
        ([{"relation": {"of": {"age": 1, "years": -1}}}], "count"),
        ([{"predicates": ["age >= 3"]}], None),
        ([{"predicates": ["age >= 3"]}, {"cdf": {"of": "years"}}], "count by years"),
        ([{"marginals": {"ways": [0]}}, {"predicates": ["age >= 3"]}], "count"),
    ],
)
def test_the_command_asks_what_was_measured(workload: list[dict[str, Any]], example: str | None, home: Path) -> None:
    """A relation with one bound, or a predicate, tells neither of an attribute's values nor of all records: no question is sure."""
    domain = {name: {"from": 0, "to": 11} for name in ("age", "years")}
    records = {**small_release.spec()["records"], "columns": {"years": "age"}}
    done = run(small_release.write(home.parent / "data", domain=domain, records=records, workload=workload), home)
    text, name = (Path(done.folder) / "index.html").read_text(), small_release.spec()["release"]
    told = "QUESTION" if example is None else f'"{example}"'
    assert f"<code>dpdist ask {name} {told}</code>" in text
    if example is not None:
        assert done.ask(example)
