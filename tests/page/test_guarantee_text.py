"""Whatever a publisher calls units, columns and attributes: the guarantee's sentences follow from the typed unit and its bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdist import language
from dpdist.language import use_language
from dpdist.page.guarantee_text import guarantee_text
from dpdist.planner.certificate import unit_facts
from dpdist.privacy.accounting import Loss
from dpdist.privacy.privacy_unit import (
    PersonsInGroups,
    PersonsInSteps,
    ProtectedPersons,
    ProtectedRecords,
    Protection,
    RecordsInSteps,
)
from dpdist.privacy.risk_in_words import describe_loss
from flows.commands.console_output import console, print_protected
from tests.language.test_pages import texts
from tests.support import small_release
from tests.support.small_release import run
from tests.support.verifier_findings import verifier

WORDS = (
    "records", "persons", "persons' visits", "a person", "day", "visits, a person", "visits; records", "{counted}", "12", "1e-07 visits",
    "persons by column 'who'", "visits are added or removed. Up to 9 of the visits", "any one person", "<b>visits</b>",
    "visits is in the data, or what they say", "One record is added or removed.", "Nobody checked that a person has at most 1 record",
)  # fmt: skip
"""What a publisher may call units and columns: some of it reads like a sentence of dpdist's own, or like a part of one."""
NAMES = ("unit", "one_change", "bound", "headline", "guess")
NEUTRAL = "Щ"


def protections(words: str) -> Iterator[Protection]:
    for relation, most in product(("add-remove", "replace-one"), (1, 3)):
        yield ProtectedRecords(relation, most, words)
        yield RecordsInSteps(relation, most, words, participations=2, separation=most)
        for missing in (None, "each"):
            yield ProtectedPersons(relation, most, words, missing=missing)
            yield PersonsInGroups(relation, most, words, missing=missing, most_groups=most)
            yield PersonsInSteps(relation, most, words, missing=missing, participations=most, separation=2)


def facts(protection: Protection, epsilon: Fraction = Fraction(1, 2)) -> dict[str, Any]:
    """The part of a certificate that says what is protected."""
    privacy = {
        **unit_facts(protection),
        "meaning": describe_loss(Loss.laplace(epsilon), protection),
    }
    method = {"counted": "records", "attributes": {}, "missing_persons": getattr(protection, "missing", None)}
    return json.loads(json.dumps({"privacy": privacy, "method": method}))


def sentences(certificate: dict[str, Any]) -> list[str]:
    return [guarantee_text(certificate, name) for name in NAMES]


@pytest.mark.parametrize("code", language.LANGUAGES)
def test_words_of_a_publisher_stand_in_their_places_and_choose_no_sentence(code: str) -> None:
    """In all languages; the sentences of a neutral word, with this word replaced."""
    with use_language(code):
        for words in WORDS:
            for found, neutral in zip(protections(words), protections(NEUTRAL), strict=True):
                placeholder, name = (repr(NEUTRAL), repr(words)) if found.enforced else (NEUTRAL, words)
                assert sentences(facts(found)) == [text.replace(placeholder, name) for text in sentences(facts(neutral))]


def test_kinds_of_units_are_told_apart_by_their_type() -> None:
    """A unit of persons, records, and counted things that are called as one of them have sentences of their own."""
    persons = ProtectedPersons("add-remove", 1, "who")
    for counted in (persons.unit, "records", "any one person"):
        found, own = (
            facts(ProtectedRecords("add-remove", 1, counted)),
            (facts(persons), facts(ProtectedRecords("add-remove", 1))),
        )
        for one, *others in zip(sentences(found), *map(sentences, own), strict=True):
            assert one not in others


@pytest.mark.parametrize("words", WORDS)
def test_the_verifier_recomputes_the_sentences_of_any_words(words: str) -> None:
    for protection in protections(words):
        certificate = facts(protection)
        unit = verifier().unit_of(certificate)
        assert (certificate["privacy"]["one_change"], certificate["privacy"]["bound"]) == (unit.changes, unit.bounds[0])
        assert unit.subject in certificate["privacy"]["meaning"]["headline"]


def test_plan_says_the_guarantee_of_the_unit(capsys: pytest.CaptureFixture[str]) -> None:
    for protection in protections("persons by column 'who'"):
        with console.capture() as printed:
            print_protected(facts(protection) | {"mechanism": {}})
        text = " ".join(printed.get().split())
        assert protection.sentence in text
        assert protection.bound in text
        assert ("protected: persons by column" in text) == protection.enforced


@pytest.mark.parametrize("briefly", [True, False])
def test_commands_say_how_well_somebody_can_guess(briefly: bool, capsys: pytest.CaptureFixture[str]) -> None:
    for protection in protections("records"):
        certificate = facts(protection)
        meaning = certificate["privacy"]["meaning"]
        with console.capture() as printed:
            print_protected(certificate | {"mechanism": {}}, briefly=briefly)
        text = " ".join(printed.get().split())
        percents = [f"{100 * meaning[name]:g}" for name in ("false_alarms", "found_at_most")]
        for part in (meaning["headline"].removesuffix("."), *(percents if briefly else [meaning["guess"]])):
            assert part in text


def hostile(name: str, home: Path, folder: Path, language_code: str) -> Path:
    """A release of counted things, whose publisher calls everything by dpdist's own sentences."""
    counts = np.arange(6).reshape(2, 3) * 10
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "counts.npy", counts)
    path = small_release.write(
        folder,
        release=name,
        records={"path": "counts.npy", "counts": {"of": "persons by column 'who'"}, "called": "any one person"},
        domain={
            "a record": {"categories": ["One record is added or removed.", "records"], "title": "any one person"},
            "records": {"from": 0, "to": 2, "title": "Enforced while counting: of each person at most 1 record counts"},
        },
        workload=[{"marginals": {"ways": [1]}}],
        budget={"epsilon": 0.5},
        ledger={"dataset": "small", "cap": {"epsilon": 9}},
        language=language_code,
        output={"folder": str(home / name)},
    )
    return Path(run(path, home).folder)


def check_page(page: str, code: str) -> None:
    """A page says the guarantee of counted things, in a language, and nothing that it would say of persons."""
    with use_language(code):
        expected = sentences(facts(ProtectedRecords("add-remove", 1, "persons by column 'who'")))
        foreign = sentences(facts(ProtectedPersons("add-remove", 1, "who")))
    seen = " ".join(" ".join(texts(page)).replace("\u2060", "").split())
    for one, other in zip(expected, foreign, strict=True):
        assert " ".join(one[1:].split()) in seen
        assert other in one or " ".join(other[1:].split()) not in seen


def test_pages_say_what_the_typed_unit_says(home: Path) -> None:
    for code in language.LANGUAGES:
        folder = hostile(f"r-{code}", home, home.parent / code, code)
        assert json.loads((folder / "release.json").read_text())["privacy"]["unit_kind"] == "counted"
        check_page((folder / "index.html").read_text(), code)
