"""What declared bounds leave out, in sentences that stand beside the answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.api.pages import (
    INTERVALS_OF_COUNTED,
    count_clause,
    counts_persons,
    say,
    share_text,
    translatable,
    translate_certificate,
)


def loss_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """A sentence of persons, where they are bounded, and one of each column of amounts."""
    facts, columns = certificate["left_out"], certificate["method"].get("sums", {})
    persons = [] if facts.get("persons") is None else [_person_bound_sentence(certificate, facts)]
    return persons + [
        _amount_range_sentence(name, columns.get(name, {}), column_facts, facts["share"])
        for name, column_facts in facts["amounts"].items()
    ]


def _person_bound_sentence(certificate: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    person_facts, record_noun = facts["persons"], certificate["method"]["counted"]
    record_noun = say("groups of persons") if counts_persons(certificate) else translate_certificate(record_noun)
    # persons are seen, and nothing of what they have beyond: a share of the first rungs alone would mislead
    is_hidden = person_facts["beyond"]["low_95"] > 0 >= person_facts["records"]["low_95"]
    text = say(
        translatable(
            "{counts}; {beyond} of the persons have more, and how many of the {what} are not counted is hidden by the noise ({share:.0%} "
            "of the budget was spent on these estimates). {of_counted}"
        )
        if is_hidden
        else translatable(
            "{counts}; {beyond} of the persons have more, and {records} of the {what} of persons with up to {up_to:,} more are not counted "
            "({share:.0%} of the budget was spent on these estimates). {of_counted}"
        ),
        counts=count_clause(certificate),
        beyond=share_text(person_facts["beyond"]),
        records=share_text(person_facts["records"]),
        what=record_noun,
        up_to=person_facts["up_to"],
        share=facts["share"],
        of_counted=say(INTERVALS_OF_COUNTED),
    )
    if "all_records" not in person_facts:
        return text
    total_sentence = say(
        "In all there are {estimate:,.0f} {what} ({low_95:,.0f} to {high_95:,.0f}; of the file, if nobody has over {most:,} more)",
        what=record_noun,
        most=facts["most"],
        **person_facts["all_records"],
    )
    return f"{text}. {total_sentence}"


def _amount_range_sentence(
    name: str, column: Mapping[str, Any], amount_facts: Mapping[str, Any], budget_share: float
) -> str:
    unit = f" {column['unit']}" if column.get("unit") else ""
    above, below = amount_facts["up_to"]
    return say(
        "{name}: {outside} of the amounts that count lie outside {least:,.12g} to {most:,.12g}{unit} and are added up as the nearer end. "
        "What those of up to {above:,.6g} above and {below:,.6g} below have beyond it changes their sum by {estimate:+,.0f}{unit} "
        "({low_95:+,.0f} to {high_95:+,.0f}; {share:.0%} of the budget was spent on these estimates)",
        name=column.get("title") or name,
        outside=share_text(amount_facts["outside"]),
        least=column["from"],
        most=column["to"],
        unit=unit,
        above=above,
        below=below,
        share=budget_share,
        **amount_facts["excess"],
    )
