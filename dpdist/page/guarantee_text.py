"""The guarantee's sentences, from the typed unit of a certificate: a publisher's words stand in their places and decide nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpdist.language import say, translate_certificate
from dpdist.privacy.privacy_unit import Protection
from dpdist.privacy.risk_in_words import guess_sentence, headline_sentence
from dpdist.privacy.unit_kind import UnitKind

_PLACEHOLDER = "\ue000"
"""Stands for the publisher's words until a sentence is translated: a character of no language, which no sentence of dpdist has."""


def guarantee_text(certificate: Mapping[str, Any], name: str) -> str:
    """One sentence of the guarantee in the language that is spoken: its unit, one_change, bound, headline or guess.

    Sentences of earlier versions, which this one would word otherwise, are translated as they are where no publisher's words are in them.
    """
    privacy = certificate["privacy"]
    written = str((privacy["meaning"] if name in ("headline", "guess") else privacy)[name])
    kind = UnitKind.from_certificate(privacy)
    missing_persons = certificate["method"].get("missing_persons")
    if kind is None or "most_records_of_one_person" not in privacy:
        return translate_certificate(written)
    protection = _protection_in_certificate(privacy, missing_persons, name=_PLACEHOLDER)
    if kind is UnitKind.COUNTED and name == "unit":
        return say("what the publisher counted as “{counted}”", counted=privacy["unit"])
    detection_rate = privacy["meaning"]["found_at_most"]
    sentence = {
        "unit": protection.unit,
        "one_change": protection.sentence,
        "bound": protection.bound,
        "headline": headline_sentence(detection_rate, protection),
        "guess": guess_sentence(detection_rate, protection),
    }[name]
    placeholder, words = _PLACEHOLDER, privacy["unit"]
    if kind is UnitKind.PERSONS:
        placeholder, words = repr(_PLACEHOLDER), words.removeprefix("persons by column ")
    if sentence.replace(placeholder, words) != written:
        return translate_certificate(written) if kind is UnitKind.RECORDS else written
    return translate_certificate(sentence).replace(placeholder, words)


def _protection_in_certificate(privacy: Mapping[str, Any], missing_persons: str | None, *, name: str) -> Protection:
    """The protection that ``privacy`` of a certificate describes by its kind of unit and its bounds.

    Args:
        missing_persons: ``method.missing_persons`` of the certificate.
        name: stands for the publisher's word for the unit, or for the column of persons.
    """
    kind = UnitKind.from_certificate(privacy)
    facts = {
        "neighbours": privacy["neighbours"],
        "most_records": privacy["most_records_of_one_person"],
        "person": name if kind is UnitKind.PERSONS else None,
        "missing": "each" if kind is UnitKind.PERSONS and missing_persons == "each" else None,
        "counted": name if kind is UnitKind.COUNTED else None,
        "most_groups": privacy.get("most_groups_of_one_person"),
        "participations": privacy.get("participations_of_one_person"),
        "separation": privacy.get("separation"),
    }
    return Protection.from_facts(facts)
