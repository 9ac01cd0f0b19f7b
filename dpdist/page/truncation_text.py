"""What the bounds of a release leave out, in sentences that stand beside its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.language import say, translatable, translate_certificate
from dpdist.plugin_registry import installed_plugins, load_object

INTERVALS_OF_COUNTED = translatable("Intervals of answers are of the records that count")
WIDEST_KNOWN_INTERVAL = 0.5
"""Of an interval of what a chosen bound leaves out of all: of a wider one nothing is said but that it is not known."""


LOSS_OF_CHOICE = {"chosen_bound": "records_left_out", "chosen_groups": "groups_left_out"}


def bound_loss_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """What is missing or outside the domain, and what bounds on persons and on amounts leave out, as far as either is known."""
    return [*_completeness_sentences(certificate), *_bound_sentences(certificate)]


def _completeness_sentences(certificate: Mapping[str, Any]) -> list[str]:
    facts = certificate.get("completeness")
    if facts is None:
        return []
    of_persons = translatable(
        "{missing} of the persons have a record with a missing value, and {outside} one that lies outside the declared values and counts "
        "nowhere ({share:.0%} of the budget was spent on these estimates)"
    )
    of_records = translatable(
        "{missing} of all {what} have a missing value, and {outside} lie outside the declared values and count nowhere ({share:.0%} of the "
        "budget was spent on these estimates)"
    )
    shares = {name: share_text(facts[name]) for name in ("missing", "outside")}
    what = translate_certificate(certificate["method"]["counted"])
    return [say(of_persons if facts["of"] == "persons" else of_records, what=what, share=facts["share"], **shares)]


def _bound_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """What bounds leave out; nothing where nothing is bounded."""
    added = [
        load_object(reference)
        for plugin in installed_plugins()
        for part, reference in plugin.bound_losses.items()
        if part in certificate
    ]
    if added:
        return [sentence for sentences in added for sentence in sentences(certificate)]
    kinds = {"chosen_bound": _chosen_bound_sentence, "chosen_groups": _chosen_groups_sentence}
    sentences = [sentence(certificate, certificate[kind]) for kind, sentence in kinds.items() if kind in certificate]
    sentences += [_chosen_range_sentence(certificate, column_facts) for column_facts in certificate.get("chosen_ranges", ())]
    if sentences and _is_choice_blind(certificate):
        sentences.append(say("The noise hides how much a larger limit would add, so that this one may be far from the best"))
    if sentences or not bounds_persons(certificate):
        return sentences
    unknown_loss = translatable("{counts}; how many do not is not known. {of_counted}")
    return [say(unknown_loss, counts=count_clause(certificate), of_counted=say(INTERVALS_OF_COUNTED))]


def _is_choice_blind(certificate: Mapping[str, Any]) -> bool:
    """Whether nobody can tell from its noisy numbers what a chosen bound leaves out."""
    lost = [certificate[name][share] for name, share in LOSS_OF_CHOICE.items() if name in certificate]
    lost += [column_facts["sum_left_out"] for column_facts in certificate.get("chosen_ranges", ())]
    return any(share["high_95"] - share["low_95"] > WIDEST_KNOWN_INTERVAL for share in lost)


def bounds_persons(certificate: Mapping[str, Any]) -> bool:
    """Whether counting leaves records of persons out."""
    privacy = certificate["privacy"]
    return bool(privacy.get("bound_enforced_while_counting")) and "most_records_of_one_person" in privacy


def count_clause(certificate: Mapping[str, Any]) -> str:
    """What counts of each person."""
    privacy, record_noun = certificate["privacy"], certificate["method"]["counted"]
    record_bound, groups = privacy["most_records_of_one_person"], privacy.get("most_groups_of_one_person")
    steps = privacy.get("participations_of_one_person")
    if counts_persons(certificate):
        if groups == 1:
            return say("Counts each person in their first group")
        return say("Counts each person in the first {groups:,} of their groups", groups=groups)
    within_clause = say(" in each of {groups:,} groups", groups=groups) if groups else ""
    within_clause = say(" in each of {steps:,} steps", steps=steps) if steps and not groups else within_clause
    if record_bound > 1:
        return say(
            "Counts the first {most:,} {what} of each person{within}",
            most=record_bound,
            what=translate_certificate(record_noun),
            within=within_clause,
        )
    if record_noun == "records":
        return say("Counts the first record of each person{within}", within=within_clause)
    return say("Counts the first of the {what} of each person{within}", what=record_noun, within=within_clause)


def counts_persons(certificate: Mapping[str, Any]) -> bool:
    """Whether each person counts once in a group, whatever the page calls them."""
    return "persons" in certificate["method"]


def _chosen_range_sentence(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    column = certificate["method"]["sums"][facts["of"]]
    two_sided = translatable(
        "{name} counts from {from:,.10g} to {to:,.10g} {unit} of each record; {share:.0%} of the budget was spent on choosing this "
        "range: {amounts} of "
        "the amounts other than zero lie outside it, and {left} of what all add up to without their signs (from {down_to:,.10g} to "
        "{up_to:,.10g} {unit} of a record) is cut off. {of_counted}, with their amounts cut"
    )
    from_zero = translatable(
        "{name} counts up to {to:,.10g} {unit} of each record; {share:.0%} of the budget was spent on choosing this limit: {amounts} of "
        "the amounts "
        "above zero are larger, and {left} of their sum (up to {up_to:,.10g} {unit} of a record) is cut off. {of_counted}, with their "
        "amounts cut"
    )
    return say(
        two_sided if facts["down_to"] else from_zero,
        name=column.get("title") or facts["of"],
        unit=column.get("unit") or say("units"),
        amounts=share_text(facts["amounts_beyond"]),
        left=_share_text_if_known(facts["sum_left_out"]),
        of_counted=say(INTERVALS_OF_COUNTED),
        **{name: facts[name] for name in ("from", "down_to", "to", "share", "up_to")},
    )


def _chosen_bound_sentence(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    return say(
        "{counts}; {share:.0%} of the budget was spent on choosing this number: {persons} of the persons have more, and {records} of all "
        "{what} (up to "
        "{up_to:,} of a person) are not counted. {of_counted}",
        counts=count_clause(certificate),
        persons=share_text(facts["persons_beyond"]),
        records=_share_text_if_known(facts["records_left_out"]),
        what=translate_certificate(certificate["method"]["counted"]),
        of_counted=say(INTERVALS_OF_COUNTED),
        **{name: facts[name] for name in ("share", "up_to")},
    )


def _chosen_groups_sentence(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    return say(
        "{counts}; {share:.0%} of the budget was spent on choosing this number of groups: {persons} of the persons have records in more, "
        "and {groups} of "
        "the groups of all persons (up to {up_to:,} of a person) are not counted. {of_counted}",
        counts=count_clause(certificate),
        persons=share_text(facts["persons_in_more_groups"]),
        groups=_share_text_if_known(facts["groups_left_out"]),
        of_counted=say(INTERVALS_OF_COUNTED),
        **{name: facts[name] for name in ("share", "up_to")},
    )


def _share_text_if_known(share_facts: Mapping[str, Any]) -> str:
    return (
        share_text(share_facts)
        if share_facts["high_95"] - share_facts["low_95"] <= WIDEST_KNOWN_INTERVAL
        else say("an unknown share")
    )


def share_text(facts: Mapping[str, float]) -> str:
    """A share with its interval."""
    return say("{share:.1%} ({low_95:.1%} to {high_95:.1%})", **facts)
