"""Which values were declared or found, and what happened to records with others, in the sentences of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpdist.content.number_format import capitalised
from dpdist.domain import DROP
from dpdist.language import later, recalled, say
from dpdist.page.headings import Words


def selection_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """How the names of attributes came to be on the page, where they were not declared."""
    words = Words.of(dict(certificate))
    return [_selected(words.title(each["attribute"]), each) for each in certificate.get("selections", ())]


def _selected(attribute: str, facts: Mapping[str, Any]) -> str:
    if facts["names"] is None:
        names = say("The names of {attribute}", attribute=attribute)
    else:
        names = say("The {names:,} names of {attribute}", names=facts["names"], attribute=attribute)
    return say(
        "{which} were selected from the records, by {share:.0%} of the budget: a name of {selected_half_of_the_time:,} records is selected "
        "half of the time, one of {selected_almost_always:,} almost always, and one that a single protected unit has with a probability of "
        "{delta:.1e} at most. Records of all other names are counted together",
        which=names,
        **facts,
    )


def edges_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """How bins of attributes came to have their edges, where they were chosen."""
    words, told = Words.of(dict(certificate)), []
    for each in certificate.get("chosen_edges", ()):
        name = words.title(each["of"])
        which = say("Up to {bins:,} bins of {attribute}", bins=each["bins"], attribute=name)
        if each["edges"] is not None:
            which = say("The {bins:,} bins of {attribute}", bins=len(each["edges"]) - 1, attribute=name)
        chosen = later(
            "{which} were chosen from the records, by {share:.0%} of the budget, so that about as many records that count lie in each"
        )
        told.append(say(chosen, which=which, share=each["share"]))
    return told


def found_in_records(certificate: Mapping[str, Any]) -> str:
    """Which values of attributes were found in the records; empty where all were declared."""
    names, edges = certificate.get("selections", ()), certificate.get("chosen_edges", ())
    found = [say("the names of {attribute}", attribute=each["attribute"]) for each in names]
    return ", ".join([*found, *(say("the bins of {attribute}", attribute=each["of"]) for each in edges)])


NO_PERSON = {
    "drop": later("Records that name no person are left out of all answers."),
    "each": later("Each record that names no person is counted as a person of its own."),
}
OUTSIDE = {
    "clip": later("values below or above those declared are counted at the nearest one"),
    "drop": later("records with any other value are left out of all answers"),
    "error": later("a record with any other value would have stopped the release"),
}


def exclusions(certificate: dict[str, Any]) -> list[str]:
    """What happened to values outside the declared ones, in sentences."""
    method = certificate["method"]
    attributes, sums = method["attributes"], method.get("sums", {})
    most = (certificate.get("privacy") or {}).get("most_groups_of_one_person", 0)
    told = [
        f"{capitalised(facts.get('title') or name)}: {'; '.join([*_excluded(facts), *_by_levels(facts, most)])}."
        for name, facts in attributes.items()
    ]
    if "missing_persons" in method:
        told = [say(NO_PERSON[method["missing_persons"]]), *told]
    if "record" in method:
        told = [say("A record is {record}.", record=recalled(method["record"])), *told]
    return told + [f"{capitalised(facts['title'] or name)}: {_clamped(facts)}." for name, facts in sums.items()]


def _clamped(facts: dict[str, Any]) -> str:
    """What happened to amounts beyond their range, between the values of their grid, and missing ones."""
    told = [
        say(
            "an amount below {low:,.12g} is added up as {low:,.12g}, one above {high:,.12g} as {high:,.12g}, and one in between to the "
            "nearest {step:,.12g}",
            low=facts["from"],
            high=facts["to"],
            step=facts["step"],
        )
    ]
    if facts.get("most_per_person") is not None:
        bounded = later(
            "the amounts of a person that add up to more than {most:,.12g} are scaled down to it in proportion and rounded down to the "
            "grid, so that sums and means are too small where somebody has more"
        )
        told.append(say(bounded, most=facts["most_per_person"]))
    if facts["missing"] is None:
        told.append(say("a record without an amount would have stopped the release"))
    else:
        told.append(say("records without an amount are left out of sums and means"))
    return "; ".join(told)


def _excluded(facts: dict[str, Any]) -> list[str]:
    """What happened to records without a declared value of one attribute."""
    other, missing, total = facts.get("other"), facts.get("missing"), facts.get("total")
    if other is None:
        out = [say(OUTSIDE[facts["outside"]])]
    elif other == DROP:
        out = [say("records with any other value are left out of the answers that use it")]
    else:
        out = [say("records with any other value are counted as “{label}”", label=other)]
    if missing == DROP:
        out.append(say("records without a value are left out of the answers that use it"))
    elif missing is not None:
        out.append(say("records without a value are counted as “{label}”", label=missing))
    elif facts["outside"] in ("clip", "drop"):
        out.append(say("records without a value are left out of all answers"))
    elif other is not None:
        out.append(say("a record without a value would have stopped the release"))
    if total is not None:
        out.append(
            say(
                "persons who have records with any of these values are counted once more as “{label}”, each in the first of their groups "
                "there",
                label=total,
            )
        )
    return out


def _by_levels(facts: dict[str, Any], most: int) -> Iterator[str]:
    """By which levels persons are counted, and in how many of the groups; where that are fewer than in other tables, what is not known."""
    one = later("persons are also counted by “{level}”, each once in the first of their groups there")
    several = later("persons are also counted by “{level}”, each once in each of the first {bound:,} of their groups there")
    for name, bound in facts.get("persons_by", {}).items():
        level = facts.get("level_titles", {}).get(name, name)
        yield say(one, level=level) if bound == 1 else say(several, level=level, bound=bound)
        if bound < most:
            yield say("how many have more groups there is not known")
