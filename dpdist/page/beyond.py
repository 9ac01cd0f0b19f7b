"""What the bounds of a release leave out, in sentences that stand beside its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OF_COUNTED = "Intervals of answers are of the records that count"
WIDEST = 0.5
"""Of an interval of a share of all amounts: of a wider one nothing is said but that it is not known."""


def beyond_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """What bounds on persons and on amounts leave out, as far as it is known; nothing where nothing is bounded."""
    chosen, facts = certificate.get("chosen_bound"), certificate.get("left_out")
    if chosen is not None:
        return [_chosen(chosen)]
    if "chosen_range" in certificate:
        return [_chosen_range(certificate, certificate["chosen_range"])]
    if facts is None and not _bounded(certificate):
        return []
    if facts is None:
        return [f"{_counts(certificate)}; how many do not is not known ('left_out' would say). {OF_COUNTED}"]
    persons = [] if facts.get("persons") is None else [_of_persons(certificate, facts)]
    columns = (certificate.get("method") or {}).get("sums", {})
    return persons + [
        _of_amounts(name, columns.get(name, {}), each, facts["share"]) for name, each in facts["amounts"].items()
    ]


def _bounded(certificate: Mapping[str, Any]) -> bool:
    privacy = certificate["privacy"]
    return bool(privacy.get("bound_enforced_while_counting")) and "most_records_of_one_person" in privacy


def _counts(certificate: Mapping[str, Any]) -> str:
    """What counts of each person."""
    privacy, what = certificate["privacy"], _counted(certificate)
    most, groups = privacy["most_records_of_one_person"], privacy.get("most_groups_of_one_person")
    steps = privacy.get("participations_of_one_person")
    first = (
        f"the first {what[:-1] if most == 1 and what.endswith('s') else what}" if most == 1 else f"the first {most:,} {what}"
    )
    within = f" in each of {groups:,} groups" if groups else f" in each of {steps:,} steps" if steps else ""
    if what == "persons":
        return (
            f"Counts each person in the first {groups:,} of their groups"
            if groups != 1
            else "Counts each person in their first group"
        )
    return f"Counts {first} of each person{within}"


def _counted(certificate: Mapping[str, Any]) -> str:
    return str((certificate.get("method") or {}).get("counted") or "records")


def _chosen_range(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    column = (certificate.get("method") or {}).get("sums", {}).get(facts["of"], {})
    name, unit = column.get("title") or facts["of"], column.get("unit") or "units"
    amounts, of_sum = _share(facts["amounts_beyond"]), facts["sum_left_out"]
    known = of_sum["high_95"] - of_sum["low_95"] <= WIDEST
    left = _share(of_sum) if known else "an unknown share"
    return (
        f"{name} counts up to {facts['to']:,.10g} {unit} of each record, an amount that {facts['share']:.0%} of the budget chose: "
        f"{amounts} of the amounts above zero are larger, and {left} of their sum (up to {facts['up_to']:,.10g} {unit} of a record) is "
        f"cut off. {OF_COUNTED}, with their amounts cut"
    )


def _chosen(facts: Mapping[str, Any]) -> str:
    persons, records = (_share(facts[name]) for name in ("persons_beyond", "records_left_out"))
    return (
        f"Counts the first {facts['most_records']:,} records of each person, a number that {facts['share']:.0%} of the budget chose: "
        f"{persons} of the persons have more, and {records} of all records (up to {facts['up_to']:,} of a person) are not counted. "
        f"{OF_COUNTED}"
    )


def _of_persons(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    found, what = facts["persons"], _counted(certificate)
    what = "groups of persons" if what == "persons" else what
    told = (
        f"{_counts(certificate)}; {_share(found['beyond'])} of the persons have more, and {_share(found['records'])} of the {what} of "
        f"whoever has up to {found['up_to']:,} more are not counted ({facts['share']:.0%} of the budget bought these numbers). {OF_COUNTED}"
    )
    if "all_records" not in found:
        return told
    everything = found["all_records"]
    number, low, high = (f"{everything[name]:,.0f}" for name in ("estimate", "low_95", "high_95"))
    return (
        f"{told}. In all there are {number} {what} ({low} to {high}; of the file, if nobody has over {facts['most']:,} more)"
    )


def _of_amounts(name: str, column: Mapping[str, Any], found: Mapping[str, Any], share: float) -> str:
    unit = f" {column['unit']}" if column.get("unit") else ""
    low, high = (f"{column[end]:,.12g}" for end in ("from", "to"))
    moved = found["excess"]
    ends = f"{moved['low_95']:+,.0f} to {moved['high_95']:+,.0f}"
    above, below = (f"{end:,.6g}" for end in found["up_to"])
    return (
        f"{column.get('title') or name}: {_share(found['outside'])} of the amounts that count lie outside {low} to {high}{unit} and are "
        f"added up as the nearer end. What those of up to {above} above and {below} below have beyond it changes their sum by "
        f"{moved['estimate']:+,.0f}{unit} ({ends}; {share:.0%} of the budget bought these numbers)"
    )


def _share(facts: Mapping[str, float]) -> str:
    """A share with its interval."""
    low, high = facts["low_95"], facts["high_95"]
    return f"{facts['share']:.1%} ({low:.1%} to {high:.1%})"
