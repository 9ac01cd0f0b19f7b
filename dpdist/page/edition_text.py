"""Which earlier releases published the same groups of answers, and how far this edition is from theirs, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.language import say, translatable


def edition_sentences(certificate: Mapping[str, Any]) -> list[str]:
    """A sentence for each group of answers that an earlier release of the same records has published, too."""
    same = translatable("{group}: the same numbers as in the earlier edition {release}")
    other = translatable(
        "{group}: this edition revises {release}; {changed:,} of {answers:,} answers differ, by {largest:,.10g} at most"
    )
    return [
        say(
            same if facts["changed"] == 0 else other,
            group=facts["group"],
            release=facts["release"],
            changed=facts["changed"],
            answers=facts["answers"],
            largest=facts["largest_change"],
        )
        for facts in certificate.get("revises", ())
    ]
