"""What chosen bounds leave out, in sentences that stand beside the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.api.pages import INTERVALS_OF_COUNTED, count_clause, say, share_text, translatable, translate_certificate

WIDEST_KNOWN_INTERVAL = 0.5
"""Of an interval of what a chosen bound leaves out of all: of a wider one nothing is said but that it is not known."""
LOSS_OF_CHOICE = {"chosen_bound": "records_left_out", "chosen_groups": "groups_left_out"}


def choice_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """A sentence of each chosen bound; none where ``left_out`` says more of the same bounds."""
    if "left_out" in certificate:
        return []
    kinds = {"chosen_bound": _chosen_bound_sentence, "chosen_groups": _chosen_groups_sentence}
    sentences = [sentence(certificate, certificate[kind]) for kind, sentence in kinds.items() if kind in certificate]
    sentences += [_chosen_range_sentence(certificate, column_facts) for column_facts in certificate.get("chosen_ranges", ())]
    if _is_choice_blind(certificate):
        sentences.append(say("The noise hides how much a larger limit would add, so that this one may be far from the best"))
    return sentences


def _is_choice_blind(certificate: Mapping[str, Any]) -> bool:
    """Whether nobody can tell from its noisy numbers what a chosen bound leaves out."""
    lost = [certificate[name][share] for name, share in LOSS_OF_CHOICE.items() if name in certificate]
    lost += [column_facts["sum_left_out"] for column_facts in certificate.get("chosen_ranges", ())]
    return any(share["high_95"] - share["low_95"] > WIDEST_KNOWN_INTERVAL for share in lost)


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
