"""What the bounds of a release leave out, in sentences that stand beside its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.language import later, recalled, say

OF_COUNTED = later("Intervals of answers are of the records that count")
WIDEST = 0.5
"""Of an interval of what a chosen bound leaves out of all: of a wider one nothing is said but that it is not known."""


def beyond_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """What bounds on persons and on amounts leave out, as far as it is known; nothing where nothing is bounded."""
    facts = certificate.get("left_out")
    if facts is not None:
        persons = [] if facts.get("persons") is None else [_of_persons(certificate, facts)]
        columns = certificate["method"].get("sums", {})
        return persons + [
            _of_amounts(name, columns.get(name, {}), each, facts["share"]) for name, each in facts["amounts"].items()
        ]
    kinds = {"chosen_bound": _chosen, "chosen_groups": _chosen_groups}
    chosen = [sentence(certificate, certificate[kind]) for kind, sentence in kinds.items() if kind in certificate]
    chosen += [_chosen_range(certificate, each) for each in certificate.get("chosen_ranges", ())]
    if chosen or not _bounded(certificate):
        return chosen
    told = later("{counts}; how many do not is not known. {of_counted}")
    return [say(told, counts=_counts(certificate), of_counted=say(OF_COUNTED))]


def _bounded(certificate: Mapping[str, Any]) -> bool:
    privacy = certificate["privacy"]
    return bool(privacy.get("bound_enforced_while_counting")) and "most_records_of_one_person" in privacy


def _counts(certificate: Mapping[str, Any]) -> str:
    """What counts of each person."""
    privacy, what = certificate["privacy"], certificate["method"]["counted"]
    most, groups = privacy["most_records_of_one_person"], privacy.get("most_groups_of_one_person")
    steps = privacy.get("participations_of_one_person")
    if _counts_persons(certificate):
        if groups == 1:
            return say("Counts each person in their first group")
        return say("Counts each person in the first {groups:,} of their groups", groups=groups)
    within = say(" in each of {groups:,} groups", groups=groups) if groups else ""
    within = say(" in each of {steps:,} steps", steps=steps) if steps and not groups else within
    if most > 1:
        return say("Counts the first {most:,} {what} of each person{within}", most=most, what=recalled(what), within=within)
    if what == "records":
        return say("Counts the first record of each person{within}", within=within)
    return say("Counts the first of the {what} of each person{within}", what=what, within=within)


def _counts_persons(certificate: Mapping[str, Any]) -> bool:
    """Whether each person counts once in a group, whatever the page calls them."""
    return "persons" in certificate["method"]


def _chosen_range(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    column = certificate["method"]["sums"][facts["of"]]
    told = later(
        "{name} counts from {from:,.10g} to {to:,.10g} {unit} of each record, a range that {share:.0%} of the budget chose: {amounts} of "
        "the amounts other than zero lie outside it, and {left} of what all add up to without their signs (from {down_to:,.10g} to "
        "{up_to:,.10g} {unit} of a record) is cut off. {of_counted}, with their amounts cut"
    )
    from_zero = later(
        "{name} counts up to {to:,.10g} {unit} of each record, an amount that {share:.0%} of the budget chose: {amounts} of the amounts "
        "above zero are larger, and {left} of their sum (up to {up_to:,.10g} {unit} of a record) is cut off. {of_counted}, with their "
        "amounts cut"
    )
    return say(
        told if facts["down_to"] else from_zero,
        name=column.get("title") or facts["of"],
        unit=column.get("unit") or say("units"),
        amounts=_share(facts["amounts_beyond"]),
        left=_known_share(facts["sum_left_out"]),
        of_counted=say(OF_COUNTED),
        **{name: facts[name] for name in ("from", "down_to", "to", "share", "up_to")},
    )


def _chosen(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    return say(
        "{counts}, a number that {share:.0%} of the budget chose: {persons} of the persons have more, and {records} of all {what} (up to "
        "{up_to:,} of a person) are not counted. {of_counted}",
        counts=_counts(certificate),
        persons=_share(facts["persons_beyond"]),
        records=_known_share(facts["records_left_out"]),
        what=recalled(certificate["method"]["counted"]),
        of_counted=say(OF_COUNTED),
        **{name: facts[name] for name in ("share", "up_to")},
    )


def _chosen_groups(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    return say(
        "{counts}, a number of groups that {share:.0%} of the budget chose: {persons} of the persons have records in more, and {groups} of "
        "the groups of all persons (up to {up_to:,} of a person) are not counted. {of_counted}",
        counts=_counts(certificate),
        persons=_share(facts["persons_in_more_groups"]),
        groups=_known_share(facts["groups_left_out"]),
        of_counted=say(OF_COUNTED),
        **{name: facts[name] for name in ("share", "up_to")},
    )


def _of_persons(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    found, what = facts["persons"], certificate["method"]["counted"]
    what = say("groups of persons") if _counts_persons(certificate) else recalled(what)
    # persons are seen, and nothing of what they have beyond: a share of the first rungs alone would mislead
    hidden = found["beyond"]["low_95"] > 0 >= found["records"]["low_95"]
    told = say(
        later(
            "{counts}; {beyond} of the persons have more, and how many of the {what} are not counted is hidden by the noise ({share:.0%} "
            "of the budget bought these numbers). {of_counted}"
        )
        if hidden
        else later(
            "{counts}; {beyond} of the persons have more, and {records} of the {what} of whoever has up to {up_to:,} more are not counted "
            "({share:.0%} of the budget bought these numbers). {of_counted}"
        ),
        counts=_counts(certificate),
        beyond=_share(found["beyond"]),
        records=_share(found["records"]),
        what=what,
        up_to=found["up_to"],
        share=facts["share"],
        of_counted=say(OF_COUNTED),
    )
    if "all_records" not in found:
        return told
    everything = say(
        "In all there are {estimate:,.0f} {what} ({low_95:,.0f} to {high_95:,.0f}; of the file, if nobody has over {most:,} more)",
        what=what,
        most=facts["most"],
        **found["all_records"],
    )
    return f"{told}. {everything}"


def _of_amounts(name: str, column: Mapping[str, Any], found: Mapping[str, Any], share: float) -> str:
    unit = f" {column['unit']}" if column.get("unit") else ""
    above, below = found["up_to"]
    return say(
        "{name}: {outside} of the amounts that count lie outside {least:,.12g} to {most:,.12g}{unit} and are added up as the nearer end. "
        "What those of up to {above:,.6g} above and {below:,.6g} below have beyond it changes their sum by {estimate:+,.0f}{unit} "
        "({low_95:+,.0f} to {high_95:+,.0f}; {share:.0%} of the budget bought these numbers)",
        name=column.get("title") or name,
        outside=_share(found["outside"]),
        least=column["from"],
        most=column["to"],
        unit=unit,
        above=above,
        below=below,
        share=share,
        **found["excess"],
    )


def _known_share(found: Mapping[str, Any]) -> str:
    return _share(found) if found["high_95"] - found["low_95"] <= WIDEST else say("an unknown share")


def _share(facts: Mapping[str, float]) -> str:
    """A share with its interval."""
    return say("{share:.1%} ({low_95:.1%} to {high_95:.1%})", **facts)
