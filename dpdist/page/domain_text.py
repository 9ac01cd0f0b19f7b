"""Which values were declared or found, and what happened to records with others, in the sentences of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpdist.content.number_format import capitalised
from dpdist.domain import DROP
from dpdist.language import say, translatable, translate_certificate
from dpdist.page.headings import Words


def selection_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """How the names of attributes came to be on the page, where they were not declared."""
    words = Words.of(dict(certificate))
    return [
        _selection_sentence(words.title(selection["attribute"]), selection)
        for selection in certificate.get("selections", ())
    ]


SELECTION_TEXTS = {
    False: translatable(
        "{which} were selected from the records, by {share:.0%} of the budget: a name of {selected_half_of_the_time:,} records is selected "
        "half of the time, one of {selected_almost_always:,} almost always, and one that a single protected unit has with a probability of "
        "{delta:.1e} at most. Records of all other names are counted together"
    ),
    True: translatable(
        "{which} were selected from the records, by {share:.0%} of the budget: a name of {selected_half_of_the_time:,} persons who have no "
        "other is selected half of the time and one of {selected_almost_always:,} almost always; where each of them has "
        "{names_per_person:,} names or more, it takes {selected_half_of_the_time_beside_others:,} and "
        "{selected_almost_always_beside_others:,} of them. A name that a single person has is selected with a probability of {delta:.1e} "
        "at most. Records of all other names are counted together"
    ),
}
"""How names are selected where records count (False), and where persons share weights out among their names (True)."""


def _selection_sentence(attribute: str, facts: Mapping[str, Any]) -> str:
    if facts["names"] is None:
        names = say("The names of {attribute}", attribute=attribute)
    else:
        names = say("The {names:,} names of {attribute}", names=facts["names"], attribute=attribute)
    return say(SELECTION_TEXTS[facts["names_per_person"] is not None], which=names, **facts)


def edges_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """How bins of attributes came to have their edges, where they were chosen."""
    words, sentences = Words.of(dict(certificate)), []
    for edge_facts in certificate.get("chosen_edges", ()):
        name = words.title(edge_facts["of"])
        bins_text = say("Up to {bins:,} bins of {attribute}", bins=edge_facts["bins"], attribute=name)
        if edge_facts["edges"] is not None:
            bins_text = say("The {bins:,} bins of {attribute}", bins=len(edge_facts["edges"]) - 1, attribute=name)
        sentence = translatable(
            "{which} were chosen from the records, by {share:.0%} of the budget, so that about as many records that count lie in each"
        )
        sentences.append(say(sentence, which=bins_text, share=edge_facts["share"]))
    return sentences


MISSING_PERSON_TEXTS = {
    "drop": translatable("Records that name no person are left out of all answers."),
    "each": translatable("Each record that names no person is counted as a person of its own."),
}
OUTSIDE_TEXTS = {
    "clip": translatable("values below or above those declared are counted at the nearest one"),
    "drop": translatable("records with any other value are left out of all answers"),
    "error": translatable("a record with any other value would have stopped the release"),
}


def exclusion_sentences(certificate: dict[str, Any]) -> list[str]:
    """What happened to values outside the declared ones, in sentences."""
    method = certificate["method"]
    attributes, sums = method["attributes"], method.get("sums", {})
    max_groups = (certificate.get("privacy") or {}).get("most_groups_of_one_person", 0)
    sentences = [
        f"{capitalised(facts.get('title') or name)}: {'; '.join([*_exclusion_texts(facts), *_level_texts(facts, max_groups)])}."
        for name, facts in attributes.items()
    ]
    if "missing_persons" in method:
        sentences = [say(MISSING_PERSON_TEXTS[method["missing_persons"]]), *sentences]
    if "record" in method:
        sentences = [say("A record is {record}.", record=translate_certificate(method["record"])), *sentences]
    return sentences + [f"{capitalised(facts['title'] or name)}: {_clamping_text(facts)}." for name, facts in sums.items()]


def _clamping_text(facts: dict[str, Any]) -> str:
    """What happened to amounts beyond their range, between the values of their grid, and missing ones."""
    clauses = [
        say(
            "an amount below {low:,.12g} is added up as {low:,.12g}, one above {high:,.12g} as {high:,.12g}, and one in between to the "
            "nearest {step:,.12g}",
            low=facts["from"],
            high=facts["to"],
            step=facts["step"],
        )
    ]
    if facts.get("most_per_person") is not None:
        bounded = translatable(
            "the amounts of a person that add up to more than {most:,.12g} are scaled down to it in proportion and rounded down to the "
            "grid, so that sums and means are too small where somebody has more"
        )
        clauses.append(say(bounded, most=facts["most_per_person"]))
    if facts["missing"] is None:
        clauses.append(say("a record without an amount would have stopped the release"))
    else:
        clauses.append(say("records without an amount are left out of sums and means"))
    return "; ".join(clauses)


def _exclusion_texts(facts: dict[str, Any]) -> list[str]:
    """What happened to records without a declared value of one attribute."""
    other_label, missing_label, total_label = facts.get("other"), facts.get("missing"), facts.get("total")
    if other_label is None:
        clauses = [say(OUTSIDE_TEXTS[facts["outside"]])]
    elif other_label == DROP:
        clauses = [say("records with any other value are left out of the answers that use it")]
    else:
        clauses = [say("records with any other value are counted as “{label}”", label=other_label)]
    if missing_label == DROP:
        clauses.append(say("records without a value are left out of the answers that use it"))
    elif missing_label is not None:
        clauses.append(say("records without a value are counted as “{label}”", label=missing_label))
    elif facts["outside"] in ("clip", "drop"):
        clauses.append(say("records without a value are left out of all answers"))
    elif other_label is not None:
        clauses.append(say("a record without a value would have stopped the release"))
    if total_label is not None:
        clauses.append(
            say(
                "persons who have records with any of these values are counted once more as “{label}”, each in the first of their groups "
                "there",
                label=total_label,
            )
        )
    return clauses


def _level_texts(facts: dict[str, Any], max_groups: int) -> Iterator[str]:
    """By which levels persons are counted, and in how many of the groups; where that are fewer than in other tables, what is not known."""
    once_template = translatable("persons are also counted by “{level}”, each once in the first of their groups there")
    several_template = translatable(
        "persons are also counted by “{level}”, each once in each of the first {bound:,} of their groups there"
    )
    for name, bound in facts.get("persons_by", {}).items():
        level = facts.get("level_titles", {}).get(name, name)
        yield say(once_template, level=level) if bound == 1 else say(several_template, level=level, bound=bound)
        if bound < max_groups:
            yield say("how many have more groups there is not known")
