"""What the bounds of a release leave out, in sentences that stand beside its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.language import say, translatable, translate_certificate
from dpdist.plugin_registry import installed_plugins, load_object

INTERVALS_OF_COUNTED = translatable("Intervals of answers are of the records that count")
KNOWN_LOSSES = frozenset({"left_out", "chosen_bound", "chosen_groups"})
"""Parts of a certificate that say what bounds on persons leave out, whether or not the plugin is here that puts them in words."""


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
    references = dict.fromkeys(
        reference for plugin in installed_plugins() for part, reference in plugin.bound_losses.items() if part in certificate
    )
    sentences = [sentence for reference in references for sentence in load_object(reference)(certificate)]
    if sentences or KNOWN_LOSSES & certificate.keys() or not bounds_persons(certificate):
        return sentences
    unknown_loss = translatable("{counts}; how many do not is not known. {of_counted}")
    return [say(unknown_loss, counts=count_clause(certificate), of_counted=say(INTERVALS_OF_COUNTED))]


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


def share_text(facts: Mapping[str, float]) -> str:
    """A share with its interval."""
    return say("{share:.1%} ({low_95:.1%} to {high_95:.1%})", **facts)
