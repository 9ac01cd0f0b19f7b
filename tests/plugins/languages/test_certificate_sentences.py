"""Whatever certificates say in words is recalled, to the last word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from dpdist.language import translate_certificate
from dpdist.privacy import risk_in_words
from dpdist.privacy.accounting.budget_caps import Cap
from dpdist.privacy.privacy_unit import (
    PersonsInGroups,
    PersonsInSteps,
    ProtectedPersons,
    ProtectedRecords,
    Protection,
    RecordsInSteps,
)
from dpdist.sources.formats.csv_grammar import Grammar
from dpdist.spec.attributes.categories import Categories
from dpdist.spec.attributes.dates import Dates
from dpdist.spec.attributes.numbers import Edges, Numbers
from dpdist.spec.queries import QuerySpec
from dpdist.spec.queries.statistics import kind_of
from dpdist.spec.sections.amount_columns import SumSpec
from dpdist.statistics.statistic_registry import STATISTICS
from tests.language.pseudo_language import pseudo, words
from tests.support.complete_tree import plugin_object

COLUMNS = {1: "Щ", 2: ("Щ", "Ж")}
FILTERS = [{"running_sum": True}, {"window": 3}, {"mean": 7}, {"exponential": 0.5}, {"polynomial": 0.5}, {"trend": 1600}]
FILTERS += [{"cycle": 1600}, {"band": [2, 8], "width": 3}, {"file": "x.npy"}]
WORKLOAD = [
    {"marginals": {"ways": [1]}, "weight": 3},
    {"marginals": {"ways": [1, 2, 3], "among": ["Щ", "Ж"]}, "relative": True},
    {"marginals": {"ways": [2], "among": ["Щ", "Ж"], "ranges": True}},
    {"marginals": {"ways": [1, 2]}},
    {"marginals": {"of": [["Щ", "Ж"], []]}},
    {"marginals": {"ways": [1], "ranges": True}},
    {"marginals": {"ways": [1, 2], "ranges": True}},
    {"marginals": {"of": [["Щ"]] * 9}},
    {"cdf": {"of": "Щ", "by": ["Ж"]}},
    {"ranges": {"of": ["Щ"]}},
    {"ranges": {"of": ["Щ"], "list": [[0, 1]]}},
    {"predicates": ["Щ > 1"]},
    {"predicates": ["Щ > 1", "Щ > 2"]},
    {"product": {}},
    {"product": {"Щ": "identity", "Ж": "total"}},
    {"product": {"Щ": "prefix", "Ж": ["Щ > 1", "Щ > 2"]}},
    {"product": {"Щ": "ranges", "Ж": ["Щ > 1"]}},
    {"relation": {"of": {"Щ": 1, "Ж": -1}, "at_most": [1, 2]}},
    {"relation": {"of": {"Щ": 1, "Ж": -1}, "within": [0, 7], "by": ["Ю"]}},
    {"relation": {"of": {"Щ": 1, "Ж": -1}}},
    {"dnf": {"terms": [["Щ"]]}},
    {"rows": {"file": "x.npy"}},
    {"filters": {"of": "Щ", "apply": FILTERS}},
    {"filters": {"of": "Щ", "by": ["Ж"], "apply": FILTERS[:1]}},
]


def protections() -> Iterator[Protection]:
    for relation in ("add-remove", "replace-one"):
        for k in (1, 2):
            yield from (ProtectedRecords(relation, k), ProtectedRecords(relation, k, "Щ"))
            yield from (ProtectedPersons(relation, k, "Щ"), ProtectedPersons(relation, k, "Щ", missing="each"))
            yield PersonsInGroups(relation, k, "Щ", most_groups=k)
            for apart in (1, 2):
                yield RecordsInSteps(relation, k, participations=k, separation=apart)
                yield PersonsInSteps(relation, k, "Щ", participations=k, separation=apart)


def of_protections() -> Iterator[str]:
    for each in protections():
        yield from (each.unit, each.sentence, each.bound, risk_in_words.guess_sentence(0.4, each))
        yield from (risk_in_words.headline_sentence(found, each) for found in (0.05, 0.4, 0.9, 1.0))


def of_questions() -> Iterator[str]:
    for entry in WORKLOAD:
        asked = QuerySpec.model_validate(entry)
        yield asked.words
        if not {"filters", "relation", "dnf", "rows"} & entry.keys():
            question = asked.kind.question()
            yield from (kind_of(each)(**{name: COLUMNS[each.columns]}).words(question) for name, each in STATISTICS.items())


def of_values() -> Iterator[str]:
    """What is said of attributes, of amounts, and of caps."""
    years = {"from": "2020-01-01", "to": "2029-12-31"}
    for every in ("day", "week", "month", "quarter", "year"):
        yield Dates.model_validate({"dates": {**years, "every": every}}).words()
    yield Numbers.model_validate({"from": -3, "to": 1200}).words()
    yield Numbers.model_validate({"from": 0, "to": 99, "width": 10}).words()
    yield Categories.model_validate({"categories": list("абвгдежзийклмнопрст")}).words()
    yield Edges.model_validate({"edges": [0, 12.5, 1000]}).words()
    yield str(SumSpec.model_validate({"from": 0, "to": 1000, "step": 0.5}).facts()["values"])
    for per in ("day", "week", "month", "total"):
        yield str(Cap(Fraction(1, 2), per=per)).removeprefix("rho=")


def texts_of_plugins() -> list[str]:
    """What certificates say of modelled answers, where their plugin is there."""
    text = plugin_object("dpdist.plugins.adaptive.aim:POSTPROCESSING_TEXT")
    return [text] if isinstance(text, str) else []


def certificate_texts() -> list[str]:
    return [
        *of_protections(),
        *of_questions(),
        *of_values(),
        Grammar().record,
        replace(Grammar(), multiline=True).record,
        *texts_of_plugins(),
    ]


def test_what_certificates_say_is_recalled_to_the_last_word() -> None:
    sentences = certificate_texts()
    with pseudo():
        left = {sentence: words(translate_certificate(sentence)) for sentence in sentences}
    assert {sentence: found for sentence, found in left.items() if found} == {}
