"""Every language has every sentence that is said, and no other; with the same places, and nothing that a page would read as markup."""

from __future__ import annotations

import datetime
import re
import string
from pathlib import Path

import pytest

from dpdist.content import table_rows
from dpdist.language import (
    LANGUAGES,
    current_language,
    format_date,
    localize_number,
    plural,
    say,
    translate_certificate,
    use_language,
)
from dpdist.page.headings import describes_time_steps, question_texts, title_of
from dpdist.spec.queries.marginal_queries import MarginalsQuery
from tests.language import page_sentences
from tests.support.complete_tree import needs_every_plugin

ROOT = Path(__file__).parents[3]
OTHERS = [code for code in LANGUAGES if code != "en"]
SCRIPTS = page_sentences.in_words(page_sentences.of_scripts())
SENTENCES = page_sentences.in_words(page_sentences.of_python() | page_sentences.of_templates()) - SCRIPTS


def placeholders(sentence: str) -> set[tuple[str, str, str | None]]:
    return {(name, spec or "", sign) for _, name, spec, sign in string.Formatter().parse(sentence) if name is not None}


@needs_every_plugin
@pytest.mark.parametrize("code", OTHERS)
def test_every_sentence_has_a_translation_and_every_translation_is_said(code: str) -> None:
    with use_language(code):
        table, scripts = dict(current_language().sentences), dict(current_language().scripts)
    assert sorted(SCRIPTS - scripts.keys()) == sorted(scripts.keys() - SCRIPTS) == []
    assert sorted(SENTENCES - table.keys()) == sorted(table.keys() - SENTENCES - SCRIPTS) == []


@pytest.mark.parametrize("code", OTHERS)
def test_translations_have_the_same_places_and_no_markup(code: str) -> None:
    with use_language(code):
        tables = [current_language().sentences, current_language().certificate, current_language().groups]
    for table in tables:
        for sentence, translation in table.items():
            assert placeholders(sentence) == placeholders(translation), sentence
            assert not re.search(r'[<>&"]', translation), translation
            assert sentence[:1] != " " or translation[:1] == " ", sentence  # what goes on from other words


@pytest.mark.parametrize("code", OTHERS)
def test_all_languages_know_the_same_sentences_of_certificates(code: str) -> None:
    with use_language("de"):
        groups = current_language().groups.keys()
    sentences = (ROOT / "dpdist" / "language" / "certificate_sentences.txt").read_text(encoding="utf-8").splitlines()
    with use_language(code):
        assert (sorted(current_language().certificate), current_language().groups.keys()) == (sorted(sentences), groups)
    files = {path.stem for path in (ROOT / "dpdist" / "plugins" / "languages" / "translations").glob("*.toml")}
    assert {"en", *files} == {*LANGUAGES}


def test_numbers_are_written_as_a_language_does() -> None:
    with use_language("de"):
        assert [localize_number(text) for text in ("4,829.5", "−1,000", "12.5%", "1.0e-06")] == [
            "4.829,5", "−1.000", "12,5\N{NO-BREAK SPACE}%", "1,0e-06"]  # fmt: skip
        assert say("{hidden}", hidden=1234567) == "1234567"
        assert say("{x:,.1f}", x=1234.5) == "1.234,5"
    with use_language("fr"):
        assert localize_number("4,829.5") == "4\N{NARROW NO-BREAK SPACE}829,5"
        assert plural(0, "{count:,} answer: see", "{count:,} answers: see").startswith("0 résultat\N{NO-BREAK SPACE}:")
    with use_language("es"):
        assert [localize_number(text) for text in ("4,829.5", "14,829")] == ["4829,5", "14.829"]
    assert localize_number("4,829.5") == "4,829.5"


def test_powers_of_ten_are_raised_in_numbers_and_never_in_names() -> None:
    tight = "10⁻⁹ and 2.5\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}10⁻⁷ of 1e-07"
    assert say("{delta:.1e} and {gap:.1e} of {name}", delta=1e-9, gap=2.5e-7, name="1e-07") == tight
    with use_language("de"):
        assert say("{gap:.1e}", gap=2.5e-7) == "2,5\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}10⁻⁷"
        assert translate_certificate("3 categories: 2e-07, 1,000, 2.5") == "3 Kategorien: 2e-07, 1,000, 2.5"
        assert (
            translate_certificate("30 categories: 1.5, records and 28 more") == "30 Kategorien: 1.5, records und 28 weitere"
        )


def test_queries_of_a_site_are_called_as_its_page_calls_them() -> None:
    """A text that has no other name stays, even one that is a word of another column."""
    row = {"query": "side up to 5, hour up to 7", "side": "up to 5", "hour": "up to 7", "group": "cdf of hour by side"}
    values = {"hour": {"up to 7": "bis 7", "up to 5": "bis 5"}}
    assert table_rows.titled_query(row, {"hour": "Stunde", "side": "Seite"}, values) == "Seite up to 5, Stunde bis 7"
    assert table_rows.titled_query({**row, "query": "late hours"}, {"hour": "Stunde"}, values) == "late hours"


@pytest.mark.parametrize(
    ("code", "told"), [("fr", "de tout groupe de 1 et 2 attributs"), ("es", "de cualquier grupo de 1 y 2 atributos")]
)
def test_tables_of_any_attributes_are_told_in_one_piece(code: str, told: str) -> None:
    with use_language(code):
        assert translate_certificate("counts of every combination of values of any 1 and 2 attributes").endswith(told)


def asked_in_words(tables: list[list[str]]) -> str:
    return MarginalsQuery.model_validate({"marginals": {"of": tables}}).question()


def test_what_is_asked_of_all_records_is_no_combination_of_values() -> None:
    """In every language the words for the whole stand beside those for its tables, as many as there are."""
    asked_for = asked_in_words([[], ["age"], ["age", "town"]])
    assert asked_for == "counts of all records and every combination of values of age; age by town"
    assert asked_in_words([[]]) == "counts of all records"
    found = []
    for code in OTHERS:
        with use_language(code):
            found.append(translate_certificate(asked_for.replace("counts of", "sums of paid over", 1)))
    assert [text.count("records") for text in found] == [0, 0, 0]
    assert found[0] == "Summen von paid für alle Datensätze und jede Kombination von Werten von age; age nach town"


def test_numbers_below_zero_have_a_minus_and_no_hyphen() -> None:
    assert say("{a:+,.0f} {b} {c:.1e}", a=-1450, b="on-off", c=-2.5e-7) == "−1,450 on-off −2.5\u00a0×\u00a010⁻⁷"


def test_dates_are_written_as_a_language_does() -> None:
    day = datetime.date(2026, 3, 1)
    found = {}
    for code in LANGUAGES:
        with use_language(code):
            found[code] = format_date(day, "%-d %B %Y")
    assert found == {"en": "1 March 2026", "de": "1. März 2026", "es": "1 de marzo de 2026", "fr": "1 mars 2026"}


def test_a_certificate_is_recalled_with_what_stands_in_its_places() -> None:
    with use_language("de"):
        assert (
            translate_certificate("Up to 1,200 records are added or removed.")
            == "Bis zu 1.200 Datensätze kommen hinzu oder fallen weg."
        )
        assert translate_certificate("persons by column 'records'") == "Personen nach der Spalte 'records'"
        assert translate_certificate("what nobody knows") == "what nobody knows"
    assert translate_certificate("Up to 2 records are added or removed.") == "Up to 2 records are added or removed."


def test_questions_call_what_they_ask_for_by_its_title() -> None:
    """In every language, and where a name is a word of the sentence; a name without a title stays, even one that is a known word."""
    method = {
        "attributes": {"born": {"title": "Country", "levels": {"region": 5}}, "counts": {"title": None}, "of": {"title": "Origin"}},
        "sums": {"wage": {"title": "Hourly wage"}},
        "asked": ["counts of every combination of values of born; region by counts", "counts at or below each value of of"],
    }  # fmt: skip
    assert question_texts(method) == [
        "counts of every combination of values of Country; region by counts",
        "counts at or below each value of Origin",
    ]
    with use_language("de"):
        assert question_texts(method)[1] == "Anzahlen bis einschließlich jedes Wertes von Origin"
        assert "Country; region nach counts" in question_texts(method)[0]
    assert [title_of(name, method) for name in ("wage", "region", "other")] == ["Hourly wage", "region", "other"]


def test_steps_of_time_are_said_once() -> None:
    day = {"time": {"start": "2026-09-01T00:00:00", "step": "day"}}
    assert describes_time_steps({**day, "values": "30 days from 2026-09-01 to 2026-09-30"})
    assert describes_time_steps({**day, "values": "1 day from 2026-09-01 to 2026-09-01"})
    assert not describes_time_steps({**day, "values": "whole numbers from 0 to 29"})
    assert not describes_time_steps({**day, "values": "720 hours from 2026-09-01 to 2026-09-30"})
